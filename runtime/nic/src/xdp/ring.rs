//! The four rings of an AF_XDP socket (Documentation/networking/af_xdp.rst): single producer, single
//! consumer, indices that run through all of `u32`.

use super::memory::Mapped;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, fence};

/// Where the parts of each ring are in its mapping.
pub(super) struct Offsets {
    pub(super) rx: libc::xdp_ring_offset,
    pub(super) tx: libc::xdp_ring_offset,
    pub(super) fill: libc::xdp_ring_offset,
    pub(super) completion: libc::xdp_ring_offset,
}

impl Offsets {
    pub(super) fn of(socket: BorrowedFd<'_>) -> io::Result<Offsets> {
        // SAFETY: all zeros is a valid value of these plain integers.
        let mut value: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        let mut bytes = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `bytes` bytes to `value`.
        crate::socket::check(unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_XDP,
                libc::XDP_MMAP_OFFSETS,
                (&raw mut value).cast(),
                &raw mut bytes,
            )
        })?;
        // Older kernels (before 5.4) answer less, without the flags.
        if bytes as usize != size_of::<libc::xdp_mmap_offsets>() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Offsets {
            rx: value.rx,
            tx: value.tx,
            fill: value.fr,
            completion: value.cr,
        })
    }
}

/// What both kinds of ring have in common.
struct Ring<T> {
    _memory: Mapped,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    mask: u32,
    values: PhantomData<T>,
}

// SAFETY: the pointers lead into the mapping, which isn't bound to a thread.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn map(
        socket: BorrowedFd<'_>,
        offsets: &libc::xdp_ring_offset,
        page: u64,
        entries: u32,
    ) -> io::Result<Ring<T>> {
        let bytes = usize::try_from(offsets.desc).map_err(io::Error::other)?
            + entries as usize * size_of::<T>();
        let memory = Mapped::map(socket, bytes, page)?;
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        Ok(Ring {
            producer: memory.at(offsets.producer, 1).ok_or_else(wrong)?,
            consumer: memory.at(offsets.consumer, 1).ok_or_else(wrong)?,
            flags: memory.at(offsets.flags, 1).ok_or_else(wrong)?,
            slots: memory.at(offsets.desc, entries).ok_or_else(wrong)?,
            mask: entries - 1,
            _memory: memory,
            values: PhantomData,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: inside the mapping, aligned, and only ever used atomically on both sides.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn slot(&self, index: u32) -> *mut T {
        // SAFETY: the mask keeps it within the slots.
        unsafe { self.slots.add((index & self.mask) as usize).as_ptr() }
    }
}

/// A ring that we fill: *fill* and *tx*.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// The slot to write next; published up to there or less.
    next: u32,
    /// As far as the kernel was when we last looked.
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offsets: &libc::xdp_ring_offset,
        page: u64,
        entries: u32,
    ) -> io::Result<Producer<T>> {
        let ring = Ring::map(socket, offsets, page, entries)?;
        Ok(Producer {
            next: ring.producer().load(Relaxed),
            consumed: ring.consumer().load(Acquire),
            ring,
        })
    }

    /// Free slots, at least. Looks at the kernel's index only if fewer than `wanted` are known.
    pub(super) fn free(&mut self, wanted: u32) -> u32 {
        let entries = self.ring.mask + 1;
        let known = entries.saturating_sub(self.next.wrapping_sub(self.consumed));
        if known >= wanted {
            return known;
        }
        self.consumed = self.ring.consumer().load(Acquire);
        entries.saturating_sub(self.next.wrapping_sub(self.consumed))
    }

    /// Writes the next slot; the kernel sees it after [`Producer::publish`]. The caller has seen that
    /// a slot is free.
    pub(super) fn write(&mut self, value: T) {
        // SAFETY: a slot of the ring that the kernel doesn't read before the index passes it.
        unsafe { self.ring.slot(self.next).write(value) };
        self.next = self.next.wrapping_add(1);
    }

    /// Hands all slots written so far to the kernel.
    pub(super) fn publish(&mut self) {
        self.publish_all_but(0);
    }

    /// Hands all slots written so far but the last few to the kernel.
    pub(super) fn publish_all_but(&mut self, last: u32) {
        let end = self.next.wrapping_sub(last);
        self.ring.producer().store(end, Release);
    }

    /// Index of the slot that is written next.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// What was written to the slot of this index, if that isn't too long ago.
    pub(super) fn written(&self, index: u32) -> T {
        // SAFETY: inside the mapping, and only producers write it: this one, or one that is gone.
        unsafe { self.ring.slot(index).read() }
    }

    /// Takes slots for written: a producer that is gone has.
    pub(super) fn adopt(&mut self, slots: u32) {
        self.next = self.next.wrapping_add(slots);
    }

    /// Slots that the kernel hasn't taken yet.
    pub(super) fn pending(&self) -> u32 {
        let consumed = self.ring.consumer().load(Acquire);
        self.next.wrapping_sub(consumed)
    }

    /// Whether the kernel waits for a system call before it goes on.
    pub(super) fn needs_wakeup(&self) -> bool {
        // The kernel looks at the index after it set the flag; we look the other way round.
        fence(SeqCst);
        // SAFETY: inside the mapping, aligned, and only ever used atomically.
        let flags = unsafe { self.ring.flags.as_ref() }.load(Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that we empty: *completion* and *rx*.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    next: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offsets: &libc::xdp_ring_offset,
        page: u64,
        entries: u32,
    ) -> io::Result<Consumer<T>> {
        let ring = Ring::map(socket, offsets, page, entries)?;
        Ok(Consumer {
            next: ring.consumer().load(Relaxed),
            ring,
        })
    }

    /// How many values wait.
    pub(super) fn waiting(&self) -> u32 {
        let produced = self.ring.producer().load(Acquire);
        produced.wrapping_sub(self.next).min(self.ring.mask + 1)
    }

    /// The next value. The caller has seen that one waits.
    pub(super) fn take(&mut self) -> T {
        // SAFETY: a slot that the kernel has published and doesn't write before we release it.
        let value = unsafe { self.ring.slot(self.next).read() };
        self.next = self.next.wrapping_add(1);
        value
    }

    /// Gives the slots of all values taken so far back to the kernel.
    pub(super) fn release(&mut self) {
        self.release_all_but(0);
    }

    /// Gives the slots of all values taken so far but the last few back to the kernel.
    pub(super) fn release_all_but(&mut self, last: u32) {
        let end = self.next.wrapping_sub(last);
        self.ring.consumer().store(end, Release);
    }

    /// Index of the value that is taken next.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Index that the kernel writes next.
    pub(super) fn produced(&self) -> u32 {
        self.ring.producer().load(Acquire)
    }
}
