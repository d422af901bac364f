#![allow(unsafe_code, reason = "raw pointers into shared memory")]
use crate::Bytes;
use crate::mapping::Atomics;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// One end of a byte ring, in bytes since the socket was opened; it never wraps in practice.
///
/// The producer alone stores the tail, the consumer alone stores the head. Each has a cache line to
/// itself, and each may lie in memory that the other side can only read.
#[repr(C, align(64))]
pub struct Position {
    position: AtomicU64,
    /// Of a tail: the position whose byte lies where the ring's memory begins, or a ring's worth from there.
    /// The producer changes it while the ring is empty, before it moves the tail on. So who has seen the tail
    /// sees the origin of all bytes before it.
    origin: AtomicU64,
    /// Of a receive ring's head: whose the connection is while it waits to be accepted, see
    /// [`Region::take_offer`](crate::Region::take_offer).
    pub(crate) offer: AtomicU64,
}

// SAFETY: atomics and padding.
unsafe impl Atomics for Position {}

impl Position {
    /// What was stored last, and with it whatever was written before that was stored. A load and a
    /// fence, since in memory mapped for reading only no stronger load is allowed.
    #[inline]
    fn load(&self) -> u64 {
        let position = self.position.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        position
    }

    #[inline]
    fn store(&self, position: u64) {
        self.position.store(position, Ordering::Release);
    }

    /// Puts the end of a ring that nobody uses at zero.
    pub(crate) fn reset(&self) {
        self.origin.store(0, Ordering::Relaxed);
        self.offer.store(0, Ordering::Relaxed);
        self.store(0);
    }

    /// Moves the end on, whatever the other one says.
    #[inline]
    pub(crate) fn advance(&self, count: u64) {
        let position = self.position.load(Ordering::Relaxed);
        self.store(position.wrapping_add(count));
    }
}

/// Bytes in a ring of `capacity` bytes with these ends.
#[inline]
pub(crate) fn fill(head: &Position, tail: &Position, capacity: usize) -> usize {
    let filled = tail.load().wrapping_sub(head.load());
    usize::try_from(filled).map_or(capacity, |filled| filled.min(capacity))
}

