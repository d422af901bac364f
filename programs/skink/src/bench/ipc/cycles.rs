//! Cycles of a core, of which virtual machines mostly show no counter, by what is known to take so many of them.

use super::outside;
use skink_channel::time_stamp;
use std::hint::black_box;
use std::io;

/// So many times an exclusive or and an addition, each of which needs what came before it and takes one cycle on all
/// processors that there are.
const STEPS: u64 = 4_000;
/// Times that this is measured. The least counts: whoever interrupts makes it longer.
const ATTEMPTS: usize = 200;

/// How many cycles a processor goes through in a tick of the time-stamp counter, while it works.
pub fn per_tick(cpu: usize) -> io::Result<f64> {
    let measured = std::thread::spawn(move || {
        outside::pin(None, cpu)?;
        let least = (0..ATTEMPTS).map(|_| ticks_of_steps()).min();
        Ok(2.0 * STEPS as f64 / least.unwrap_or(u64::MAX) as f64)
    });
    let died = |_| io::Error::other("what was measured panicked");
    measured.join().map_err(died)?
}

fn ticks_of_steps() -> u64 {
    let (mask, addend) = (black_box(0x5555), black_box(3));
    let mut value = black_box(1_u64);
    let before = time_stamp();
    for _ in 0..STEPS {
        value = (value ^ mask).wrapping_add(addend);
    }
    black_box(value);
    time_stamp().wrapping_sub(before)
}
