//! Looking a little longer before going to sleep.
//!
//! A processor that has nothing to do halts, and to wake it takes longer than a small request is on its way: in
//! a virtual machine several times as long. So a program that has one request under way at a time, and found
//! its last ones soon, looks for the next one for as long as these took. Everybody else sleeps at once: a server
//! of many is woken with work for all of them, and one that waits long would burn a processor.
//!
//! Who looks gives the processor up between looks, to whoever wants it: the kernel's thread that brings
//! frames, perhaps.
use crate::errno::{Answer, Stop};
use crate::lock::{Guard, lock};
use crate::raw;
use crate::signals::Mark;
use crate::state::State;
use skink_time::Instant;
use std::time::Duration;

/// The longest look, and the longest sleep that counts as short.
const LONGEST: Duration = Duration::from_micros(100);
/// So many sleeps in a row must have been short, each after one call that sent a little: who sends or receives
/// much sleeps shortly too, and does better with more at a time.
const STREAK: u32 = 16;

/// How the last sleeps were.
pub struct Spin {
    streak: u32,
    /// How long threads have looked so far.
    pub looked: Duration,
}

/// How a look ended.
pub enum Look<T> {
    /// With what was looked for.
    Found(T),
    /// There is nothing, or it isn't worth it to look.
    Nothing,
    /// A signal handler has run.
    Interrupted,
}

impl Spin {
    /// Of a program that hasn't slept yet.
    pub const fn new() -> Spin {
        Spin {
            streak: 0,
            looked: Duration::ZERO,
        }
    }

    /// Whether to look on instead of going to sleep, if `one` small message was sent since the last time.
    fn is_worth_it(&mut self, one: bool) -> bool {
        if !one {
            self.streak = 0;
        }
        self.streak >= STREAK
    }

    /// A sleep from `begun` to `now`, after which something was there.
    pub fn slept(&mut self, begun: Instant, now: Instant) {
        let short = now.since(begun) <= LONGEST;
        self.streak = if short {
            self.streak.saturating_add(1)
        } else {
            0
        };
    }
}

impl State {
    fn looked_since(&mut self, begun: Instant) {
        let now = raw::now();
        self.judge.wakes(now);
        self.spin.looked += now.since(begun);
    }
}

/// Drives the stack until `attempt` answers something, for [`LONGEST`] at most, and no longer than to the
/// caller's `deadline`: if that is worth it for a program that has sent `one` small message since it last waited.
///
/// The lock is let go between attempts, so each must look whether what it is about is still there. With
/// [`Look::Nothing`] and [`Look::Interrupted`] the last attempt was made under the guard that is handed back: who goes
/// to sleep under that misses nothing.
pub fn look_on<T>(
    mut state: Guard,
    one: bool,
    deadline: Option<Instant>,
    mut attempt: impl FnMut(&mut Guard) -> Option<T>,
) -> Answer<(Guard, Look<T>)> {
    let library = matches!(&state.engine, Some(engine) if !engine.stack.is_served());
    if !library || !state.spin.is_worth_it(one) {
        return Ok((state, Look::Nothing));
    }
    // A handler that runs now has no system call to interrupt.
    let mark = Mark::now();
    let begun = raw::now();
    let longest = begun + LONGEST;
    // Who looks has nothing to do, as one that sleeps.
    state.judge.falls_asleep(begun);
    let until = deadline.map_or(longest, |deadline| deadline.min(longest));
    loop {
        drop(state);
        raw::give_way();
        state = lock()?;
        state.pump();
        if let Some(found) = attempt(&mut state) {
            state.looked_since(begun);
            return Ok((state, Look::Found(found)));
        }
        if mark.is_past() || raw::now() >= until {
            break;
        }
    }
    state.looked_since(begun);
    state.spin.streak = 0;
    let look = match mark.is_past() {
        true => Look::Interrupted,
        false => Look::Nothing,
    };
    Ok((state, look))
}

/// What [`Look::Interrupted`] makes of a call that is never begun again.
pub const INTERRUPTED: Stop = Stop::Errno(libc::EINTR);

#[cfg(test)]
mod tests;
