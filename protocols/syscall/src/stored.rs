//! What is kept in `store`, and its bytes there.
use crate::SyscallOutput;
use crate::ports::{Bound, Retired};
use crate::turns::{Intent, Turn};
use core::net::IpAddr;
use skink_memory::SocketId;
use skink_messages::{BindOptions, Protocol, STORED_BYTES, StoreClient, StoreKey, StoreValue};
use skink_wire::Endpoint;

/// What [`StoreKey::kind`] says. A kind whose value changes its layout gets a new number.
mod kind {
    pub const PORT: u8 = 1;
    pub const RETIRED: u8 = 2;
    pub const SHARE: u8 = 3;
    pub const OWNER_GONE: u8 = 4;
    pub const PROGRAM: u8 = 5;
    pub const TURN: u8 = 6;
}

/// Whether what is stored under this key is about a socket that is open, or a call that is under way: if nobody
/// has any, nothing such is stored.
pub fn is_of_socket(key: StoreKey) -> bool {
    let of_sockets = [kind::PORT, kind::SHARE, kind::OWNER_GONE, kind::TURN];
    key.client == StoreClient::Syscall && of_sockets.contains(&key.kind)
}

/// What is remembered of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub uid: u32,
    /// Who knows it may share this program's sockets.
    pub secret: u64,
    /// It has ended, and others hold sockets of its.
    pub departed: bool,
}

/// One thing that is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    Port(Protocol, Bound),
    Retired(u64, Retired),
    /// Socket, holder, and whether the transport has confirmed it.
    Share(Protocol, SocketId, u32, bool),
    OwnerGone(Protocol, SocketId),
    Program(u32, Known),
    Turn(Protocol, Turn),
}

/// Stores an item.
pub(crate) fn keep(out: &mut impl SyscallOutput, item: &Item) {
    out.store(item.key(), Some(item.value()));
}

/// Removes what is stored under the item's key.
pub(crate) fn forget(out: &mut impl SyscallOutput, item: &Item) {
    out.store(item.key(), None);
}

impl Item {
    pub fn key(&self) -> StoreKey {
        let (kind, id) = match *self {
            Item::Port(protocol, bound) => (kind::PORT, socket_key(protocol, bound.socket, 0)),
            Item::Retired(number, _) => (kind::RETIRED, u128::from(number)),
            Item::Share(protocol, socket, holder, _) => {
                (kind::SHARE, socket_key(protocol, socket, holder))
            }
            Item::OwnerGone(protocol, socket) => {
                (kind::OWNER_GONE, socket_key(protocol, socket, 0))
            }
            Item::Program(program, _) => (kind::PROGRAM, u128::from(program)),
            Item::Turn(protocol, _) => (kind::TURN, u128::from(protocol.number())),
        };
        StoreKey {
            client: StoreClient::Syscall,
            kind,
            id,
        }
    }

    pub fn value(&self) -> StoreValue {
        let mut writer = Writer::default();
        match *self {
            Item::Port(_, bound) => {
                writer.endpoint(bound.local);
                writer.bytes(&bound.uid.to_le_bytes());
                writer.bytes(&bound.ticket.to_le_bytes());
                writer.flags([bound.reuse_port, false, false, false]);
            }
            Item::Retired(_, retired) => {
                writer.bytes(&[retired.protocol.number()]);
                writer.bytes(&retired.port.to_le_bytes());
                writer.bytes(&retired.uid.to_le_bytes());
                writer.bytes(&retired.ticket.to_le_bytes());
            }
            Item::Share(.., confirmed) => writer.flags([confirmed, false, false, false]),
            Item::OwnerGone(..) => {}
            Item::Program(_, known) => {
                writer.bytes(&known.uid.to_le_bytes());
                writer.bytes(&known.secret.to_le_bytes());
                writer.flags([known.departed, false, false, false]);
            }
            Item::Turn(_, turn) => turn_value(&mut writer, turn),
        }
        writer.value
    }

    /// What is stored under a key; `None` if that makes no sense.
    pub fn decode(key: StoreKey, value: &StoreValue) -> Option<Item> {
        let mut reader = Reader { rest: value };
        let item = match key.kind {
            kind::PORT => {
                let (protocol, socket, _) = from_socket_key(key.id)?;
                let local = reader.endpoint()?;
                let uid = reader.u32()?;
                let ticket = reader.u64()?;
                let [reuse_port, ..] = reader.flags()?;
                let bound = Bound {
                    socket,
                    local,
                    uid,
                    reuse_port,
                    ticket,
                };
                Item::Port(protocol, bound)
            }
            kind::RETIRED => {
                let retired = Retired {
                    protocol: Protocol::from_number(reader.u8()?)?,
                    port: reader.u16()?,
                    uid: reader.u32()?,
                    ticket: reader.u64()?,
                };
                Item::Retired(key.id.try_into().ok()?, retired)
            }
            kind::SHARE => {
                let (protocol, socket, holder) = from_socket_key(key.id)?;
                let [confirmed, ..] = reader.flags()?;
                Item::Share(protocol, socket, holder, confirmed)
            }
            kind::OWNER_GONE => {
                let (protocol, socket, _) = from_socket_key(key.id)?;
                Item::OwnerGone(protocol, socket)
            }
            kind::PROGRAM => {
                let (uid, secret) = (reader.u32()?, reader.u64()?);
                let [departed, ..] = reader.flags()?;
                let known = Known {
                    uid,
                    secret,
                    departed,
                };
                Item::Program(key.id.try_into().ok()?, known)
            }
            kind::TURN => {
                let number = u8::try_from(key.id).ok()?;
                Item::Turn(Protocol::from_number(number)?, decode_turn(&mut reader)?)
            }
            _ => return None,
        };
        // Also whatever wasn't looked at is as it was written.
        (item.key() == key && item.value() == *value).then_some(item)
    }
}

