use crate::socket;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::BorrowedFd;

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
    pub(super) block_bytes: u32,
    pub(super) blocks: u32,
    pub(super) frame_bytes: u32,
    /// Bytes of larger frames that may wait in the socket's queue, as the kernel counts them; if 0, such frames
    /// are cut short.
    pub(super) queue_bytes: u32,
}

impl Geometry {
    /// 592 frames of up to 1,652 bytes each, in 1 MiB, which a processor's cache holds; and 16 MiB of larger ones (a
    /// frame that the sender's kernel didn't cut arrives whole). The odd number of cache lines starts each slot in
    /// another cache set than the one before.
    pub const FLOWS: Geometry = Geometry {
        block_bytes: 1 << 16,
        blocks: 16,
        frame_bytes: 1728,
        queue_bytes: 16 << 20,
    };

    /// 240 frames of up to 64 KiB each, in 16 MiB: for who may not have a queue that is long enough.
    pub const WHOLE: Geometry = Geometry {
        block_bytes: 1 << 20,
        blocks: 16,
        frame_bytes: 69_888,
        queue_bytes: 0,
    };

    /// 64 frames of up to 1,950 bytes, in 128 KiB: an ICMPv6 error has at most 1,280
    /// (RFC 4443 section 2.4).
    pub const CONTROL: Geometry = Geometry {
        block_bytes: 1 << 16,
        blocks: 2,
        frame_bytes: 2048,
        queue_bytes: 0,
    };

    pub(super) fn frames_in_block(self) -> u32 {
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
    if geometry.queue_bytes > 0 {
        lengthen_queue(socket, geometry)?;
        set(libc::PACKET_COPY_THRESH, 1)?;
    }
    let request = Request {
        block_bytes: geometry.block_bytes,
        blocks: geometry.blocks,
        frame_bytes: geometry.frame_bytes,
        frames: geometry.frames(),
    };
    socket::set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, request)
}

/// Lets frames wait in the socket's queue that are larger than a slot.
pub(super) fn lengthen_queue(socket: BorrowedFd<'_>, geometry: Geometry) -> io::Result<()> {
    // The kernel doubles what it is told.
    let half = (geometry.queue_bytes / 2).cast_signed();
    let set = |name| socket::set_option(socket, libc::SOL_SOCKET, name, half);
    // Forcing needs CAP_NET_ADMIN; without it the system's limit counts.
    set(libc::SO_RCVBUFFORCE).or_else(|_| set(libc::SO_RCVBUF))?;
    let [has, _] = socket::get_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
    match has >= geometry.queue_bytes {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}
