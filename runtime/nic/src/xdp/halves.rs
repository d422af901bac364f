//! The two ways of an owner's frames: its queue, and the packet socket beside it.

use super::receiver::XdpReceiver;
use super::sender::XdpSender;
use crate::{Receiver, Sender};
use skink_messages::{Full, NicOutput, RxFrame, TxPacket};
use skink_time::Instant;
use std::os::fd::BorrowedFd;

/// The queue's frames, and those that came another way.
pub(super) struct Receiving {
    queue: XdpReceiver,
    packet: Box<dyn Receiver>,
    /// They take turns at the budget, so that neither can starve the other.
    packet_first: bool,
}

impl Receiving {
    pub(super) fn new(queue: XdpReceiver, packet: Box<dyn Receiver>) -> Receiving {
        Receiving {
            queue,
            packet,
            packet_first: false,
        }
    }
}

impl Receiver for Receiving {
    fn receive(&mut self, now: Instant, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let Receiving {
            queue,
            packet,
            packet_first,
        } = self;
        let turn: [&mut dyn Receiver; 2] = if *packet_first {
            [packet.as_mut(), queue]
        } else {
            [queue, packet.as_mut()]
        };
        *packet_first = !*packet_first;
        let mut frames = 0;
        for receiver in turn {
            frames += receiver.receive(now, budget.saturating_sub(frames), each);
        }
        frames
    }

    fn descriptors(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.queue.descriptors(each);
        self.packet.descriptors(each);
    }

    fn take_dropped(&mut self) -> u64 {
        self.queue.take_dropped() + self.packet.take_dropped()
    }
}

/// Frames leave by the queue; what is still to be cut, by the packet socket.
pub(super) struct Sending {
    queue: XdpSender,
    packet: Box<dyn Sender>,
}

impl Sending {
    pub(super) fn new(queue: XdpSender, packet: Box<dyn Sender>) -> Sending {
        Sending { queue, packet }
    }
}

impl NicOutput for Sending {
    /// The queue's: it is for frames that `link` asks, the packet socket refuses by itself.
    fn room(&mut self) -> usize {
        self.queue.room()
    }

    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        if packet.segment_bytes == 0 {
            return self.queue.send(packet);
        }
        // A flow's packets keep their order: each way hands them to the card in the call that flushes it.
        self.queue.flush();
        self.packet.send(packet)?;
        self.packet.flush();
        Ok(())
    }
}

impl Sender for Sending {
    fn flush(&mut self) {
        self.queue.flush();
        self.packet.flush();
    }

    fn blocked_on(&self) -> Option<BorrowedFd<'_>> {
        self.packet.blocked_on().or_else(|| self.queue.blocked_on())
    }

    fn take_dropped(&mut self) -> u64 {
        self.queue.take_dropped() + self.packet.take_dropped()
    }
}

#[cfg(test)]
mod tests;
