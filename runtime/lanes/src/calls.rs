//! Messages between `syscall` and a transport, and between `store` and its clients.

use crate::Incarnation;
use crate::codec::{
    Coded, Envelope, MiddleMessage, SmallMessage, family, get_address, put_address,
};
use skink_memory::SocketId;
use skink_messages::{
    BindOptions, CallBody, CallOutcome, STORED_BYTES, SocketError, StoreClient, StoreKey,
    StoreReply, StoreRequest, TransportCall,
};
use skink_wire::Endpoint;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[cfg(test)]
mod tests;

/// An end, or none.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct EndBody {
    address: [u8; 16],
    port: u16,
    /// 4 or 6; 0 for none.
    family: u8,
    _reserved: u8,
}

impl EndBody {
    #[inline]
    fn new(end: Option<Endpoint>) -> EndBody {
        end.map_or(EndBody::default(), |end| EndBody {
            address: put_address(end.addr),
            port: end.port,
            family: family(end.addr),
            _reserved: 0,
        })
    }

    #[inline]
    fn end(&self) -> Option<Endpoint> {
        get_address(self.address, self.family).map(|addr| Endpoint::new(addr, self.port))
    }
}

/// A call and an outcome lie alike.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct CallFields {
    program: u32,
    serial: u32,
    slot: u32,
    generation: u32,
    /// Backlog, what may be shared, an error, or a tag.
    detail: u32,
    end: EndBody,
    /// The incarnation of the transport that a call with a serial number is for, or 0: anyone.
    receiver: u32,
}

const _: () = assert!(size_of::<CallFields>() <= 48);

mod kind {
    pub const OPEN: u32 = 1;
    pub const BIND: u32 = 2;
    pub const REST: u32 = 3;
    pub const LISTEN: u32 = 4;
    pub const CONNECT: u32 = 5;
    pub const SHARE: u32 = 6;
    pub const RELEASE: u32 = 7;
    pub const CLOSE: u32 = 8;
    pub const DETACH: u32 = 9;
    pub const ABANDON: u32 = 10;
    pub const SHARING: u32 = 11;
    pub const ALL_SHARED: u32 = 12;
    pub const OUTCOME: u32 = 1;
}

const REUSE_ADDRESS: u32 = 1;
const SHARED: u32 = 2;

const NO_SOCKET: SocketId = SocketId {
    slot: 0,
    generation: 0,
};

impl CallFields {
    fn socket(&self) -> SocketId {
        SocketId {
            slot: self.slot,
            generation: self.generation,
        }
    }
}

impl Coded for TransportCall {
    type Wire = SmallMessage;

    #[inline]
    fn encode(&self, sender: Incarnation) -> SmallMessage {
        self.encode_for(sender, 0)
    }

    /// `syscall` asks a successor again for what has no outcome yet. What it had asked a predecessor for may be done
    /// and overtaken: a socket that is opened once more is one that nobody knows of.
    #[inline]
    fn encode_for(&self, sender: Incarnation, receiver: Incarnation) -> SmallMessage {
        let (kind, socket, detail, end) = match self.body {
            CallBody::Open => (kind::OPEN, NO_SOCKET, 0, None),
            CallBody::Bind(socket, local, options) => {
                let reuse = u32::from(options.reuse_address) * REUSE_ADDRESS;
                let shared = u32::from(options.shared) * SHARED;
                (kind::BIND, socket, reuse | shared, Some(local))
            }
            CallBody::Rest(socket) => (kind::REST, socket, 0, None),
            CallBody::Listen(socket, backlog) => (kind::LISTEN, socket, backlog, None),
            CallBody::Connect(socket, remote) => (kind::CONNECT, socket, 0, remote),
            CallBody::Share(socket) => (kind::SHARE, socket, 0, None),
            CallBody::Release(socket) => (kind::RELEASE, socket, 0, None),
            CallBody::Close(socket) => (kind::CLOSE, socket, 0, None),
            CallBody::Detach(tag) => (kind::DETACH, NO_SOCKET, tag, None),
            CallBody::Abandon(tag) => (kind::ABANDON, NO_SOCKET, tag, None),
            CallBody::Sharing => (kind::SHARING, NO_SOCKET, 0, None),
            CallBody::AllShared => (kind::ALL_SHARED, NO_SOCKET, 0, None),
        };
        let body = CallFields {
            program: self.program,
            serial: self.serial,
            slot: socket.slot,
            generation: socket.generation,
            detail,
            end: EndBody::new(end),
            receiver: match self.serial {
                // Said once, and true of what it names whoever hears it.
                0 => 0,
                _ => receiver,
            },
        };
        SmallMessage::new(kind, sender, &body)
    }

    #[inline]
    fn is_for(wire: &SmallMessage, receiver: Incarnation) -> bool {
        let fields: Option<CallFields> = wire.read();
        fields.is_none_or(|fields| [0, receiver].contains(&fields.receiver))
    }

