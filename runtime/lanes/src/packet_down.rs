//! Messages on the way down.

use crate::Incarnation;
use crate::codec::{Coded, Envelope, Few, LargeMessage, counted, family, get_address, put_address};
use crate::payload::{Payload, PayloadBody, Terms};
use skink_channel::RichPointer;
use skink_memory::Bytes;
use skink_messages::{Outbound, TxPacket};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// All of a [`TxPacket`] but its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers<const N: usize> {
    bytes: [u8; N],
    header_bytes: u8,
    /// As in [`TxPacket`], like all that follows.
    pub transport_bytes: u8,
    /// Length of the IP headers in bytes.
    pub network_bytes: u8,
    /// Where the checksum is to be completed, in the transport header.
    pub checksum_offset: Option<u8>,
    /// Payload bytes of each segment to cut, or 0.
    pub segment_bytes: u16,
}

impl<const N: usize> Headers<N> {
    /// Those of `packet`; `None` if they are longer than `N` bytes.
    pub fn of(packet: &TxPacket<'_>) -> Option<Headers<N>> {
        let headers = packet.headers();
        let mut bytes = [0; N];
        bytes.get_mut(..headers.len())?.copy_from_slice(headers);
        Some(Headers {
            bytes,
            header_bytes: u8::try_from(headers.len()).ok()?,
            transport_bytes: packet.transport_bytes,
            network_bytes: packet.network_bytes,
            checksum_offset: packet.checksum_offset,
            segment_bytes: packet.segment_bytes,
        })
    }

    /// How many packets are made of so many bytes of payload, if one: the NIC `cuts` them in no time.
    pub fn packets(&self, bytes: u32, cuts: bool) -> u32 {
        match self.segment_bytes {
            0 => 1,
            _ if cuts => 1,
            size => bytes.div_ceil(u32::from(size)),
        }
    }

    /// The headers, outermost first.
    pub fn as_slice(&self) -> &[u8] {
        let length = usize::from(self.header_bytes);
        self.bytes.get(..length).unwrap_or_default()
    }

    /// The packet with this payload.
    pub fn packet<'a>(&self, payload: [Bytes<'a>; 2]) -> TxPacket<'a> {
        let mut packet = TxPacket::new(payload);
        let headers = self.as_slice();
        // At most 128 bytes, of which a new packet has room for all.
        packet.prepend(headers.len()).copy_from_slice(headers);
        packet.transport_bytes = self.transport_bytes;
        packet.network_bytes = self.network_bytes;
        packet.checksum_offset = self.checksum_offset;
        packet.segment_bytes = self.segment_bytes;
        packet
    }

    #[inline]
    fn encode(&self) -> HeadersBody {
        HeadersBody {
            segment_bytes: self.segment_bytes,
            header_bytes: self.header_bytes,
            transport_bytes: self.transport_bytes,
            network_bytes: self.network_bytes,
            checksum_offset: self.checksum_offset.unwrap_or(NO_CHECKSUM),
            _reserved: [0; 2],
        }
    }

    /// `None` if the lengths contradict each other.
    #[inline]
    fn decode(body: &HeadersBody, bytes: [u8; N]) -> Option<Headers<N>> {
        let whole = usize::from(body.header_bytes);
        let inner = usize::from(body.transport_bytes) + usize::from(body.network_bytes);
        let checksum_offset = Some(body.checksum_offset).filter(|at| *at != NO_CHECKSUM);
        let checksum_fits = checksum_offset
            .is_none_or(|at| usize::from(at) + 2 <= usize::from(body.transport_bytes));
        let good = whole <= N && inner <= whole && checksum_fits;
        good.then_some(Headers {
            bytes,
            header_bytes: body.header_bytes,
            transport_bytes: body.transport_bytes,
            network_bytes: body.network_bytes,
            checksum_offset,
            segment_bytes: body.segment_bytes,
        })
    }
}

/// Stands for none; headers are shorter.
const NO_CHECKSUM: u8 = 0xff;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct HeadersBody {
    segment_bytes: u16,
    header_bytes: u8,
    transport_bytes: u8,
    network_bytes: u8,
    checksum_offset: u8,
    _reserved: [u8; 2],
}

