//! When what calls asked for leaves: at once, or with what the program asks for next.
//!
//! A server under load answers one request after the other. Each answer by itself would cost a system
//! call and, dearer, wake the other side's processor; several together cost that once. So while a program
//! finds something to do whenever it looks, its output is *held* for a moment, as a NIC holds back its
//! interrupts. The first answer after a sleep leaves at once, and nothing is held when the program goes to sleep:
//! who has little to do has no more latency.
//!
//! The helper sees to it that nothing is held for longer than [`HOLD`]: a program that computes, or sleeps
//! elsewhere, with something held is found out, and isn't trusted for a while.
use skink_time::Instant;
use std::time::Duration;

/// How long output is held while the program asks for more, and looks at its sockets.
const GATHER: Duration = Duration::from_micros(100);
/// How long it is held at most, if the program doesn't come back.
pub const HOLD: Duration = Duration::from_millis(1);
/// How long nothing is held after a program has let it come to that: at first, for it may have been
/// kept from its processor, and if it goes on like that.
const DISTRUST: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];
/// So many times in a row must a program be in time to be trusted as at first.
const REDEEMED: u32 = 100;
/// Calls whose output is held at most: the other side is to work at the same time.
const CALLS: u32 = 16;
/// Bytes of an answer that is small enough for the next question to come soon.
const SMALL: usize = 4096;
/// Bytes that are held at most: four super-segments, or eleven answers of 22 KB. Each wakes the other side's processor unless that is still
/// at work on those before.
const BYTES: usize = 256 << 10;
/// So many calls in the time of [`HOLD`] that weren't the first after a sleep are worth a look at its end: to hold one saves about
/// as much as a look costs. Thirty processes that answer now and then, each with a helper of its own, had 30,000 looks a second.
const WORTH: u32 = 2;
/// Looks of the helper with less than that to hold, after which it looks less often.
const QUIET_LOOKS: u32 = 20;

/// What is known of the program's habits, and what is held.
pub struct Pace {
    /// The thread that made the last call that had something to send.
    thread: usize,
    /// Its calls since the program slept, or another thread made one.
    calls: u32,
    /// Bytes that these had.
    bytes: usize,
    held: u32,
    held_bytes: usize,
    /// Since when something is held.
    since: Option<Instant>,
    /// The helper looks every [`HOLD`].
    watched: bool,
    /// Calls since the last look that weren't the first after a sleep, and when that look was.
    more: u32,
    looked: Instant,
    /// Looks since there were many.
    quiet: u32,
    trusted_from: Instant,
    distrust: Duration,
    /// Times that what was held left in time, since once it didn't.
    in_time: u32,
}

impl Pace {
    /// Of a program that has done nothing yet.
    pub const fn new() -> Pace {
        Pace {
            thread: 0,
            calls: 0,
            bytes: 0,
            held: 0,
            held_bytes: 0,
            since: None,
            watched: false,
            more: 0,
            looked: Instant::ZERO,
            quiet: QUIET_LOOKS,
            trusted_from: Instant::ZERO,
            distrust: DISTRUST[0],
            in_time: 0,
        }
    }

    /// A call of `thread` wants to send `bytes`: whether that is held. Where threads are told apart, the answers of one
    /// don't wait for those of another.
    pub fn holds(&mut self, now: Instant, bytes: usize, thread: usize) -> bool {
        if core::mem::replace(&mut self.thread, thread) != thread {
            (self.calls, self.bytes) = (0, 0);
        }
        self.calls += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.calls == 1 {
            return false;
        }
        self.more = self.more.saturating_add(1);
        self.held += 1;
        self.held_bytes = self.held_bytes.saturating_add(bytes);
        if !self.watched || now < self.trusted_from {
            return false;
        }
        self.since.get_or_insert(now);
        self.is_holding(now)
    }

    /// Whether something is held that may wait for more.
    pub fn is_holding(&self, now: Instant) -> bool {
        let room = self.held < CALLS && self.held_bytes < BYTES;
        room && self.since.is_some_and(|since| now.since(since) < GATHER)
    }

    /// Whether something is held.
    pub fn has_held(&self) -> bool {
        self.since.is_some()
    }

    /// Everything leaves now.
    pub fn left(&mut self) {
        self.held = 0;
        self.held_bytes = 0;
        if self.since.take().is_some() {
            self.in_time = self.in_time.saturating_add(1);
        }
    }

    /// A thread of the program has nothing to do; answers whether all that it has sent since the last time was one
    /// small answer, or question.
    pub fn sleeps(&mut self) -> bool {
        let (calls, bytes) = (self.calls, self.bytes);
        (self.calls, self.bytes) = (0, 0);
        calls == 1 && bytes <= SMALL
    }

    /// The helper looks: whether what is held must leave.
    pub fn look(&mut self, now: Instant) -> bool {
        let looks = now.since(self.looked).as_micros() / HOLD.as_micros();
        let worth = u128::from(core::mem::take(&mut self.more)) >= looks.max(1) * u128::from(WORTH);
        self.quiet = if worth {
            0
        } else {
            self.quiet.saturating_add(1)
        };
        self.looked = now;
        let overdue = self.since.is_some_and(|since| now.since(since) >= HOLD);
        if overdue {
            self.distrust = match self.in_time {
                REDEEMED.. => DISTRUST[0],
                _ => (self.distrust * 2).min(DISTRUST[1]),
            };
            self.trusted_from = now + self.distrust;
            self.in_time = 0;
            self.since = None;
        }
        self.watched = self.quiet < QUIET_LOOKS || self.has_held();
        overdue
    }

    /// Whether the helper is to look every [`HOLD`].
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// The helper sleeps where it can't look.
    pub fn unwatched(&mut self) {
        self.watched = false;
    }
}

#[cfg(test)]
mod tests;
