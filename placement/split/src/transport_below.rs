//! What is below and above a transport that is on its own.

use core::net::{IpAddr, Ipv4Addr};
use skink_channel::AttachError;
use skink_ip::Replica;
use skink_lanes::board::{self, BoardReader};
use skink_lanes::{AttachParts, Transport, TransportEnd};
use skink_messages::{
    Full, Lent, LinkLimits, Network, Outbound, Path, Ports, Sent, SocketEvent, SocketEvents,
    TxPacket,
};
use skink_time::Instant;
use skink_wire::{FourTuple, MacAddr};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Events that wait to be taken at the most.
const EVENTS: usize = 1024;

/// What a transport is given besides its sockets.
pub struct TransportParts {
    /// The lane to `ip`.
    pub ip: AttachParts,
    /// What `ip` publishes, see [`board::BoardDescriptors::reader`].
    pub board: OwnedFd,
    /// The port table.
    pub ports: Box<dyn Ports + Send>,
    /// Makes hash tables hard to guess.
    pub seed: u64,
}

/// What a transport calls as its [`Network`], its [`SocketEvents`] and its [`Ports`].
pub struct TransportBelow {
    pub(crate) end: TransportEnd,
    board: BoardReader,
    replica: Option<Replica>,
    limits: LinkLimits,
    ports: Box<dyn Ports + Send>,
    pub(crate) events: VecDeque<SocketEvent>,
    /// There was no room for an event.
    pub(crate) deaf: bool,
    seed: u64,
}

impl TransportBelow {
    pub(crate) fn new(
        parts: TransportParts,
        transport: Transport,
    ) -> Result<TransportBelow, AttachError> {
        let mut below = TransportBelow {
            end: TransportEnd::attach(parts.ip, transport)?,
            board: BoardReader::attach(parts.board)?,
            replica: None,
            limits: LinkLimits {
                mac: MacAddr::UNSPECIFIED,
                mtu: 0,
                cut_bytes: 0,
                cuts: true,
            },
            ports: parts.ports,
            events: VecDeque::with_capacity(EVENTS),
            deaf: false,
            seed: parts.seed,
        };
        below.refresh();
        Ok(below)
    }

    /// Looks whether `ip` has published something new. What makes no sense changes nothing.
    pub(crate) fn refresh(&mut self) {
        if let Some((view, limits)) = self.board.changed().and_then(board::decode) {
            self.replica = Some(Replica::new(view, self.replica.as_ref(), self.seed));
            self.limits = limits;
            self.end.set_cuts(limits.cuts);
        }
    }

    pub(crate) fn begin(&mut self) {
        self.refresh();
        self.deaf = false;
        self.end.begin();
    }

    fn push(&mut self, event: SocketEvent) -> Result<(), Full> {
        if self.events.len() >= EVENTS {
            self.deaf = true;
            return Err(Full);
        }
        self.events.push_back(event);
        Ok(())
    }
}

impl Network for TransportBelow {
    fn send(&mut self, _: Instant, to: &Outbound, packet: &mut TxPacket<'_>) -> Result<(), Full> {
        self.end.send(to, packet, None).map(|_| ())
    }

    fn lend(
        &mut self,
        _: Instant,
        to: &Outbound,
        packet: &mut TxPacket<'_>,
        lent: Lent,
    ) -> Result<Sent, Full> {
        self.end.send(to, packet, Some(lent))
    }

    fn path(&self, source: Option<IpAddr>, destination: IpAddr) -> Option<Path> {
        let replica = self.replica.as_ref()?;
        replica.path(source, destination, &self.limits)
    }

    fn raises(&self) -> u32 {
        self.replica.as_ref().map_or(0, Replica::raises)
    }

    fn is_local(&self, address: IpAddr) -> bool {
        let replica = self.replica.as_ref();
        replica.is_some_and(|replica| replica.is_local(address))
    }

    fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        match &self.replica {
            Some(replica) => replica.is_broadcast(address),
            None => address.is_broadcast(),
        }
    }
}

impl SocketEvents for TransportBelow {
    fn tcp_event(&mut self, event: SocketEvent) -> Result<(), Full> {
        self.push(event)
    }

    fn udp_event(&mut self, event: SocketEvent) -> Result<(), Full> {
        self.push(event)
    }
}

impl Ports for TransportBelow {
    fn use_port(&mut self, protocol: u8, port: u16, exclusive: bool) -> bool {
        self.ports.use_port(protocol, port, exclusive)
    }
    fn release_port(&mut self, protocol: u8, port: u16) {
        self.ports.release_port(protocol, port);
    }
    fn listen(&mut self, protocol: u8, port: u16) {
        self.ports.listen(protocol, port);
    }
    fn unlisten(&mut self, protocol: u8, port: u16) {
        self.ports.unlisten(protocol, port);
    }
    fn flow_begins(&mut self, flow: &FourTuple) {
        self.ports.flow_begins(flow);
    }
    fn flow_ends(&mut self, flow: &FourTuple) {
        self.ports.flow_ends(flow);
    }
    fn moved(&mut self, protocol: u8, port: u16) -> bool {
        self.ports.moved(protocol, port)
    }
    fn others_listen(&mut self, protocol: u8, port: u16) -> bool {
        self.ports.others_listen(protocol, port)
    }
}
