use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_memory::SocketId;
use skink_messages::{
    Answer, ConnectionOption, Events, Holder, PortOptions, Protocol, Shutdown, SocketCall,
    SocketError, SocketEvent, TcpRequest, UdpRequest,
};
use skink_wire::Endpoint;
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[cfg(test)]
mod tests;

/// What a program asks for.
#[derive(Clone, Copy, Debug)]
pub enum RequestBody {
    /// What makes, names, shares or ends a socket.
    Call(SocketCall),
    /// The program took a connection that it was offered, now or before: it may say so more than once. Not
    /// answered.
    Accepted {
        /// The listening socket on which it was offered.
        listener: SocketId,
        /// The connection.
        connection: SocketId,
    },
    /// What `tcp` is told by itself. Not answered. [`TcpRequest::Close`] arrives as a [`SocketCall`].
    Tcp(TcpRequest),
    /// What `udp` is told by itself. Not answered. [`UdpRequest::Close`] arrives as a [`SocketCall`].
    Udp(UdpRequest),
}

/// Which part of the stack serves a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ServedBy {
    /// `syscall`
    Syscall,
    /// `tcp`
    Tcp,
    /// `udp`
    Udp,
}

impl ServedBy {
    /// All of them, in the order of [`ServedBy::index`].
    pub const ALL: [ServedBy; 3] = [ServedBy::Syscall, ServedBy::Tcp, ServedBy::Udp];

    /// 0 to 2.
    pub const fn index(self) -> usize {
        match self {
            ServedBy::Syscall => 0,
            ServedBy::Tcp => 1,
            ServedBy::Udp => 2,
        }
    }
}

impl From<Protocol> for ServedBy {
    fn from(protocol: Protocol) -> ServedBy {
        match protocol {
            Protocol::Tcp => ServedBy::Tcp,
            Protocol::Udp => ServedBy::Udp,
        }
    }
}

impl RequestBody {
    /// The part of the stack that it is for.
    #[inline]
    pub fn server(&self) -> ServedBy {
        match self {
            RequestBody::Call(_)
            | RequestBody::Tcp(TcpRequest::Close(_))
            | RequestBody::Udp(UdpRequest::Close(_)) => ServedBy::Syscall,
            RequestBody::Accepted { .. }
            | RequestBody::Tcp(
                TcpRequest::Sent(_)
                | TcpRequest::Received(_)
                | TcpRequest::Shutdown(..)
                | TcpRequest::SetOption(..),
            ) => ServedBy::Tcp,
            RequestBody::Udp(UdpRequest::Sent(_)) => ServedBy::Udp,
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Comes back with the answer, also if a successor of the part that was asked gives it. 0 in requests
    /// that aren't answered.
    pub serial: u32,
    /// What is asked for.
    pub body: RequestBody,
}

/// What a program is told.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// To the request of that serial number.
    Answer(u32, Result<Answer, SocketError>),
    /// Something happened to a socket.
    Event(Protocol, SocketEvent),
    /// A connection was established on a listening socket, and is the program's: `accept` takes it
    /// without asking.
    Offered {
        /// The listening socket.
        listener: SocketId,
        /// The connection.
        connection: SocketId,
    },
}

impl Notice {
    /// What a thread may sleep for on a berth of its own: the slot of a TCP socket.
    pub(crate) fn subject(&self) -> Option<u32> {
        match self {
            Notice::Event(Protocol::Tcp, event) => Some(event.socket.slot),
            Notice::Event(Protocol::Udp, _) | Notice::Offered { .. } | Notice::Answer(..) => None,
        }
    }
}

/// An [`Endpoint`] in shared memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct EndpointMessage {
    address: [u8; 16],
    port: u16,
    /// 4 or 6; 0 for none.
    family: u8,
    _reserved: [u8; 5],
}

/// A [`Request`] in a queue: one cache line with the stamp of its slot.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct RequestMessage {
    kind: u32,
    serial: u32,
    slot: u32,
    generation: u32,
    endpoint: EndpointMessage,
    /// What else the kind needs.
    value: u64,
    /// Bit flags, or a number, as the kind says.
    detail: u32,
    protocol: u8,
    _reserved: [u8; 3],
}

/// A [`Notice`] in a queue: one cache line with the stamp of its slot.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct NoticeMessage {
    kind: u32,
    serial: u32,
    slot: u32,
    generation: u32,
    endpoint: EndpointMessage,
    value: u64,
    /// A [`SocketError`], 0 for none; or [`Events`].
    detail: u32,
    protocol: u8,
    _reserved: [u8; 3],
}

