//! Whether what a process sends is small, so that a virtual cable had better not segment: large packets are cheap
//! then, and each small one may interrupt the other end's processor. The interface does the one or the other meanwhile
//! ([`Segmentation`](crate::Segmentation), docs/decisions/0020).
use super::period::Period;
use super::votes::Votes;

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
/// Who sends fewer packets than these for so many times that it falls asleep is waited for by one at a time: a packet that
/// interrupts is there sooner. Among many, one that doesn't is as soon, and costs less.
const AT_ONCE: (u64, u64) = (5, 4);
/// But who receives so many times the bytes that it sends, sends acknowledgements, for which nobody waits.
const BULK: u64 = 32;

/// How the last periods were.
pub(super) struct Sizes {
    votes: Votes,
}

impl Sizes {
    /// Of a process that has sent nothing yet.
    pub(super) const fn new() -> Sizes {
        Sizes {
            votes: Votes::new(),
        }
    }

    /// Whether they are small, and nobody waits for just one of them: that one is there sooner if it interrupts.
    pub(super) fn are_small(&self) -> bool {
        self.votes.is()
    }

    /// Takes a period in: answers whether that has changed.
    pub(super) fn take(&mut self, period: &Period) -> bool {
        let traffic = &period.traffic;
        let (packets, bytes) = (traffic.frames_out, traffic.bytes_out);
        let largest = if self.are_small() { LARGE } else { SMALL };
        let many = period.rate(packets) >= FEWEST;
        let (sent, slept) = AT_ONCE;
        let unawaited = packets.saturating_mul(slept) >= period.sleeps.saturating_mul(sent)
            || traffic.bytes_in >= bytes.saturating_mul(BULK);
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
