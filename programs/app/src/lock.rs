//! The one lock of the process, around everything that Skink knows in it.
use crate::cancel;
use crate::errno::{Answer, WOULD_BLOCK};
use crate::raw;
use crate::remote;
use crate::state::State;
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::os::fd::{AsFd, AsRawFd};

/// Nobody holds it.
const FREE: usize = 0;
/// Beside who holds it: somebody may be waiting.
const CONTENDED: usize = 1;

struct Shared {
    /// Which thread holds it, see [`this_thread`]: one word, since a signal handler may look at any instruction whether that is
    /// the thread that it has interrupted.
    word: AtomicUsize,
    state: UnsafeCell<State>,
}

// SAFETY: the state is reached through a `Guard` only, of which there is one at a time.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared {
    word: AtomicUsize::new(FREE),
    state: UnsafeCell::new(State::new()),
};

impl Shared {
    /// What waiters sleep on: the lower half of the word.
    fn futex(&self) -> *mut u32 {
        const { assert!(cfg!(target_endian = "little")) };
        self.word.as_ptr().cast()
    }

    /// Waits until it is free, and takes it for `me`. `false` if the calling thread has it already.
    #[cold]
    #[inline(never)]
    fn take_when_free(&self, me: usize) -> bool {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            if seen & !CONTENDED == me {
                return false;
            }
            // Who has waited can't know whether it was the only one.
            let wanted = match seen {
                FREE => me | CONTENDED,
                _ => seen | CONTENDED,
            };
            let changed =
                self.word
                    .compare_exchange(seen, wanted, Ordering::Acquire, Ordering::Relaxed);
            match changed {
                Ok(FREE) => return true,
                Ok(_) => {
                    let _ = raw::futex_wait(self.futex(), wanted as u32, None);
                    seen = self.word.load(Ordering::Relaxed);
                }
                Err(now) => seen = now,
            }
        }
    }
}

/// Names the calling thread: by its thread pointer, which no other has, and which is even and never null. A
/// variable of the thread's would do, but a library that is loaded early has to call a function for its
/// address, and every call on a socket needs it.
#[inline]
pub fn this_thread() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the first word that the pointer leads to is the pointer itself (the x86-64 ABI, thread-local
    // storage, variant II); it is only read.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a register that any program may read.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

/// The right to use the state.
pub struct Guard {
    _not_send: core::marker::PhantomData<*const ()>,
}

/// Takes the lock. A thread that holds it already is in a signal handler that interrupted a call of
/// Skink's: it is told that the call would block.
#[inline]
pub fn lock() -> Answer<Guard> {
    let me = this_thread();
    let free = SHARED
        .word
        .compare_exchange(FREE, me, Ordering::Acquire, Ordering::Relaxed);
    if free.is_err() && !SHARED.take_when_free(me) {
        return Err(WOULD_BLOCK);
    }
    cancel::forbid();
    Ok(Guard {
        _not_send: core::marker::PhantomData,
    })
}

/// Whether the calling thread holds the lock: then a call of libc's is the library's own.
pub fn is_held_here() -> bool {
    SHARED.word.load(Ordering::Relaxed) & !CONTENDED == this_thread()
}

impl Guard {
    /// After `fork`, in the child: the thread that took the lock is this one.
    pub fn take_over() -> Guard {
        SHARED.word.store(this_thread(), Ordering::Relaxed);
        Guard {
            _not_send: core::marker::PhantomData,
        }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if remote::is_unsettled() {
            remote::settle(self);
        }
        let woken = self.parking.take_woken();
        let doorbell = self.take_doorbell();
        let before = cancel::take_before();
        if SHARED.word.swap(FREE, Ordering::Release) & CONTENDED != 0 {
            raw::futex_wake(SHARED.futex(), 1);
        }
        for call in woken {
            call.make();
        }
        if let Some(doorbell) = doorbell
            && !raw::kick(doorbell.as_fd().as_raw_fd())
            && let Ok(mut state) = lock()
        {
            state.ring_again();
        }
        cancel::allow(before);
    }
}

impl Deref for Guard {
    type Target = State;
    #[inline]
    fn deref(&self) -> &State {
        // SAFETY: the guard is the proof that we are alone.
        unsafe { &*SHARED.state.get() }
    }
}

impl DerefMut for Guard {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: the guard is the proof that we are alone.
        unsafe { &mut *SHARED.state.get() }
    }
}