const _: () = assert!(size_of::<RequestMessage>() == 56 && size_of::<NoticeMessage>() == 56);

/// Kinds of requests. 0 is none, so that memory never written says nothing.
mod kind {
    pub const OPEN: u32 = 1;
    pub const BIND: u32 = 2;
    pub const REST: u32 = 3;
    pub const LISTEN: u32 = 4;
    pub const CONNECT: u32 = 5;
    pub const ACCEPTED: u32 = 6;
    pub const SHARE: u32 = 7;
    pub const SENT: u32 = 8;
    pub const RECEIVED: u32 = 9;
    pub const SHUTDOWN: u32 = 10;
    pub const CLOSE: u32 = 11;
    pub const OPTION: u32 = 12;
    pub const RELIEVE: u32 = 13;
    pub const ANSWER: u32 = 1;
    pub const EVENT: u32 = 2;
    pub const OFFERED: u32 = 3;
}

const REUSE_ADDRESS: u32 = 1;
const REUSE_PORT: u32 = 2;

impl EndpointMessage {
    fn new(endpoint: Option<Endpoint>) -> EndpointMessage {
        let (mut address, mut family, mut port) = ([0; 16], 0, 0);
        if let Some(endpoint) = endpoint {
            port = endpoint.port;
            match endpoint.addr {
                IpAddr::V4(addr) => {
                    address[..4].copy_from_slice(&addr.octets());
                    family = 4;
                }
                IpAddr::V6(addr) => {
                    address = addr.octets();
                    family = 6;
                }
            }
        }
        EndpointMessage {
            address,
            port,
            family,
            _reserved: [0; 5],
        }
    }

    fn endpoint(&self) -> Option<Endpoint> {
        let [a, b, c, d, ..] = self.address;
        let addr = match self.family {
            4 => Ipv4Addr::new(a, b, c, d).into(),
            6 => Ipv6Addr::from(self.address).into(),
            _ => return None,
        };
        Some(Endpoint::new(addr, self.port))
    }
}

/// A socket as the value of a message that names another one too.
fn packed(socket: SocketId) -> u64 {
    u64::from(socket.generation) << 32 | u64::from(socket.slot)
}

fn unpacked(value: u64) -> SocketId {
    SocketId {
        slot: value as u32,
        generation: (value >> 32) as u32,
    }
}

/// The code and the value of an option.
fn option_code(option: ConnectionOption) -> (u32, u32) {
    use ConnectionOption::*;
    match option {
        NoDelay(on) => (1, on.into()),
        Cork(on) => (2, on.into()),
        QuickAck(on) => (3, on.into()),
        KeepAlive(on) => (4, on.into()),
        KeepAliveIdle(seconds) => (5, seconds),
        KeepAliveInterval(seconds) => (6, seconds),
        KeepAliveProbes(count) => (7, count),
        UserTimeout(ms) => (8, ms),
        MaximumSegment(bytes) => (9, bytes.into()),
        ResetOnClose(on) => (10, on.into()),
        SendBuffer(bytes) => (11, bytes),
        ReceiveBuffer(bytes) => (12, bytes),
        TrafficClass(class) => (13, class.into()),
        HopLimit(limit) => (14, limit.into()),
        Reserve(on) => (15, on.into()),
    }
}

fn option(code: u32, value: u32) -> Option<ConnectionOption> {
    use ConnectionOption::*;
    let on = value != 0;
    Some(match code {
        1 => NoDelay(on),
        2 => Cork(on),
        3 => QuickAck(on),
        4 => KeepAlive(on),
        5 => KeepAliveIdle(value),
        6 => KeepAliveInterval(value),
        7 => KeepAliveProbes(value),
        8 => UserTimeout(value),
        9 => MaximumSegment(u16::try_from(value).ok()?),
        10 => ResetOnClose(on),
        11 => SendBuffer(value),
        12 => ReceiveBuffer(value),
        13 => TrafficClass(u8::try_from(value).ok()?),
        14 => HopLimit(u8::try_from(value).ok()?),
        15 => Reserve(on),
        _ => return None,
    })
}

fn shutdown_code(how: Shutdown) -> u32 {
    match how {
        Shutdown::Read => 1,
        Shutdown::Write => 2,
        Shutdown::Both => 3,
    }
}

fn shutdown(code: u32) -> Option<Shutdown> {
    match code {
        1 => Some(Shutdown::Read),
        2 => Some(Shutdown::Write),
        3 => Some(Shutdown::Both),
        _ => None,
    }
}

