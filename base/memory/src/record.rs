#![allow(unsafe_code, reason = "raw pointers into shared memory")]
use crate::mapping::Atomics;
use crate::ring::Position;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_wire::{Endpoint, FourTuple};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Version of [`Record`]'s layout; a table made by another one is refused.
pub const LAYOUT_VERSION: u32 = 2;

/// What a record stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SocketKind {
    /// Not in use.
    Free = 0,
    /// A TCP listening socket.
    TcpListener = 1,
    /// A TCP connection, or a socket that may become one.
    Tcp = 2,
    /// A UDP socket.
    Udp = 3,
}

/// What must outlive the component that serves a socket.
///
/// Each field is stored with one aligned store by the one component that owns the table, *before*
/// any segment leaves that shows the change to the peer; readers take single fields. Nobody else can
/// write it, so what an adopter finds here is what its predecessor stored. Fields are
/// *saved* here; what isn't here (congestion state, round-trip times, out-of-order data, timers) is
/// rebuilt by TCP's own means after an adoption.
#[repr(C, align(64))]
pub struct Record {
    /// Counts how often the slot was given out; part of [`crate::SocketId`].
    pub generation: AtomicU32,
    /// A [`SocketKind`].
    pub kind: AtomicU8,
    /// TCP: the state of RFC 9293 section 3.3.2, as `skink-tcp` numbers them. UDP: how
    /// the socket was bound (see `skink-udp`).
    pub state: AtomicU8,
    /// TCP: `FIN` flags (see `skink-tcp`): program closed its sending side, peer's FIN arrived.
    pub fin: AtomicU8,
    /// 4 or 6, or 0 while neither end is known.
    pub family: AtomicU8,
    /// Local address in network order; an IPv4 address fills the first word.
    pub local_address: [AtomicU32; 4],
    /// Remote address, likewise.
    pub remote_address: [AtomicU32; 4],
    /// Local port, 0 if not bound.
    pub local_port: AtomicU16,
    /// Remote port, 0 if not connected.
    pub remote_port: AtomicU16,
    /// Why the socket failed: an errno, 0 if it didn't.
    pub error: AtomicU32,
    /// Initial send sequence number (RFC 9293 3.4.1). Byte 0 of the send ring is `iss + 1`.
    pub iss: AtomicU32,
    /// Initial receive sequence number. Byte 0 of the receive ring is `irs + 1`.
    pub irs: AtomicU32,
    /// Oldest unacknowledged sequence number.
    pub snd_una: AtomicU32,
    /// Highest sequence number sent, plus one.
    pub snd_max: AtomicU32,
    /// Next sequence number expected.
    pub rcv_nxt: AtomicU32,
    /// Peer's window in bytes, unscaled.
    pub snd_wnd: AtomicU32,
    /// Right edge of the window last shown to the peer: it must not move left (RFC 9293 3.8.6).
    pub rcv_adv: AtomicU32,
    /// Peer's maximum segment size in bytes, without options (RFC 6691).
    pub mss: AtomicU16,
    /// Shift for windows that the peer sends (RFC 7323), 0 to 14.
    pub snd_wscale: AtomicU8,
    /// Shift for windows that we send.
    pub rcv_wscale: AtomicU8,
    /// Negotiated: bit 0 SACK (RFC 2018), bit 1 timestamps (RFC 7323), bit 2 window scaling.
    pub options: AtomicU8,
    _reserved: [AtomicU8; 3],
    /// `TS.Recent` (RFC 7323 4.3).
    pub ts_recent: AtomicU32,
    /// Added to the clock in milliseconds to make our timestamps.
    pub ts_offset: AtomicU32,
    /// For tools, not for adoption: smoothed round-trip time in microseconds.
    pub rtt_us: AtomicU32,
    /// For tools: congestion window in bytes.
    pub cwnd: AtomicU32,
    /// For tools: segments sent again.
    pub retransmits: AtomicU32,
    /// Where the send ring begins in the region's rings, in bytes.
    pub send_offset: AtomicU64,
    /// Where the receive ring begins, likewise.
    pub receive_offset: AtomicU64,
    /// Head of the send ring: everything before was acknowledged. The tail is the program's, see
    /// [`ProgramPositions`].
    pub send_head: Position,
    /// Tail of the receive ring: everything before was received. The head is the program's.
    pub receive_tail: Position,
}

