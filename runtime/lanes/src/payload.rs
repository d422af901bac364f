//! Where the bytes behind a packet's headers are.

use skink_channel::RichPointer;
use skink_memory::RingSpan;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The payload of a packet on its way down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// There is none.
    Empty,
    /// In the send ring of a TCP socket, in the region of this index. It stays there until the peer has
    /// acknowledged it; after that the name leads nowhere, and who finds that drops the packet: its peer
    /// has it.
    Ring(u32, RingSpan),
    /// In a pool, of whoever sent the message.
    Pool(RichPointer),
}

impl Payload {
    /// How many bytes.
    pub fn bytes(&self) -> u32 {
        match self {
            Payload::Empty => 0,
            Payload::Ring(_, span) => span.bytes,
            Payload::Pool(pointer) => pointer.length,
        }
    }

    pub(crate) fn encode(&self) -> PayloadBody {
        match *self {
            Payload::Empty => PayloadBody {
                kind: EMPTY,
                ..PayloadBody::default()
            },
            Payload::Ring(region, span) => PayloadBody {
                kind: RING,
                owner: region,
                slot: span.slot,
                generation: span.generation,
                position: span.position,
                bytes: span.bytes,
                offset: 0,
            },
            Payload::Pool(pointer) => PayloadBody {
                kind: POOL,
                owner: pointer.pool,
                slot: 0,
                generation: pointer.generation,
                position: 0,
                bytes: pointer.length,
                offset: pointer.offset,
            },
        }
    }
}

const EMPTY: u32 = 1;
const RING: u32 = 2;
const POOL: u32 = 3;

/// [`Payload`] in a message.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct PayloadBody {
    kind: u32,
    owner: u32,
    slot: u32,
    generation: u32,
    position: u64,
    bytes: u32,
    offset: u32,
}

const _: () = assert!(size_of::<PayloadBody>() == 32);

impl PayloadBody {
    pub(crate) fn decode(&self) -> Option<Payload> {
        match self.kind {
            EMPTY => Some(Payload::Empty),
            RING => {
                let span = RingSpan {
                    slot: self.slot,
                    generation: self.generation,
                    position: self.position,
                    bytes: self.bytes,
                };
                Some(Payload::Ring(self.owner, span))
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
