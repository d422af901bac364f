//! Epoll sets that are in other sets, and all sets before they have a socket of Skink's.
//!
//! Who sleeps in an outer set isn't known here, since that may be the kernel's alone. So the bell of an *inner* set says by
//! itself whether one of its members is ready: it is rung once for each event, as the kernel tells an outer set of each, and
//! hushed when nothing is left. That is done when the lock is let go, whoever has taken in what came, or read it. If the stack
//! is in another process, that rings as long as there is an inner set, as if a thread slept; one in this process is driven
//! by the helper. (The NIC's descriptors are members of the set too: a frame with nothing in it for a member makes the set
//! readable until somebody drives the stack.)
//!
//! A set may be put into another one, or get another descriptor, before it has a socket of Skink's. So sets are noticed when they
//! are made; until then they are *plain*, and all that is done with them is the kernel's business.
//!
//! A set stays an inner one when it is taken out again. To a child after `fork` the sets that it has inherited are none, until it
//! puts them into another one; nor are those that a program got by `exec` or over a Unix socket and that were put there before.
use crate::descriptor::is_guest;
use crate::fd_table::{self, Entry};
use crate::lock::lock;
use crate::raw;
use crate::remote::unsettle;
use crate::state::State;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

/// Sets were put into others, some time.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether a set was ever put into another one.
#[inline]
pub fn is_any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// The program made epoll set `fd`.
pub fn made(fd: c_int) {
    let Ok(mut state) = lock() else { return };
    if is_guest() {
        return;
    }
    if fd_table::is_listed(fd) {
        // A number that stands for something was closed behind our back.
        state.forget_descriptor(fd);
    }
    if state.refused {
        return;
    }
    let index = state.epolls.add(fd);
    if !fd_table::set(fd, Entry::Plain(index)) {
        state.epoll_descriptor_closed(index, fd);
    }
}

impl State {
    /// The program puts set `fd` into another one.
    pub fn put_inside(&mut self, fd: c_int) {
        if let Entry::Epoll(index) | Entry::Plain(index) = fd_table::get(fd)
            && !core::mem::replace(&mut self.epolls[index].inner, true)
        {
            ANY.store(true, Ordering::Relaxed);
            self.begin_inner(index);
        }
    }

    /// A thread is about to wait on a set that is the kernel's alone. What has come is taken in: as long as it isn't, inner sets are
    /// readable, though nothing may be ready there.
    pub fn before_outer_wait(&mut self) {
        if self.epolls.inner > 0 {
            self.pump();
        }
    }

    /// A set that is in another one has sockets of Skink's from now on, or the other way round.
    pub fn begin_inner(&mut self, index: u32) {
        let set = &self.epolls[index];
        if set.inner && set.doorbell >= 0 {
            self.wake_with_others(index);
            self.epolls.inner += 1;
            self.epolls.look_after(index);
            unsettle();
        }
    }

    /// A member of an inner set has an event.
    #[cold]
    pub fn tell_outer(&mut self, index: u32, place: u32) {
        if self.is_due(index, place) {
            self.epolls[index].news = true;
            self.epolls.look_after(index);
            unsettle();
        }
    }

    /// The bells of inner sets say what is so. It is done before the lock is let go, and before the kernel is asked about a
    /// set under it.
    #[inline]
    pub fn settle_bells(&mut self) {
        if !self.epolls.noted.is_empty() {
            self.settle_noted();
        }
    }

    #[cold]
    fn settle_noted(&mut self) {
        for at in (0..self.epolls.noted.len()).rev() {
            let index = self.epolls.noted[at];
            if !self.settle_bell(index) {
                self.epolls.noted.swap_remove(at);
                self.epolls[index].noted = false;
            }
        }
        if !self.epolls.noted.is_empty() {
            // What is ready may be read by the next call.
            unsettle();
        }
    }

    /// Answers whether the bell is rung.
    fn settle_bell(&mut self, index: u32) -> bool {
        let ready = self.first_is_due(index);
        let set = &mut self.epolls[index];
        let news = core::mem::take(&mut set.news);
        if ready && (news || !set.rung) {
            raw::ring(set.doorbell);
        } else if set.rung && !ready {
            raw::hush(set.doorbell);
        }
        set.rung = ready;
        ready
    }

    /// Whether a member is ready. What has been queued and isn't any more, as its next event will queue it again, goes.
    fn first_is_due(&mut self, index: u32) -> bool {
        while let Some(place) = self.epolls[index].ready.front().copied() {
            if self.is_due(index, place) {
                return true;
            }
            let set = &mut self.epolls[index];
            set.items[place as usize].queued = false;
            set.ready.pop_front();
        }
        false
    }
}

#[cfg(test)]
mod tests;
