use crate::transport_below::{TransportBelow, TransportParts};
use crate::transport_host::{Packets, TransportHost};
use skink_channel::AttachError;
use skink_lanes::{Fate, Regions, Transport, TransportPayload};
use skink_memory::{Adopted, Region, SocketTable, TableError};
use skink_messages::{Component, Counters, NetworkError, RxPacket, TcpInput};
use skink_tcp::{Tcp, TcpConfig};
use skink_time::Instant;

/// `tcp` and its end towards `ip`.
pub type TcpHost = TransportHost<Tcp>;

impl TransportHost<Tcp> {
    /// Starts without sockets. Each region will have up to `sockets_per_region` slots.
    ///
    /// # Errors
    /// If the lane isn't one.
    pub fn new(
        parts: TransportParts,
        sockets_per_region: u32,
        counters: Counters,
    ) -> Result<TcpHost, AttachError> {
        let config = TcpConfig { seed: parts.seed };
        let tcp = Tcp::new(config, SocketTable::new(sockets_per_region), counters);
        let payload = TransportPayload::Rings(Regions::new());
        TransportHost::over(tcp, parts, payload)
    }

    /// Serves one more program, whose sockets are in this region. `ip` and `link` must have mapped it for
    /// reading before anything is sent from it.
    ///
    /// # Errors
    /// As [`Tcp::add_region`].
    pub fn add_region(&mut self, index: u32, region: Region) -> Result<(), TableError> {
        self.component.add_region(index, region.clone())?;
        if let Some(regions) = self.below.end.regions() {
            regions.insert(index, region);
        }
        Ok(())
    }

    /// Serves one more program, whose sockets in this region were a predecessor's
    /// ([`Tcp::adopt_region`]). `ip` and `link` must have it mapped as for
    /// [`TransportHost::add_region`], and `ip` must have said what its addresses and routes are.
    ///
    /// # Errors
    /// As [`Tcp::adopt_region`].
    pub fn adopt_region(
        &mut self,
        now: Instant,
        index: u32,
        region: Region,
    ) -> Result<Adopted, TableError> {
        self.component.table().can_insert(index, &region)?;
        if let Some(regions) = self.below.end.regions() {
            regions.insert(index, region.clone());
        }
        self.call(|tcp, below| tcp.adopt_region(now, index, region, below))
    }

    /// A region whose program was gone, and whose last connection has ended: `ip` and `link` may unmap
    /// it now.
    pub fn take_finished_region(&mut self) -> Option<u32> {
        let index = self.component.take_finished_region()?;
        if let Some(regions) = self.below.end.regions() {
            regions.remove(index);
        }
        Some(index)
    }

    /// `ip` or `link` was replaced: see [`Tcp::network_restarted`].
    pub fn network_restarted(&mut self, now: Instant) {
        self.call(|tcp, _| tcp.network_restarted(now));
    }

    /// See [`Tcp::set_stateless`].
    pub fn set_stateless(&mut self, stateless: bool) {
        self.component.set_stateless(stateless);
    }

    /// The component.
    pub fn tcp(&self) -> &Tcp {
        &self.component
    }
}

impl Packets for Tcp {
    const TRANSPORT: Transport = Transport::Tcp;

    /// What it refuses it answers by itself.
    fn packet(
        &mut self,
        now: Instant,
        packet: RxPacket<'_>,
        fate: Fate,
        below: &mut TransportBelow,
    ) -> bool {
        match fate {
            Fate::Deliver => {
                let _ = self.handle(now, TcpInput::Packet(packet), below);
            }
            Fate::Reject => {
                below.end.set_refuses(true);
                self.reject(now, &packet, below);
                below.end.set_refuses(false);
            }
        }
        false
    }

    fn error(&mut self, now: Instant, error: NetworkError, below: &mut TransportBelow) {
        let _ = self.handle(now, TcpInput::Error(error), below);
    }
}
