//! Whether what the program sends is small, so that a virtual cable had better not segment: large packets are cheap
//! then, and each small one may interrupt the other end's processor. The broker is told, and has the interface do the
//! one or the other (`skink_nic::Segmentation`, docs/decisions/0020).
//!
//! The helper finds it out.
use crate::votes::{PERIOD, Votes};
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

/// What has passed the NIC so far.
#[derive(Clone, Copy)]
pub struct Traffic {
    pub bytes_in: u64,
    /// Before they are cut.
    pub packets_out: u64,
    pub bytes_out: u64,
    /// How often the program fell asleep.
    pub sleeps: u64,
}

/// How the last periods were.
pub struct Sizes {
    begun: Instant,
    /// What had passed when the period began.
    before: Traffic,
    votes: Votes,
}

impl Sizes {
    /// Of a program that has sent nothing yet.
    pub const fn new() -> Sizes {
        Sizes {
            begun: Instant::ZERO,
            before: Traffic {
                bytes_in: 0,
                packets_out: 0,
                bytes_out: 0,
                sleeps: 0,
            },
            votes: Votes::new(),
        }
    }

    /// Whether they are small, and nobody waits for just one of them: that one is there sooner if it interrupts.
    pub fn are_small(&self) -> bool {
        self.votes.is()
    }

    /// The helper looks: answers whether that has changed.
    pub fn look(&mut self, now: Instant, traffic: Traffic) -> bool {
        let period = now.since(self.begun);
        if period < PERIOD {
            return false;
        }
        let since = |now: u64, before: u64| now.wrapping_sub(before);
        let packets = since(traffic.packets_out, self.before.packets_out);
        let bytes = since(traffic.bytes_out, self.before.bytes_out);
        let received = since(traffic.bytes_in, self.before.bytes_in);
        let sleeps = since(traffic.sleeps, self.before.sleeps);
        (self.begun, self.before) = (now, traffic);
        let largest = if self.are_small() { LARGE } else { SMALL };
        let many = packets.saturating_mul(1_000_000) >= FEWEST * period.as_micros() as u64;
        let unawaited =
            packets >= sleeps.saturating_mul(AT_ONCE) || received >= bytes.saturating_mul(BULK);
        let small = many && unawaited && bytes <= packets.saturating_mul(largest);
        self.votes.cast(small != self.are_small(), ENOUGH)
    }

    /// The helper won't look for a while: answers whether that has changed.
    pub fn rest(&mut self) -> bool {
        self.votes.end()
    }
}

#[cfg(test)]
mod tests;
