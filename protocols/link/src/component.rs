use crate::Link;
use skink_messages::{Component, Full, NicOutput, Progress, RxFrame, TxPacket};
use skink_time::Instant;

/// What `link` can be told.
pub enum LinkInput<'a> {
    /// The NIC received a frame.
    Frame(RxFrame<'a>),
    /// A frame is to leave. If it is refused, its sender keeps what it stood for.
    Packet(TxPacket<'a>),
}

/// What is above `link`, where it is called as a [`Component`].
pub trait Above {
    /// Takes a frame for our station or a group.
    fn frame(&mut self, now: Instant, frame: RxFrame<'_>);
}

impl<Out: NicOutput + Above + ?Sized> Component<Out> for Link {
    type Input<'a> = LinkInput<'a>;

    fn handle(&mut self, now: Instant, input: LinkInput<'_>, out: &mut Out) -> Result<(), Full> {
        match input {
            LinkInput::Frame(frame) => {
                if self.receive(&frame) {
                    out.frame(now, frame);
                }
                Ok(())
            }
            LinkInput::Packet(mut packet) => self.send(now, &mut packet, out),
        }
    }

    /// Nothing is ever due: what finds no room is refused, and comes again.
    fn poll(&mut self, _now: Instant, _out: &mut Out) -> Progress {
        Progress::Idle
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}

#[cfg(test)]
mod tests;
