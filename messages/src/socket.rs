use crate::{Full, Lent, NetworkError, RxPacket};
use bitflags::bitflags;
use skink_memory::SocketId;

/// Why a socket failed. The errno stands in the preload library, at the boundary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SocketError {
    /// The peer answered the handshake with a reset.
    Refused = 1,
    /// The peer reset an established connection.
    Reset = 2,
    /// The peer didn't answer in time.
    TimedOut = 3,
    /// No route to the peer, or an ICMP error said so.
    HostUnreachable = 4,
    /// No route from here.
    NetworkUnreachable = 5,
    /// The address isn't ours.
    AddressNotAvailable = 6,
    /// Another socket has it.
    AddressInUse = 7,
    /// The socket isn't in a state that allows this.
    Invalid = 8,
    /// No slot, port or memory left.
    NoBuffers = 9,
    /// Connected already.
    IsConnected = 10,
    /// Not connected.
    NotConnected = 11,
    /// The datagram is larger than any packet may be.
    MessageSize = 12,
    /// A filter forbids it.
    Prohibited = 13,
    /// The peer reset a connection whose other direction it had closed in order.
    BrokenPipe = 14,
}

impl SocketError {
    /// The error that a record's number stands for.
    pub fn from_number(number: u32) -> Option<SocketError> {
        use SocketError::*;
        let all = [
            Refused,
            Reset,
            TimedOut,
            HostUnreachable,
            NetworkUnreachable,
            AddressNotAvailable,
            AddressInUse,
            Invalid,
            NoBuffers,
            IsConnected,
            NotConnected,
            MessageSize,
            Prohibited,
            BrokenPipe,
        ];
        all.into_iter().find(|error| *error as u32 == number)
    }
}

/// What a socket may share its local end with. Whoever serves programs checks what they may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BindOptions {
    /// `SO_REUSEADDR`: sockets that all say so may be bound to one end; with TCP while none listens.
    pub reuse_address: bool,
    /// `SO_REUSEPORT`, or a listening socket that was inherited: sockets that all say so may be bound
    /// to one end and share what comes there, flow by flow.
    pub shared: bool,
}

/// Which halves of a connection `shutdown` closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// `SHUT_RD`
    Read,
    /// `SHUT_WR`
    Write,
    /// `SHUT_RDWR`
    Both,
}

/// A setting of one TCP socket; a listener hands its settings on to accepted connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionOption {
    /// `TCP_NODELAY`: no Nagle algorithm (RFC 9293 3.7.4).
    NoDelay(bool),
    /// `TCP_CORK`: send nothing but full segments, for at most 200 ms.
    Cork(bool),
    /// `TCP_QUICKACK`: acknowledge at once.
    QuickAck(bool),
    /// `SO_KEEPALIVE`
    KeepAlive(bool),
    /// `TCP_KEEPIDLE` in seconds.
    KeepAliveIdle(u32),
    /// `TCP_KEEPINTVL` in seconds.
    KeepAliveInterval(u32),
    /// `TCP_KEEPCNT`
    KeepAliveProbes(u32),
    /// `TCP_USER_TIMEOUT` in milliseconds, 0 for the default (RFC 5482).
    UserTimeout(u32),
    /// `TCP_MAXSEG` in bytes.
    MaximumSegment(u16),
    /// `SO_LINGER` with a time of zero: closing resets.
    ResetOnClose(bool),
    /// `SO_SNDBUF` in bytes.
    SendBuffer(u32),
    /// `SO_RCVBUF` in bytes.
    ReceiveBuffer(u32),
    /// `IP_TOS`, `IPV6_TCLASS`
    TrafficClass(u8),
    /// `IP_TTL`, `IPV6_UNICAST_HOPS`
    HopLimit(u8),
    /// Of a listening socket: its program isn't known to wait for connections, and others have the socket, perhaps for
    /// that. It gets what nobody else on the same end would get. `false`: it waits for one, or is about to; who has said so before
    /// says it again if the socket's record asks for that.
    Reserve(bool),
}

/// What a program asks of `tcp`. Data doesn't travel here: it is in the socket's rings already.
#[derive(Clone, Copy, Debug)]
pub enum TcpRequest {
    /// Bytes were appended to the send ring.
    Sent(SocketId),
    /// Bytes were taken from the receive ring: there may be a window to open.
    Received(SocketId),
    /// `shutdown`
    Shutdown(SocketId, Shutdown),
    /// `close`: the program forgets the socket, `tcp` finishes it and frees the slot.
    Close(SocketId),
    /// `setsockopt`
    SetOption(SocketId, ConnectionOption),
}

/// What `tcp` can be told. The tag is a field of its own: in a niche of the packet, the compiler would
/// lose sight of it, and couldn't leave the other cases out where a packet is told.
#[repr(u8)]
pub enum TcpInput<'a> {
    /// A segment arrived.
    Packet(RxPacket<'a>),
    /// An ICMP error about a segment of ours arrived.
    Error(NetworkError),
    /// A program asks for something.
    Request(TcpRequest),
}

/// What a program asks of `udp`.
#[derive(Clone, Copy, Debug)]
pub enum UdpRequest {
    /// Datagrams were appended to the send ring.
    Sent(SocketId),
    /// `close`
    Close(SocketId),
}

/// What `udp` can be told. The tag is a field of its own: in a niche of the packet, the compiler would
/// lose sight of it, and couldn't leave the other cases out where a packet is told.
#[repr(u8)]
pub enum UdpInput<'a> {
    /// A datagram arrived.
    Packet(RxPacket<'a>),
    /// An ICMP error about a datagram of ours arrived.
    Error(NetworkError),
    /// A program asks for something.
    Request(UdpRequest),
    /// A datagram that was lent has left, or never will: its room in the ring is free.
    Left(Lent),
}

bitflags! {
    /// What changed about a socket. Events say that something happened, never how much: the rings
    /// and the record tell the rest, so that events can be merged.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Events: u8 {
        /// Bytes or datagrams arrived, or a connection can be accepted.
        const READABLE = 1;
        /// Room in the send ring, or the connection is established.
        const WRITABLE = 2;
        /// The peer sends no more (FIN).
        const READ_CLOSED = 4;
        /// Both directions are over.
        const CLOSED = 8;
        /// The record's `error` was set.
        const ERROR = 16;
    }
}

/// An event of one socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketEvent {
    /// Which socket, in the sending component's table.
    pub socket: SocketId,
    /// What happened.
    pub events: Events,
}

/// Where `tcp` and `udp` send their events: the socket library, or a channel that leads to it.
pub trait SocketEvents {
    /// Takes one event; if it is refused, the component tries again later.
    fn tcp_event(&mut self, event: SocketEvent) -> Result<(), Full>;
    /// As [`SocketEvents::tcp_event`], for a UDP socket.
    fn udp_event(&mut self, event: SocketEvent) -> Result<(), Full>;
}
