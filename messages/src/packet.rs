use crate::Full;
use core::net::{IpAddr, Ipv4Addr};
use skink_memory::{Bytes, SocketId};
use skink_time::Instant;
use skink_wire::{Endpoint, FourTuple, IpCidr, MacAddr};

/// What is known of the checksums in a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RxChecksum {
    /// Nothing: each layer verifies its own.
    Unverified,
    /// The transport checksum is right, or was never computed because the frame comes from this
    /// machine (virtio-net's `NEEDS_CSUM` and `DATA_VALID`). IP header checksums are verified anyway.
    Verified,
}

/// One frame as a NIC received it.
#[derive(Clone, Copy, Debug)]
pub struct RxFrame<'a> {
    /// When it arrived at the NIC, as far as that is known.
    pub arrived: Instant,
    /// From the Ethernet header on, without frame check sequence.
    pub bytes: &'a [u8],
    /// What the NIC says about checksums.
    pub checksum: RxChecksum,
    /// If the NIC (or the sender on this machine) joined several TCP segments into this one: the
    /// payload bytes of each; otherwise 0.
    pub segment_bytes: u16,
}

/// One IP packet's payload on its way up: whole (reassembled), to an address of ours.
#[derive(Clone, Copy, Debug)]
pub struct RxPacket<'a> {
    /// When its (last) frame arrived.
    pub arrived: Instant,
    /// Sender's address.
    pub source: IpAddr,
    /// Which of our addresses (or group) it was sent to.
    pub destination: IpAddr,
    /// DSCP and ECN bits (RFC 2474, RFC 3168).
    pub traffic_class: u8,
    /// TTL or hop limit on arrival.
    pub hop_limit: u8,
    /// As in [`RxFrame`].
    pub checksum: RxChecksum,
    /// As in [`RxFrame`].
    pub segment_bytes: u16,
    /// Transport header and data.
    pub payload: &'a [u8],
}

/// What an ICMP error says about a packet that we sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// No route to the network or host, or the neighbour doesn't answer.
    HostUnreachable,
    /// Nobody listens there.
    PortUnreachable,
    /// The protocol isn't spoken there.
    ProtocolUnreachable,
    /// A filter forbids it.
    Prohibited,
    /// The path takes packets of at most this many bytes, IP header included.
    PacketTooBig {
        /// Bytes.
        mtu: u32,
    },
    /// TTL or hop limit ran out, or fragments didn't all arrive.
    TimeExceeded,
}

/// An error about a packet of ours, for the transport that sent it (RFC 1122 4.2.3.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkError {
    /// What happened.
    pub kind: ErrorKind,
    /// Transport protocol number of the packet.
    pub protocol: u8,
    /// Our end.
    pub local: Endpoint,
    /// Where it was going.
    pub remote: Endpoint,
    /// First four bytes after the ports: TCP's sequence number, to tell a forged error.
    pub sequence: u32,
}

/// Headroom of a [`TxPacket`] in bytes: Ethernet (14), IPv6 with a fragment header (48), TCP (60).
const HEADROOM: usize = 128;

/// A packet on its way down: headers grow towards the front; payload is borrowed from a ring.
///
/// It may be larger than the path's MTU if [`TxPacket::segment_bytes`] is set: `link` or the NIC
/// then cuts it into TCP segments (or UDP datagrams) of that payload size (TSO, USO).
pub struct TxPacket<'a> {
    head: [u8; HEADROOM],
    start: u8,
    /// Length of the transport header in bytes. Set by `tcp`, `udp` (and `ip` for its own).
    pub transport_bytes: u8,
    /// Length of the IP headers in bytes. Set by `ip`.
    pub network_bytes: u8,
    /// Offset of the checksum field in the transport header, if the field holds just the folded,
    /// not complemented sum of the pseudo-header and the rest is left to `link` or the NIC.
    pub checksum_offset: Option<u8>,
    /// Payload bytes of each segment to cut, or 0 if this is one packet.
    pub segment_bytes: u16,
    /// The data, in order; the second span is used where a ring wraps around.
    pub payload: [Bytes<'a>; 2],
}