/// What the fields of a message say.
#[derive(Default)]
struct Fields {
    kind: u32,
    protocol: u8,
    socket: Option<SocketId>,
    endpoint: Option<Endpoint>,
    value: u64,
    detail: u32,
}

impl Fields {
    fn tcp(kind: u32, socket: SocketId) -> Fields {
        Fields::of(kind, Protocol::Tcp, socket)
    }

    fn of(kind: u32, protocol: Protocol, socket: SocketId) -> Fields {
        Fields {
            kind,
            protocol: protocol.number(),
            socket: Some(socket),
            ..Fields::default()
        }
    }

    fn call(call: SocketCall) -> Fields {
        match call {
            SocketCall::Open(protocol) => Fields {
                kind: kind::OPEN,
                protocol: protocol.number(),
                ..Fields::default()
            },
            SocketCall::Bind(protocol, socket, local, options) => {
                let PortOptions {
                    reuse_address,
                    reuse_port,
                    ticket,
                } = options;
                let address = if reuse_address { REUSE_ADDRESS } else { 0 };
                let port = if reuse_port { REUSE_PORT } else { 0 };
                Fields {
                    endpoint: Some(local),
                    value: ticket,
                    detail: address | port,
                    ..Fields::of(kind::BIND, protocol, socket)
                }
            }
            SocketCall::Rest(socket) => Fields::tcp(kind::REST, socket),
            SocketCall::Listen(socket, backlog) => Fields {
                detail: backlog,
                ..Fields::tcp(kind::LISTEN, socket)
            },
            SocketCall::Connect(protocol, socket, remote) => Fields {
                endpoint: remote,
                ..Fields::of(kind::CONNECT, protocol, socket)
            },
            SocketCall::Share(protocol, socket, secret) => Fields {
                value: secret,
                ..Fields::of(kind::SHARE, protocol, socket)
            },
            SocketCall::Relieve(protocol, socket, holder) => Fields {
                detail: holder.program,
                value: holder.secret,
                ..Fields::of(kind::RELIEVE, protocol, socket)
            },
            SocketCall::Close(protocol, socket) => Fields::of(kind::CLOSE, protocol, socket),
        }
    }

    fn body(body: RequestBody) -> Fields {
        match body {
            RequestBody::Call(call) => Fields::call(call),
            RequestBody::Accepted {
                listener,
                connection,
            } => Fields {
                value: packed(connection),
                ..Fields::tcp(kind::ACCEPTED, listener)
            },
            RequestBody::Tcp(TcpRequest::Sent(socket)) => Fields::tcp(kind::SENT, socket),
            RequestBody::Tcp(TcpRequest::Received(socket)) => Fields::tcp(kind::RECEIVED, socket),
            RequestBody::Tcp(TcpRequest::Shutdown(socket, how)) => Fields {
                detail: shutdown_code(how),
                ..Fields::tcp(kind::SHUTDOWN, socket)
            },
            RequestBody::Tcp(TcpRequest::Close(socket)) => Fields::tcp(kind::CLOSE, socket),
            RequestBody::Tcp(TcpRequest::SetOption(socket, option)) => {
                let (detail, value) = option_code(option);
                Fields {
                    detail,
                    value: value.into(),
                    ..Fields::tcp(kind::OPTION, socket)
                }
            }
            RequestBody::Udp(UdpRequest::Sent(socket)) => {
                Fields::of(kind::SENT, Protocol::Udp, socket)
            }
            RequestBody::Udp(UdpRequest::Close(socket)) => {
                Fields::of(kind::CLOSE, Protocol::Udp, socket)
            }
        }
    }
}

impl From<&Request> for RequestMessage {
    fn from(request: &Request) -> RequestMessage {
        let fields = Fields::body(request.body);
        let none = SocketId {
            slot: 0,
            generation: 0,
        };
        let socket = fields.socket.unwrap_or(none);
        RequestMessage {
            kind: fields.kind,
            serial: request.serial,
            slot: socket.slot,
            generation: socket.generation,
            endpoint: EndpointMessage::new(fields.endpoint),
            value: fields.value,
            detail: fields.detail,
            protocol: fields.protocol,
            _reserved: [0; 3],
        }
    }
}