/// A view of one single-producer single-consumer byte ring in shared memory.
///
/// Whatever the stored positions say, no call reaches outside the ring's own bytes: a fill level
/// over the capacity (a neighbour's doing) counts as a full ring.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    head: &'a Position,
    tail: &'a Position,
    base: NonNull<u8>,
    capacity: usize,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Ring<'a> {
    /// # Safety
    /// `base` must be valid for `capacity` bytes (a power of two) during `'a`, and be reached
    /// through raw copies only.
    pub(crate) unsafe fn new(
        head: &'a Position,
        tail: &'a Position,
        base: NonNull<u8>,
        capacity: usize,
    ) -> Ring<'a> {
        debug_assert!(capacity.is_power_of_two());
        Ring {
            head,
            tail,
            base,
            capacity,
            memory: PhantomData,
        }
    }

    /// Size in bytes, a power of two.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Position of the oldest byte that is kept.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head.load()
    }

    /// Position just after the newest byte.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail.load()
    }

    /// Bytes in the ring.
    #[inline]
    pub fn len(&self) -> usize {
        fill(self.head, self.tail, self.capacity)
    }

    /// Whether it holds nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the positions are such as no correct neighbour stores: more bytes than fit.
    pub fn is_spoilt(&self) -> bool {
        self.tail().wrapping_sub(self.head()) > self.capacity as u64
    }

    /// Bytes that can still be put in.
    #[inline]
    pub fn free(&self) -> usize {
        self.capacity - self.len()
    }

    /// Whether so much can be put in, a quarter, that a producer who waits for room had better be woken.
    #[inline]
    pub fn is_roomy(&self) -> bool {
        self.free() >= self.capacity / 4
    }

    /// Producer: an empty ring is filled from the start of its memory again, which is in the processor's caches and
    /// has been touched. Nothing may be [written ahead](Ring::write_ahead): it would be lost.
    #[inline]
    pub fn restart(&self) {
        let tail = self.tail();
        if tail == self.head() {
            self.tail.origin.store(tail, Ordering::Relaxed);
        }
    }

    /// Producer: appends as much of `from` as fits; answers how many bytes that was.
    pub fn write(&self, from: &[u8]) -> usize {
        let count = from.len().min(self.free());
        self.copy_in(self.tail(), &from[..count]);
        self.advance_tail(count);
        count
    }

    /// Producer: places `from` at `offset` bytes beyond the newest byte, without making it part of
    /// the ring's contents ([`Ring::advance_tail`] does). Answers how many bytes fitted.
    pub fn write_ahead(&self, offset: usize, from: &[u8]) -> usize {
        let room = self.free().saturating_sub(offset);
        let count = from.len().min(room);
        self.copy_in(self.tail().wrapping_add(offset as u64), &from[..count]);
        count
    }

    /// As [`Ring::write_ahead`], from bytes that another process may be able to write.
    pub fn write_bytes_ahead(&self, offset: usize, from: Bytes<'_>) -> usize {
        let room = self.free().saturating_sub(offset);
        let (from, _) = from.split_at(room);
        let start = self.index(self.tail().wrapping_add(offset as u64));
        let (first, second) = from.split_at(self.capacity - start);
        // SAFETY: `first` ends at the ring's end at the latest, and `second` is no longer than what
        // remains of a ring's worth, so both fit; `copy` allows for overlap.
        unsafe {
            let base = self.base.as_ptr();
            std::ptr::copy(first.as_ptr(), base.add(start), first.len());
            std::ptr::copy(second.as_ptr(), base, second.len());
        }
        from.len()
    }

    /// Producer: where the next `count` bytes, or as many as there is room for, are to be written before
    /// [`Ring::advance_tail`]: addresses and lengths, the second 0 unless they wrap around the end. They may be written
    /// as long as the ring is mapped, and by the one producer alone.
    pub fn room(&self, count: usize) -> [(*mut u8, usize); 2] {
        let count = count.min(self.free());
        let start = self.index(self.tail());
        let first = count.min(self.capacity - start);
        // SAFETY: `start` is below the capacity.
        let at = unsafe { self.base.as_ptr().add(start) };
        [(at, first), (self.base.as_ptr(), count - first)]
    }

    /// Producer: makes `count` bytes written ahead part of the contents.
    #[inline]
    pub fn advance_tail(&self, count: usize) {
        self.tail.advance(count as u64);
    }

    /// Consumer: takes the oldest bytes into `to`; answers how many.
    pub fn read(&self, to: &mut [u8]) -> usize {
        let count = self.peek(0, to);
        // As many as were there: a neighbour may say something else by now.
        self.head.advance(count as u64);
        count
    }

    /// Consumer: copies the bytes from `offset` beyond the oldest on, and leaves them there.
    pub fn peek(&self, offset: usize, to: &mut [u8]) -> usize {
        let [first, second] = self.spans(offset, to.len());
        let (front, back) = to.split_at_mut(first.len());
        first.copy_to(front);
        if !second.is_empty() {
            second.copy_to(back);
        }
        first.len() + second.len()
    }

    /// Consumer: drops the `count` oldest bytes (or as many as there are).
    #[inline]
    pub fn advance_head(&self, count: usize) {
        let count = count.min(self.len());
        self.head.advance(count as u64);
    }

    /// Consumer: drops everything, even if the positions are spoilt.
    pub fn clear(&self) {
        self.head.store(self.tail());
    }

    /// Producer: takes back everything, even if the positions are spoilt.
    pub fn take_back(&self) {
        self.tail.store(self.head());
    }

    /// Consumer: the bytes from `offset` beyond the oldest on, `count` of them or as many as there
    /// are, in place. The second span is empty unless they wrap around the ring's end.
    pub fn spans(&self, offset: usize, count: usize) -> [Bytes<'a>; 2] {
        let count = count.min(self.len().saturating_sub(offset));
        let start = self.index(self.head().wrapping_add(offset as u64));
        let first = count.min(self.capacity - start);
        // SAFETY: `start + first <= capacity` and `count - first <= start`, so both spans lie in
        // the ring, which stays mapped for `'a`.
        unsafe {
            [
                Bytes::new(self.base.as_ptr().add(start), first),
                Bytes::new(self.base.as_ptr(), count - first),
            ]
        }
    }

    /// The `count` bytes from `position` on, in place, whatever the tail says: as [`Ring::spans`], for
    /// who was told where they are. `None` if the consumer has dropped some of them (they may have been
    /// overwritten), or if they can't be in the ring yet.
    pub fn spans_at(&self, position: u64, count: usize) -> Option<[Bytes<'a>; 2]> {
        let beyond_head = usize::try_from(position.wrapping_sub(self.head())).ok()?;
        if beyond_head.checked_add(count)? > self.capacity {
            return None;
        }
        let start = self.index(position);
        let first = count.min(self.capacity - start);
        // SAFETY: `start + first <= capacity` and `count - first <= start`, so both spans lie in
        // the ring, which stays mapped for `'a`.
        unsafe {
            Some([
                Bytes::new(self.base.as_ptr().add(start), first),
                Bytes::new(self.base.as_ptr(), count - first),
            ])
        }
    }

    /// Where in the ring's memory the byte of a position is.
    #[inline]
    pub fn index(&self, position: u64) -> usize {
        let origin = self.tail.origin.load(Ordering::Relaxed);
        (position.wrapping_sub(origin) & (self.capacity as u64 - 1)) as usize
    }

    /// The position, at or after the head, whose byte is at `index` in the ring's memory.
    pub(crate) fn position_of(&self, index: usize) -> u64 {
        let head = self.head();
        let beyond = (index as u64).wrapping_sub(self.index(head) as u64);
        head.wrapping_add(beyond & (self.capacity as u64 - 1))
    }

    /// Copies at most a ring's worth of bytes in, beginning at `position`.
    fn copy_in(&self, position: u64, from: &[u8]) {
        let start = self.index(position);
        let first = from.len().min(self.capacity - start);
        let second = (from.len() - first).min(start);
        // SAFETY: `start + first <= capacity` and `second <= start`; a `&[u8]` never lies in the
        // ring, which is only reached through raw copies.
        unsafe {
            let base = self.base.as_ptr();
            std::ptr::copy_nonoverlapping(from.as_ptr(), base.add(start), first);
            if second > 0 {
                std::ptr::copy_nonoverlapping(from.as_ptr().add(first), base, second);
            }
        }
    }
}

#[cfg(test)]
mod tests;
