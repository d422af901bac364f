//! Putting an interface's interrupts off.
//!
//! The kernel can keep polling a queue by a timer instead of letting each frame interrupt a processor, or wake
//! NAPI's thread: `napi_defer_hard_irqs` and `gro_flush_timeout`
//! (<https://docs.kernel.org/networking/napi.html>, "Software IRQ coalescing"). A frame waits for the timer then:
//! right for stacks that are busy anyway, and wrong for any other.

use crate::sysfs::{self, Setting};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Polls that find nothing, after which frames interrupt again until something comes. A poll that takes as many frames as it may
/// (64, NAPI's budget) and leaves none is followed by one that finds nothing, though a batch came with each timer: one such
/// poll doesn't tell that the batches have ended.
const POLLS: &str = "8";
/// The timer, in nanoseconds. Short ones cost more than they save. It isn't a round number, so that a setting which
/// a process that was killed has left behind is known for what it is.
const TIMER: &str = "200003";

/// The interrupts of one interface. Dropping it puts none off any more.
#[derive(Debug)]
pub struct Interrupts {
    polls: Setting,
    timer: Setting,
    put_off: bool,
}

impl Interrupts {
    /// Those of the interface called `name`; nothing changes yet.
    ///
    /// # Errors
    /// If they can't be put off: sysfs can't be had (see [`sysfs::directory_of`]), or the kernel is older than 5.8.
    pub fn of(name: &str) -> io::Result<Interrupts> {
        Interrupts::in_directory(sysfs::directory_of(name)?.as_fd())
    }

    fn in_directory(directory: BorrowedFd<'_>) -> io::Result<Interrupts> {
        let mut polls = Setting::open(directory, "napi_defer_hard_irqs")?;
        let mut timer = Setting::open(directory, "gro_flush_timeout")?;
        if timer.before == TIMER {
            for setting in [&mut polls, &mut timer] {
                "0".clone_into(&mut setting.before);
                setting.set("0")?;
            }
        }
        Ok(Interrupts {
            polls,
            timer,
            put_off: false,
        })
    }

    /// Puts interrupts off, or lets them come again.
    ///
    /// # Errors
    /// What the system says; there are interrupts then, if it lets us.
    pub fn put_off(&mut self, wanted: bool) -> io::Result<()> {
        if wanted == self.put_off {
            return Ok(());
        }
        if wanted {
            self.put_off = true;
            let done = self.timer.set(TIMER).and_then(|()| self.polls.set(POLLS));
            return done.inspect_err(|_| {
                let _ = self.put_off(false);
            });
        }
        self.put_off = false;
        let polls = self.polls.set(&self.polls.before);
        self.timer.set(&self.timer.before).and(polls)
    }

    /// Lets interrupts come again, also if another process with a copy of this has put them off since.
    ///
    /// # Errors
    /// As [`Interrupts::put_off`].
    pub fn undo(&mut self) -> io::Result<()> {
        self.put_off |= self.timer.read()? == TIMER;
        self.put_off(false)
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        // The interface may be gone.
        let _ = self.put_off(false);
    }
}

#[cfg(test)]
mod tests;
