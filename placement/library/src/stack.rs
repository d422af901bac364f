use core::net::IpAddr;
use skink_memory::{SocketId, SocketTable, TableConfig};
use skink_messages::{
    ConnectionOption, Counters, Ports, Progress, SocketError, SocketEvent, TcpRequest, UdpRequest,
};
use skink_nic::Nic;
use skink_time::Instant;
use skink_wire::{Endpoint, IpCidr};
use std::os::fd::BorrowedFd;

/// What a stack needs to know besides its NIC.
pub struct StackConfig {
    /// Our addresses, each with the length of its network's prefix.
    pub addresses: Vec<IpCidr>,
    /// Default routes, at most one for each family.
    pub gateways: Vec<IpAddr>,
    /// Whatever must be hard to guess or vary from run to run comes from this seed.
    pub seed: u64,
    /// Whether this instance answers ARP, NDP and echo requests.
    pub answers: bool,
    /// Size of the TCP socket table.
    pub tcp_table: TableConfig,
    /// Size of the UDP socket table.
    pub udp_table: TableConfig,
    /// Where to count.
    pub counters: Counters,
}

/// One whole stack. All calls come from one thread at a time.
pub struct Stack {}

/// Which component an event comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Tcp,
    Udp,
}

#[allow(unused_variables)]
impl Stack {
    /// Builds a stack on `nic`; `ports` is the port table shared with the NIC's other owners.
    pub fn new(
        config: StackConfig,
        nic: Nic,
        ports: Box<dyn Ports + Send>,
    ) -> Result<Stack, skink_memory::TableError> {
        todo!()
    }
    /// Receives a batch, lets every component do what is due, and flushes the NIC.
    pub fn poll(&mut self, now: Instant) -> Progress {
        todo!()
    }
    /// When to poll at the latest, if no frame comes and no call is made.
    pub fn next_deadline(&self) -> Option<Instant> {
        todo!()
    }
    /// Descriptors that poll readable when frames wait.
    pub fn receive_descriptors(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        todo!()
    }
    /// If output is stuck: the descriptor that polls writable when it isn't any more.
    pub fn send_blocked_on(&self) -> Option<BorrowedFd<'_>> {
        todo!()
    }
    /// Takes the next event.
    pub fn take_event(&mut self) -> Option<(Protocol, SocketEvent)> {
        todo!()
    }
    /// Whether a packet to `destination` can be sent: a connected network or a default route.
    pub fn has_route(&self, destination: IpAddr) -> bool {
        todo!()
    }
    /// Whether the address is ours.
    pub fn is_local(&self, address: IpAddr) -> bool {
        todo!()
    }

    /// TCP sockets: records and rings (`Arc` inside; clone it for another thread).
    pub fn tcp_table(&self) -> &SocketTable {
        todo!()
    }
    pub fn tcp_open(&mut self) -> Result<SocketId, SocketError> {
        todo!()
    }
    /// Binds; port 0 takes a free one. The unspecified address stands for all of ours.
    pub fn tcp_bind(
        &mut self,
        socket: SocketId,
        local: Endpoint,
        reuse_address: bool,
    ) -> Result<Endpoint, SocketError> {
        todo!()
    }
    pub fn tcp_listen(
        &mut self,
        now: Instant,
        socket: SocketId,
        backlog: u32,
    ) -> Result<Endpoint, SocketError> {
        todo!()
    }
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        socket: SocketId,
        remote: Endpoint,
    ) -> Result<(), SocketError> {
        todo!()
    }
    pub fn tcp_accept(&mut self, listener: SocketId) -> Option<SocketId> {
        todo!()
    }
    /// Connections waiting to be accepted.
    pub fn tcp_acceptable(&self, listener: SocketId) -> usize {
        todo!()
    }
    pub fn tcp_request(&mut self, now: Instant, request: TcpRequest) {
        todo!()
    }
    /// Connections and handshakes that `tcp` still works on, TIME-WAIT not counted.
    pub fn tcp_unfinished(&self) -> usize {
        todo!()
    }

    /// UDP sockets: records and datagram rings.
    pub fn udp_table(&self) -> &SocketTable {
        todo!()
    }
    pub fn udp_open(&mut self) -> Result<SocketId, SocketError> {
        todo!()
    }
    pub fn udp_bind(
        &mut self,
        socket: SocketId,
        local: Endpoint,
        reuse_address: bool,
    ) -> Result<Endpoint, SocketError> {
        todo!()
    }
    pub fn udp_connect(
        &mut self,
        socket: SocketId,
        remote: Option<Endpoint>,
    ) -> Result<Endpoint, SocketError> {
        todo!()
    }
    pub fn udp_request(&mut self, now: Instant, request: UdpRequest) {
        todo!()
    }
}
