//! How far ahead of us a peer may be whose data waits in front of the stack.
//!
//! What peers send faster than it is taken in waits in the NIC's queue, which all programs share, up to all windows together.
//! No window does anything for the throughput that is larger than what arrives in the time that a byte is under way and waits.
//! So each time that data has waited for too long, and that is a good part of the round trip, its connection's window is halved,
//! and it grows again while data doesn't wait: by the receiver's own measure what DCTCP does by marks of a switch (Alizadeh and
//! others 2010). Who fills the queue is slowed down; of who is far away little is in there.

use skink_time::Duration;
use skink_wire::SeqNum;

/// Data that has waited for longer is too late.
const LONG: Duration = Duration::from_millis(2);
/// As long as it isn't more than this part of the round trip, one in so many,
const PART: u32 = 4;
/// or this: the round trip may have been measured once, and be what a peer wants it to be.
const LONGEST: Duration = Duration::from_millis(15);
/// The least window in bytes: one large frame, since each costs a visit, and what is being sent meanwhile.
const LEAST: u32 = 128 * 1024;

/// The window's bound for that.
#[derive(Clone, Copy, Debug)]
pub struct Crowding {
    most: u32,
    /// What arrives up to here was sent before the bound was changed.
    until: SeqNum,
}

impl Crowding {
    /// No bound.
    pub fn new() -> Crowding {
        Crowding {
            most: u32::MAX,
            until: SeqNum(0),
        }
    }

    /// The largest window in bytes.
    pub fn most(self) -> usize {
        self.most as usize
    }

    /// Whether data that had `waited`, and begins at `next`, changes the bound.
    #[inline]
    pub fn is_changed_by(self, waited: Duration, next: SeqNum) -> bool {
        match self.most {
            u32::MAX => waited > LONG,
            _ => !next.lt(self.until),
        }
    }

    /// It does, while a round trip takes `rtt`, and `limit` bytes are offered at most and have been up to `edge`. Answers
    /// whether there is less now.
    pub fn change(&mut self, waited: Duration, rtt: Duration, limit: usize, edge: SeqNum) -> bool {
        let mut is_less = false;
        if waited > (rtt / PART).clamp(LONG, LONGEST) {
            let half = u32::try_from(limit / 2).unwrap_or(u32::MAX);
            self.most = half.max(LEAST);
            is_less = self.most() < limit;
        } else if waited <= LONG / 2 {
            self.most = self.most.saturating_add(self.most / 8);
        }
        self.until = edge;
        is_less
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u32 = 1 << 20;

    const NEAR: Duration = Duration::from_micros(100);

    /// Data arrives from a peer `rtt` away, each `bytes` later than the one before, having waited for so many microseconds.
    fn receive_from(
        rtt: Duration,
        crowding: &mut Crowding,
        next: &mut u32,
        bytes: u32,
        waits: &[u64],
    ) -> Vec<u32> {
        let mut bounds = Vec::new();
        for waited in waits {
            let window = crowding.most.min(MEBIBYTE);
            let waited = Duration::from_micros(*waited);
            if crowding.is_changed_by(waited, SeqNum(*next)) {
                crowding.change(waited, rtt, window as usize, SeqNum(*next) + window);
            }
            *next = next.wrapping_add(bytes);
            bounds.push(crowding.most);
        }
        bounds
    }

    fn receive(crowding: &mut Crowding, next: &mut u32, bytes: u32, waits: &[u64]) -> Vec<u32> {
        receive_from(NEAR, crowding, next, bytes, waits)
    }

    #[test]
    fn who_is_far_away_is_not_slowed_down_by_what_others_have_in_the_queue() {
        let far = Duration::from_millis(50);
        let mut crowding = Crowding::new();
        let bounds = receive_from(far, &mut crowding, &mut 0, MEBIBYTE, &[12_000; 9]);
        assert_eq!(bounds, [u32::MAX; 9]);
        let bounds = receive_from(far, &mut crowding, &mut 0, MEBIBYTE, &[13_000]);
        assert_eq!(bounds, [MEBIBYTE / 2]);
        // However far he claims to be.
        let mut crowding = Crowding::new();
        let bounds = receive_from(far * 20, &mut crowding, &mut 0, MEBIBYTE, &[16_000]);
        assert_eq!(bounds, [MEBIBYTE / 2]);
    }

    #[test]
    fn no_less_is_offered_to_who_has_the_least_already() {
        let mut crowding = Crowding::new();
        let late = Duration::from_millis(3);
        let mut change = |limit| crowding.change(late, NEAR, limit, SeqNum(0));
        assert!(change(2 * LEAST as usize));
        assert!(!change(LEAST as usize));
    }

    #[test]
    fn data_that_does_not_wait_is_not_bounded() {
        let mut crowding = Crowding::new();
        let bounds = receive(&mut crowding, &mut 0, MEBIBYTE, &[0, 1, 1999, 2000]);
        assert_eq!(bounds, [u32::MAX; 4]);
    }

    #[test]
    fn the_window_is_halved_once_for_each_window_that_came_late() {
        let mut crowding = Crowding::new();
        let mut next = u32::MAX - MEBIBYTE / 2;
        // Four of these are one window, all sent before the peer learns of the bound.
        let bounds = receive(&mut crowding, &mut next, MEBIBYTE / 4, &[3000; 4]);
        assert_eq!(bounds, [MEBIBYTE / 2; 4]);
        let bounds = receive(&mut crowding, &mut next, MEBIBYTE / 4, &[3000; 2]);
        assert_eq!(bounds, [MEBIBYTE / 4; 2]);
        let bounds = receive(&mut crowding, &mut next, MEBIBYTE, &[1_000_000; 9]);
        assert_eq!(bounds.last(), Some(&LEAST));
    }

    #[test]
    fn it_grows_again_and_stays_where_it_is_in_between() {
        let mut crowding = Crowding::new();
        let mut next = 0;
        receive(&mut crowding, &mut next, MEBIBYTE, &[3000; 9]);
        let between = receive(&mut crowding, &mut next, MEBIBYTE, &[1500; 3]);
        assert_eq!(between, [LEAST; 3]);
        let grown = receive(&mut crowding, &mut next, MEBIBYTE, &[100; 20]);
        assert!(
            grown.is_sorted() && grown.last() > Some(&MEBIBYTE),
            "{grown:?}"
        );
    }
}
