//! The two ways of an owner's frames: its queues, and the packet socket beside them.

use super::queues::{Coming, Queues};
use super::sender::XdpSender;
use crate::{Budget, Doorbell, FlowRings, Receiver, Room, Sender};
use skink_messages::{Full, NicOutput, RxFrame, TxPacket};
use skink_time::Instant;
use std::os::fd::BorrowedFd;
use std::sync::PoisonError;

/// The queues' frames, and those that came another way.
pub(super) struct Receiving {
    queues: Queues,
    packet: Box<dyn Receiver>,
    /// They take turns at the budget, so that neither can starve the other.
    packet_first: bool,
    /// Frames that came another way, since the last report.
    beside: u64,
}

impl Receiving {
    pub(super) fn new(queues: Queues, packet: Box<dyn Receiver>) -> Receiving {
        Receiving {
            queues,
            packet,
            packet_first: true,
            beside: 0,
        }
    }
}

impl Receiver for Receiving {
    fn receive(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        self.packet_first = !self.packet_first;
        let mut frames = 0;
        for from_packet in [self.packet_first, !self.packet_first] {
            if from_packet {
                let beside = self.packet.receive(now, budget, each);
                self.beside += beside as u64;
                frames += beside;
            } else {
                frames += self.queues.receive(now, budget, each);
            }
        }
        frames
    }

    fn descriptors(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.queues.descriptors(each);
        self.packet.descriptors(each);
    }

    fn take_dropped(&mut self) -> u64 {
        self.queues.take_dropped() + self.packet.take_dropped()
    }

    fn take_beside(&mut self) -> u64 {
        std::mem::take(&mut self.beside)
    }

    fn take_overtaken(&mut self) -> u64 {
        self.packet.take_overtaken()
    }

    fn flow_rings(&mut self) -> Option<&mut dyn FlowRings> {
        Some(&mut self.queues)
    }
}

/// Frames leave by the owner's first queue; what is still to be cut, by the packet socket. While the owner has no
/// queue, everything does.
pub(super) struct Sending {
    queue: Option<XdpSender>,
    /// Of a queue that is still to come too.
    deferring: bool,
    coming: Coming,
    packet: Box<dyn Sender>,
}

impl Sending {
    pub(super) fn new(coming: Coming, packet: Box<dyn Sender>) -> Sending {
        Sending {
            queue: None,
            deferring: false,
            coming,
            packet,
        }
    }

    fn queue(&mut self) -> Option<&mut XdpSender> {
        if self.queue.is_none() {
            let coming = self.coming.lock();
            self.queue = coming.unwrap_or_else(PoisonError::into_inner).take();
            if let Some(queue) = &mut self.queue {
                queue.set_deferring(self.deferring);
                // A flow's packets keep their order.
                self.packet.flush();
            }
        }
        self.queue.as_mut()
    }
}

impl NicOutput for Sending {
    /// The queue's: it is for frames that `link` asks, the packet socket refuses by itself.
    fn room(&mut self) -> usize {
        match self.queue() {
            Some(queue) => queue.room(),
            None => self.packet.room(),
        }
    }

    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        let Some(queue) = self.queue() else {
            return self.packet.send(packet);
        };
        if packet.segment_bytes == 0 {
            return queue.send(packet);
        }
        // A flow's packets keep their order: each way hands them to the card in the call that flushes it.
        queue.flush_now();
        self.packet.send(packet)?;
        self.packet.flush();
        Ok(())
    }
}

impl Sender for Sending {
    fn flush(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.flush();
        }
        self.packet.flush();
    }

    fn blocked_on(&self) -> Option<Room<'_>> {
        let queue = self.queue.as_ref();
        let queue = queue.and_then(|queue| queue.blocked_on());
        self.packet.blocked_on().or(queue)
    }

    fn set_deferring(&mut self, deferring: bool) {
        self.deferring = deferring;
        if let Some(queue) = &mut self.queue {
            queue.set_deferring(deferring);
        }
    }

    fn name_no_address(&mut self) {
        self.packet.name_no_address();
    }

    fn take_doorbell(&mut self) -> Option<Doorbell> {
        self.queue.as_mut()?.take_doorbell()
    }

    fn take_dropped(&mut self) -> u64 {
        let queue = self.queue.as_mut().map_or(0, Sender::take_dropped);
        queue + self.packet.take_dropped()
    }
}

#[cfg(test)]
mod tests;
