//! The functions that programs call instead of libc's. Each asks the descriptor table first: what
//! isn't Skink's goes on to libc untouched.
//!
//! They are `C-unwind`, since libc ends a thread (`pthread_exit`, in a signal handler too, and `pthread_cancel`) by unwinding its
//! stack, which may go through here while a call waits. A panic of ours never does: it ends the process where it begins.
use crate::cancel;
use crate::errno::{Answer, Stop, set};

pub mod aio;
pub mod data;
pub mod exec;
pub mod files;
pub mod interfaces;
pub mod limits;
pub mod loading;
pub mod memory;
pub mod names;
pub mod process;
pub mod rings;
pub mod signals;
pub mod sockets;
pub mod spawn;
pub mod streams;
pub mod threads;
pub mod waiting;

/// The C form of an answer: `None` if the kernel is to answer.
#[inline]
pub fn finish(answer: Answer) -> Option<isize> {
    match answer {
        Ok(value) => Some(value as isize),
        Err(Stop::Kernel) => None,
        Err(Stop::Errno(errno)) => {
            if errno == libc::EINTR {
                cancel::end();
            }
            set(errno);
            Some(-1)
        }
    }
}

/// Declares entry points: `if CONDITION name(arguments) -> type { Skink's answer }`. The next
/// function of that name answers where the condition doesn't hold or Skink says so.
///
/// Behind `then` may stand what makes the program's answer of the kernel's: `None` if Skink is to answer after all.
///
/// What isn't Skink's pays for a few instructions: Skink's part is a function of its own, so that this one
/// needs no stack and jumps to where it goes on.
macro_rules! entry {
    ($(if $condition:expr => $name:ident($($argument:ident: $type:ty),*) -> $answer:ty { $ours:expr } $(then $then:expr;)?)*) => {$(
        #[doc = concat!("`", stringify!($name), "`")]
        ///
        /// # Safety
        /// As the function's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $answer {
            #[inline(never)]
            unsafe extern "C-unwind" fn ours($($argument: $type),*) -> $answer {
                let call = || $ours;
                if let Some(answer) = $crate::entry::finish(call()) {
                    return answer as $answer;
                }
                // SAFETY: the program's own arguments, here and below.
                unsafe { $crate::next::$name($($argument),*) }
            }
            if $condition {
                // SAFETY: as above.
                return unsafe { ours($($argument),*) };
            }
            // SAFETY: as above.
            let answer = unsafe { $crate::next::$name($($argument),*) };
            #[allow(unused_variables, reason = "few need it")]
            // SAFETY: as above.
            let after_all = || unsafe { ours($($argument),*) };
            $(let answer = $then(answer).unwrap_or_else(after_all);)?
            answer
        }
    )*};
}
pub(crate) use entry;
