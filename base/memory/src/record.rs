#![allow(unsafe_code, reason = "raw pointers into shared memory")]
use crate::mapping::Atomics;
use crate::ring::Position;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_wire::{Endpoint, FourTuple};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Version of [`Record`]'s layout; a table made by another one is refused.
// Layout digest: 8bca286809098a91
pub const LAYOUT_VERSION: u32 = 9;

/// The fields of [`Record`] that are its connection's, but for the addresses: `then!` of all. The family, the ports and `iss` come first.
macro_rules! connection_fields {
    ($then:ident) => {
        $then!(
            family local_port remote_port iss snd_wscale rcv_wscale options switches traffic_class is_far
            mss maximum_segment hop_limit error irs snd_una snd_max rcv_nxt snd_wnd rcv_adv ts_recent
            ts_offset rtt_us cwnd retransmits fin_number keep_alive_idle keep_alive_interval
            keep_alive_probes user_timeout receive_buffer
        )
    };
}

macro_rules! count {
    ($($field:ident)*) => { [$(stringify!($field)),*].len() };
}

/// So many words are a connection in [`Record::connection_words`].
pub(crate) const CONNECTION_WORDS: usize = 8 + connection_fields!(count);

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

/// Who holds a socket on the program's side: [`Record::holder`]. Zero and any other number stand for
/// nobody: the socket was about to be opened or was being freed, and no program knows of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Holder {
    /// A program.
    Attached = 1,
    /// Nobody yet: the connection waits for its handshake or to be accepted, at [`Record::listener`].
    Awaited = 2,
    /// Nobody any more: the program has closed it, and what it left is still sent.
    Gone = 3,
    /// Nobody yet, as for [`Holder::Awaited`], and another process's stack may be about to take the connection in.
    Away = 4,
    /// Nobody any more: the program has passed it to another process, whose stack may have it by now.
    Passed = 5,
}

impl Holder {
    /// The holder that a record's number stands for.
    pub fn from_number(number: u8) -> Option<Holder> {
        match number {
            1 => Some(Holder::Attached),
            2 => Some(Holder::Awaited),
            3 => Some(Holder::Gone),
            4 => Some(Holder::Away),
            5 => Some(Holder::Passed),
            _ => None,
        }
    }
}