impl<'a> TxPacket<'a> {
    /// A packet without headers.
    pub fn new(payload: [Bytes<'a>; 2]) -> TxPacket<'a> {
        TxPacket {
            head: [0; HEADROOM],
            start: HEADROOM as u8,
            transport_bytes: 0,
            network_bytes: 0,
            checksum_offset: None,
            segment_bytes: 0,
            payload,
        }
    }

    /// Makes room for a header of `bytes` bytes (zeros) in front of what is there.
    ///
    /// # Panics
    /// If headers grow beyond 128 bytes in all, which no combination of Skink's headers does.
    #[inline]
    pub fn prepend(&mut self, bytes: usize) -> &mut [u8] {
        let end = usize::from(self.start);
        let start = end - bytes;
        self.start = start as u8;
        &mut self.head[start..end]
    }

    /// Takes the frontmost `bytes` bytes of headers off again (to send the packet anew).
    pub fn strip(&mut self, bytes: usize) {
        let start = (usize::from(self.start) + bytes).min(HEADROOM);
        self.head[usize::from(self.start)..start].fill(0);
        self.start = start as u8;
    }

    /// All headers so far, outermost first.
    #[inline]
    pub fn headers(&self) -> &[u8] {
        &self.head[usize::from(self.start)..]
    }

    /// All headers so far, to be changed.
    #[inline]
    pub fn headers_mut(&mut self) -> &mut [u8] {
        &mut self.head[usize::from(self.start)..]
    }

    /// Bytes of payload.
    #[inline]
    pub fn payload_bytes(&self) -> usize {
        self.payload[0].len() + self.payload[1].len()
    }

    /// Headers and payload together, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.headers().len() + self.payload_bytes()
    }

    /// Whether it has neither headers nor payload.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies headers and payload to the front of `to`; answers their length, or `None` if `to` is
    /// too small.
    pub fn copy_to(&self, to: &mut [u8]) -> Option<usize> {
        let headers = self.headers();
        let len = self.len();
        let to = to.get_mut(..len)?;
        let (front, rest) = to.split_at_mut(headers.len());
        front.copy_from_slice(headers);
        let (first, second) = rest.split_at_mut(self.payload[0].len());
        self.payload[0].copy_to(first);
        if !second.is_empty() {
            self.payload[1].copy_to(second);
        }
        Some(len)
    }
}

/// How `ip` should send a packet.
#[derive(Clone, Copy, Debug)]
pub struct Outbound {
    /// One of our addresses.
    pub source: IpAddr,
    /// Where to.
    pub destination: IpAddr,
    /// Transport protocol number.
    pub protocol: u8,
    /// TTL or hop limit; `None` for the stack's default (64).
    pub hop_limit: Option<u8>,
    /// DSCP and ECN bits.
    pub traffic_class: u8,
    /// Whether fragmentation is forbidden (always for TCP).
    pub dont_fragment: bool,
}

/// What a route offers to a new flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The address of ours to send from.
    pub source: IpAddr,
    /// Largest packet in bytes, IP header included.
    pub mtu: u32,
    /// Largest packet in bytes if it may be cut (see [`TxPacket::segment_bytes`]), IP header
    /// included; never less than `mtu`.
    pub cut_bytes: u32,
}

/// The network as a transport protocol sees it: `ip`, or a channel that leads to it.
pub trait Network {
    /// Sends `packet`, whose headers begin with the transport header. If it is refused, `packet` is
    /// unchanged.
    fn send(&mut self, now: Instant, to: &Outbound, packet: &mut TxPacket<'_>) -> Result<(), Full>;

    /// As [`Network::send`], of a payload that its sender can leave where it is: nobody has to copy it then.
    fn lend(
        &mut self,
        now: Instant,
        to: &Outbound,
        packet: &mut TxPacket<'_>,
        _lent: Lent,
    ) -> Result<Sent, Full> {
        self.send(now, to, packet).map(|()| Sent::Done)
    }

    /// The way to `destination`, from `source` if the flow is bound to one; `None` if there is no
    /// route or `source` isn't ours.
    fn path(&self, source: Option<IpAddr>, destination: IpAddr) -> Option<Path>;

    /// Another number whenever the link has come to take more than before: whoever keeps what [`Network::path`]
    /// answered asks anew. Of what has become too large an error tells.
    fn raises(&self) -> u32;

    /// Whether `address` is one of ours (or, for a multicast group, joined).
    fn is_local(&self, address: IpAddr) -> bool;

    /// Whether `address` is the broadcast address of all networks, or of one of ours (RFC 919 section 7), and no
    /// address of our own. It is cheap to ask.
    fn is_broadcast(&self, address: Ipv4Addr) -> bool;
}

/// A datagram in a send ring that is lent to the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lent {
    /// Whose it is.
    pub socket: SocketId,
    /// Where it begins, in bytes since the socket was opened.
    pub position: u64,
    /// Whoever fills the ring may wait for the room: it is to be told at once when it has left.
    pub awaited: bool,
}

/// What became of a packet that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Nothing of it is needed any more.
    Done,
    /// Its payload stays where it is until [`crate::UdpInput::Left`].
    Lent,
}

/// What `ip` knows of the network, as far as [`Network`] answers questions about it:
/// for transports in other processes, which answer such questions by themselves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetworkView {
    /// Our addresses, each with the prefix of its network.
    pub addresses: Vec<IpCidr>,
    /// Default routers, configured or learned.
    pub gateways: Vec<IpAddr>,
    /// Destinations that take less than the link, and how many bytes. `::` stands for all of IPv6, and is there
    /// whenever a router has said what the link takes, so that it is seen when that is more than before.
    pub path_mtus: Vec<(IpAddr, u32)>,
}

/// What frames a link takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkLimits {
    /// Our address on the link.
    pub mac: MacAddr,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Largest IP packet in bytes if it may be cut (TSO, or `link`'s own cutting).
    pub cut_bytes: u32,
    /// The NIC cuts them. Else `link` does, which takes as long as so many packets do.
    pub cuts: bool,
}

/// The link as `ip` sees it: `link`, or a channel that leads to it.
pub trait FrameOutput {
    /// Sends a whole frame. If it is refused, `packet` is unchanged.
    fn send(&mut self, now: Instant, packet: &mut TxPacket<'_>) -> Result<(), Full>;

    /// What it takes.
    fn limits(&self) -> LinkLimits;
}

/// Packets of a flow that passed without being checked by the packet filter, which is told of them afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowAccount {
    /// Number of the transport protocol.
    pub protocol: u8,
    /// The ends.
    pub tuple: FourTuple,
    /// Packets received and sent.
    pub packets: [u64; 2],
    /// Bytes received and sent, IP headers included.
    pub bytes: [u64; 2],
    /// TCP: up to where was acknowledged what the peer sent, and where that ends which came without a gap, after them.
    pub expected: Option<[u32; 2]>,
    /// When the last of them went by.
    pub last: Instant,
}
