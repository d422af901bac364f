//! Which frames may overtake others that wait in the same queue of a NIC.
//!
//! A NIC's queue is one for all flows, in the order of arrival. Where peers send without end on some of them, megabytes wait in it,
//! and whoever has little to say would wait behind all of that. So once a batch has been taken from the front and more large frames are
//! left, those behind are looked at, each once: a small one of a flow that has nothing waiting in front of it is taken at once. The
//! frames of a flow keep their order, and the front of the queue goes on in each batch. So `fq_codel` favours flows without a
//! backlog (RFC 8290 section 4.1). What waits at the front, and small frames among themselves, keep the order of arrival.

use skink_wire::{ethernet, protocol};
use std::hash::{DefaultHasher, Hasher};

/// Flows are told apart by that many buckets, twice: two that share one of them hardly ever share the other, too. (A flow that
/// shares both with one that waits has to wait with it, for as long as both last.)
const BUCKETS: usize = 16_384;

/// What is known of the frames behind the front of a queue.
pub(crate) struct Overtaking {
    /// How many behind the front have been looked at.
    looked_at: u32,
    /// By bucket, of the first and of the second kind: how many of those wait.
    waiting: [Box<[u16]>; 2],
}

impl Overtaking {
    pub(crate) fn new() -> Overtaking {
        Overtaking {
            looked_at: 0,
            waiting: [vec![0; BUCKETS].into(), vec![0; BUCKETS].into()],
        }
    }

    /// How many frames behind the front have been looked at.
    pub(crate) fn looked_at(&self) -> u32 {
        self.looked_at
    }

    /// Looks at the next one behind those, of a flow in `bucket`; answers whether it is taken now. `whole` says whether it can be.
    pub(crate) fn look(&mut self, bucket: Bucket, whole: bool) -> bool {
        self.looked_at += 1;
        let [first, second] = self.waiting(bucket);
        let goes = whole && (*first == 0 || *second == 0);
        *first += u16::from(!goes);
        *second += u16::from(!goes);
        goes
    }

    /// The next one behind those was taken by a predecessor.
    pub(crate) fn skip(&mut self) {
        self.looked_at += 1;
    }

    /// The frame at the front leaves the queue, and was looked at. `bucket` is its flow's, unless it had overtaken others.
    pub(crate) fn leaves(&mut self, bucket: Option<Bucket>) {
        self.looked_at = self.looked_at.saturating_sub(1);
        if let Some(bucket) = bucket {
            for waiting in self.waiting(bucket) {
                *waiting = waiting.saturating_sub(1);
            }
        }
        debug_assert!(self.looked_at > 0 || self.waiting.iter().flatten().all(|count| *count == 0));
    }

    /// The front is elsewhere now.
    pub(crate) fn forget(&mut self) {
        if self.looked_at > 0 {
            self.looked_at = 0;
            self.waiting.iter_mut().for_each(|counts| counts.fill(0));
        }
    }

    fn waiting(&mut self, bucket: Bucket) -> [&mut u16; 2] {
        let [first, second] = &mut self.waiting;
        [&mut first[bucket.0[0]], &mut second[bucket.0[1]]]
    }
}

/// The same for all frames of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bucket([usize; 2]);

impl Bucket {
    /// Of a frame, of which the beginning up to the ports is enough.
    pub(crate) fn of(frame: &[u8]) -> Bucket {
        let [addresses, ports] = flow(frame).unwrap_or_default();
        // Its keys are constants: who knows them can make two flows wait for each other, which they would without buckets.
        let mut hash = DefaultHasher::new();
        hash.write(addresses);
        hash.write(ports);
        let hash = hash.finish() as usize;
        Bucket([hash % BUCKETS, hash / BUCKETS % BUCKETS])
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
