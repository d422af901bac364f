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
    thread: Thread,
    micros: u64,
    traffic: Traffic,
}

impl Watched {
    fn new() -> Watched {
        Watched {
            judge: Judge::new(),
            thread: Thread::new(),
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
            self.judge
                .falls_asleep(&mut self.thread, at(self.micros + 1_000 - asleep));
            self.micros += 1_000;
            self.judge.wakes(&mut self.thread, 0, at(self.micros));
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

/// For 200 ms four threads wake once a millisecond, one after the other, while a fifth waits for connections; each works for so many
/// microseconds, and so many frames come. How often the program was found busy.
fn four_threads(processors: u32, micros: u64, frames: u64) -> usize {
    let at = |micros| Instant::ZERO + Duration::from_micros(micros);
    let (mut judge, mut traffic) = (Judge::new(), Traffic::NONE);
    let (mut accepting, mut threads) = (Thread::new(), [Thread::new(); 4]);
    judge.falls_asleep(&mut accepting, at(1));
    let mut now = 1_000_000;
    let busy = |_: &u64| {
        for (index, thread) in (0..).zip(&mut threads) {
            let woken = now + 240 * u64::from(index);
            judge.wakes(thread, index % processors, at(woken));
            judge.falls_asleep(thread, at(woken + micros));
        }
        now += 1_000;
        traffic.frames_in += frames;
        judge.look(at(now), traffic, || None);
        judge.load().busy
    };
    (0..200).filter(busy).count()
}

#[test]
fn threads_are_busy_together_though_one_of_them_sleeps() {
    assert!(four_threads(1, 180, 40) > 180);
    assert!(four_threads(1, 100, 90) > 180);
    assert_eq!(four_threads(4, 180, 40), 0, "each has little to do");
}

#[test]
fn threads_that_wait_for_no_frame_count_by_their_processor_time() {
    let at = |micros| Instant::ZERO + Duration::from_micros(micros);
    let busy = |worked: u64, processors| {
        let (mut judge, mut traffic) = (Judge::new(), Traffic::NONE);
        let mut listening = Thread::new();
        let look = |time: &u64| {
            let now = 1_000 * time;
            judge.wakes(&mut listening, 0, at(now));
            judge.falls_asleep(&mut listening, at(now + 100));
            judge.wakes(&mut listening, 0, at(now + 500));
            judge.falls_asleep(&mut listening, at(now + 600));
            traffic.frames_in += 25;
            judge.look(at(now + 1_000), traffic, || {
                Some(Work {
                    time: Duration::from_micros(worked * time),
                    processors,
                })
            });
            judge.load().busy
        };
        (1000..1200).filter(look).count()
    };
    assert!(busy(700, 1) > 180, "a pool of workers has its processor");
    assert!(busy(1_400, 2) > 180);
    assert_eq!(busy(700, 2), 0, "another processor is free");
    assert_eq!(busy(500, 1), 0);
}
