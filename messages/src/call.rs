use crate::{BindOptions, SocketError};
use skink_memory::SocketId;
use skink_wire::Endpoint;

/// Which transport a socket is of: an id names a slot of this one's table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// `tcp`
    Tcp,
    /// `udp`
    Udp,
}

impl Protocol {
    /// Both, in the order of [`Protocol::index`].
    pub const ALL: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];

    /// 0 or 1.
    pub const fn index(self) -> usize {
        match self {
            Protocol::Tcp => 0,
            Protocol::Udp => 1,
        }
    }

    /// Its number in IP headers.
    pub const fn number(self) -> u8 {
        match self {
            Protocol::Tcp => skink_wire::protocol::TCP,
            Protocol::Udp => skink_wire::protocol::UDP,
        }
    }

    /// The transport with this number in IP headers.
    pub const fn from_number(number: u8) -> Option<Protocol> {
        match number {
            skink_wire::protocol::TCP => Some(Protocol::Tcp),
            skink_wire::protocol::UDP => Some(Protocol::Udp),
            _ => None,
        }
    }
}

/// How a program wants to share a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortOptions {
    /// `SO_REUSEADDR`
    pub reuse_address: bool,
    /// `SO_REUSEPORT`
    pub reuse_port: bool,
    /// Shows that the port was inherited: what [`Answer::value`] said to the `bind` of the process that
    /// it comes from; otherwise 0.
    pub ticket: u64,
}

/// What a program asks of `syscall`: all that makes, names, shares or ends a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketCall {
    /// `socket`. Answered with the socket.
    Open(Protocol),
    /// `bind`; port 0 takes a free one. Answered with the endpoint, and a ticket as the value.
    Bind(Protocol, SocketId, Endpoint, PortOptions),
    /// A bound TCP socket rests while children of the program listen: while none does, requests for
    /// connections aren't refused but left for the peer to repeat. Answered: who asks afterwards isn't refused.
    Rest(SocketId),
    /// `listen` with this backlog. Answered with the endpoint.
    Listen(SocketId, u32),
    /// `connect`, without waiting for the handshake; `None` dissolves a UDP socket's. Answered with
    /// our end.
    Connect(Protocol, SocketId, Option<Endpoint>),
    /// The program uses this socket too, which is another program's or was handed on before: it has
    /// inherited it, and knows the region's secret. Answered with the socket.
    Share(Protocol, SocketId, u64),
    /// The program uses this socket, which was passed to it, and the holder that has held it meanwhile lets go of it: one that has
    /// nothing to say of it, as that might come too late. Not answered.
    Relieve(Protocol, SocketId, Holder),
    /// The program lets go of the socket; with its last holder it is closed. Not answered.
    Close(Protocol, SocketId),
}

/// A program that holds sockets which are passed, until their receivers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its number.
    pub program: u32,
    /// Its region's secret, which shows that it was meant to be relieved.
    pub secret: u64,
}

impl SocketCall {
    /// Whether the program waits for an answer.
    pub const fn is_answered(&self) -> bool {
        !matches!(self, SocketCall::Close(..) | SocketCall::Relieve(..))
    }
}

/// What a call came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// The socket.
    pub socket: Option<SocketId>,
    /// The socket's own end.
    pub local: Option<Endpoint>,
    /// A ticket, see [`PortOptions`].
    pub value: u64,
}

/// What `syscall` asks of `tcp` or `udp` for a program. Before a transport carries it out it takes in what
/// the program had told it directly: so nothing overtakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportCall {
    /// The program.
    pub program: u32,
    /// The serial number of the program's request; 0 if there is no answer. A transport answers the
    /// same number of the same program twice with the same outcome, and carries it out once: so who
    /// dies between the two can ask again. A transport's successor leaves out what its predecessor was asked for,
    /// and is asked again.
    pub serial: u32,
    /// What for.
    pub body: CallBody,
}

/// See [`TransportCall`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallBody {
    /// A socket in the program's region.
    Open,
    /// Binds; what may be shared has been checked.
    Bind(SocketId, Endpoint, BindOptions),
    /// As [`SocketCall::Rest`].
    Rest(SocketId),
    /// As [`SocketCall::Listen`].
    Listen(SocketId, u32),
    /// As [`SocketCall::Connect`].
    Connect(SocketId, Option<Endpoint>),
    /// The program hears of a socket from now on, and may use it. An error if there is no such socket,
    /// or it listens.
    Share(SocketId),
    /// The program doesn't use the socket any more; others do. Not answered.
    Release(SocketId),
    /// The last holder let go. Not answered.
    Close(SocketId),
    /// The program has ended. Its sockets are closed but for those that others still share, of which there are some.
    /// Not answered.
    /// The number is [`attachment_tag`] of the program's secret: one that has the program's number since
    /// isn't meant.
    Detach(u32),
    /// The program has ended, and so have all others that held sockets of its. Not answered. The number is that of
    /// [`CallBody::Detach`].
    Abandon(u32),
    /// From here to [`CallBody::AllShared`], all sockets are said that are shared, with all that hold them. Not
    /// answered.
    Sharing,
    /// See [`CallBody::Sharing`]: a successor that has heard both knows all. Not answered.
    AllShared,
}

/// Tells programs that have the same number one after the other apart, without giving their secret away.
pub const fn attachment_tag(secret: u64) -> u32 {
    (secret >> 32) as u32
}

/// What a [`TransportCall`] came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallOutcome {
    /// As in the call.
    pub program: u32,
    /// As in the call.
    pub serial: u32,
    /// The socket, and its own end where that is known.
    pub result: Result<(SocketId, Option<Endpoint>), SocketError>,
}
