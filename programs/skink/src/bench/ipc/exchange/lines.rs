//! Bare cache lines: what the hardware asks.

use super::{ROUND_TRIP_BLOCK, ROUND_TRIP_BLOCKS, ROUND_TRIPS, SLOTS, on_both, time_round_trips};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

/// As a queue would, if it had nothing to carry.
pub fn one_way(cpus: [usize; 2]) -> io::Result<Vec<u64>> {
    let lines = || -> Arc<[Line]> { (0..SLOTS).map(|_| Line::default()).collect() };
    let (there, back) = (lines(), lines());
    let (answers_there, answers_back) = (Arc::clone(&there), Arc::clone(&back));
    let at = |number: u64| number as usize % SLOTS as usize;
    let wait = |line: &Line, number: u64| {
        while line.0.load(Ordering::Acquire) != number {
            std::hint::spin_loop();
        }
    };
    let ask = move || {
        time_round_trips(ROUND_TRIP_BLOCKS, ROUND_TRIP_BLOCK, |number| {
            there[at(number)].0.store(number + 1, Ordering::Release);
            wait(&back[at(number)], number + 1);
            Ok(())
        })
    };
    let answer = move || {
        for number in 0..ROUND_TRIPS {
            wait(&answers_there[at(number)], number + 1);
            answers_back[at(number)]
                .0
                .store(number + 1, Ordering::Release);
        }
        Ok(())
    };
    on_both(cpus, ask, answer)
}

pub fn bare(cpus: [usize; 2]) -> io::Result<Vec<u64>> {
    let line = Arc::new(Line(AtomicU64::new(0)));
    let answered = Arc::clone(&line);
    let last = 2 * ROUND_TRIPS;
    let ask = move || {
        time_round_trips(ROUND_TRIP_BLOCKS, ROUND_TRIP_BLOCK, |number| {
            line.0.store(2 * number + 1, Ordering::Release);
            while line.0.load(Ordering::Acquire) != 2 * number + 2 {
                std::hint::spin_loop();
            }
            Ok(())
        })
    };
    let answer = move || {
        loop {
            let value = answered.0.load(Ordering::Acquire);
            if value % 2 == 1 {
                answered.0.store(value + 1, Ordering::Release);
                if value + 1 == last {
                    return Ok(());
                }
            } else {
                std::hint::spin_loop();
            }
        }
    };
    on_both(cpus, ask, answer)
}
