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
    /// sees the origin of all bytes before it. With [`GROWN`] the ring uses all of its memory.
    origin: AtomicU64,
    /// Of a receive ring's head: whose the connection is while it waits to be accepted, see
    /// [`Region::take_offer`](crate::Region::take_offer), or whether a listener's program waits, see
    /// [`Region::set_waiting`](crate::Region::set_waiting).
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

    /// The ring whose tail this is, which nobody uses yet, is as large as its memory from the beginning.
    pub(crate) fn begin_grown(&self) {
        self.origin.store(GROWN, Ordering::Relaxed);
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

/// In an origin, which is below that: the ring has grown. In one word, so that nobody sees half of the change.
const GROWN: u64 = 1 << 63;

/// The ring of a socket that is closed, or idle, keeps up to this many bytes of memory.
pub const KEEP_BYTES: usize = 64 * 1024;

/// A growing ring begins with a quarter of its memory, but with so many bytes if it has them.
const LEAST_BEGUN: usize = 64 * 1024;

/// How many bytes a growing ring uses of a memory of `capacity` bytes before it has grown.
pub fn first_part(capacity: usize) -> usize {
    (capacity / 4).max(LEAST_BEGUN).min(capacity)
}

/// A view of one single-producer single-consumer byte ring in shared memory.
///
/// A *growing* ring goes around in the first part of its memory only, which is soon in the processor's caches, until its
/// producer finds that more must be under way at a time ([`Ring::grow`]): then it goes on behind that part, and around all of
/// the memory. No byte is moved for it.
///
/// Whatever the stored positions say, no call reaches outside the ring's own bytes: a fill level
/// over the capacity (a neighbour's doing) counts as a full ring.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    head: &'a Position,
    tail: &'a Position,
    base: NonNull<u8>,
    capacity: usize,
    /// How many bytes it uses before it has grown, a power of two.
    begun: usize,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Ring<'a> {
    /// One that uses all of its memory.
    ///
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
            begun: capacity,
            memory: PhantomData,
        }
    }

    /// One that can grow.
    ///
    /// # Safety
    /// As for [`Ring::new`].
    pub(crate) unsafe fn growing(
        head: &'a Position,
        tail: &'a Position,
        base: NonNull<u8>,
        capacity: usize,
    ) -> Ring<'a> {
        // SAFETY: the caller's promise.
        let ring = unsafe { Ring::new(head, tail, base, capacity) };
        Ring {
            begun: first_part(capacity),
            ..ring
        }
    }

    /// Size of its memory in bytes, a power of two.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many bytes it holds at most, for now: all of its memory, or the part that it began with. A power of two.
    #[inline]
    pub fn size(&self) -> usize {
        self.size_by(self.tail.origin.load(Ordering::Relaxed))
    }

    #[inline]
    fn size_by(&self, origin: u64) -> usize {
        match origin & GROWN {
            0 => self.begun,
            _ => self.capacity,
        }
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
        fill(self.head, self.tail, self.size())
    }

    /// Whether it holds nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the positions are such as no correct neighbour stores: more bytes than fit.
    pub fn is_spoilt(&self) -> bool {
        self.tail().wrapping_sub(self.head()) > self.size() as u64
    }

    /// Bytes that can still be put in.
    #[inline]
    pub fn free(&self) -> usize {
        self.size().saturating_sub(self.len())
    }

    /// Whether so much can be put in, a quarter, that a producer who waits for room had better be woken.
    #[inline]
    pub fn is_roomy(&self) -> bool {
        self.free() >= self.size() / 4
    }

    /// Producer: has it use all of its memory, while up to `ahead` bytes beyond the tail are [written
    /// ahead](Ring::write_ahead). Answers whether it has grown just now. It can't if it has already, nor while what is there
    /// goes around the end of the first part: then it is to be tried again when the consumer has taken some of it.
    pub fn grow(&self, ahead: usize) -> bool {
        let origin = self.tail.origin.load(Ordering::Relaxed);
        if self.size_by(origin) == self.capacity {
            return false;
        }
        let (head, end) = (self.head(), self.tail().wrapping_add(ahead as u64));
        let into_part = self.index(head) as u64;
        if into_part.saturating_add(end.wrapping_sub(head)) > self.begun as u64 {
            return false;
        }
        // Counted from where the first part began last, all that is there has the same places by either size.
        let origin = head.wrapping_sub(into_part) & !GROWN;
        self.tail.origin.store(origin | GROWN, Ordering::Relaxed);
        true
    }

    /// Producer: an empty ring is filled from the start of its memory again, which is in the processor's caches and
    /// has been touched. Nothing may be [written ahead](Ring::write_ahead): it would be lost.
    #[inline]
    pub fn restart(&self) {
        let tail = self.tail();
        if tail == self.head() {
            let grown = self.tail.origin.load(Ordering::Relaxed) & GROWN;
            let origin = tail & !GROWN | grown;
            self.tail.origin.store(origin, Ordering::Relaxed);
        }
    }

    /// Producer, of a ring that nobody else uses yet: it is empty at `position`.
    pub(crate) fn skip_to(&self, position: u64) {
        self.tail.store(position);
        self.head.store(position);
        self.restart();
    }

    /// Where its memory holds nothing: neither contents, nor the `ahead` bytes behind the tail that are [written
    /// ahead](Ring::write_ahead). Indices and lengths, the second one's 0 unless they wrap around the end.
    pub(crate) fn unused(&self, ahead: usize) -> [(usize, usize); 2] {
        let count = self.free().saturating_sub(ahead);
        let (start, to_end) = self.place(self.tail().wrapping_add(ahead as u64));
        let first = count.min(to_end);
        [(start, first), (0, count - first)]
    }

    /// Whether the newest byte is beyond what an idle ring [keeps](KEEP_BYTES) of its memory.
    #[inline]
    pub fn has_spread(&self) -> bool {
        self.index(self.tail()) > KEEP_BYTES
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
        let (start, to_end) = self.place(self.tail().wrapping_add(offset as u64));
        let (first, second) = from.split_at(to_end);
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
        let (start, to_end) = self.place(self.tail());
        let first = count.min(to_end);
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
        self.bytes_at(self.head().wrapping_add(offset as u64), count)
    }

    /// The `count` bytes from `position` on, in place, whatever the tail says: as [`Ring::spans`], for
    /// who was told where they are. `None` if the consumer has dropped some of them (they may have been
    /// overwritten), or if they can't be in the ring yet.
    pub fn spans_at(&self, position: u64, count: usize) -> Option<[Bytes<'a>; 2]> {
        let beyond_head = usize::try_from(position.wrapping_sub(self.head())).ok()?;
        if beyond_head.checked_add(count)? > self.size() {
            return None;
        }
        Some(self.bytes_at(position, count))
    }

    /// At most as many bytes as its memory has.
    #[inline]
    fn bytes_at(&self, position: u64, count: usize) -> [Bytes<'a>; 2] {
        let (start, to_end) = self.place(position);
        let first = count.min(to_end);
        // SAFETY: `start + to_end <= capacity` and `count <= capacity`, so both spans lie in the ring's memory, which
        // stays mapped for `'a`.
        unsafe {
            [
                Bytes::new(self.base.as_ptr().add(start), first),
                Bytes::new(self.base.as_ptr(), count - first),
            ]
        }
    }

    /// Where in the ring's memory the byte of a position is.
    #[inline]
    pub fn index(&self, position: u64) -> usize {
        self.place(position).0
    }

    /// Likewise, and how many bytes there are from there to where it goes around.
    #[inline]
    fn place(&self, position: u64) -> (usize, usize) {
        let origin = self.tail.origin.load(Ordering::Relaxed);
        let size = self.size_by(origin);
        let index = (position.wrapping_sub(origin) & (size as u64 - 1)) as usize;
        (index, size - index)
    }

    /// The position, at or after the head, whose byte is at `index` in the ring's memory.
    pub(crate) fn position_of(&self, index: usize) -> u64 {
        let head = self.head();
        let beyond = (index as u64).wrapping_sub(self.index(head) as u64);
        head.wrapping_add(beyond & (self.size() as u64 - 1))
    }

    /// Copies at most a ring's worth of bytes in, beginning at `position`.
    fn copy_in(&self, position: u64, from: &[u8]) {
        let (start, to_end) = self.place(position);
        let first = from.len().min(to_end);
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
