use crate::transport_below::{TransportBelow, TransportParts};
use crate::transport_host::{Packets, TransportHost};
use skink_channel::AttachError;
use skink_lanes::{Fate, Transport};
use skink_memory::{Adopted, Region, SocketTable, TableError};
use skink_messages::{Component, Counters, Lent, NetworkError, RxPacket, TcpInput};
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
        TransportHost::over(tcp, parts)
    }

    /// `ip` or `link` was replaced: see [`Tcp::network_restarted`].
    pub fn network_restarted(&mut self, now: Instant) {
        self.call(|tcp, _| tcp.network_restarted(now));
    }

    /// See [`Tcp::set_stateless`].
    pub fn set_stateless(&mut self, stateless: bool) {
        self.component.set_stateless(stateless);
    }

    /// See [`Tcp::set_memory`].
    pub fn set_memory(&mut self, bytes: u64) {
        self.component.set_memory(bytes);
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

    /// Nothing is: what is in a ring stays there until it was acknowledged.
    fn left(&mut self, _: Instant, _: Lent, _: &mut TransportBelow) {}

    /// See [`TransportHost::network_restarted`].
    fn ip_restarted(&mut self) {}

    fn table(&self) -> &SocketTable {
        Tcp::table(self)
    }

    fn adopt_region(
        &mut self,
        now: Instant,
        index: u32,
        region: Region,
        below: &mut TransportBelow,
    ) -> Result<Adopted, TableError> {
        Tcp::adopt_region(self, now, index, region, below)
    }

    fn take_finished_region(&mut self) -> Option<u32> {
        Tcp::take_finished_region(self)
    }
}
