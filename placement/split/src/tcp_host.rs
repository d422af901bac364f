use crate::host::{Host, Neighbour};
use crate::transport_below::{TransportBelow, TransportParts};
use crate::{BUDGET, FRAME_BYTES};
use skink_channel::{AttachError, PoolReader, Sleeper};
use skink_memory::{Region, SocketTable, TableError};
use skink_messages::{Component, Counters, Progress, SocketEvent, TcpInput};
use skink_packets::{
    Arrival, EndCounters, Fate, Incarnation, PacketUp, Regions, Transport, TransportPayload,
};
use skink_tcp::{Tcp, TcpConfig};
use skink_time::Instant;
use std::os::fd::BorrowedFd;

/// `tcp` and its end towards `ip`.
pub struct TcpHost {
    tcp: Tcp,
    below: TransportBelow,
    /// The last poll left something to do, or something was asked for since.
    more: bool,
    /// A packet that was copied out.
    scratch: Box<[u8]>,
    sleeper: Sleeper,
}

impl TcpHost {
    /// Starts without sockets. Each region will have up to `sockets_per_region` slots.
    ///
    /// # Errors
    /// If the lane isn't one.
    pub fn new(
        parts: TransportParts,
        sockets_per_region: u32,
        counters: Counters,
        sleeper: Sleeper,
    ) -> Result<TcpHost, AttachError> {
        let config = TcpConfig { seed: parts.seed };
        let table = SocketTable::new(sockets_per_region);
        let payload = TransportPayload::Rings(Regions::new());
        Ok(TcpHost {
            tcp: Tcp::new(config, table, counters),
            below: TransportBelow::new(parts, payload)?,
            more: true,
            scratch: vec![0; FRAME_BYTES].into_boxed_slice(),
            sleeper,
        })
    }

    /// Serves one more program, whose sockets are in this region. `ip` and `link` must have mapped it for
    /// reading before anything is sent from it.
    ///
    /// # Errors
    /// As [`Tcp::insert_region`].
    pub fn add_region(&mut self, index: u32, region: Region) -> Result<(), TableError> {
        self.tcp.insert_region(index, region.clone())?;
        if let Some(regions) = self.below.end.regions() {
            regions.insert(index, region);
        }
        Ok(())
    }

    /// A region whose program was gone, and whose last connection has ended: `ip` and `link` may unmap
    /// it now.
    pub fn take_finished_region(&mut self) -> Option<u32> {
        let index = self.tcp.take_finished_region()?;
        if let Some(regions) = self.below.end.regions() {
            regions.remove(index);
        }
        Some(index)
    }

    /// The component.
    pub fn tcp(&self) -> &Tcp {
        &self.tcp
    }

    /// Calls the component, as a program's request does. What it leads to leaves with the next poll.
    pub fn call<R>(&mut self, call: impl FnOnce(&mut Tcp, &mut TransportBelow) -> R) -> R {
        self.below.refresh();
        self.more = true;
        call(&mut self.tcp, &mut self.below)
    }

    /// Takes the next event.
    pub fn take_event(&mut self) -> Option<SocketEvent> {
        let event = self.below.events.pop_front();
        self.more |= event.is_some() && self.below.deaf;
        event
    }

    /// Maps a pool of `link` or `ip`.
    pub fn add_pool(&mut self, pool: PoolReader) {
        self.below.end.add_pool(pool);
    }

    /// Unmaps the pool of one that died.
    pub fn remove_pool(&mut self, id: u32) {
        self.below.end.remove_pool(id);
    }

    /// `ip` was replaced.
    pub fn ip_restarted(&mut self, incarnation: Incarnation) {
        self.below.end.ip_restarted(incarnation);
    }

    /// What was dropped at its end.
    pub fn end_counters(&self) -> EndCounters {
        self.below.end.counters()
    }

    fn arrived(&mut self, now: Instant, up: &PacketUp) {
        if up.protocol == Transport::Tcp.protocol() {
            let (tcp, below) = (&mut self.tcp, &mut self.below);
            match (below.end.read(up, &mut self.scratch), up.fate) {
                (Some(packet), Fate::Deliver) => {
                    let _ = tcp.handle(now, TcpInput::Packet(packet), below);
                }
                (Some(packet), Fate::Reject) => {
                    below.end.set_refuses(true);
                    tcp.reject(now, &packet, below);
                    below.end.set_refuses(false);
                }
                (None, _) => {}
            }
        }
        self.below.end.done(up, false);
    }
}

impl Host for TcpHost {
    fn poll(&mut self, now: Instant) -> Progress {
        self.below.begin();
        let mut taken = 0;
        while taken < BUDGET
            && let Some(arrival) = self.below.end.take_arrival()
        {
            taken += 1;
            match arrival {
                Arrival::Packet(up) => self.arrived(now, &up),
                Arrival::Error(error) => {
                    let _ = self
                        .tcp
                        .handle(now, TcpInput::Error(error), &mut self.below);
                }
            }
        }
        let progress = self.tcp.poll(now, &mut self.below);
        self.below.end.flush();
        let stuck = self.below.end.was_full() || self.below.deaf;
        self.more = taken >= BUDGET || (progress == Progress::More && !stuck);
        match self.more {
            true => Progress::More,
            false => Progress::Idle,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self.more {
            true => Some(Instant::ZERO),
            false => Component::<TransportBelow>::next_deadline(&self.tcp),
        }
    }

    fn is_ready(&self) -> bool {
        self.more || self.below.end.is_ready()
    }

    fn sleeper(&mut self) -> &mut Sleeper {
        &mut self.sleeper
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.sleeper.bell()
    }

    fn broken(&self) -> Option<Neighbour> {
        self.below.end.is_broken().then_some(Neighbour::Ip)
    }
}
