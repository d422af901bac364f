//! What happens at a system call that isn't allowed.

use crate::names;
use core::ffi::{c_int, c_void};
use std::io;

/// What happens at a system call that isn't allowed. The call isn't made either way, and the process dies
/// of `SIGSYS`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Refusal {
    /// At once. The kernel's log has the number of the call (`type=1326 ... syscall=`).
    #[default]
    Kill,
    /// After it has said on standard error which call it was. For debugging: a hostile component could
    /// take the handler over and live on, though without the call.
    Tell,
}

impl Refusal {
    /// [`Refusal::Tell`] if `SKINK_LOG` is `debug` or `trace`, or says so of this crate
    /// (`skink_sandbox=debug`). To be asked before entering, which clears the environment.
    pub fn from_environment() -> Refusal {
        std::env::var("SKINK_LOG").map_or(Refusal::Kill, |filter| Refusal::from_filter(&filter))
    }

    fn from_filter(filter: &str) -> Refusal {
        let tells = |directive: &str| {
            let (target, level) = directive.split_once('=').unwrap_or(("", directive));
            let level = level.trim().to_ascii_lowercase();
            ["", "skink_sandbox"].contains(&target.trim())
                && ["debug", "trace"].contains(&level.as_str())
        };
        if filter.split(',').any(tells) {
            Refusal::Tell
        } else {
            Refusal::Kill
        }
    }
}

/// Has `SIGSYS` handled by [`tell`].
pub(crate) fn install_handler() -> io::Result<()> {
    // SAFETY: all zeroes is a valid value: no flags, no blocked signals.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = tell;
    action.sa_sigaction = handler as usize;
    // Not blocked in its own handler, which sends the signal once more to die of it.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESETHAND;
    // SAFETY: the handler keeps to what a signal handler may do.
    if unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Says which call was refused, and dies of the signal. No allocation, no lock.
extern "C" fn tell(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // Where sigaction(2)'s `si_syscall` is on 64-bit Linux: behind three integers, padding and the address.
    const SYSTEM_CALL: usize = 24;
    // SAFETY: the kernel hands the handler a whole `siginfo_t`, which is 128 bytes.
    let number = unsafe { info.byte_add(SYSTEM_CALL).cast::<c_int>().read_unaligned() };
    let mut line = Line::default();
    line.push(b"skink: the sandbox refused the system call ");
    line.push(names::of(number.into()).as_bytes());
    line.push(b" (");
    line.number(number);
    line.push(b"); ending\n");
    // SAFETY: writes initialized bytes to standard error; sends a signal to this very thread, whose
    // handler is the default again, and ends the process if that should fail.
    unsafe {
        libc::write(2, line.bytes.as_ptr().cast(), line.used);
        libc::syscall(
            libc::SYS_tgkill,
            libc::getpid(),
            libc::syscall(libc::SYS_gettid),
            libc::SIGSYS,
        );
        libc::_exit(128 + libc::SIGSYS);
    }
}

struct Line {
    bytes: [u8; 128],
    used: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            bytes: [0; 128],
            used: 0,
        }
    }
}

impl Line {
    /// Appends as much as there is room for.
    fn push(&mut self, text: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(self.used).zip(text) {
            *to = *from;
            self.used += 1;
        }
    }

    fn number(&mut self, number: c_int) {
        if number < 0 {
            self.push(b"-");
        }
        let mut digits = [0; 10];
        let mut left = number.unsigned_abs();
        let mut used = 0;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
            used += 1;
            if left == 0 {
                break;
            }
        }
        let start = digits.len() - used;
        self.push(digits.get(start..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests;