fn turn_value(writer: &mut Writer, turn: Turn) {
    writer.bytes(&turn.program.to_le_bytes());
    writer.bytes(&turn.serial.to_le_bytes());
    writer.bytes(&turn.socket.slot.to_le_bytes());
    writer.bytes(&turn.socket.generation.to_le_bytes());
    writer.bytes(&turn.uid.to_le_bytes());
    match turn.intent {
        Intent::Bind {
            asked,
            sharing,
            reuse_port,
            ticket,
        } => {
            writer.flags([true, sharing.reuse_address, sharing.shared, reuse_port]);
            writer.endpoint(asked);
            writer.bytes(&ticket.unwrap_or(0).to_le_bytes());
        }
        Intent::Listen { backlog } => {
            writer.flags([false; 4]);
            writer.bytes(&backlog.to_le_bytes());
        }
    }
}

fn decode_turn(reader: &mut Reader<'_>) -> Option<Turn> {
    let (program, serial) = (reader.u32()?, reader.u32()?);
    let socket = SocketId {
        slot: reader.u32()?,
        generation: reader.u32()?,
    };
    let uid = reader.u32()?;
    let [binds, reuse_address, shared, reuse_port] = reader.flags()?;
    let intent = if binds {
        Intent::Bind {
            sharing: BindOptions {
                reuse_address,
                shared,
            },
            reuse_port,
            asked: reader.endpoint()?,
            ticket: Some(reader.u64()?).filter(|ticket| *ticket != 0),
        }
    } else {
        Intent::Listen {
            backlog: reader.u32()?,
        }
    };
    Some(Turn {
        program,
        serial,
        socket,
        uid,
        intent,
    })
}

fn socket_key(protocol: Protocol, socket: SocketId, holder: u32) -> u128 {
    u128::from(protocol.number()) << 96
        | u128::from(socket.slot) << 64
        | u128::from(socket.generation) << 32
        | u128::from(holder)
}

fn from_socket_key(id: u128) -> Option<(Protocol, SocketId, u32)> {
    let word = |shift: u32| (id >> shift & u128::from(u32::MAX)) as u32;
    let number = u8::try_from(id >> 96).ok()?;
    let socket = SocketId {
        slot: word(64),
        generation: word(32),
    };
    Some((Protocol::from_number(number)?, socket, word(0)))
}

/// Fills a value from its beginning; the rest is 0.
struct Writer {
    value: StoreValue,
    at: usize,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer {
            value: [0; STORED_BYTES],
            at: 0,
        }
    }
}

impl Writer {
    /// What doesn't fit is left out: no item is longer than a value, as the tests see.
    fn bytes(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        if let Some(place) = self.value.get_mut(self.at..end) {
            place.copy_from_slice(bytes);
        }
        self.at = end;
    }

    fn flags(&mut self, flags: [bool; 4]) {
        let bits = flags.iter().rev();
        let byte = bits.fold(0, |byte, flag| byte << 1 | u8::from(*flag));
        self.bytes(&[byte]);
    }

    fn endpoint(&mut self, end: Endpoint) {
        let (family, octets) = match end.addr {
            IpAddr::V4(addr) => (4, addr.to_ipv6_mapped().octets()),
            IpAddr::V6(addr) => (6, addr.octets()),
        };
        self.bytes(&[family]);
        self.bytes(&octets);
        self.bytes(&end.port.to_le_bytes());
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn flags(&mut self) -> Option<[bool; 4]> {
        let byte = self.u8()?;
        Some([1, 2, 4, 8].map(|bit| byte & bit != 0))
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        let family = self.u8()?;
        let octets = core::net::Ipv6Addr::from(self.take::<16>()?);
        let addr = match family {
            4 => IpAddr::V4(octets.to_ipv4_mapped()?),
            6 => IpAddr::V6(octets),
            _ => return None,
        };
        Some(Endpoint::new(addr, self.u16()?))
    }
}

#[cfg(test)]
mod tests;
