use crate::transport_below::{TransportBelow, TransportParts};
use crate::transport_host::{Packets, TransportHost};
use skink_channel::AttachError;
use skink_lanes::{Fate, Transport};
use skink_memory::{Adopted, Region, SocketTable, TableError};
use skink_messages::{Component, Counters, Lent, NetworkError, RxPacket, UdpInput};
use skink_time::Instant;
use skink_udp::Udp;

/// `udp` and its end towards `ip`.
pub type UdpHost = TransportHost<Udp>;

impl TransportHost<Udp> {
    /// Starts without sockets. Each region will have up to `sockets_per_region` slots.
    ///
    /// # Errors
    /// If the lane isn't one.
    pub fn new(
        parts: TransportParts,
        sockets_per_region: u32,
        counters: Counters,
    ) -> Result<UdpHost, AttachError> {
        let udp = Udp::new(parts.seed, SocketTable::new(sockets_per_region), counters);
        TransportHost::over(udp, parts)
    }

    /// The component.
    pub fn udp(&self) -> &Udp {
        &self.component
    }
}

impl Packets for Udp {
    const TRANSPORT: Transport = Transport::Udp;

    /// `ip` refuses by itself what a filter forbids: only what is to be delivered comes here.
    fn packet(
        &mut self,
        now: Instant,
        packet: RxPacket<'_>,
        _: Fate,
        below: &mut TransportBelow,
    ) -> bool {
        let _ = self.handle(now, UdpInput::Packet(packet), below);
        self.take_unreachable()
    }

    fn error(&mut self, now: Instant, error: NetworkError, below: &mut TransportBelow) {
        let _ = self.handle(now, UdpInput::Error(error), below);
    }

    fn left(&mut self, now: Instant, lent: Lent, below: &mut TransportBelow) {
        let _ = self.handle(now, UdpInput::Left(lent), below);
    }

    fn ip_restarted(&mut self) {
        self.network_restarted();
    }

    fn table(&self) -> &SocketTable {
        Udp::table(self)
    }

    fn adopt_region(
        &mut self,
        now: Instant,
        index: u32,
        region: Region,
        below: &mut TransportBelow,
    ) -> Result<Adopted, TableError> {
        Udp::adopt_region(self, now, index, region, below)
    }

    fn take_finished_region(&mut self) -> Option<u32> {
        Udp::take_finished_region(self)
    }
}
