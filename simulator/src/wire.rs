//! One direction of a link that misbehaves.

use crate::frame::{self, Frame};
use crate::random::Random;
use skink_messages::RxChecksum;
use skink_time::{Duration, Instant};

/// How a wire treats frames. Chances are in thousandths.
#[derive(Clone, Debug)]
pub struct WirePlan {
    /// Lost.
    pub loss: u32,
    /// Delivered a second time, soon after.
    pub duplicate: u32,
    /// Delivered a second time, up to half a minute later.
    pub ghost: u32,
    /// Delayed so that later frames overtake it.
    pub reorder: u32,
    /// One bit flips, anywhere after the Ethernet header.
    pub corrupt: u32,
    /// Time under way, in microseconds.
    pub delay_us: u64,
    /// At most this much more, in microseconds, without reordering.
    pub jitter_us: u64,
    /// Bits in a second, 0 for no limit.
    pub bits_per_second: u64,
    /// Bytes that wait for a limited wire; more are dropped.
    pub queue_bytes: u64,
    /// Times during which nothing gets through.
    pub outages: Vec<(Instant, Instant)>,
}

/// A wire with its state.
pub struct Wire {
    plan: WirePlan,
    random: Random,
    /// When the last frame will have left.
    busy_until: Instant,
    /// When the last frame in order arrives.
    last_arrival: Instant,
}

impl Wire {
    /// A wire.
    pub fn new(plan: WirePlan, random: Random) -> Wire {
        Wire {
            plan,
            random,
            busy_until: Instant::ZERO,
            last_arrival: Instant::ZERO,
        }
    }

    /// Sends a frame: hands each copy that gets through, with its time of arrival, to `each`.
    pub fn send(&mut self, now: Instant, mut frame: Frame, each: &mut dyn FnMut(Instant, Frame)) {
        let down = |(from, to): &(Instant, Instant)| *from <= now && now < *to;
        let lost = self.random.chance(self.plan.loss);
        if lost || self.plan.outages.iter().any(down) {
            return;
        }
        let Some(left) = self.transmit(now, frame.bytes.len() as u64) else {
            return;
        };
        if self.random.chance(self.plan.corrupt) && !self.corrupt(&mut frame) {
            return;
        }
        let jitter = self.random.range(0, self.plan.jitter_us);
        let mut arrival = left + Duration::from_micros(self.plan.delay_us + jitter);
        if self.random.chance(self.plan.reorder) {
            let longest = 3 * self.plan.delay_us + 2000;
            arrival += Duration::from_micros(self.random.range(1, longest));
        } else {
            arrival = arrival.max(self.last_arrival);
            self.last_arrival = arrival;
        }
        if self.random.chance(self.plan.duplicate) {
            let later = Duration::from_micros(self.random.range(0, 2 * self.plan.delay_us + 100));
            each(arrival + later, frame.clone());
        }
        if self.random.chance(self.plan.ghost) {
            let later = Duration::from_micros(self.random.range(1_000, 30_000_000));
            each(arrival + later, frame.clone());
        }
        each(arrival, frame);
    }

    /// When a frame will have left, or `None` if the queue is full.
    fn transmit(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        if self.plan.bits_per_second == 0 {
            return Some(now);
        }
        let start = self.busy_until.max(now);
        let waiting_ns = start.since(now).as_nanos() as u64;
        let waiting = waiting_ns.saturating_mul(self.plan.bits_per_second / 8) / 1_000_000_000;
        if waiting > 0 && waiting + bytes > self.plan.queue_bytes {
            return None;
        }
        let takes = bytes * 8 * 1_000_000_000 / self.plan.bits_per_second;
        self.busy_until = start + Duration::from_nanos(takes);
        Some(self.busy_until)
    }

    /// Flips one bit, which every Internet checksum notices. What has none (ARP, whose frames only
    /// the link's own check protects, and frames within a machine) is lost instead: `false`. So are
    /// fragments, since two flips in one datagram may cancel each other.
    fn corrupt(&mut self, frame: &mut Frame) -> bool {
        let arp = frame.bytes.get(12..14) == Some(&[0x08, 0x06]);
        if arp
            || frame::is_fragment(&frame.bytes)
            || frame.checksum == RxChecksum::Verified
            || frame.bytes.len() <= 14
        {
            return false;
        }
        let bits = (frame.bytes.len() as u64 - 14) * 8;
        let bit = self.random.range(0, bits - 1);
        frame.bytes[14 + (bit / 8) as usize] ^= 1 << (bit % 8);
        true
    }
}
