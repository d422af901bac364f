//! Where the stack is: in this process, or in another one that serves it. The rest of the library asks
//! one [`Provider`] for what it needs, whichever it is.
use crate::errno::Answer;
use crate::remote::Remote;
use core::net::IpAddr;
use core::sync::atomic::Ordering;
use skink_library::{Doorbell, FlowRings, Left, Room, Stack};
use skink_memory::{SocketId, SocketTable};
use skink_messages::{
    BindOptions, PortOptions, Progress, Protocol, SocketEvent, TcpRequest, UdpRequest, Waits,
};

use skink_time::Instant;
use skink_wire::Endpoint;

/// What does the work on sockets.
pub enum Provider {
    /// A stack in this process.
    Library(Box<Stack>),
    /// A stack in another process.
    Served(Box<Remote>),
}

/// What a bound port may be shared with, for the stack in this process.
fn local(options: PortOptions, reuse: bool) -> BindOptions {
    BindOptions {
        reuse_address: reuse,
        shared: options.reuse_port,
    }
}

impl Provider {
    /// The stack in another process, if it is there.
    #[inline]
    pub fn remote(&mut self) -> Option<&mut Remote> {
        match self {
            Provider::Library(_) => None,
            Provider::Served(remote) => Some(remote),
        }
    }

    /// Whether the stack is in another process.
    #[inline]
    pub fn is_served(&self) -> bool {
        matches!(self, Provider::Served(_))
    }

    /// Whether a stack in another process has said something that this one hasn't heard.
    #[inline]
    pub fn has_news(&self) -> bool {
        match self {
            // A helper drives it, and tells what happens.
            Provider::Library(_) => false,
            Provider::Served(remote) => remote.has_news(),
        }
    }

    /// TCP sockets: records and rings.
    #[inline]
    pub fn tcp_table(&self) -> &SocketTable {
        match self {
            Provider::Library(stack) => stack.tcp_table(),
            Provider::Served(remote) => remote.table(Protocol::Tcp),
        }
    }

    /// How many bytes a program may have in each send ring, as far as that is a matter of memory.
    #[inline]
    pub fn tcp_send_limit(&self) -> usize {
        match self {
            Provider::Library(stack) => stack.tcp_send_limit(),
            // It is the program's own memory.
            Provider::Served(remote) => remote.send_limit(),
        }
    }

    /// UDP sockets: records and datagram rings.
    #[inline]
    pub fn udp_table(&self) -> &SocketTable {
        match self {
            Provider::Library(stack) => stack.udp_table(),
            Provider::Served(remote) => remote.table(Protocol::Udp),
        }
    }

    /// The largest packet that reaches `destination`, in bytes, as far as this process knows.
    pub fn path_mtu(&self, destination: IpAddr) -> Option<u32> {
        match self {
            Provider::Library(stack) => stack.path_mtu(destination),
            Provider::Served(_) => None,
        }
    }

    /// Opens a TCP socket.
    pub fn tcp_open(&mut self) -> Answer<SocketId> {
        match self {
            Provider::Library(stack) => Ok(stack.tcp_open()?),
            Provider::Served(remote) => remote.open(Protocol::Tcp),
        }
    }

    /// Opens a UDP socket.
    pub fn udp_open(&mut self) -> Answer<SocketId> {
        match self {
            Provider::Library(stack) => Ok(stack.udp_open()?),
            Provider::Served(remote) => remote.open(Protocol::Udp),
        }
    }

    /// Binds a TCP socket; answers its end, and a ticket for children if there is one.
    pub fn tcp_bind(
        &mut self,
        id: SocketId,
        end: Endpoint,
        options: PortOptions,
    ) -> Answer<(Endpoint, u64)> {
        match self {
            // The kernel socket holds the port against others; our own children share it.
            Provider::Library(stack) => Ok((stack.tcp_bind(id, end, local(options, true))?, 0)),
            Provider::Served(remote) => remote.bind(Protocol::Tcp, id, end, options),
        }
    }

