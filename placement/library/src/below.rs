//! What is below a component, as it sees it: structs that only borrow, so that a message is a call,
//! and every call is inlined (`tests/inlined.rs` holds them to that).

use crate::Protocol;
use crate::events::EventQueues;
use crate::guard::Guarded;
use core::net::{IpAddr, Ipv4Addr};
use skink_ip::Ip;
use skink_memory::{Bytes, CaptureDirection, CaptureRing};
use skink_messages::{
    FrameOutput, Full, Network, NicOutput, Outbound, Path, Ports, SocketEvent, SocketEvents,
    TxPacket,
};
use skink_nic::Sender;
use skink_time::Instant;
use skink_wire::FourTuple;

/// The NIC's sending half, with the place where frames that leave are captured.
pub(crate) struct Tap<'a> {
    pub(crate) sender: &'a mut dyn Sender,
    pub(crate) capture: Option<&'a CaptureRing>,
    pub(crate) now: Instant,
}

impl NicOutput for Tap<'_> {
    #[inline(always)]
    fn room(&mut self) -> usize {
        self.sender.room()
    }

    #[inline(always)]
    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        self.sender.send(packet)?;
        if let Some(capture) = self.capture.filter(|capture| capture.wants()) {
            capture_sent(capture, self.now, packet);
        }
        Ok(())
    }
}

#[cold]
#[inline(never)]
fn capture_sent(capture: &CaptureRing, now: Instant, packet: &TxPacket<'_>) {
    let [first, second] = packet.payload;
    let pieces = [Bytes::from(packet.headers()), first, second];
    let direction = CaptureDirection::Outbound;
    capture.push(now.as_nanos(), direction, &pieces, packet.len());
}

/// What `tcp` and `udp` talk to: the network below them, the program above, the port table beside.
pub(crate) struct Below<'a> {
    pub(crate) ip: &'a mut Ip,
    pub(crate) link: Guarded<'a>,
    pub(crate) ports: &'a mut dyn Ports,
    pub(crate) events: &'a mut EventQueues,
}

impl Network for Below<'_> {
    #[inline(always)]
    fn send(&mut self, now: Instant, to: &Outbound, packet: &mut TxPacket<'_>) -> Result<(), Full> {
        if self.link.guard.checks() && !self.link.guard.lets_out(now, to, packet) {
            // Gone, as far as the transport is concerned; what it must know of that comes as an error.
            return Ok(());
        }
        self.ip.send(now, to, packet, &mut self.link)
    }

    #[inline(always)]
    fn path(&self, source: Option<IpAddr>, destination: IpAddr) -> Option<Path> {
        self.ip.path(source, destination, &self.link.limits())
    }

    #[inline(always)]
    fn raises(&self) -> u32 {
        self.ip.raises()
    }

    #[inline(always)]
    fn is_local(&self, address: IpAddr) -> bool {
        self.ip.is_local(address)
    }

    #[inline(always)]
    fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        self.ip.is_broadcast(address)
    }
}

impl SocketEvents for Below<'_> {
    #[inline(always)]
    fn tcp_event(&mut self, event: SocketEvent) -> Result<(), Full> {
        self.events.push(Protocol::Tcp, event);
        Ok(())
    }

    #[inline(always)]
    fn udp_event(&mut self, event: SocketEvent) -> Result<(), Full> {
        self.events.push(Protocol::Udp, event);
        Ok(())
    }
}

impl Ports for Below<'_> {
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
    fn set_waiting(&mut self, protocol: u8, port: u16, waits: bool, only_then: bool) {
        self.ports.set_waiting(protocol, port, waits, only_then);
    }
    fn keep_in_reserve(&mut self, protocol: u8, port: u16) {
        self.ports.keep_in_reserve(protocol, port);
    }
    fn others_wait(&mut self, protocol: u8, port: u16) -> bool {
        self.ports.others_wait(protocol, port)
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
    fn others_use(&mut self, protocol: u8, port: u16) -> bool {
        self.ports.others_use(protocol, port)
    }
    fn others_listen(&mut self, protocol: u8, port: u16) -> bool {
        self.ports.others_listen(protocol, port)
    }
}