    #[inline]
    fn decode(wire: &SmallMessage) -> Option<TransportCall> {
        let fields: CallFields = wire.read()?;
        let (socket, end) = (fields.socket(), fields.end.end());
        let body = match wire.kind() {
            kind::OPEN => CallBody::Open,
            kind::BIND => {
                let options = BindOptions {
                    reuse_address: fields.detail & REUSE_ADDRESS != 0,
                    shared: fields.detail & SHARED != 0,
                };
                CallBody::Bind(socket, end?, options)
            }
            kind::REST => CallBody::Rest(socket),
            kind::LISTEN => CallBody::Listen(socket, fields.detail),
            kind::CONNECT => CallBody::Connect(socket, end),
            kind::SHARE => CallBody::Share(socket),
            kind::RELEASE => CallBody::Release(socket),
            kind::CLOSE => CallBody::Close(socket),
            kind::DETACH => CallBody::Detach(fields.detail),
            kind::ABANDON => CallBody::Abandon(fields.detail),
            kind::SHARING => CallBody::Sharing,
            kind::ALL_SHARED => CallBody::AllShared,
            _ => return None,
        };
        Some(TransportCall {
            program: fields.program,
            serial: fields.serial,
            body,
        })
    }

    fn is_between(&self) -> bool {
        false
    }
}

impl Coded for CallOutcome {
    type Wire = SmallMessage;

    #[inline]
    fn encode(&self, incarnation: Incarnation) -> SmallMessage {
        let (error, socket, end) = match self.result {
            Ok((socket, end)) => (0, socket, end),
            Err(error) => (error as u32, NO_SOCKET, None),
        };
        let body = CallFields {
            program: self.program,
            serial: self.serial,
            slot: socket.slot,
            generation: socket.generation,
            detail: error,
            end: EndBody::new(end),
            receiver: 0,
        };
        SmallMessage::new(kind::OUTCOME, incarnation, &body)
    }

    #[inline]
    fn decode(wire: &SmallMessage) -> Option<CallOutcome> {
        let fields: CallFields = wire.read()?;
        let result = match (wire.kind(), fields.detail) {
            (kind::OUTCOME, 0) => Ok((fields.socket(), fields.end.end())),
            (kind::OUTCOME, error) => Err(SocketError::from_number(error)?),
            _ => return None,
        };
        Some(CallOutcome {
            program: fields.program,
            serial: fields.serial,
            result,
        })
    }

    /// It names the call, whichever incarnation of a transport carried that out.
    fn is_between(&self) -> bool {
        false
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredBody {
    id: [u8; 16],
    value: [u8; STORED_BYTES],
    count: u32,
    client: u8,
    kind: u8,
    _reserved: [u8; 2],
}

const PUT: u32 = 1;
const REMOVE: u32 = 2;
const LIST: u32 = 3;
const ITEM: u32 = 1;
const END: u32 = 2;

impl StoredBody {
    fn key(&self) -> Option<StoreKey> {
        Some(StoreKey {
            client: StoreClient::from_number(self.client)?,
            kind: self.kind,
            id: u128::from_le_bytes(self.id),
        })
    }

    #[inline]
    fn new(key: &StoreKey, value: Option<&[u8; STORED_BYTES]>) -> StoredBody {
        StoredBody {
            id: key.id.to_le_bytes(),
            value: value.copied().unwrap_or([0; STORED_BYTES]),
            count: 0,
            client: key.client.number(),
            kind: key.kind,
            _reserved: [0; 2],
        }
    }

    fn of(client: StoreClient, count: u32) -> StoredBody {
        let (kind, id) = (0, 0);
        let key = StoreKey { client, kind, id };
        StoredBody {
            count,
            ..StoredBody::new(&key, None)
        }
    }
}

impl Coded for StoreRequest {
    type Wire = MiddleMessage;

    #[inline]
    fn encode(&self, incarnation: Incarnation) -> MiddleMessage {
        let (kind, body) = match self {
            StoreRequest::Put(key, value) => (PUT, StoredBody::new(key, Some(value))),
            StoreRequest::Remove(key) => (REMOVE, StoredBody::new(key, None)),
            StoreRequest::List(client) => (LIST, StoredBody::of(*client, 0)),
        };
        MiddleMessage::new(kind, incarnation, &body)
    }

    #[inline]
    fn decode(wire: &MiddleMessage) -> Option<StoreRequest> {
        let body: StoredBody = wire.read()?;
        let key = body.key()?;
        match wire.kind() {
            PUT => Some(StoreRequest::Put(key, body.value)),
            REMOVE => Some(StoreRequest::Remove(key)),
            LIST => Some(StoreRequest::List(key.client)),
            _ => None,
        }
    }

    fn is_between(&self) -> bool {
        false
    }
}

impl Coded for StoreReply {
    type Wire = MiddleMessage;

    #[inline]
    fn encode(&self, incarnation: Incarnation) -> MiddleMessage {
        let (kind, body) = match self {
            StoreReply::Item(key, value) => (ITEM, StoredBody::new(key, Some(value))),
            StoreReply::End(client, count) => (END, StoredBody::of(*client, *count)),
        };
        MiddleMessage::new(kind, incarnation, &body)
    }

    #[inline]
    fn decode(wire: &MiddleMessage) -> Option<StoreReply> {
        let body: StoredBody = wire.read()?;
        let key = body.key()?;
        match wire.kind() {
            ITEM => Some(StoreReply::Item(key, body.value)),
            END => Some(StoreReply::End(key.client, body.count)),
            _ => None,
        }
    }

    fn is_between(&self) -> bool {
        true
    }
}
