use super::*;

/// A process that is looked at each millisecond.
struct Watched {
    inflow: Inflow,
    micros: u64,
    traffic: Traffic,
}

/// What passes the NIC in a millisecond: received frames, their bytes, and bytes sent.
type Millisecond = (u64, u64, u64);

const FRAMES: Millisecond = (200, 200 * 1_514, 50 * 66);
const LARGE_ONES: Millisecond = (20, 20 * 60_000, 20 * 66);
const REQUESTS: Millisecond = (60, 60 * 100, 60 * 300);
const PROXY: Millisecond = (200, 200 * 1_514, 200 * 1_514);
const TRICKLE: Millisecond = (10, 10 * 1_514, 66);
const NOTHING: Millisecond = (0, 0, 0);

const BEGINS: u64 = BECOMES.as_millis() as u64;
const ENDS: u64 = CEASES.as_millis() as u64;

impl Watched {
    fn new() -> Watched {
        let mut watched = Watched {
            inflow: Inflow::new(),
            micros: 1_000_000,
            traffic: Traffic::NONE,
        };
        watched.goes_on(1, NOTHING);
        watched
    }

    /// Answers whether it is bulk after `count` milliseconds, and whether that has changed.
    fn goes_on(&mut self, count: u64, each: Millisecond) -> (bool, bool) {
        let mut changed = false;
        for _ in 0..count {
            self.micros += 1_000;
            self.traffic.frames_in += each.0;
            self.traffic.bytes_in += each.1;
            self.traffic.bytes_out += each.2;
            let now = Instant::ZERO + Duration::from_micros(self.micros);
            changed |= self.inflow.look(now, self.traffic);
        }
        (self.inflow.is_bulk(), changed)
    }
}

#[test]
fn who_receives_much_receives_in_bulk_whatever_the_frames_size() {
    for bulk in [FRAMES, LARGE_ONES] {
        let mut watched = Watched::new();
        assert_eq!(watched.goes_on(BEGINS - 1, bulk), (false, false));
        assert_eq!(watched.goes_on(1, bulk), (true, true));
        assert_eq!(watched.goes_on(1_000, bulk), (true, false));
    }
}

#[test]
fn who_answers_or_passes_on_or_has_time_doesnt() {
    for other in [REQUESTS, PROXY, TRICKLE, NOTHING] {
        assert_eq!(Watched::new().goes_on(10_000, other), (false, false));
    }
}

#[test]
fn pauses_dont_end_it_but_its_end_does() {
    let mut watched = Watched::new();
    watched.goes_on(BEGINS, LARGE_ONES);
    for _ in 0..10 {
        assert_eq!(watched.goes_on(ENDS - 1, NOTHING), (true, false));
        assert_eq!(watched.goes_on(ENDS, LARGE_ONES), (true, false));
    }
    assert_eq!(watched.goes_on(ENDS, REQUESTS), (false, true));
}

#[test]
fn the_first_look_after_a_pause_ends_it() {
    let mut watched = Watched::new();
    watched.goes_on(BEGINS, FRAMES);
    watched.micros += ENDS * 1_000;
    assert_eq!(watched.goes_on(1, REQUESTS), (false, true));
}

#[test]
fn one_look_in_a_while_is_enough() {
    let mut watched = Watched::new();
    watched.micros += BEGINS * 1_000;
    watched.traffic.bytes_in += 32 * BEGINS * 1_000;
    watched.traffic.frames_in += 1_000;
    assert_eq!(watched.goes_on(1, NOTHING), (false, false));
    watched.micros += BEGINS * 2_000;
    watched.traffic.bytes_in += 64 * BEGINS * 1_000;
    watched.traffic.frames_in += 1_000;
    assert_eq!(watched.goes_on(1, FRAMES), (true, true));
}