    /// How threads wait until these listeners, which are one socket that other processes have too, have a connection. Answers whether
    /// the stack asked to be told.
    pub fn tcp_show_waiting(
        &mut self,
        listeners: impl Iterator<Item = SocketId>,
        waits: Waits,
    ) -> bool {
        match self {
            Provider::Library(stack) => {
                stack.tcp_show_waiting(listeners, waits);
                false
            }
            Provider::Served(remote) => {
                let table = remote.table(Protocol::Tcp);
                let waits = waits.threads > 0;
                listeners.fold(false, |wanted, id| {
                    table.set_waiting(id, waits);
                    let record = table.find(id).filter(|_| waits);
                    wanted | record.is_some_and(|it| it.is_wanted.load(Ordering::Relaxed) != 0)
                })
            }
        }
    }

    /// As [`Provider::tcp_bind`], for a UDP socket.
    pub fn udp_bind(
        &mut self,
        id: SocketId,
        end: Endpoint,
        options: PortOptions,
    ) -> Answer<(Endpoint, u64)> {
        match self {
            Provider::Library(stack) => {
                let sharing = local(options, options.reuse_address);
                Ok((stack.udp_bind(id, end, sharing)?, 0))
            }
            Provider::Served(remote) => remote.bind(Protocol::Udp, id, end, options),
        }
    }

    /// A bound socket rests: who calls isn't refused, as somebody is about to listen.
    pub fn tcp_rest(&mut self, id: SocketId) -> Answer<()> {
        match self {
            // Here that is where it has listened.
            Provider::Library(stack) => Ok(stack.tcp_rest_where_heard(id)?),
            Provider::Served(remote) => remote.rest(id),
        }
    }

    /// Lets up to `backlog` connections wait to be accepted.
    pub fn tcp_listen(&mut self, now: Instant, id: SocketId, backlog: u32) -> Answer<Endpoint> {
        match self {
            Provider::Library(stack) => Ok(stack.tcp_listen(now, id, backlog)?),
            Provider::Served(remote) => remote.listen(id, backlog),
        }
    }

    /// Begins a handshake; an event tells how it ended.
    pub fn tcp_connect(&mut self, now: Instant, id: SocketId, remote: Endpoint) -> Answer<()> {
        match self {
            Provider::Library(stack) => Ok(stack.tcp_connect(now, id, remote)?),
            Provider::Served(stack) => stack.connect(Protocol::Tcp, id, Some(remote)),
        }
    }

    /// Connects a UDP socket, or dissolves the connection.
    pub fn udp_connect(&mut self, id: SocketId, remote: Option<Endpoint>) -> Answer<()> {
        match self {
            Provider::Library(stack) => Ok(stack.udp_connect(id, remote).map(drop)?),
            Provider::Served(stack) => stack.connect(Protocol::Udp, id, remote),
        }
    }

    /// Takes the connection that has waited longest.
    pub fn tcp_accept(&mut self, listener: SocketId) -> Option<SocketId> {
        match self {
            Provider::Library(stack) => stack.tcp_accept(listener),
            Provider::Served(remote) => remote.accept(listener),
        }
    }

    /// Connections waiting to be accepted.
    pub fn tcp_acceptable(&self, listener: SocketId) -> usize {
        match self {
            Provider::Library(stack) => stack.tcp_acceptable(listener),
            Provider::Served(remote) => remote.acceptable(listener),
        }
    }

    /// Asks something of `tcp` that it doesn't answer.
    #[inline]
    pub fn tcp_request(&mut self, now: Instant, request: TcpRequest) {
        match self {
            Provider::Library(stack) => stack.tcp_request(now, request),
            Provider::Served(remote) => remote.tcp_request(request),
        }
    }

    /// So many bytes were put into a send ring.
    #[inline]
    pub fn tcp_sent(&mut self, now: Instant, id: SocketId, count: usize) {
        match self {
            Provider::Library(stack) => stack.tcp_sent(now, id, count),
            Provider::Served(remote) => {
                remote.put(id, count);
                remote.tcp_request(TcpRequest::Sent(id));
            }
        }
    }

