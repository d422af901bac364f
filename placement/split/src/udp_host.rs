use crate::host::{Host, Neighbour};
use crate::transport_below::{TransportBelow, TransportParts};
use crate::{BUDGET, FRAME_BYTES};
use skink_channel::{AttachError, Pool, PoolReader, Sleeper};
use skink_memory::{Region, SocketTable, TableError};
use skink_messages::{Component, Counters, Progress, SocketEvent, UdpInput};
use skink_packets::{Arrival, EndCounters, Incarnation, PacketUp, Transport, TransportPayload};
use skink_time::Instant;
use skink_udp::Udp;
use std::os::fd::BorrowedFd;

/// `udp` and its end towards `ip`.
pub struct UdpHost {
    udp: Udp,
    below: TransportBelow,
    /// The last poll left something to do, or something was asked for since.
    more: bool,
    /// A packet that was copied out.
    scratch: Box<[u8]>,
    sleeper: Sleeper,
}

impl UdpHost {
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
        sleeper: Sleeper,
    ) -> Result<UdpHost, AttachError> {
        let table = SocketTable::new(sockets_per_region);
        Ok(UdpHost {
            udp: Udp::new(parts.seed, table, counters),
            below: TransportBelow::new(parts, TransportPayload::Pool(pool))?,
            more: true,
            scratch: vec![0; FRAME_BYTES].into_boxed_slice(),
            sleeper,
        })
    }

    /// Serves one more program, whose sockets are in this region. Nobody else has to map it.
    ///
    /// # Errors
    /// As [`Udp::insert_region`].
    pub fn add_region(&mut self, index: u32, region: Region) -> Result<(), TableError> {
        self.udp.insert_region(index, region)
    }

    /// A region whose program was gone, and whose last socket has ended.
    pub fn take_finished_region(&mut self) -> Option<u32> {
        self.udp.take_finished_region()
    }

    /// The pool of what is sent.
    pub fn pool(&self) -> Option<&Pool> {
        self.below.end.pool()
    }

    /// The component.
    pub fn udp(&self) -> &Udp {
        &self.udp
    }

    /// Calls the component, as a program's request does. What it leads to leaves with the next poll.
    pub fn call<R>(&mut self, call: impl FnOnce(&mut Udp, &mut TransportBelow) -> R) -> R {
        self.below.refresh();
        self.more = true;
        call(&mut self.udp, &mut self.below)
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
        let mut unreachable = false;
        if up.protocol == Transport::Udp.protocol()
            && let Some(packet) = self.below.end.read(up, &mut self.scratch)
        {
            let input = UdpInput::Packet(packet);
            let _ = self.udp.handle(now, input, &mut self.below);
            unreachable = self.udp.take_unreachable();
        }
        self.below.end.done(up, unreachable);
    }
}

impl Host for UdpHost {
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
                        .udp
                        .handle(now, UdpInput::Error(error), &mut self.below);
                }
            }
        }
        let progress = self.udp.poll(now, &mut self.below);
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
            false => Component::<TransportBelow>::next_deadline(&self.udp),
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
