//! The one lock of the process, around everything that Skink knows in it.
use crate::errno::{Answer, WOULD_BLOCK};
use crate::raw;
use crate::remote;
use crate::state::State;
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::os::fd::{AsFd, AsRawFd};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and somebody may be waiting.
const CONTENDED: u32 = 2;

struct Shared {
    word: AtomicU32,
    /// Which thread holds it, see [`this_thread`]; 0 for none.
    owner: AtomicUsize,
    state: UnsafeCell<State>,
}

// SAFETY: the state is reached through a `Guard` only, of which there is one at a time.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared {
    word: AtomicU32::new(FREE),
    owner: AtomicUsize::new(0),
    state: UnsafeCell::new(State::new()),
};

/// Names the calling thread: by its thread pointer, which no other has, and which is never null. A
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
    let word = &SHARED.word;
    let free = word.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed);
    if free.is_err() {
        if SHARED.owner.load(Ordering::Relaxed) == me {
            return Err(WOULD_BLOCK);
        }
        while word.swap(CONTENDED, Ordering::Acquire) != FREE {
            let _ = raw::futex_wait(word, CONTENDED, None);
        }
    }
    SHARED.owner.store(me, Ordering::Relaxed);
    Ok(Guard {
        _not_send: core::marker::PhantomData,
    })
}

/// Whether the calling thread holds the lock: then a call of libc's is the library's own.
pub fn is_held_here() -> bool {
    SHARED.owner.load(Ordering::Relaxed) == this_thread()
}

impl Guard {
    /// After `fork`, in the child: the thread that took the lock is this one.
    pub fn take_over() -> Guard {
        SHARED.word.store(TAKEN, Ordering::Relaxed);
        SHARED.owner.store(this_thread(), Ordering::Relaxed);
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
        SHARED.owner.store(0, Ordering::Relaxed);
        if SHARED.word.swap(FREE, Ordering::Release) == CONTENDED {
            raw::futex_wake(&SHARED.word, 1);
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