/// The ends of a socket's rings that its program moves. They lie apart from the [`Record`], which no
/// program can write.
#[repr(C)]
pub(crate) struct ProgramPositions {
    /// Tail of the send ring: everything before is to be sent.
    pub(crate) send_tail: Position,
    /// Head of the receive ring: everything before was read.
    pub(crate) receive_head: Position,
}

const _: () = assert!(size_of::<Record>() == 256, "the layout is a contract");
const _: () = assert!(
    size_of::<ProgramPositions>() == 128,
    "the layout is a contract"
);

// SAFETY: only atomics and padding.
unsafe impl Atomics for Record {}
// SAFETY: as above.
unsafe impl Atomics for ProgramPositions {}

impl Record {
    /// What the slot stands for; unknown values count as free.
    pub fn kind(&self) -> SocketKind {
        let kind = self.kind.load(Ordering::Relaxed);
        // Who maps the record for reading only may not load it with more than `Relaxed`.
        fence(Ordering::Acquire);
        match kind {
            1 => SocketKind::TcpListener,
            2 => SocketKind::Tcp,
            3 => SocketKind::Udp,
            _ => SocketKind::Free,
        }
    }

    /// Stores what the slot stands for.
    pub fn set_kind(&self, kind: SocketKind) {
        self.kind.store(kind as u8, Ordering::Release);
    }

    /// The two ends as last stored; unspecified addresses where none is known.
    pub fn four_tuple(&self) -> FourTuple {
        let family = self.family.load(Ordering::Relaxed);
        FourTuple {
            local: Endpoint {
                addr: load_address(family, &self.local_address),
                port: self.local_port.load(Ordering::Relaxed),
            },
            remote: Endpoint {
                addr: load_address(family, &self.remote_address),
                port: self.remote_port.load(Ordering::Relaxed),
            },
        }
    }

    /// Stores both ends.
    pub fn set_four_tuple(&self, tuple: &FourTuple) {
        let family = if tuple.local.addr.is_ipv4() { 4 } else { 6 };
        store_address(&self.local_address, tuple.local.addr);
        store_address(&self.remote_address, tuple.remote.addr);
        self.local_port.store(tuple.local.port, Ordering::Relaxed);
        self.remote_port.store(tuple.remote.port, Ordering::Relaxed);
        self.family.store(family, Ordering::Release);
    }

    /// Makes every field as in a slot never used, except the generation and where the rings are.
    pub(crate) fn clear(&self) {
        let bytes = [&self.state, &self.fin, &self.family, &self.snd_wscale];
        let more_bytes = [&self.rcv_wscale, &self.options];
        for byte in bytes.into_iter().chain(more_bytes) {
            byte.store(0, Ordering::Relaxed);
        }
        for half in [&self.local_port, &self.remote_port, &self.mss] {
            half.store(0, Ordering::Relaxed);
        }
        let sequence = [&self.iss, &self.irs, &self.snd_una, &self.snd_max];
        let windows = [&self.rcv_nxt, &self.snd_wnd, &self.rcv_adv];
        let times = [&self.ts_recent, &self.ts_offset, &self.error];
        let tools = [&self.rtt_us, &self.cwnd, &self.retransmits];
        let addresses = self.local_address.iter().chain(&self.remote_address);
        let words = sequence
            .into_iter()
            .chain(windows)
            .chain(times)
            .chain(tools);
        for word in words.chain(addresses) {
            word.store(0, Ordering::Relaxed);
        }
        self.send_head.reset();
        self.receive_tail.reset();
    }
}

fn load_address(family: u8, words: &[AtomicU32; 4]) -> IpAddr {
    let word = |index: usize| words[index].load(Ordering::Relaxed);
    if family == 6 {
        let bits = (0..4).fold(0u128, |bits, index| bits << 32 | u128::from(word(index)));
        IpAddr::V6(Ipv6Addr::from_bits(bits))
    } else {
        IpAddr::V4(Ipv4Addr::from_bits(word(0)))
    }
}

fn store_address(words: &[AtomicU32; 4], address: IpAddr) {
    let bits = match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    for (index, word) in words.iter().enumerate() {
        word.store((bits >> (96 - 32 * index)) as u32, Ordering::Relaxed);
    }
}
