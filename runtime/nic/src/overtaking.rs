//! Which frames may overtake others that wait in the same queue of a NIC.
//!
//! A NIC's queue is one for all flows, in the order of arrival. Where peers send without end on some of them, megabytes wait in it,
//! and whoever has little to say would wait behind all of that. So once a batch has been taken from the front and much is left, the
//! frames behind are looked at, each once: one of a flow that has nothing waiting in front of it is taken at once. The frames of a
//! flow keep their order, and the front of the queue goes on in each batch. Among flows that have much waiting the order stays as it
//! is; so it is the first step of stochastic fairness queueing (McKenney 1990), by which Linux's `fq_codel` too favours new flows.

use skink_wire::{ethernet, protocol};
use std::hash::{DefaultHasher, Hasher};

/// Flows are told apart by that many buckets.
const BUCKETS: usize = 4096;
/// So many frames of a flow may have overtaken others that still wait: whose are more isn't one that says little.
const MOST: u16 = 8;

/// What of a flow's frames was looked at and is still in the queue.
#[derive(Clone, Copy, Default)]
struct Flow {
    /// Not taken yet.
    waiting: u16,
    /// Taken, before its turn.
    overtook: u16,
}

/// What is known of the frames behind the front of a queue.
pub(crate) struct Overtaking {
    /// How many behind the front have been looked at.
    looked_at: u32,
    /// By bucket.
    flows: Box<[Flow]>,
}

impl Overtaking {
    pub(crate) fn new() -> Overtaking {
        Overtaking {
            looked_at: 0,
            flows: vec![Flow::default(); BUCKETS].into(),
        }
    }

    /// How many frames behind the front have been looked at.
    pub(crate) fn looked_at(&self) -> u32 {
        self.looked_at
    }

    /// Looks at the next one behind those, of a flow in `bucket`; answers whether it is taken now. `whole` says whether it can be.
    pub(crate) fn look(&mut self, bucket: Bucket, whole: bool) -> bool {
        let flow = self.flows[bucket.0];
        let goes = whole && flow.waiting == 0 && flow.overtook < MOST;
        self.note(bucket, goes);
        goes
    }

    /// Notes the next one behind those, which was taken if it `overtook` others.
    pub(crate) fn note(&mut self, bucket: Bucket, overtook: bool) {
        self.looked_at += 1;
        let flow = &mut self.flows[bucket.0];
        flow.waiting += u16::from(!overtook);
        flow.overtook += u16::from(overtook);
    }

    /// The frame at the front leaves the queue, which was looked at.
    pub(crate) fn leaves(&mut self, bucket: Bucket, overtook: bool) {
        self.looked_at = self.looked_at.saturating_sub(1);
        let flow = &mut self.flows[bucket.0];
        flow.waiting = flow.waiting.saturating_sub(u16::from(!overtook));
        flow.overtook = flow.overtook.saturating_sub(u16::from(overtook));
    }

    /// The front is elsewhere now.
    pub(crate) fn forget(&mut self) {
        if self.looked_at > 0 {
            self.looked_at = 0;
            self.flows.fill(Flow::default());
        }
    }
}

/// The same for all frames of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bucket(usize);

impl Bucket {
    /// Of a frame, of which the beginning up to the ports is enough.
    pub(crate) fn of(frame: &[u8]) -> Bucket {
        let [addresses, ports] = flow(frame).unwrap_or_default();
        // Its keys are constants: who knows them can make two flows wait for each other, which they would without buckets.
        let mut hash = DefaultHasher::new();
        hash.write(addresses);
        hash.write(ports);
        Bucket(hash.finish() as usize % BUCKETS)
    }
}

/// A frame's addresses, and its ports if that is where they always are. All that isn't IP is one flow.
fn flow(frame: &[u8]) -> Option<[&[u8]; 2]> {
    let (header, packet) = ethernet::Header::parse(frame).ok()?;
    let (addresses, next, ports) = match header.ethertype {
        ethernet::IPV4 => {
            let is_whole = packet.get(6..8)? == [0, 0] || packet.get(6..8)? == [0x40, 0];
            let has_ports = is_whole && packet.first()? & 0x0f == 5;
            (12..20, has_ports.then_some(*packet.get(9)?), 20..24)
        }
        ethernet::IPV6 => (8..40, Some(*packet.get(6)?), 40..44),
        _ => return None,
    };
    let ports = match next {
        Some(protocol::TCP | protocol::UDP) => packet.get(ports),
        _ => None,
    };
    Some([packet.get(addresses)?, ports.unwrap_or_default()])
}

#[cfg(test)]
mod tests;
