//! Where the bytes behind a packet's headers are.

use crate::{Incarnation, Transport};
use skink_channel::RichPointer;
use skink_memory::RingSpan;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The payload of a packet on its way down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// There is none.
    Empty,
    /// In the send ring of a socket of this transport, in the region of this index. TCP's stays there until the peer has
    /// acknowledged it; after that the name leads nowhere, and who finds that drops the packet: its peer has it. UDP's
    /// stays there until it was said that the packet has left.
    Ring(Transport, u32, RingSpan),
    /// In a pool, of whoever sent the message.
    Pool(RichPointer),
}

impl Payload {
    /// How many bytes.
    pub fn bytes(&self) -> u32 {
        match self {
            Payload::Empty => 0,
            Payload::Ring(_, _, span) => span.bytes,
            Payload::Pool(pointer) => pointer.length,
        }
    }

    #[inline]
    pub(crate) fn encode(&self, terms: Terms) -> PayloadBody {
        let Terms {
            receiver,
            awaited,
            pressing,
        } = terms;
        let body = PayloadBody {
            flags: if awaited { AWAITED } else { 0 } | if pressing { PRESSING } else { 0 },
            receiver: tag(receiver),
            ..PayloadBody::default()
        };
        match *self {
            Payload::Empty => PayloadBody {
                kind: EMPTY,
                ..body
            },
            Payload::Ring(transport, region, span) => PayloadBody {
                kind: match transport {
                    Transport::Tcp => TCP_RING,
                    Transport::Udp => UDP_RING,
                },
                owner: region,
                slot: span.slot,
                generation: span.generation,
                position: span.position,
                bytes: span.bytes,
                ..body
            },
            Payload::Pool(pointer) => PayloadBody {
                kind: POOL,
                owner: pointer.pool,
                generation: pointer.generation,
                bytes: pointer.length,
                offset: pointer.offset,
                ..body
            },
        }
    }
}

const EMPTY: u8 = 1;
const TCP_RING: u8 = 2;
const POOL: u8 = 3;
const UDP_RING: u8 = 4;

const AWAITED: u8 = 1;
const PRESSING: u8 = 2;

/// What goes with a payload, as to whom it is for and who waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    /// The only incarnation that may read it; 0 if any may.
    pub receiver: Incarnation,
    /// Its sender is to be told at once when it isn't needed any more.
    pub awaited: bool,
    /// Its sender is to be woken once the message was taken.
    pub pressing: bool,
}

/// An incarnation's lower bits, and one more, so that none is 0: no message lies in a queue for 32,768 restarts.
fn tag(incarnation: Incarnation) -> u16 {
    match incarnation {
        0 => 0,
        some => (some & 0x7fff) as u16 | 0x8000,
    }
}

/// [`Payload`] in a message.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct PayloadBody {
    kind: u8,
    flags: u8,
    receiver: u16,
    owner: u32,
    slot: u32,
    generation: u32,
    position: u64,
    bytes: u32,
    offset: u32,
}

const _: () = assert!(size_of::<PayloadBody>() == 32);

impl PayloadBody {
    /// Whether this incarnation may read it.
    pub(crate) fn is_for(&self, receiver: Incarnation) -> bool {
        [0, tag(receiver)].contains(&self.receiver)
    }

    /// As [`Terms::awaited`].
    pub(crate) fn is_awaited(&self) -> bool {
        self.flags & AWAITED != 0
    }

    /// As [`Terms::pressing`].
    pub(crate) fn is_pressing(&self) -> bool {
        self.flags & PRESSING != 0
    }

    #[inline]
    pub(crate) fn decode(&self) -> Option<Payload> {
        match self.kind {
            EMPTY => Some(Payload::Empty),
            TCP_RING | UDP_RING => {
                let transport = match self.kind {
                    TCP_RING => Transport::Tcp,
                    _ => Transport::Udp,
                };
                let span = RingSpan {
                    slot: self.slot,
                    generation: self.generation,
                    position: self.position,
                    bytes: self.bytes,
                };
                Some(Payload::Ring(transport, self.owner, span))
            }
            POOL => Some(Payload::Pool(RichPointer {
                pool: self.owner,
                offset: self.offset,
                length: self.bytes,
                generation: self.generation,
            })),
            _ => None,
        }
    }
}
