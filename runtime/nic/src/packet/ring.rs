use super::Geometry;
use super::backlog::Backlog;
use super::position::{self, Seen};
use super::queue::Queue;
use crate::Budget;
use crate::opener::Past;
use crate::overtaking::{Bucket, Overtaking};
use crate::socket;
use crate::virtio;
use crate::vlan;
use libc::{
    TP_STATUS_COPY, TP_STATUS_KERNEL, TP_STATUS_LOSING, TP_STATUS_USER, TP_STATUS_VLAN_VALID,
    tpacket2_hdr,
};
use skink_messages::RxFrame;
use skink_time::Instant;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

mod queued;

/// Looks at an empty slot after which the socket is asked for an error, which makes it poll readable, too.
const BAFFLED: u32 = 16;
/// Looks at an empty slot after which the ring is searched for a frame.
const PATIENCE: u32 = 1024;
/// Searches in a row that must find one elsewhere: the kernel may just be filling the slot.
const SEARCHES: u32 = 64;

/// What a frame has at most, in bytes, that may overtake others.
const SMALL: usize = 2048;
/// Frames behind the front that are looked at in a batch.
const LOOKS: u32 = 256;
/// Beside the kernel's flags in a slot's status, which it asks only whether it is 0: the frame has overtaken others, and was
/// seen. A successor finds it here.
const OVERTOOK: u32 = 1 << 24;

/// A socket's receive ring, mapped.
pub(crate) struct Ring {
    socket: Arc<OwnedFd>,
    base: NonNull<u8>,
    geometry: Geometry,
    /// Where frames are that are larger than a slot, if there is such a place.
    queue: Option<Queue>,
    /// Block and frame in it that the kernel fills next.
    block: u32,
    frame: u32,
    /// Whether that is known.
    placed: bool,
    /// What the next slot is marked with when it is given back.
    mark: u32,
    /// How often in a row there was nothing in the slot.
    misses: u32,
    /// The kernel said that it dropped frames for want of room.
    losing: bool,
    /// Frames that overtook others, since that was last asked.
    overtaken: u64,
    /// Since when frames wait.
    backlog: Backlog,
    /// What may overtake others, once many do.
    overtaking: Overtaking,
    /// Frames that arrived but couldn't be used: cut short or tagged, or in the ring only or the queue only.
    unusable: u64,
}

