//! Messages on the way up.

use crate::Incarnation;
use crate::codec::{
    Coded, Envelope, Few, MiddleMessage, SmallMessage, counted, family, get_address, put_address,
};
use core::net::IpAddr;
use skink_channel::RichPointer;
use skink_messages::{ErrorKind, LinkLimits, NetworkError, RxChecksum, RxPacket};
use skink_time::Instant;
use skink_wire::{Endpoint, MacAddr};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A frame that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameUp {
    /// Where it is, in a pool of `link`.
    pub pointer: RichPointer,
    /// When it arrived at the NIC, as far as that is known.
    pub arrived: Instant,
    /// As in [`skink_messages::RxFrame`].
    pub segment_bytes: u16,
    /// As in [`skink_messages::RxFrame`].
    pub checksum: RxChecksum,
    /// A predecessor of `ip` may have had it: only what does no harm if it comes twice goes on.
    pub again: bool,
    /// The restart of `ip` for which it came: that one and the next one may take it.
    pub first: Incarnation,
}

/// Whether this restart of the receiver may take what came for the `first` one: that one and the next one may, and not a third one,
/// as they may have died of it.
pub(crate) fn is_for(first: Incarnation, receiver: Incarnation) -> bool {
    receiver.wrapping_sub(first) <= 1
}

/// What `link` tells `ip`.
#[derive(Clone, Copy, Debug)]
pub enum FromLink {
    /// A frame arrived.
    Frame(FrameUp),
    /// Frames of these ids have left, or were dropped: their payload isn't needed any more.
    Sent(Few<u64, 5>),
    /// What the link takes: said to each new `ip`, and whenever it changes.
    Limits(LinkLimits),
}

const FRAME: u32 = 1;
const SENT: u32 = 2;
const LIMITS: u32 = 3;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FrameBody {
    pointer: RichPointer,
    arrived_ns: u64,
    segment_bytes: u16,
    checksum: u8,
    again: u8,
    first: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FewSent {
    ids: [u64; 5],
    count: u32,
    _reserved: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct LimitsBody {
    mtu: u32,
    cut_bytes: u32,
    mac: [u8; 6],
    cuts: u8,
    _reserved: u8,
}

const _: () = assert!(
    size_of::<FrameBody>() == 32 && size_of::<FewSent>() == 48 && size_of::<LimitsBody>() == 16
);

const UNVERIFIED: u8 = 1;
const VERIFIED: u8 = 2;

fn put_checksum(checksum: RxChecksum) -> u8 {
    match checksum {
        RxChecksum::Unverified => UNVERIFIED,
        RxChecksum::Verified => VERIFIED,
    }
}

fn get_checksum(number: u8) -> Option<RxChecksum> {
    match number {
        UNVERIFIED => Some(RxChecksum::Unverified),
        VERIFIED => Some(RxChecksum::Verified),
        _ => None,
    }
}

/// The least that a link takes (RFC 791 section 3.2), and the most that IP's length field can say.
const MTU: core::ops::RangeInclusive<u32> = 68..=65_535;

impl Coded for FromLink {
    type Wire = SmallMessage;

    #[inline]
    fn encode(&self, incarnation: Incarnation) -> SmallMessage {
        match self {
            FromLink::Frame(frame) => {
                let body = FrameBody {
                    pointer: frame.pointer,
                    arrived_ns: frame.arrived.as_nanos(),
                    segment_bytes: frame.segment_bytes,
                    checksum: put_checksum(frame.checksum),
                    again: u8::from(frame.again),
                    first: frame.first,
                };
                SmallMessage::new(FRAME, incarnation, &body)
            }
            FromLink::Sent(ids) => {
                let body = FewSent {
                    ids: ids.all,
                    count: ids.count as u32,
                    _reserved: 0,
                };
                SmallMessage::new(SENT, incarnation, &body)
            }
            FromLink::Limits(limits) => {
                let body = LimitsBody {
                    mtu: limits.mtu,
                    cut_bytes: limits.cut_bytes,
                    mac: limits.mac.0,
                    cuts: u8::from(limits.cuts),
                    _reserved: 0,
                };
                SmallMessage::new(LIMITS, incarnation, &body)
            }
        }
    }

    #[inline]
    fn decode(wire: &SmallMessage) -> Option<FromLink> {
        match wire.kind() {
            FRAME => {
                let body: FrameBody = wire.read()?;
                Some(FromLink::Frame(FrameUp {
                    pointer: body.pointer,
                    arrived: Instant::from_nanos(body.arrived_ns),
                    segment_bytes: body.segment_bytes,
                    checksum: get_checksum(body.checksum)?,
                    again: body.again != 0,
                    first: body.first,
                }))
            }
            SENT => {
                let body: FewSent = wire.read()?;
                counted(body.ids, body.count).map(FromLink::Sent)
            }
            LIMITS => {
                let body: LimitsBody = wire.read()?;
                let good =
                    MTU.contains(&body.mtu) && (body.mtu..=*MTU.end()).contains(&body.cut_bytes);
                good.then_some(FromLink::Limits(LinkLimits {
                    mac: MacAddr(body.mac),
                    mtu: body.mtu,
                    cut_bytes: body.cut_bytes,
                    cuts: body.cuts != 0,
                }))
            }
            _ => None,
        }
    }

    fn is_for(wire: &SmallMessage, receiver: Incarnation) -> bool {
        if wire.kind() != FRAME {
            return true;
        }
        let body: Option<FrameBody> = wire.read();
        body.is_some_and(|it| is_for(it.first, receiver))
    }

    fn is_between(&self) -> bool {
        match self {
            FromLink::Frame(_) | FromLink::Limits(_) => false,
            FromLink::Sent(_) => true,
        }
    }
}

/// What a transport is to do with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Take it.
    Deliver,
    /// Refuse it: the filter wants its sender told. Only for TCP.
    Reject,
}

/// A packet for a transport: an [`RxPacket`] whose payload is somewhere else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketUp {
    /// To be said when the packet isn't needed any more.
    pub id: u64,
    /// Transport header and data, in a pool of `link` or of `ip`.
    pub pointer: RichPointer,
    /// As in [`RxPacket`], like all that follows.
    pub arrived: Instant,
    /// Sender's address.
    pub source: IpAddr,
    /// Which of our addresses (or group) it was sent to.
    pub destination: IpAddr,
    /// Number of the transport's protocol.
    pub protocol: u8,
    /// DSCP and ECN bits.
    pub traffic_class: u8,
    /// TTL or hop limit on arrival.
    pub hop_limit: u8,
    /// What is known of the transport checksum.
    pub checksum: RxChecksum,
    /// Payload bytes of each segment that was joined, or 0.
    pub segment_bytes: u16,
    /// What is to be done with it.
    pub fate: Fate,
    /// The restart of the transport for which it came: that one and the next one may take it.
    pub first: Incarnation,
}

