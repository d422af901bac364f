use super::*;
use std::time::Duration;

/// A program that is looked at each millisecond.
struct Watched {
    sizes: Sizes,
    micros: u64,
    traffic: Traffic,
    sleeps: u64,
}

/// What passes the NIC in a millisecond: received bytes, packets sent, and their bytes; and how often the program sleeps.
type Millisecond = (u64, u64, u64, u64);

const ANSWERS: Millisecond = (6_000, 60, 60 * 300, 20);
const DOWNLOADS: Millisecond = (6_000, 40, 40 * 22_000, 20);
const UPLOAD: Millisecond = (1_000_000, 16, 16 * 66, 16);
const ROUND_TRIPS: Millisecond = (1_000, 15, 15 * 67, 15);
const NOTHING: Millisecond = (0, 0, 0, 1);

impl Watched {
    fn new() -> Watched {
        let mut watched = Watched {
            sizes: Sizes::new(),
            micros: 1_000_000,
            traffic: Traffic::NONE,
            sleeps: 0,
        };
        watched.goes_on(1, NOTHING);
        watched
    }

    /// Answers whether they are small after `count` milliseconds, and whether that has changed.
    fn goes_on(&mut self, count: u32, each: Millisecond) -> (bool, bool) {
        let mut changed = false;
        for _ in 0..count {
            self.micros += 1_000;
            self.traffic.bytes_in += each.0;
            self.traffic.frames_out += each.1;
            self.traffic.bytes_out += each.2;
            self.sleeps += each.3;
            let now = Instant::ZERO + Duration::from_micros(self.micros);
            changed |= self.sizes.look(now, self.traffic, self.sleeps);
        }
        (self.sizes.are_small(), changed)
    }
}

#[test]
fn small_packets_are_noticed_and_large_ones_too() {
    let mut watched = Watched::new();
    assert_eq!(watched.goes_on(ENOUGH - 1, ANSWERS), (false, false));
    assert_eq!(watched.goes_on(1, DOWNLOADS), (false, false));
    assert_eq!(watched.goes_on(2, ANSWERS), (true, true));
    assert_eq!(watched.goes_on(100, ANSWERS), (true, false));
    assert_eq!(watched.goes_on(ENOUGH, DOWNLOADS), (false, true));
}

#[test]
fn acknowledgements_of_large_packets_are_small() {
    assert_eq!(Watched::new().goes_on(ENOUGH, UPLOAD), (true, true));
}

#[test]
fn who_waits_for_each_answer_is_left_alone() {
    assert_eq!(Watched::new().goes_on(100, ROUND_TRIPS), (false, false));
    let mut watched = Watched::new();
    watched.goes_on(ENOUGH, ANSWERS);
    assert_eq!(watched.goes_on(ENOUGH, ROUND_TRIPS), (false, true));
    watched.goes_on(ENOUGH, ANSWERS);
    assert_eq!(watched.goes_on(ENOUGH, NOTHING), (false, true));
}

#[test]
fn a_load_near_the_limits_doesnt_change_it_to_and_fro() {
    let mut watched = Watched::new();
    let between = (6_000, 20, 20 * (SMALL + LARGE) / 2, 5);
    assert_eq!(watched.goes_on(100, between), (false, false));
    watched.goes_on(ENOUGH, ANSWERS);
    assert_eq!(watched.goes_on(100, between), (true, false));
}

#[test]
fn nothing_is_known_of_who_isnt_looked_at() {
    let mut watched = Watched::new();
    assert!(!watched.sizes.rest());
    watched.goes_on(ENOUGH, ANSWERS);
    assert!(watched.sizes.rest() && !watched.sizes.are_small());
}