// SAFETY: the mapping belongs to this value alone, and nothing in it is bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of a socket that [`super::geometry::configure`] was used on with the same geometry. A
    /// process that had it before must have ended.
    pub(crate) fn map(
        socket: impl Into<Arc<OwnedFd>>,
        geometry: Geometry,
        past: Past,
    ) -> io::Result<Ring> {
        let mut ring = Ring::map_unused(socket.into(), geometry)?;
        match past {
            Past::Unused => {}
            Past::Others => ring.empty()?,
            Past::Own => ring.go_on(),
        }
        Ok(ring)
    }

    fn map_unused(socket: Arc<OwnedFd>, geometry: Geometry) -> io::Result<Ring> {
        use rustix::mm::{MapFlags, ProtFlags};
        // SAFETY: a fresh mapping at an address the kernel chooses aliases nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                geometry.bytes(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &socket,
                0,
            )?
        };
        Ok(Ring {
            socket,
            base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            geometry,
            queue: (geometry.queue_bytes > 0).then(Queue::new),
            block: 0,
            frame: 0,
            placed: true,
            mark: 1,
            misses: 0,
            losing: false,
            overtaken: 0,
            backlog: Backlog::default(),
            overtaking: Overtaking::new(),
            unusable: 0,
        })
    }

    /// Gives back what a process left whose frames are none of ours. The kernel doesn't tell where it
    /// goes on to write, but its next frame does.
    fn empty(&mut self) -> io::Result<()> {
        self.mark = position::find(&self.look()).mark;
        self.placed = false;
        // Again while the kernel fills what we empty, so that what is left is without gaps.
        for _ in 0..8 {
            let mut emptied = 0;
            for _ in 0..self.geometry.frames() {
                if self.is_filled() {
                    self.status().store(TP_STATUS_KERNEL, Ordering::Release);
                    emptied += 1;
                }
                self.advance();
            }
            if emptied == 0 {
                // What comes now leaves slots whose frames aren't there.
                if let Some(queue) = &mut self.queue {
                    queue.empty(self.socket.as_fd());
                }
                return Ok(());
            }
        }
        Err(io::Error::other(
            "the NIC's ring fills faster than it can be emptied",
        ))
    }

    /// Goes on where a process ended that had the ring before.
    fn go_on(&mut self) {
        let position = position::find(&self.look());
        if let Some(seen) = position.seen {
            self.go_to(seen);
            self.status().store(TP_STATUS_KERNEL, Ordering::Release);
        }
        self.go_to(position.next);
        self.mark = position.mark;
    }

    /// What all slots say.
    fn look(&mut self) -> Vec<Seen> {
        self.go_to(0);
        let mut slots = Vec::with_capacity(self.geometry.frames() as usize);
        for _ in 0..self.geometry.frames() {
            let filled = self.is_filled();
            // SAFETY: the slot begins with this header, and any bits make valid integers. The kernel may
            // write it meanwhile unless it has handed the slot over; then what is read means nothing,
            // and isn't looked at.
            let header = unsafe { self.slot().cast::<tpacket2_hdr>().read_volatile() };
            slots.push(Seen {
                filled,
                mark: self.slot_mark().load(Ordering::Relaxed),
                arrived: (header.tp_sec, header.tp_nsec),
            });
            self.advance();
        }
        slots
    }

    /// Goes to a slot, counted from the first.
    fn go_to(&mut self, slot: usize) {
        let slot = slot as u32 % self.geometry.frames();
        self.block = slot / self.geometry.frames_in_block();
        self.frame = slot % self.geometry.frames_in_block();
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// As [`crate::Receiver::receive`].
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        if budget.is_spent() || !self.placed && !self.find() {
            return 0;
        }
        self.backlog.begin(now);
        let mut taken = self.take_front(now, budget, each);
        if budget.is_spent() {
            taken += self.take_behind(now, budget, each);
        }
        self.backlog.end(now, budget.is_spent());
        match taken {
            0 => self.miss(),
            _ => self.misses = 0,
        }
        taken
    }

    /// Takes what is at the front, until the budget is spent.
    fn take_front(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        let mut taken = 0;
        while !budget.is_spent() {
            // Acquire: what the kernel wrote before it handed over the slot is seen after this.
            let flags = self.status().load(Ordering::Acquire);
            if flags & TP_STATUS_USER == 0 {
                break;
            }
            if flags & OVERTOOK == 0 {
                budget.spend(self.take(flags, now, each));
                taken += 1;
            }
            self.leave(flags);
        }
        taken
    }

    /// Hands over the frame of the current slot, whose status is `flags`. Answers its length in bytes.
    fn take(&mut self, flags: u32, now: Instant, each: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let slot = self.slot();
        self.losing |= flags & TP_STATUS_LOSING != 0;
        let queued = flags & TP_STATUS_COPY != 0 && self.queue.is_some();
        let fetched = queued && self.fetch();
        let tagged = flags & TP_STATUS_VLAN_VALID != 0 && self.is_for_a_vlan(slot);
        let arrived = self.arrival(slot, now);
        let frame = match &mut self.queue {
            Some(queue) if fetched => queue.take(arrived),
            _ if queued => None,
            _ => self.frame_in(slot, arrived),
        };
        let Some(frame) = frame.filter(|_| !tagged) else {
            self.unusable += 1;
            return 0;
        };
        let bytes = frame.bytes.len();
        each(frame);
        bytes
    }

    /// The current slot, whose status is `flags`, is done with.
    fn leave(&mut self, flags: u32) {
        // Most rings never have much in them.
        if self.overtaking.looked_at() > 0 {
            let waited = flags & OVERTOOK == 0;
            let bucket = waited.then(|| self.bucket().0);
            self.overtaking.leaves(bucket);
        }
        self.give_back();
    }

    /// Of the current slot's frame; and whether that is a small one.
    fn bucket(&self) -> (Bucket, bool) {
        let beginning = self.beginning(self.slot());
        let (bytes, frame) = beginning.map_or((0, &[][..]), |it| (it.frame_bytes, it.bytes));
        (Bucket::of(frame), bytes <= SMALL)
    }

    /// Takes frames from behind the front that may overtake others: as many as are left of the budget, of which only the bytes
    /// are spent.
    fn take_behind(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        let front = (self.block, self.frame);
        let all = self.geometry.frames();
        self.go_to(self.number() + self.overtaking.looked_at() as usize);
        let mut taken = 0;
        for _ in 0..LOOKS {
            let flags = self.status().load(Ordering::Acquire);
            let filled = flags & TP_STATUS_USER != 0 && self.overtaking.looked_at() < all;
            if !filled || budget.frames == 0 {
                break;
            }
            let (bucket, small) = self.bucket();
            let whole = flags & (TP_STATUS_COPY | TP_STATUS_VLAN_VALID) == 0;
            if flags & OVERTOOK != 0 {
                self.overtaking.skip();
            } else if self.overtaking.look(bucket, small && whole) {
                budget.spend(self.take(flags, now, each));
                // Release: our reads are done before a successor sees that they are.
                self.status().store(flags | OVERTOOK, Ordering::Release);
                self.overtaken += 1;
                taken += 1;
            }
            self.advance();
        }
        (self.block, self.frame) = front;
        taken
    }

    /// The current slot, counted from the first.
    fn number(&self) -> usize {
        (self.block * self.geometry.frames_in_block() + self.frame) as usize
    }

    /// The slot's frame has been seen.
    fn give_back(&mut self) {
        // A successor that sees the mark but not the next store does that.
        self.slot_mark().store(self.mark, Ordering::Release);
        // Release: our reads are done before the kernel may write again.
        self.status().store(TP_STATUS_KERNEL, Ordering::Release);
        self.mark = position::after(self.mark);
        self.advance();
    }

    /// There was nothing in the slot. If that goes on while there is something in others, a predecessor
    /// that wasn't in its right mind has spoilt the ring: goes where frames are.
    fn miss(&mut self) {
        self.overtaking.forget();
        self.misses += 1;
        if self.misses.is_multiple_of(BAFFLED) {
            self.take_error();
        }
        if self.misses < PATIENCE {
            return;
        }
        let here = (self.block, self.frame);
        if !self.find() {
            self.misses = 0;
            self.look_into_queue();
        } else if self.misses >= PATIENCE + SEARCHES {
            self.misses = 0;
            return;
        }
        (self.block, self.frame) = here;
    }

    /// When the interface goes down, each of its packet sockets gets an error, and polls readable until somebody has
    /// taken it. There is nothing to do about it: it comes up again or not.
    fn take_error(&self) {
        let _ = socket::get_option(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR);
    }

    /// Frames lost since the last call.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        self.take_error();
        let mut dropped = std::mem::take(&mut self.unusable);
        if std::mem::take(&mut self.losing) {
            // Reading the statistics resets them.
            let statistics =
                socket::get_option(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS);
            dropped += statistics.map_or(0, |[_packets, drops]| u64::from(drops));
        }
        dropped
    }

    /// Frames since the last call that overtook others.
    pub(crate) fn take_overtaken(&mut self) -> u64 {
        std::mem::take(&mut self.overtaken)
    }

    /// Goes to the oldest frame, if there is any.
    #[cold]
    fn find(&mut self) -> bool {
        let frames = self.geometry.frames();
        let mut searched = 0;
        while !self.is_filled() {
            if searched == frames {
                return false;
            }
            self.advance();
            searched += 1;
        }
        self.placed = true;
        // The kernel fills them in order: those in front came while we were looking.
        for _ in 1..frames {
            self.retreat();
            if !self.is_filled() {
                self.advance();
                break;
            }
        }
        true
    }

    fn is_filled(&self) -> bool {
        self.status().load(Ordering::Acquire) & TP_STATUS_USER != 0
    }

    /// What the current slot begins with.
    fn status(&self) -> &AtomicU32 {
        // SAFETY: each slot begins with a status that the kernel and we access as one 32-bit
        // integer; the slot lies in the mapping and is aligned to 16 bytes.
        unsafe { self.slot().cast::<AtomicU32>().as_ref() }
    }

    /// What the consumer leaves in the current slot for its successor.
    fn slot_mark(&self) -> &AtomicU32 {
        const AT: usize = offset_of!(tpacket2_hdr, tp_padding);
        const { assert!(AT.is_multiple_of(4)) };
        // SAFETY: as for the status; the kernel writes these four bytes only while the slot is its own.
        unsafe { self.slot().add(AT).cast::<AtomicU32>().as_ref() }
    }

    fn slot(&self) -> NonNull<u8> {
        let at = self.block as usize * self.geometry.block_bytes as usize
            + self.frame as usize * self.geometry.frame_bytes as usize;
        // SAFETY: `advance` keeps both numbers below their ends, so the slot is in the mapping.
        unsafe { self.base.add(at) }
    }

    fn advance(&mut self) {
        self.frame += 1;
        if self.frame >= self.geometry.frames_in_block() {
            self.frame = 0;
            self.block += 1;
            if self.block >= self.geometry.blocks {
                self.block = 0;
            }
        }
    }

    fn retreat(&mut self) {
        if self.frame > 0 {
            self.frame -= 1;
            return;
        }
        self.frame = self.geometry.frames_in_block() - 1;
        self.block = match self.block {
            0 => self.geometry.blocks - 1,
            block => block - 1,
        };
    }

    /// The header of a slot that the kernel has handed over, and where in the slot its frame is; `None` if that is
    /// outside.
    fn header(&self, slot: NonNull<u8>) -> Option<(tpacket2_hdr, usize)> {
        // SAFETY: the slot begins with this header, which the kernel no longer writes.
        let header = unsafe { slot.cast::<tpacket2_hdr>().read() };
        let start = usize::from(header.tp_mac);
        let end = start.saturating_add(header.tp_snaplen as usize);
        let fits = start >= virtio::BYTES && end <= self.geometry.frame_bytes as usize;
        fits.then_some((header, start))
    }

    /// When the frame in a slot that the kernel has handed over arrived.
    fn arrival(&self, slot: NonNull<u8>, now: Instant) -> Instant {
        self.backlog.arrival(now, || {
            // SAFETY: the slot begins with this header, which the kernel no longer writes.
            let header = unsafe { slot.cast::<tpacket2_hdr>().read() };
            Duration::new(header.tp_sec.into(), header.tp_nsec)
        })
    }

    /// Whether the tag that the kernel took off the frame names a VLAN.
    #[cold]
    fn is_for_a_vlan(&self, slot: NonNull<u8>) -> bool {
        // SAFETY: the slot begins with this header, which the kernel no longer writes.
        let header = unsafe { slot.cast::<tpacket2_hdr>().read() };
        header.tp_vlan_tci & vlan::ID != 0
    }

    /// The frame in a slot that the kernel has handed over; `None` if it was cut short.
    fn frame_in(&self, slot: NonNull<u8>, arrived: Instant) -> Option<RxFrame<'_>> {
        let (header, start) = self.header(slot)?;
        if header.tp_snaplen != header.tp_len {
            return None;
        }
        let bytes = header.tp_snaplen as usize;
        // SAFETY: checked to lie in the slot, right before the frame; the kernel doesn't write it
        // until the slot is given back, which needs `&mut self`.
        let (virtio_header, bytes) = unsafe {
            (
                slot.add(start - virtio::BYTES)
                    .cast::<[u8; virtio::BYTES]>()
                    .as_ref(),
                std::slice::from_raw_parts(slot.add(start).as_ptr(), bytes),
            )
        };
        let (checksum, segment_bytes) = virtio::parse(virtio_header);
        Some(RxFrame {
            arrived,
            bytes,
            checksum,
            segment_bytes,
        })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is our mapping, and no frame borrowed from it can outlive `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.geometry.bytes()) };
    }
}

#[cfg(test)]
mod tests;