impl PacketUp {
    /// Of a packet whose payload is at `pointer`.
    #[inline]
    pub fn new(protocol: u8, packet: &RxPacket<'_>, pointer: RichPointer, fate: Fate) -> PacketUp {
        PacketUp {
            id: 0,
            pointer,
            arrived: packet.arrived,
            source: packet.source,
            destination: packet.destination,
            protocol,
            traffic_class: packet.traffic_class,
            hop_limit: packet.hop_limit,
            checksum: packet.checksum,
            segment_bytes: packet.segment_bytes,
            fate,
            first: 0,
        }
    }

    /// The packet, once its payload was copied here.
    pub fn with_payload<'a>(&self, payload: &'a [u8]) -> RxPacket<'a> {
        RxPacket {
            arrived: self.arrived,
            source: self.source,
            destination: self.destination,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            checksum: self.checksum,
            segment_bytes: self.segment_bytes,
            payload,
        }
    }
}

/// What `ip` tells a transport.
#[derive(Clone, Copy, Debug)]
pub enum ToTransport {
    /// A packet arrived.
    Packet(PacketUp),
    /// An error about a packet of yours.
    Error(NetworkError),
    /// Packets of these ids have left, or were dropped.
    Sent(Few<u64, 13>),
}

const PACKET: u32 = 1;
const ERROR: u32 = 2;
const LEFT: u32 = 3;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PacketBody {
    id: u64,
    first: u32,
    _reserved: u32,
    arrived_ns: u64,
    pointer: RichPointer,
    source: [u8; 16],
    destination: [u8; 16],
    family: u8,
    protocol: u8,
    traffic_class: u8,
    hop_limit: u8,
    checksum: u8,
    fate: u8,
    segment_bytes: u16,
}

