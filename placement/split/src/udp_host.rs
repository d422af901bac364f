use crate::transport_below::{TransportBelow, TransportParts};
use crate::transport_host::{Packets, TransportHost};
use skink_channel::{AttachError, Pool};
use skink_lanes::{Fate, Transport, TransportPayload};
use skink_memory::{Adopted, Region, SocketTable, TableError};
use skink_messages::{Component, Counters, NetworkError, RxPacket, UdpInput};
use skink_time::Instant;
use skink_udp::Udp;

/// `udp` and its end towards `ip`.
pub type UdpHost = TransportHost<Udp>;

impl TransportHost<Udp> {
    /// Starts without sockets. Each region will have up to `sockets_per_region` slots. What is sent goes
    /// to `pool`, of one holder and [`crate::packet_geometry`], which `ip` and `link` map.
    ///
    /// # Errors
    /// If the lane isn't one.
    pub fn new(
        parts: TransportParts,
        sockets_per_region: u32,
        counters: Counters,
        pool: Pool,
    ) -> Result<UdpHost, AttachError> {
        let udp = Udp::new(parts.seed, SocketTable::new(sockets_per_region), counters);
        TransportHost::over(udp, parts, TransportPayload::Pool(pool))
    }

    /// Serves one more program, whose sockets are in this region. Nobody else has to map it.
    ///
    /// # Errors
    /// As [`Udp::add_region`].
    pub fn add_region(&mut self, index: u32, region: Region) -> Result<(), TableError> {
        self.component.add_region(index, region)
    }

    /// Serves one more program, whose sockets in this region were a predecessor's
    /// ([`Udp::adopt_region`]). `ip` must have said what its addresses are.
    ///
    /// # Errors
    /// As [`Udp::adopt_region`].
    pub fn adopt_region(
        &mut self,
        now: Instant,
        index: u32,
        region: Region,
    ) -> Result<Adopted, TableError> {
        self.call(|udp, below| udp.adopt_region(now, index, region, below))
    }

    /// A region whose program was gone, and whose last socket has ended.
    pub fn take_finished_region(&mut self) -> Option<u32> {
        self.component.take_finished_region()
    }

    /// The pool of what is sent.
    pub fn pool(&self) -> Option<&Pool> {
        self.below.end.pool()
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
}
