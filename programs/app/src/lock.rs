//! The one lock of the process, around everything that Skink knows in it.
use crate::cancel;
use crate::errno::{Answer, WOULD_BLOCK};
use crate::raw;
use crate::remote;
use crate::signals;
use crate::state::State;
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicUsize, Ordering};
use skink_library::Doorbell;
use std::os::fd::{AsFd, AsRawFd};

/// Nobody holds it.
const FREE: usize = 0;
/// Beside who holds it: somebody may be waiting.
const CONTENDED: usize = 1;
/// A signal waits for the thread.
const SIGNALLED: usize = 2;
/// Signals don't wait for the thread.
const DIRECT: usize = 4;
const FLAGS: usize = CONTENDED | SIGNALLED | DIRECT;

/// Which thread is busy, see [`this_thread`], and flags beside: one word, since a signal handler may look at any instruction
/// whether that is the thread that it has interrupted.
pub struct Busy(AtomicUsize);

impl Busy {
    fn is_mine(&self) -> bool {
        self.0.load(Ordering::Relaxed) & !FLAGS == this_thread()
    }

    /// Whether signals don't wait for the thread, busy as it is.
    pub fn is_direct(&self) -> bool {
        self.0.load(Ordering::Relaxed) & DIRECT != 0
    }

    /// A signal waits for the thread, which is the calling one.
    pub fn signal(&self) {
        self.0.fetch_or(SIGNALLED, Ordering::Relaxed);
    }

    /// The calling thread isn't busy any more, unless there are flags. Answers whether it was so.
    #[inline]
    fn end_unflagged(&self) -> bool {
        let me = this_thread();
        let ended = self
            .0
            .compare_exchange(me, FREE, Ordering::Release, Ordering::Relaxed);
        ended.is_ok()
    }

    /// The thread isn't busy any more. Answers the flags.
    fn end(&self) -> usize {
        self.0.swap(FREE, Ordering::Release) & FLAGS
    }
}

struct Shared {
    /// Who holds the lock.
    holder: Busy,
    /// Threads that are busy without it, see [`Stretch`].
    others: [Busy; 16],
    state: UnsafeCell<State>,
}

// SAFETY: the state is reached through a `Guard` only, of which there is one at a time.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared {
    holder: Busy(AtomicUsize::new(FREE)),
    others: [const { Busy(AtomicUsize::new(FREE)) }; 16],
    state: UnsafeCell::new(State::new()),
};

impl Shared {
    /// What waiters sleep on: the lower half of the word.
    fn futex(&self) -> *mut u32 {
        const { assert!(cfg!(target_endian = "little")) };
        self.holder.0.as_ptr().cast()
    }

    /// Waits until it is free, and takes it for `me`. `false` if the calling thread has it already.
    #[cold]
    #[inline(never)]
    fn take_when_free(&self, me: usize) -> bool {
        if self.holder.is_mine() {
            return false;
        }
        let word = &self.holder.0;
        // Who was woken, and left for good, would have been woken in another one's stead.
        let _whole = Stretch::begin_without_lock();
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            // Who has waited can't know whether it was the only one.
            let wanted = match seen {
                FREE => me | CONTENDED,
                _ => seen | CONTENDED,
            };
            let changed = word.compare_exchange(seen, wanted, Ordering::Acquire, Ordering::Relaxed);
            match changed {
                Ok(FREE) => return true,
                Ok(_) => {
                    let _ = raw::futex_wait(self.futex(), wanted as u32, None);
                    seen = word.load(Ordering::Relaxed);
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
/// Skink's, and that couldn't wait ([`signals`]): it is told that the call would block.
#[inline]
pub fn lock() -> Answer<Guard> {
    let me = this_thread();
    let free = SHARED
        .holder
        .0
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
    SHARED.holder.is_mine()
}

/// The word that says that the calling thread is busy, if it is: a signal handler that it runs now interrupts that.
pub fn busy_word() -> Option<&'static Busy> {
    let mut all = core::iter::once(&SHARED.holder).chain(&SHARED.others);
    all.find(|word| word.is_mine())
}

/// As long as this is there, signals wait for the calling thread, though it doesn't hold the lock. (Not if many other threads have
/// one: signals come at once then.)
pub struct Stretch(Option<&'static Busy>);

impl Stretch {
    /// What the calling thread does from now on mustn't be left for good.
    #[inline]
    pub fn begin() -> Stretch {
        match SHARED.holder.is_mine() {
            true => Stretch(None),
            false => Stretch::begin_without_lock(),
        }
    }

    #[inline(never)]
    fn begin_without_lock() -> Stretch {
        match busy_word() {
            Some(_) => Stretch(None),
            None => Stretch::claim(),
        }
    }

    fn claim() -> Stretch {
        let me = this_thread();
        let free = SHARED.others.iter().find(|word| {
            let claimed = word
                .0
                .compare_exchange(FREE, me, Ordering::Relaxed, Ordering::Relaxed);
            claimed.is_ok()
        });
        Stretch(free)
    }

    /// Ends it. Answers flags: whoever asks runs the handlers.
    fn end(mut self) -> usize {
        self.0.take().map_or(0, Busy::end)
    }
}

impl Drop for Stretch {
    #[inline]
    fn drop(&mut self) {
        if let Some(word) = self.0
            && word.end() & SIGNALLED != 0
        {
            signals::deliver();
        }
    }
}

impl Guard {
    /// After `fork`, in the child: the thread that took the lock is this one.
    pub fn take_over() -> Guard {
        signals::forget();
        for word in &SHARED.others {
            word.0.store(FREE, Ordering::Relaxed);
        }
        SHARED.holder.0.store(this_thread(), Ordering::Relaxed);
        Guard {
            _not_send: core::marker::PhantomData,
        }
    }

    /// The process is about to fork, to end or to become another program under this guard: what is blocked would be inherited, and
    /// a handler may have to wait for long.
    pub fn defer_no_signals(&self) {
        let word = &SHARED.holder.0;
        word.fetch_or(DIRECT, Ordering::Relaxed);
        if word.fetch_and(!SIGNALLED, Ordering::Relaxed) & SIGNALLED != 0 {
            signals::deliver_now();
        }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if remote::is_unsettled() {
            remote::settle(self);
        }
        let doorbell = self.take_doorbell();
        let is_plain = !self.parking.has_woken() && doorbell.is_none() && !cancel::is_used();
        if !(is_plain && SHARED.holder.end_unflagged()) {
            self.let_go_and_call(doorbell);
        }
    }
}

impl Guard {
    /// Lets the lock go, and then does what is left: wakes others, and runs handlers.
    #[inline(never)]
    fn let_go_and_call(&mut self, doorbell: Option<Doorbell>) {
        let woken = self.parking.take_woken();
        let before = cancel::take_before();
        // Whoever left this by `siglongjmp` would leave others asleep.
        let stretch = Stretch::claim();
        let mut flags = SHARED.holder.end();
        if flags & CONTENDED != 0 {
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
        flags |= stretch.end();
        cancel::allow(before);
        if flags & SIGNALLED != 0 {
            signals::deliver();
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