    /// Bytes were taken from a receive ring that held `held` of them before.
    #[inline]
    pub fn tcp_received(&mut self, id: SocketId, held: usize) {
        match self {
            Provider::Library(stack) => stack.tcp_received(id),
            Provider::Served(remote) => remote.received(id, held),
        }
    }

    /// As [`Provider::tcp_request`], of `udp`.
    #[inline]
    pub fn udp_request(&mut self, now: Instant, request: UdpRequest) {
        match self {
            Provider::Library(stack) => stack.udp_request(now, request),
            Provider::Served(remote) => remote.udp_request(request),
        }
    }

    /// Takes in what there is, and does what is due.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Progress {
        match self {
            Provider::Library(stack) => stack.poll(now),
            Provider::Served(remote) => {
                remote.poll();
                Progress::Idle
            }
        }
    }

    /// What peers still have to acknowledge of a stack in this process.
    pub fn tcp_left(&self) -> Left {
        match self {
            Provider::Library(stack) => stack.tcp_left(),
            Provider::Served(_) => Left::default(),
        }
    }

    /// Resets the connections of a stack in this process that have something to deliver.
    pub fn reset_unfinished(&mut self, now: Instant) {
        if let Provider::Library(stack) = self {
            let _ = stack.tcp_reset_unfinished(now);
            stack.flush();
        }
    }

    /// Lets what was asked for leave.
    #[inline]
    pub fn flush(&mut self) {
        match self {
            Provider::Library(stack) => stack.flush(),
            Provider::Served(remote) => remote.flush(),
        }
    }

    /// When to poll at the latest.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        match self {
            Provider::Library(stack) => stack.next_deadline(),
            // A stack in another process keeps its own time.
            Provider::Served(_) => None,
        }
    }

    /// What tells that output isn't stuck any more, if it is.
    #[inline]
    pub fn send_blocked_on(&self) -> Option<Room<'_>> {
        match self {
            Provider::Library(stack) => stack.send_blocked_on(),
            Provider::Served(_) => None,
        }
    }

    /// Whether the NIC's doorbell is left to who lets the lock go.
    pub fn set_deferring(&mut self, deferring: bool) {
        if let Provider::Library(stack) = self {
            stack.set_deferring(deferring);
        }
    }

    /// The NIC's doorbell, if it was left to the caller.
    pub fn take_doorbell(&mut self) -> Option<Doorbell> {
        match self {
            Provider::Library(stack) => stack.take_doorbell(),
            Provider::Served(_) => None,
        }
    }

    /// Whether nothing is to be done at once that is known, if the stack is in this process.
    pub fn is_settled(&self) -> bool {
        match self {
            Provider::Library(stack) => stack.is_settled(),
            Provider::Served(_) => false,
        }
    }

    /// What brings frames to the threads that wait for them, if there is that.
    pub fn flow_rings(&mut self) -> Option<&mut dyn FlowRings> {
        match self {
            Provider::Library(stack) => stack.flow_rings(),
            Provider::Served(_) => None,
        }
    }

    /// Takes the next event.
    #[inline]
    pub fn take_event(&mut self) -> Option<(Protocol, SocketEvent)> {
        match self {
            Provider::Library(stack) => stack.take_event(),
            Provider::Served(remote) => remote.take_event(),
        }
    }

    /// Whether a packet to `destination` can be sent.
    pub fn has_route(&self, destination: IpAddr) -> bool {
        match self {
            Provider::Library(stack) => stack.has_route(destination),
            Provider::Served(remote) => remote.has_route(destination),
        }
    }

    /// Whether the address is Skink's.
    pub fn is_local(&self, address: IpAddr) -> bool {
        match self {
            Provider::Library(stack) => stack.is_local(address),
            Provider::Served(remote) => remote.is_local(address),
        }
    }
}
