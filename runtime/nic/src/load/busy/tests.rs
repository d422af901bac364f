use super::super::Traffic;
use super::super::period::Periods;
use super::*;
use skink_time::{Duration, Instant};

fn at(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

/// A program that is looked at each millisecond, with what it did in between.
struct Watched {
    busy: Busy,
    periods: Periods,
    micros: u64,
    frames: u64,
    /// How often it sleeps in a millisecond, if it does.
    sleeps: u64,
}

impl Watched {
    fn new() -> Watched {
        Watched {
            busy: Busy::new(),
            periods: Periods::new(),
            micros: 1_000_000,
            frames: 0,
            sleeps: 10,
        }
    }

    /// For `count` milliseconds it sleeps at the end of each, and `frames` come: the last change.
    fn goes_on(&mut self, count: u32, asleep: u64, frames: u64) -> Option<bool> {
        let mut last = None;
        for _ in 0..count {
            self.micros += 1_000;
            self.frames += frames;
            for sleep in (1..=self.sleeps).rev().filter(|_| asleep > 0) {
                let each = asleep / self.sleeps;
                self.periods.falls_asleep(at(self.micros - each * sleep));
                self.periods.wakes(at(self.micros - each * (sleep - 1)));
            }
            let traffic = Traffic {
                frames_in: self.frames,
                ..Traffic::NONE
            };
            let period = self.periods.end(at(self.micros), traffic, || None).unwrap();
            if self.busy.take(&period) {
                last = Some(self.busy.is_busy());
            }
        }
        last
    }
}

#[test]
fn a_program_that_hardly_sleeps_is_busy_after_a_while() {
    let mut watched = Watched::new();
    assert_eq!(watched.goes_on(BECOMES - 1, 200, 100), None);
    assert_eq!(watched.goes_on(1, 900, 100), None, "one may be disturbed");
    assert_eq!(watched.goes_on(3, 200, 100), Some(true));
    assert_eq!(watched.goes_on(100, 200, 100), None, "it is known");
}

#[test]
fn one_that_sleeps_or_has_no_frames_isnt() {
    assert_eq!(Watched::new().goes_on(100, 400, 50), None, "it sleeps");
    assert_eq!(Watched::new().goes_on(100, 800, 100), None, "so it does");
    assert_eq!(Watched::new().goes_on(100, 0, 5), None, "few frames come");
    assert_eq!(
        Watched::new().goes_on(100, 0, 700),
        None,
        "they would overflow a queue"
    );
    let mut watched = Watched::new();
    for _ in 0..20 {
        assert_eq!(watched.goes_on(BECOMES - 1, 0, 100), None);
        assert_eq!(watched.goes_on(BECOMES - 1, 800, 100), None, "now and then");
    }
}

#[test]
fn one_that_finds_a_backlog_whenever_it_wakes_is_busy() {
    let mut watched = Watched::new();
    watched.sleeps = 3;
    assert_eq!(watched.goes_on(20, 400, 50), Some(true));
    let mut watched = Watched::new();
    watched.sleeps = 4;
    assert_eq!(watched.goes_on(20, 400, 50), None, "it keeps up");
}

#[test]
fn many_frames_make_a_process_busy_though_it_sleeps_while_napi_works() {
    let mut watched = Watched::new();
    assert_eq!(watched.goes_on(12, 700, 70), Some(true));
    assert_eq!(watched.goes_on(100, 850, 70), None, "and longer then");
    assert_eq!(watched.goes_on(CEASES, 900, 70), Some(false));
}

#[test]
fn waiting_for_the_timer_doesnt_end_it_but_little_work_does() {
    let mut watched = Watched::new();
    assert_eq!(watched.goes_on(12, 0, 100), Some(true));
    assert_eq!(
        watched.goes_on(100, 700, 100),
        None,
        "it waits for the timer"
    );
    assert_eq!(watched.goes_on(CEASES, 900, 100), Some(false));
    assert_eq!(watched.goes_on(LATER * BECOMES, 0, 100), Some(true));
    assert_eq!(watched.goes_on(CEASES, 0, 5), Some(false), "frames end");
}

#[test]
fn who_isnt_looked_at_isnt_busy() {
    let mut watched = Watched::new();
    assert!(!watched.busy.rest());
    assert_eq!(watched.goes_on(12, 0, 100), Some(true));
    assert!(watched.busy.rest() && !watched.busy.is_busy());
    assert!(!watched.busy.rest());
}

#[test]
fn few_clients_that_wait_for_the_timer_end_it_and_it_comes_back_ever_later() {
    let mut watched = Watched::new();
    watched.goes_on(1, 0, 5);
    for becomes in [1, LATER, LATER * LATER].map(|times| times * BECOMES) {
        assert_eq!(watched.goes_on(becomes - 1, 100, 70), None);
        assert_eq!(watched.goes_on(1, 100, 70), Some(true));
        assert_eq!(watched.goes_on(CEASES, 630, 40), Some(false), "8 a time");
    }
    let becomes = LATER.pow(3) * BECOMES;
    assert_eq!(watched.goes_on(becomes, 0, 100), Some(true));
    assert_eq!(watched.goes_on(SOON, 0, 100), None, "this time it pays");
    assert_eq!(watched.goes_on(CEASES, 630, 40), Some(false));
    assert_eq!(watched.goes_on(BECOMES, 0, 100), Some(true));
}

#[test]
fn so_it_is_with_so_few_clients_that_hardly_any_frames_come_by_the_timer() {
    let mut watched = Watched::new();
    watched.goes_on(1, 0, 5);
    for (becomes, clients) in [(BECOMES, 17), (LATER * BECOMES, 8)] {
        assert_eq!(watched.goes_on(becomes - 1, 100, 60), None);
        assert_eq!(watched.goes_on(1, 100, 60), Some(true));
        assert_eq!(watched.goes_on(CEASES, 800, clients), Some(false));
    }
}

#[test]
fn many_clients_that_wait_for_the_timer_end_it_too() {
    let without = |frames| {
        let mut watched = Watched::new();
        assert_eq!(watched.goes_on(4 * BECOMES, 0, frames), Some(true));
        watched
    };
    assert_eq!(without(170).goes_on(CEASES, 600, 66), Some(false));
    assert_eq!(without(280).goes_on(CEASES, 400, 230), None, "it pays");
    assert_eq!(without(170).goes_on(CEASES, 100, 66), None, "it is at work");
}

#[test]
fn now_and_then_it_is_looked_how_many_frames_come_without() {
    let mut watched = Watched::new();
    watched.goes_on(1, 0, 5);
    assert_eq!(watched.goes_on(BECOMES, 0, 100), Some(true));
    for _ in 0..3 {
        assert_eq!(watched.goes_on(ANEW - 1, 0, 100), None);
        assert_eq!(watched.goes_on(1, 0, 100), Some(false));
        assert_eq!(watched.goes_on(GAP - 1, 0, 250), None);
        assert_eq!(watched.goes_on(1, 0, 250), Some(true));
    }
    assert_eq!(watched.goes_on(CEASES, 300, 160), Some(false), "of 250");
}

#[test]
fn the_end_of_a_load_is_no_reason_to_hesitate() {
    let mut watched = Watched::new();
    watched.goes_on(1, 0, 5);
    for _ in 0..5 {
        assert_eq!(watched.goes_on(BECOMES, 0, 100), Some(true));
        assert_eq!(watched.goes_on(CEASES, 0, 5), Some(false));
    }
}

#[test]
fn one_that_is_always_at_work_is_busy_with_fewer_frames() {
    let mut watched = Watched::new();
    assert_eq!(watched.goes_on(100, 200, 15), None);
    assert_eq!(watched.goes_on(20, 100, 15), Some(true));
    assert_eq!(watched.goes_on(100, 200, 15), None, "it has less to do now");
    assert_eq!(watched.goes_on(CEASES + 12, 300, 15), Some(false));
    assert_eq!(watched.goes_on(100, 0, 9), None);
}