/// A frame to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameDown {
    /// To be said when its payload isn't needed any more; 0 if nobody needs to know.
    pub id: u64,
    /// That is to be said at once.
    pub awaited: bool,
    /// `ip` is to be woken once it was taken.
    pub pressing: bool,
    /// What is behind the headers.
    pub payload: Payload,
    /// From the Ethernet header on.
    pub headers: Headers<128>,
}

/// What `ip` tells `link`.
#[derive(Clone, Copy, Debug)]
pub enum ToLink {
    /// Send this.
    Frame(FrameDown),
    /// These received frames aren't needed any more.
    Done(Few<RichPointer, 10>),
}

const FRAME: u32 = 1;
const DONE: u32 = 2;

/// How [`FrameBody`] and [`PacketBody`] begin.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Beginning {
    _id: u64,
    payload: PayloadBody,
}

impl Beginning {
    #[inline]
    fn is_for(wire: &LargeMessage, receiver: Incarnation) -> bool {
        let beginning: Option<Beginning> = wire.read();
        beginning.is_some_and(|it| it.payload.is_for(receiver))
    }

    #[inline]
    fn is_pressing(wire: &LargeMessage) -> bool {
        let beginning: Option<Beginning> = wire.read();
        beginning.is_some_and(|it| it.payload.is_pressing())
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FrameBody {
    id: u64,
    payload: PayloadBody,
    lengths: HeadersBody,
    headers: [u8; 128],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PointersBody {
    pointers: [RichPointer; 10],
    count: u32,
    _reserved: u32,
}

const _: () = assert!(size_of::<FrameBody>() == 176 && size_of::<PointersBody>() == 168);

impl Coded for ToLink {
    type Wire = LargeMessage;

    /// For any `link`: what one hasn't taken stays lent to its successor.
    #[inline]
    fn encode(&self, sender: Incarnation) -> LargeMessage {
        match self {
            ToLink::Frame(frame) => {
                let terms = terms(frame.id, frame.awaited, frame.pressing, 0);
                let body = FrameBody {
                    id: frame.id,
                    payload: frame.payload.encode(terms),
                    lengths: frame.headers.encode(),
                    headers: frame.headers.bytes,
                };
                LargeMessage::new(FRAME, sender, &body)
            }
            ToLink::Done(pointers) => {
                let body = PointersBody {
                    pointers: pointers.all,
                    count: pointers.count as u32,
                    _reserved: 0,
                };
                LargeMessage::new(DONE, sender, &body)
            }
        }
    }

    #[inline]
    fn decode(wire: &LargeMessage) -> Option<ToLink> {
        match wire.kind() {
            FRAME => {
                let body: FrameBody = wire.read()?;
                Some(ToLink::Frame(FrameDown {
                    id: body.id,
                    awaited: body.payload.is_awaited(),
                    pressing: body.payload.is_pressing(),
                    payload: body.payload.decode()?,
                    headers: Headers::decode(&body.lengths, body.headers)?,
                }))
            }
            DONE => {
                let body: PointersBody = wire.read()?;
                counted(body.pointers, body.count).map(ToLink::Done)
            }
            _ => None,
        }
    }

    fn is_pressing(wire: &LargeMessage) -> bool {
        wire.kind() == FRAME && Beginning::is_pressing(wire)
    }

    fn is_between(&self) -> bool {
        match self {
            ToLink::Frame(frame) => frame.id != 0,
            ToLink::Done(_) => true,
        }
    }
}

/// A packet that a transport sends.
#[derive(Clone, Copy, Debug)]
pub struct PacketDown {
    /// To be said when its payload isn't needed any more; 0 if nobody needs to know.
    pub id: u64,
    /// That is to be said at once.
    pub awaited: bool,
    /// The transport is to be woken once it was taken.
    pub pressing: bool,
    /// What is behind the transport header.
    pub payload: Payload,
    /// How to send it.
    pub to: Outbound,
    /// It refuses what the filter didn't let in, so the filter isn't asked. `ip` believes that of a TCP
    /// reset without payload, and of nothing else.
    pub refuses: bool,
    /// The transport header: TCP's is at most 60 bytes long.
    pub headers: Headers<60>,
}

/// What a transport tells `ip`.
#[derive(Clone, Copy, Debug)]
pub enum FromTransport {
    /// Send this.
    Packet(PacketDown),
    /// These packets aren't needed any more. A bit of the number is set for each of them that was for
    /// no socket: its sender is to be told.
    Done(Few<u64, 20>, u32),
}

const PACKET: u32 = 1;
const RETURNED: u32 = 2;

const HAS_HOP_LIMIT: u8 = 1;
const DONT_FRAGMENT: u8 = 2;
const REFUSES: u8 = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PacketBody {
    id: u64,
    payload: PayloadBody,
    source: [u8; 16],
    destination: [u8; 16],
    family: u8,
    protocol: u8,
    hop_limit: u8,
    traffic_class: u8,
    flags: u8,
    _reserved: [u8; 3],
    lengths: HeadersBody,
    headers: [u8; 60],
    _rest: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct IdsBody {
    ids: [u64; 20],
    count: u32,
    unreachable: u32,
}

const _: () = assert!(size_of::<PacketBody>() == 152 && size_of::<IdsBody>() == 168);

impl Coded for FromTransport {
    type Wire = LargeMessage;

    #[inline]
    fn encode(&self, sender: Incarnation) -> LargeMessage {
        self.encode_for(sender, 0)
    }

    /// As with [`ToLink`].
    #[inline]
    fn encode_for(&self, sender: Incarnation, receiver: Incarnation) -> LargeMessage {
        match self {
            FromTransport::Packet(packet) => {
                LargeMessage::new(PACKET, sender, &encode_packet(packet, receiver))
            }
            FromTransport::Done(ids, unreachable) => {
                let body = IdsBody {
                    ids: ids.all,
                    count: ids.count as u32,
                    unreachable: *unreachable,
                };
                LargeMessage::new(RETURNED, sender, &body)
            }
        }
    }

    #[inline]
    fn decode(wire: &LargeMessage) -> Option<FromTransport> {
        match wire.kind() {
            PACKET => decode_packet(&wire.read()?).map(FromTransport::Packet),
            RETURNED => {
                let body: IdsBody = wire.read()?;
                let ids = counted(body.ids, body.count)?;
                Some(FromTransport::Done(ids, body.unreachable))
            }
            _ => None,
        }
    }

    fn is_for(wire: &LargeMessage, receiver: Incarnation) -> bool {
        wire.kind() != PACKET || Beginning::is_for(wire, receiver)
    }

    fn is_pressing(wire: &LargeMessage) -> bool {
        wire.kind() == PACKET && Beginning::is_pressing(wire)
    }

    fn is_between(&self) -> bool {
        match self {
            FromTransport::Packet(packet) => packet.id != 0,
            FromTransport::Done(..) => true,
        }
    }
}

fn terms(id: u64, awaited: bool, pressing: bool, receiver: Incarnation) -> Terms {
    Terms {
        receiver: if id == 0 { 0 } else { receiver },
        awaited,
        pressing,
    }
}

fn encode_packet(packet: &PacketDown, receiver: Incarnation) -> PacketBody {
    let Outbound {
        source,
        destination,
        protocol,
        hop_limit,
        traffic_class,
        dont_fragment,
    } = packet.to;
    let flag = |on: bool, bit: u8| if on { bit } else { 0 };
    PacketBody {
        id: packet.id,
        payload: packet
            .payload
            .encode(terms(packet.id, packet.awaited, packet.pressing, receiver)),
        source: put_address(source),
        destination: put_address(destination),
        family: family(source),
        protocol,
        hop_limit: hop_limit.unwrap_or(0),
        traffic_class,
        flags: flag(hop_limit.is_some(), HAS_HOP_LIMIT)
            | flag(dont_fragment, DONT_FRAGMENT)
            | flag(packet.refuses, REFUSES),
        _reserved: [0; 3],
        lengths: packet.headers.encode(),
        headers: packet.headers.bytes,
        _rest: 0,
    }
}

fn decode_packet(body: &PacketBody) -> Option<PacketDown> {
    let has = |bit: u8| body.flags & bit != 0;
    Some(PacketDown {
        id: body.id,
        awaited: body.payload.is_awaited(),
        pressing: body.payload.is_pressing(),
        payload: body.payload.decode()?,
        to: Outbound {
            source: get_address(body.source, body.family)?,
            destination: get_address(body.destination, body.family)?,
            protocol: body.protocol,
            hop_limit: has(HAS_HOP_LIMIT).then_some(body.hop_limit),
            traffic_class: body.traffic_class,
            dont_fragment: has(DONT_FRAGMENT),
        },
        refuses: has(REFUSES),
        headers: Headers::decode(&body.lengths, body.headers)?,
    })
}

#[cfg(test)]
mod tests;
