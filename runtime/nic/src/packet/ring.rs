use crate::socket;
use crate::virtio;
use libc::{
    TP_STATUS_KERNEL, TP_STATUS_LOSING, TP_STATUS_USER, TP_STATUS_VLAN_VALID, tpacket2_hdr,
};
use serde::{Deserialize, Serialize};
use skink_messages::RxFrame;
use skink_time::Instant;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// `tpacket_req` of the kernel's if_packet.h.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    block_bytes: u32,
    blocks: u32,
    frame_bytes: u32,
    frames: u32,
}

/// How a ring is laid out: the kernel takes all of its memory when the ring is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Geometry {
    block_bytes: u32,
    blocks: u32,
    frame_bytes: u32,
}

impl Geometry {
    /// 240 frames of up to 64 KiB each, in 16 MiB. A frame that the sender's kernel didn't cut
    /// arrives whole. The odd size starts each frame in other cache sets than the one before.
    pub const FLOWS: Geometry = Geometry {
        block_bytes: 1 << 20,
        blocks: 16,
        frame_bytes: 69_888,
    };

    /// 64 frames of up to 1,950 bytes, in 128 KiB: an ICMPv6 error has at most 1,280
    /// (RFC 4443 section 2.4).
    pub const CONTROL: Geometry = Geometry {
        block_bytes: 1 << 16,
        blocks: 2,
        frame_bytes: 2048,
    };

    fn frames_in_block(self) -> u32 {
        self.block_bytes / self.frame_bytes.max(1)
    }

    /// Frames that it holds.
    pub fn frames(self) -> u32 {
        self.frames_in_block() * self.blocks
    }

    /// Memory in bytes.
    pub fn bytes(self) -> usize {
        self.block_bytes as usize * self.blocks as usize
    }
}

/// Which frames of an interface a ring is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// Those that arrive.
    Inbound,
    /// Those that the kernel sends.
    Outbound,
}

/// Makes the socket receive through a ring, each frame with a virtio-net header. Before the bind.
pub(super) fn configure(
    socket: BorrowedFd<'_>,
    geometry: Geometry,
    direction: Direction,
) -> io::Result<()> {
    let set = |name, value: i32| socket::set_option(socket, libc::SOL_PACKET, name, value);
    // Version 3 hands over whole blocks, when they are full or a timer of at least 1 ms says so:
    // a needless wait for a stack. Version 2 hands over each frame at once.
    set(
        libc::PACKET_VERSION,
        libc::tpacket_versions::TPACKET_V2 as i32,
    )?;
    set(libc::PACKET_VNET_HDR, 1)?;
    match direction {
        Direction::Inbound => set(libc::PACKET_IGNORE_OUTGOING, 1)?,
        // The socket's filter leaves out the rest.
        Direction::Outbound => {}
    }
    let request = Request {
        block_bytes: geometry.block_bytes,
        blocks: geometry.blocks,
        frame_bytes: geometry.frame_bytes,
        frames: geometry.frames(),
    };
    socket::set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, request)
}

/// A socket's receive ring, mapped.
pub(crate) struct Ring {
    socket: OwnedFd,
    base: NonNull<u8>,
    geometry: Geometry,
    /// Block and frame in it that the kernel fills next.
    block: u32,
    frame: u32,
    /// Whether that is known.
    placed: bool,
    /// The kernel said that it dropped frames for want of room.
    losing: bool,
    /// Frames that arrived but couldn't be used: cut short or tagged.
    unusable: u64,
}

// SAFETY: the mapping belongs to this value alone, and nothing in it is bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of a socket that [`configure`] was used on with the same geometry.
    pub(crate) fn map(socket: OwnedFd, geometry: Geometry) -> io::Result<Ring> {
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
            block: 0,
            frame: 0,
            placed: true,
            losing: false,
            unusable: 0,
        })
    }

    /// How to map a ring: one that a process used before, or a new one.
    pub(crate) fn mapper(reused: bool) -> fn(OwnedFd, Geometry) -> io::Result<Ring> {
        match reused {
            true => Ring::map_used,
            false => Ring::map,
        }
    }

    /// As [`Ring::map`], for a ring that a process used which is gone: what it left is given back.
    /// The kernel doesn't tell where it goes on to write, but its next frame does.
    fn map_used(socket: OwnedFd, geometry: Geometry) -> io::Result<Ring> {
        let mut ring = Ring::map(socket, geometry)?;
        ring.placed = false;
        // Again while the kernel fills what we empty, so that what is left is without gaps.
        for _ in 0..8 {
            let mut emptied = 0;
            for _ in 0..geometry.frames() {
                if ring.is_filled() {
                    ring.status().store(TP_STATUS_KERNEL, Ordering::Release);
                    emptied += 1;
                }
                ring.advance();
            }
            if emptied == 0 {
                return Ok(ring);
            }
        }
        Err(io::Error::other(
            "the NIC's ring fills faster than it can be emptied",
        ))
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Hands up to `budget` frames to `each`; answers how many slots it emptied.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        budget: usize,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        let mut emptied = 0;
        if !self.placed && !self.find() {
            return 0;
        }
        while emptied < budget {
            let slot = self.slot();
            // Acquire: what the kernel wrote before it handed over the slot is seen after this.
            let flags = self.status().load(Ordering::Acquire);
            if flags & TP_STATUS_USER == 0 {
                break;
            }
            self.losing |= flags & TP_STATUS_LOSING != 0;
            if flags & TP_STATUS_VLAN_VALID != 0 {
                // The kernel took the tag off; the frame belongs to another, virtual interface.
                self.unusable += 1;
            } else {
                match self.frame_in(slot, now) {
                    Some(frame) => each(frame),
                    None => self.unusable += 1,
                }
            }
            // Release: our reads are done before the kernel may write again.
            self.status().store(TP_STATUS_KERNEL, Ordering::Release);
            self.advance();
            emptied += 1;
        }
        emptied
    }

    /// Frames lost since the last call.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        // When the interface goes down, each of its packet sockets gets an error, and polls readable
        // until somebody has taken it. There is nothing to do about it: it comes up again or not.
        let _ = socket::get_option(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR);
        let mut dropped = std::mem::take(&mut self.unusable);
        if std::mem::take(&mut self.losing) {
            // Reading the statistics resets them.
            let statistics =
                socket::get_option(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS);
            dropped += statistics.map_or(0, |[_packets, drops]| u64::from(drops));
        }
        dropped
    }

    /// Goes to the oldest frame, if there is any.
    #[cold]
    fn find(&mut self) -> bool {
        let frames = self.geometry.frames();
        for _ in 0..frames {
            if self.is_filled() {
                self.placed = true;
                break;
            }
            self.advance();
        }
        if !self.placed {
            return false;
        }
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

    /// The frame in a slot that the kernel has handed over; `None` if it was cut short.
    fn frame_in(&self, slot: NonNull<u8>, now: Instant) -> Option<RxFrame<'_>> {
        // SAFETY: the slot begins with this header, which the kernel no longer writes.
        let header = unsafe { slot.cast::<tpacket2_hdr>().read() };
        let start = usize::from(header.tp_mac);
        let bytes = header.tp_snaplen as usize;
        let fits = start.saturating_add(bytes) <= self.geometry.frame_bytes as usize;
        if header.tp_snaplen != header.tp_len || start < virtio::BYTES || !fits {
            return None;
        }
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
            arrived: now,
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