impl RequestMessage {
    /// What it says; `None` if that makes no sense.
    pub fn decode(&self) -> Option<Request> {
        let protocol = Protocol::from_number(self.protocol)?;
        let socket = SocketId {
            slot: self.slot,
            generation: self.generation,
        };
        let endpoint = self.endpoint.endpoint();
        let tcp = |request| (protocol == Protocol::Tcp).then_some(RequestBody::Tcp(request));
        let body = match self.kind {
            kind::OPEN => RequestBody::Call(SocketCall::Open(protocol)),
            kind::BIND => {
                let options = PortOptions {
                    reuse_address: self.detail & REUSE_ADDRESS != 0,
                    reuse_port: self.detail & REUSE_PORT != 0,
                    ticket: self.value,
                };
                RequestBody::Call(SocketCall::Bind(protocol, socket, endpoint?, options))
            }
            kind::REST => RequestBody::Call(SocketCall::Rest(socket)),
            kind::LISTEN => RequestBody::Call(SocketCall::Listen(socket, self.detail)),
            kind::CONNECT => RequestBody::Call(SocketCall::Connect(protocol, socket, endpoint)),
            kind::SHARE => RequestBody::Call(SocketCall::Share(protocol, socket, self.value)),
            kind::RELIEVE => {
                let holder = Holder {
                    program: self.detail,
                    secret: self.value,
                };
                RequestBody::Call(SocketCall::Relieve(protocol, socket, holder))
            }
            kind::CLOSE => RequestBody::Call(SocketCall::Close(protocol, socket)),
            kind::ACCEPTED => RequestBody::Accepted {
                listener: socket,
                connection: unpacked(self.value),
            },
            kind::SENT if protocol == Protocol::Udp => RequestBody::Udp(UdpRequest::Sent(socket)),
            kind::SENT => tcp(TcpRequest::Sent(socket))?,
            kind::RECEIVED => tcp(TcpRequest::Received(socket))?,
            kind::SHUTDOWN => tcp(TcpRequest::Shutdown(socket, shutdown(self.detail)?))?,
            kind::OPTION => {
                let option = option(self.detail, u32::try_from(self.value).ok()?)?;
                tcp(TcpRequest::SetOption(socket, option))?
            }
            _ => return None,
        };
        Some(Request {
            serial: self.serial,
            body,
        })
    }
}

impl From<&Notice> for NoticeMessage {
    fn from(notice: &Notice) -> NoticeMessage {
        let mut message = NoticeMessage {
            kind: 0,
            serial: 0,
            slot: 0,
            generation: 0,
            endpoint: EndpointMessage::new(None),
            value: 0,
            detail: 0,
            protocol: 0,
            _reserved: [0; 3],
        };
        match *notice {
            Notice::Answer(serial, Ok(answer)) => {
                message.kind = kind::ANSWER;
                message.serial = serial;
                if let Some(socket) = answer.socket {
                    (message.slot, message.generation) = (socket.slot, socket.generation);
                    // Tells a socket from none: a protocol number has no other use here.
                    message.protocol = 1;
                }
                message.endpoint = EndpointMessage::new(answer.local);
                message.value = answer.value;
            }
            Notice::Answer(serial, Err(error)) => {
                message.kind = kind::ANSWER;
                message.serial = serial;
                message.detail = error as u32;
            }
            Notice::Event(protocol, event) => {
                message.kind = kind::EVENT;
                message.protocol = protocol.number();
                message.slot = event.socket.slot;
                message.generation = event.socket.generation;
                message.detail = event.events.bits().into();
            }
            Notice::Offered {
                listener,
                connection,
            } => {
                message.kind = kind::OFFERED;
                (message.slot, message.generation) = (listener.slot, listener.generation);
                message.value = packed(connection);
            }
        }
        message
    }
}

impl NoticeMessage {
    /// What it says; `None` if that makes no sense.
    pub fn decode(&self) -> Option<Notice> {
        let socket = SocketId {
            slot: self.slot,
            generation: self.generation,
        };
        Some(match self.kind {
            kind::ANSWER if self.detail != 0 => {
                Notice::Answer(self.serial, Err(SocketError::from_number(self.detail)?))
            }
            kind::ANSWER => Notice::Answer(
                self.serial,
                Ok(Answer {
                    socket: (self.protocol != 0).then_some(socket),
                    local: self.endpoint.endpoint(),
                    value: self.value,
                }),
            ),
            kind::EVENT => {
                let events = Events::from_bits(u8::try_from(self.detail).ok()?)?;
                let protocol = Protocol::from_number(self.protocol)?;
                Notice::Event(protocol, SocketEvent { socket, events })
            }
            kind::OFFERED => Notice::Offered {
                listener: socket,
                connection: unpacked(self.value),
            },
            _ => return None,
        })
    }
}