/// What must outlive the component that serves a socket.
///
/// Each field is stored with one aligned store by the one component that owns the table, *before*
/// any segment leaves that shows the change to the peer; readers take single fields. Nobody else can
/// write it, so what an adopter finds here is what its predecessor stored. Fields are
/// *saved* here; what isn't here (congestion state, round-trip times, out-of-order data, timers) is
/// rebuilt by TCP's own means after an adoption.
///
/// # The order of stores
///
/// The owner may die between any two stores, so each row must be right wherever it breaks off. A
/// `->` is a store with `Release`, or one that is followed by such a store; what stands between two
/// of them may be in any order.
///
/// | what happens | stores, in this order | an adopter in between sees |
/// | --- | --- | --- |
/// | a socket is opened | all fields zero, `generation` -> `kind` -> `holder` | no holder: it frees the slot; the program was not answered, and its call is repeated |
/// | a call of the program | `serial` -> what the call does | a call that was begun; doing it again does the rest |
/// | `bind` | `binding`, ends -> `family` | not bound: family 0 |
/// | `listen` | `backlog`, `binding`, `seal`, `state` LISTEN -> `kind` TCP listener | a bound socket |
/// | `connect` | `iss`, what is offered, ends -> `state` SYN-SENT -> `snd_una`, `snd_max` -> the SYN | a socket that isn't connected; then one whose SYN was lost |
/// | a request arrives | ends, `iss`, what is negotiated, numbers, window, settings, `listener`, `state` SYN-RECEIVED -> `holder` awaited -> the SYN-ACK | no holder: it frees the slot, and the peer asks again |
/// | the handshake ends | what is negotiated, `seal`, numbers, window -> `state` -> `order` -> what tells the peer | an earlier state; the peer's segment, or our own, comes again. Without `order`: the last to be accepted |
/// | `accept` | `holder` attached (when the program is known to have it) | it waits still, and is offered again |
/// | one that waits goes to another program's listener | there: all other fields, bytes in the ring -> `receive_tail` -> `holder` awaited -> `fin` -> `state` -> here: `state` CLOSED -> `fin` 0 -> the slot is freed | there a slot that nobody knows of, and it waits here; then it waits in both places, of which the adopter keeps one; then there |
/// | one that waits goes to another process's stack | `holder` away -> (adopted there) -> `state` CLOSED -> `fin` 0 -> the slot is freed | it asks whether another stack has it, and offers it again if none has |
/// | a connection is passed to another process | `holder` passed -> (adopted there) -> `state` CLOSED -> `fin` 0 -> the slot is freed | it asks whether another stack has it, and closes it if none has |
/// | data is acknowledged | `send_head` -> (next segment) `snd_una` | `snd_una` is behind: the head of the ring counts |
/// | data arrives | bytes in the ring -> `receive_tail` -> (next segment) `rcv_nxt` | `rcv_nxt` is behind: the tail of the ring counts; the peer sends it again |
/// | a ring grows | `origin` of its tail, one word -> bytes behind its first part -> its tail | either: what is there has the same places |
/// | a segment leaves | `snd_una`, `snd_max`, `rcv_nxt`, `rcv_adv`, `snd_wnd`, `ts_recent` -> the segment | `snd_max` and `rcv_adv` may be ahead of what left: bytes count as lost, and a window was never offered |
/// | the program finishes sending | `fin_number` -> `fin` -> `state` -> the FIN | the call was not carried out; it is repeated |
/// | our FIN is acknowledged | `send_head` -> `state` FIN-WAIT-2 or TIME-WAIT | an earlier state: the FIN is sent again |
/// | the peer's FIN arrives | `receive_tail` -> `state` -> its acknowledgement | an earlier state: the FIN comes again |
/// | `close` of a listener | `holder` gone -> what waits there goes elsewhere -> the slot is freed | the rest waits there still, and goes elsewhere |
/// | `close` | `holder` gone -> as when the program finishes sending | the FIN isn't sent yet: who has no holder is made to finish |
/// | the connection ends | `error`, `fin` over -> `state` CLOSED -> a reset, if the peer gets one | it goes on, and ends as it would have; a reset that wasn't sent answers the peer's next segment |
/// | the slot is freed | `holder` none -> `kind` free -> memory given back | no holder: it frees the slot |
///
/// A layout of another version is refused, not converted.
#[repr(C, align(64))]
pub struct Record {
    /// Counts how often the slot was given out; part of [`crate::SocketId`].
    pub generation: AtomicU32,
    /// A [`SocketKind`].
    pub kind: AtomicU8,
    /// TCP: the state of RFC 9293 section 3.3.2, as `skink-tcp` numbers them. UDP: how
    /// the socket was bound (see `skink-udp`).
    pub state: AtomicU8,
    /// TCP: `FIN` flags (see `skink-tcp`): program closed its sending side, peer's FIN arrived, all is
    /// over.
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
    /// A [`Holder`].
    pub holder: AtomicU8,
    /// How the socket was bound (see `skink-tcp`).
    pub binding: AtomicU8,
    /// Switches that the program set (see `skink-tcp`).
    pub switches: AtomicU8,
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
    /// Where the send ring begins in the region's memfd of send rings, in bytes.
    pub send_offset: AtomicU64,
    /// Where the receive ring begins in that of receive rings.
    pub receive_offset: AtomicU64,
    /// Sequence number of our FIN, where `fin` says that there is one.
    pub fin_number: AtomicU32,
    /// A hash of what never changes once a connection is synchronized, or a socket listens
    /// ([`Record::seal`]): a record that was damaged is noticed.
    pub seal: AtomicU32,
    /// Place among those that wait to be accepted: lower ones came first, 0 is the last.
    pub order: AtomicU64,
    /// Serial number of the program's last call that was carried out on the socket, at least in part;
    /// at first that of the call that opened it. 0: none is known.
    pub serial: AtomicU32,
    /// Region-local slot of the listener that the connection waits at.
    pub listener: AtomicU32,
    /// Connections that may wait to be accepted, on a listener.
    pub backlog: AtomicU32,
    /// Socket options, 0 for what wasn't set: seconds of silence before a keepalive probe,
    pub keep_alive_idle: AtomicU32,
    /// and between two;
    pub keep_alive_interval: AtomicU32,
    /// probes plus one;
    pub keep_alive_probes: AtomicU32,
    /// milliseconds;
    pub user_timeout: AtomicU32,
    /// bytes plus one;
    pub receive_buffer: AtomicU32,
    /// bytes;
    pub maximum_segment: AtomicU16,
    /// hops plus one;
    pub hop_limit: AtomicU16,
    /// the traffic class itself.
    pub traffic_class: AtomicU8,
    /// 1 if the peer is far away, so that the program may have the send ring grow. For programs, not for adoption.
    pub is_far: AtomicU8,
    /// Of a listener: 1 if connections wait at others on the same end whose programs don't wait for them. A program that
    /// begins to wait tells the owner then. For programs, not for adoption.
    pub is_wanted: AtomicU8,
    _reserved: AtomicU8,
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

const _: () = assert!(size_of::<Record>() == 320, "the layout is a contract");
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
        let record = self;
        // Plain stores: lists of references to walk through take ten times as long.
        macro_rules! clear {
            ($record:ident: $($field:ident)*) => { $($record.$field.store(0, Ordering::Relaxed);)* };
        }
        clear!(record:
            state fin family snd_wscale rcv_wscale options holder binding switches traffic_class is_far is_wanted
            local_port remote_port mss maximum_segment hop_limit error iss irs snd_una snd_max
            rcv_nxt snd_wnd rcv_adv ts_recent ts_offset rtt_us cwnd retransmits fin_number seal
            serial listener backlog keep_alive_idle keep_alive_interval keep_alive_probes
            user_timeout receive_buffer order
        );
        for words in [&self.local_address, &self.remote_address] {
            for word in words {
                word.store(0, Ordering::Relaxed);
            }
        }
        self.send_head.reset();
        self.receive_tail.reset();
    }

    /// What the record has of its connection; not which socket that is, who holds it, where its bytes are, and in which state it
    /// is. The addresses come first.
    pub(crate) fn connection_words(&self) -> [u32; CONNECTION_WORDS] {
        let mut words = [0; CONNECTION_WORDS];
        let (addresses, fields) = words.split_at_mut(8);
        let all = self.local_address.iter().chain(&self.remote_address);
        for (to, from) in addresses.iter_mut().zip(all) {
            *to = from.load(Ordering::Relaxed);
        }
        let mut fields = fields.iter_mut();
        macro_rules! load {
            ($($field:ident)*) => {
                $(if let Some(to) = fields.next() {
                    *to = self.$field.load(Ordering::Relaxed).into();
                })*
            };
        }
        connection_fields!(load);
        words
    }

    /// Stores what another record has of its connection.
    pub(crate) fn set_connection_words(&self, words: &[u32; CONNECTION_WORDS]) {
        let (addresses, fields) = words.split_at(8);
        let all = self.local_address.iter().chain(&self.remote_address);
        for (from, to) in addresses.iter().zip(all) {
            to.store(*from, Ordering::Relaxed);
        }
        let mut fields = fields.iter();
        macro_rules! store {
            ($($field:ident)*) => {
                $(if let Some(from) = fields.next() {
                    self.$field.store(*from as _, Ordering::Relaxed);
                })*
            };
        }
        connection_fields!(store);
        self.seal.store(self.seal(), Ordering::Relaxed);
    }

    /// Who holds the socket; `None` if nobody can know of it.
    pub fn holder(&self) -> Option<Holder> {
        Holder::from_number(self.holder.load(Ordering::Relaxed))
    }

    /// Stores who holds the socket; what was stored before is stored first.
    pub fn set_holder(&self, holder: Holder) {
        self.holder.store(holder as u8, Ordering::Release);
    }

    /// A hash of what stays the same as long as a connection is synchronized or a socket listens:
    /// generation, ends, initial numbers, what was negotiated. Against chance, not against forgers:
    /// nobody but the owner can write a record.
    pub fn seal(&self) -> u32 {
        let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let half = |half: &AtomicU16| u32::from(half.load(Ordering::Relaxed));
        let byte = |byte: &AtomicU8| u32::from(byte.load(Ordering::Relaxed));
        let ports = half(&self.local_port) << 16 | half(&self.remote_port);
        let negotiated = byte(&self.snd_wscale) << 24 | byte(&self.rcv_wscale) << 16;
        let negotiated = negotiated | byte(&self.options) << 8 | byte(&self.family);
        let numbers = [&self.generation, &self.iss, &self.irs, &self.ts_offset].map(word);
        let addresses = self.local_address.iter().chain(&self.remote_address);
        let rest = [ports, negotiated, half(&self.mss)];
        let all = numbers.into_iter().chain(addresses.map(word)).chain(rest);
        // FNV-1a (Fowler, Noll, Vo), by words, and the last step of MurmurHash3.
        let hash = all.fold(0xcbf2_9ce4_8422_2325_u64, |hash, word| {
            (hash ^ u64::from(word)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (hash >> 32) as u32
    }
}

/// The ends in [`Record::connection_words`].
pub(crate) fn ends_of(words: &[u32; CONNECTION_WORDS]) -> FourTuple {
    let family = words[8] as u8;
    let end = |at: usize, port: u32| {
        Endpoint::new(address(family, |index| words[at + index]), port as u16)
    };
    FourTuple::new(end(0, words[9]), end(4, words[10]))
}

/// The initial send sequence number there.
pub(crate) fn iss_of(words: &[u32; CONNECTION_WORDS]) -> u32 {
    words[11]
}

fn load_address(family: u8, words: &[AtomicU32; 4]) -> IpAddr {
    address(family, |index| words[index].load(Ordering::Relaxed))
}

fn address(family: u8, word: impl Fn(usize) -> u32) -> IpAddr {
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
