//! Whether what a process sends is small, so that a virtual cable had better not segment: large packets are cheap
//! then, and each small one may interrupt the other end's processor. The interface does the one or the other meanwhile
//! ([`Segmentation`](crate::Segmentation), docs/decisions/0020).
use super::Traffic;
use super::votes::{PERIOD, Votes};
use skink_time::Instant;

/// So many periods more for a change than against it make one: to change it means a system call that takes the kernel's
/// lock of all interfaces.
const ENOUGH: u32 = 10;
/// Bytes of the mean packet, up to which it pays: cut by the kernel, a packet of 7 KB costs about what not interrupting the
/// other processor saves.
const SMALL: u64 = 4_096;
/// From here on it doesn't any more.
const LARGE: u64 = 8_192;
/// Packets in a second below which there is nothing to gain.
const FEWEST: u64 = 5_000;
/// Who sends fewer packets than these for each time that it falls asleep is waited for: one that interrupts is there
/// sooner.
const AT_ONCE: u64 = 2;
/// But who receives so many times the bytes that it sends, sends acknowledgements, for which nobody waits.
const BULK: u64 = 32;

/// How the last periods were.
pub(super) struct Sizes {
    begun: Instant,
    /// What had passed when the period began.
    before: Traffic,
    /// How often the process had fallen asleep by then.
    sleeps: u64,
    votes: Votes,
}

impl Sizes {
    /// Of a process that has sent nothing yet.
    pub(super) const fn new() -> Sizes {
        Sizes {
            begun: Instant::ZERO,
            before: Traffic::NONE,
            sleeps: 0,
            votes: Votes::new(),
        }
    }

    /// Whether they are small, and nobody waits for just one of them: that one is there sooner if it interrupts.
    pub(super) fn are_small(&self) -> bool {
        self.votes.is()
    }

    /// Looks, when the process has fallen asleep `sleeps` times in all: answers whether that has changed.
    pub(super) fn look(&mut self, now: Instant, traffic: Traffic, sleeps: u64) -> bool {
        let period = now.since(self.begun);
        if period < PERIOD {
            return false;
        }
        let since = |now: u64, before: u64| now.wrapping_sub(before);
        let packets = since(traffic.frames_out, self.before.frames_out);
        let bytes = since(traffic.bytes_out, self.before.bytes_out);
        let received = since(traffic.bytes_in, self.before.bytes_in);
        let slept = since(sleeps, self.sleeps);
        (self.begun, self.before, self.sleeps) = (now, traffic, sleeps);
        let largest = if self.are_small() { LARGE } else { SMALL };
        let many = packets.saturating_mul(1_000_000) >= FEWEST * period.as_micros() as u64;
        let unawaited =
            packets >= slept.saturating_mul(AT_ONCE) || received >= bytes.saturating_mul(BULK);
        let small = many && unawaited && bytes <= packets.saturating_mul(largest);
        self.votes.cast(small != self.are_small(), ENOUGH)
    }

    /// Nobody will look for a while: answers whether that has changed.
    pub(super) fn rest(&mut self) -> bool {
        self.votes.end()
    }
}

#[cfg(test)]
mod tests;