/// How it begins.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Beginning {
    _id: u64,
    first: u32,
    _reserved: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ErrorBody {
    local: [u8; 16],
    remote: [u8; 16],
    local_port: u16,
    remote_port: u16,
    family: u8,
    protocol: u8,
    kind: u16,
    mtu: u32,
    sequence: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ManySent {
    ids: [u64; 13],
    count: u32,
    _reserved: u32,
}

const _: () = assert!(
    size_of::<PacketBody>() == 80 && size_of::<ErrorBody>() == 48 && size_of::<ManySent>() == 112
);

const DELIVER: u8 = 1;
const REJECT: u8 = 2;

impl Coded for ToTransport {
    type Wire = MiddleMessage;

    #[inline]
    fn encode(&self, incarnation: Incarnation) -> MiddleMessage {
        match self {
            ToTransport::Packet(packet) => {
                let body = PacketBody {
                    id: packet.id,
                    first: packet.first,
                    _reserved: 0,
                    arrived_ns: packet.arrived.as_nanos(),
                    pointer: packet.pointer,
                    source: put_address(packet.source),
                    destination: put_address(packet.destination),
                    family: family(packet.source),
                    protocol: packet.protocol,
                    traffic_class: packet.traffic_class,
                    hop_limit: packet.hop_limit,
                    checksum: put_checksum(packet.checksum),
                    fate: match packet.fate {
                        Fate::Deliver => DELIVER,
                        Fate::Reject => REJECT,
                    },
                    segment_bytes: packet.segment_bytes,
                };
                MiddleMessage::new(PACKET, incarnation, &body)
            }
            ToTransport::Error(error) => {
                MiddleMessage::new(ERROR, incarnation, &encode_error(error))
            }
            ToTransport::Sent(ids) => {
                let body = ManySent {
                    ids: ids.all,
                    count: ids.count as u32,
                    _reserved: 0,
                };
                MiddleMessage::new(LEFT, incarnation, &body)
            }
        }
    }

    #[inline]
    fn decode(wire: &MiddleMessage) -> Option<ToTransport> {
        match wire.kind() {
            PACKET => decode_packet(&wire.read()?).map(ToTransport::Packet),
            ERROR => decode_error(&wire.read()?).map(ToTransport::Error),
            LEFT => {
                let body: ManySent = wire.read()?;
                counted(body.ids, body.count).map(ToTransport::Sent)
            }
            _ => None,
        }
    }

    fn is_for(wire: &MiddleMessage, receiver: Incarnation) -> bool {
        if wire.kind() != PACKET {
            return true;
        }
        let beginning: Option<Beginning> = wire.read();
        beginning.is_some_and(|it| is_for(it.first, receiver))
    }

    fn is_between(&self) -> bool {
        match self {
            ToTransport::Packet(_) | ToTransport::Error(_) => false,
            ToTransport::Sent(_) => true,
        }
    }
}

fn decode_packet(body: &PacketBody) -> Option<PacketUp> {
    Some(PacketUp {
        id: body.id,
        pointer: body.pointer,
        arrived: Instant::from_nanos(body.arrived_ns),
        source: get_address(body.source, body.family)?,
        destination: get_address(body.destination, body.family)?,
        protocol: body.protocol,
        traffic_class: body.traffic_class,
        hop_limit: body.hop_limit,
        checksum: get_checksum(body.checksum)?,
        segment_bytes: body.segment_bytes,
        fate: match body.fate {
            DELIVER => Fate::Deliver,
            REJECT => Fate::Reject,
            _ => return None,
        },
        first: body.first,
    })
}

fn encode_error(error: &NetworkError) -> ErrorBody {
    let (kind, mtu) = match error.kind {
        ErrorKind::HostUnreachable => (1, 0),
        ErrorKind::PortUnreachable => (2, 0),
        ErrorKind::ProtocolUnreachable => (3, 0),
        ErrorKind::Prohibited => (4, 0),
        ErrorKind::PacketTooBig { mtu } => (5, mtu),
        ErrorKind::TimeExceeded => (6, 0),
    };
    ErrorBody {
        local: put_address(error.local.addr),
        remote: put_address(error.remote.addr),
        local_port: error.local.port,
        remote_port: error.remote.port,
        family: family(error.local.addr),
        protocol: error.protocol,
        kind,
        mtu,
        sequence: error.sequence,
    }
}

fn decode_error(body: &ErrorBody) -> Option<NetworkError> {
    let kind = match body.kind {
        1 => ErrorKind::HostUnreachable,
        2 => ErrorKind::PortUnreachable,
        3 => ErrorKind::ProtocolUnreachable,
        4 => ErrorKind::Prohibited,
        5 => ErrorKind::PacketTooBig { mtu: body.mtu },
        6 => ErrorKind::TimeExceeded,
        _ => return None,
    };
    let local = get_address(body.local, body.family)?;
    let remote = get_address(body.remote, body.family)?;
    Some(NetworkError {
        kind,
        protocol: body.protocol,
        local: Endpoint::new(local, body.local_port),
        remote: Endpoint::new(remote, body.remote_port),
        sequence: body.sequence,
    })
}

#[cfg(test)]
mod tests;
