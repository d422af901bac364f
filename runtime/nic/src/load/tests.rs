use super::*;
use std::time::Duration;

#[test]
fn a_load_crosses_shared_memory_whatever_else_is_in_the_word() {
    for bits in 0..8 {
        let load = Load {
            busy: bits & 1 != 0,
            small: bits & 2 != 0,
            bulk: bits & 4 != 0,
        };
        assert_eq!(Load::from_bits(load.to_bits()), load);
        assert_eq!(Load::from_bits(load.to_bits() | 0xff00), load);
    }
    assert_eq!(Load::default().to_bits(), 0);
}

/// A process that is looked at each millisecond.
struct Watched {
    judge: Judge,
    micros: u64,
    traffic: Traffic,
}

impl Watched {
    fn new() -> Watched {
        Watched {
            judge: Judge::new(),
            micros: 1_000_000,
            traffic: Traffic::NONE,
        }
    }

    /// For `count` milliseconds so many requests of 100 bytes come and are answered, each `answer` bytes, and the process sleeps
    /// once for the rest.
    fn goes_on(&mut self, count: u32, requests: u64, answer: u64, asleep: u64) -> Load {
        for _ in 0..count {
            self.traffic.frames_in += requests;
            self.traffic.bytes_in += requests * 100;
            self.traffic.frames_out += requests;
            self.traffic.bytes_out += requests * answer;
            let at = |micros| Instant::ZERO + Duration::from_micros(micros);
            self.judge.falls_asleep(at(self.micros + 1_000 - asleep));
            self.micros += 1_000;
            self.judge.wakes(at(self.micros));
            self.judge.look(at(self.micros), self.traffic, || None);
        }
        self.judge.load()
    }
}

#[test]
fn interrupts_and_segmentation_are_judged_apart() {
    let load = |busy, small| Load {
        busy,
        small,
        bulk: false,
    };
    let mut watched = Watched::new();
    assert_eq!(watched.goes_on(30, 60, 300, 100), load(true, true));
    assert_eq!(watched.goes_on(30, 60, 22_000, 100), load(true, false));
    assert_eq!(watched.goes_on(30, 10, 300, 900), load(false, true));
    assert_eq!(watched.goes_on(30, 1, 300, 900), load(false, false));
    watched.goes_on(30, 60, 300, 100);
    assert!(watched.judge.rest());
    assert_eq!(watched.judge.load(), Load::default());
    assert!(!watched.judge.rest());
}

#[test]
fn what_begins_is_counted_once() {
    let counters = Counters::create().unwrap();
    let busy = Load {
        busy: true,
        ..Load::default()
    };
    let both = Load {
        busy: true,
        small: true,
        bulk: false,
    };
    busy.begun_since(Load::default()).count(&counters);
    both.begun_since(busy).count(&counters);
    busy.begun_since(both).count(&counters);
    assert_eq!(counters.get(Counter::AppBusy), 1);
    assert_eq!(counters.get(Counter::AppSmall), 1);
}

/// For 2 s threads work for so many microseconds of each millisecond, while one of them sleeps, and so many frames come. How many
/// milliseconds the program is busy. What the kernel says of their processor time is up to 10 ms old.
fn several_threads(processors: u32, worked: u64, frames: u64) -> usize {
    let at = |millis| Instant::ZERO + Duration::from_millis(millis);
    let (mut judge, mut traffic) = (Judge::new(), Traffic::NONE);
    judge.falls_asleep(at(1));
    let busy = |millis: &u64| {
        traffic.frames_in += frames;
        judge.look(at(*millis), traffic, || {
            Some(Work {
                time: Duration::from_micros(worked * (millis - millis % 10)),
                processors,
            })
        });
        judge.load().busy
    };
    (1000..3000).filter(busy).count()
}

#[test]
fn one_thread_that_has_to_do_with_the_network_is_busy_by_itself() {
    let at = |micros| Instant::ZERO + Duration::from_micros(micros);
    let busy = |asleep: u64, frames: u64| {
        let (mut judge, mut traffic) = (Judge::new(), Traffic::NONE);
        let busy = |millis: &u64| {
            let now = millis * 1000;
            judge.falls_asleep(at(now - asleep));
            judge.wakes(at(now));
            traffic.frames_in += frames;
            judge.look(at(now), traffic, || {
                Some(Work {
                    time: Duration::from_micros((1000 - asleep) * millis),
                    processors: 16,
                })
            });
            judge.load().busy
        };
        (1000..1200).filter(busy).count()
    };
    assert!(
        busy(200, 25) > 180,
        "as redis, which has others for its files"
    );
    assert!(busy(400, 25) > 180, "it finds a backlog whenever it wakes");
    assert_eq!(busy(600, 15), 0);
}

#[test]
fn threads_are_busy_together_though_one_of_them_sleeps() {
    assert!(several_threads(1, 700, 25) > 1900);
    assert!(several_threads(2, 1_400, 25) > 1900);
    assert_eq!(several_threads(2, 700, 25), 0, "a processor is free");
    assert_eq!(several_threads(1, 480, 25), 0, "it has time");
    assert!(several_threads(1, 350, 90) > 1900, "NAPI has it, too");
    assert_eq!(several_threads(1, 350, 15), 0);
    assert!(several_threads(1, 950, 15) > 1900);
    assert_eq!(several_threads(1, 950, 5), 0);
}
