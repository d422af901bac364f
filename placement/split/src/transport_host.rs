use crate::host::{Host, Neighbour};
use crate::transport_below::{TransportBelow, TransportParts};
use crate::{BUDGET, FRAME_BYTES};
use skink_channel::{AttachError, PoolReader};
use skink_lanes::{Arrival, EndCounters, Fate, Incarnation, PacketUp, Transport};
use skink_memory::{Adopted, Region, SocketTable, TableError};
use skink_messages::{Component, Lent, NetworkError, Progress, RxPacket, SocketEvent};
use skink_time::Instant;

/// What is a transport's own in how it is told of packets, and of programs.
pub trait Packets: Component<TransportBelow> {
    /// Which one it is.
    const TRANSPORT: Transport;

    /// A packet that `ip` delivers, or wants to be refused. Answers whether nobody is there for it, and
    /// `ip` must say so.
    fn packet(
        &mut self,
        now: Instant,
        packet: RxPacket<'_>,
        fate: Fate,
        below: &mut TransportBelow,
    ) -> bool;

    /// An ICMP error about a packet of ours.
    fn error(&mut self, now: Instant, error: NetworkError, below: &mut TransportBelow);

    /// What was lent to the network isn't needed any more.
    fn left(&mut self, now: Instant, lent: Lent, below: &mut TransportBelow);

    /// `ip` was replaced, and knows nothing of what was lent.
    fn ip_restarted(&mut self);

    /// Its sockets.
    fn table(&self) -> &SocketTable;

    /// Serves one more program, whose sockets were a predecessor's.
    fn adopt_region(
        &mut self,
        now: Instant,
        index: u32,
        region: Region,
        below: &mut TransportBelow,
    ) -> Result<Adopted, TableError>;

    /// A region whose program was gone, and whose last socket has ended.
    fn take_finished_region(&mut self) -> Option<u32>;
}

/// A transport and its end towards `ip`.
pub struct TransportHost<T> {
    pub(crate) component: T,
    pub(crate) below: TransportBelow,
    /// The last poll left something to do, or something was asked for since.
    more: bool,
    /// A packet that was copied out.
    scratch: Box<[u8]>,
}

impl<T: Packets> TransportHost<T> {
    pub(crate) fn over(
        component: T,
        parts: TransportParts,
    ) -> Result<TransportHost<T>, AttachError> {
        Ok(TransportHost {
            component,
            below: TransportBelow::new(parts, T::TRANSPORT)?,
            more: true,
            scratch: vec![0; FRAME_BYTES].into_boxed_slice(),
        })
    }

    /// Calls the component, as a program's request does. What it leads to leaves with the next poll.
    pub fn call<R>(&mut self, call: impl FnOnce(&mut T, &mut TransportBelow) -> R) -> R {
        self.below.refresh();
        self.more = true;
        call(&mut self.component, &mut self.below)
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
        self.component.ip_restarted();
        self.more = true;
    }

    /// Serves one more program, whose sockets in this region may be a predecessor's. `ip` and `link` must have mapped it
    /// for reading before anything is sent from it, and `ip` must have said what its addresses and routes are.
    ///
    /// # Errors
    /// As [`skink_tcp::Tcp::adopt_region`].
    pub fn adopt_region(
        &mut self,
        now: Instant,
        index: u32,
        region: Region,
    ) -> Result<Adopted, TableError> {
        self.component.table().can_insert(index, &region)?;
        self.below.end.add_region(index, region.sending().clone());
        self.call(|component, below| component.adopt_region(now, index, region, below))
    }

    /// A region whose program was gone, and whose last socket has ended: `ip` and `link` may unmap it now.
    pub fn take_finished_region(&mut self) -> Option<u32> {
        let index = self.component.take_finished_region()?;
        self.below.end.remove_region(index);
        Some(index)
    }

    /// As [`skink_lanes::TransportEnd::held_back`].
    pub fn held_back(&self) -> usize {
        self.below.end.held_back()
    }

    /// What was dropped at its end.
    pub fn end_counters(&self) -> EndCounters {
        self.below.end.counters()
    }

    fn arrived(&mut self, now: Instant, up: &PacketUp) {
        let mut unreachable = false;
        if up.protocol == T::TRANSPORT.protocol()
            && let Some(packet) = self.below.end.read(up, &mut self.scratch)
        {
            let below = &mut self.below;
            unreachable = self.component.packet(now, packet, up.fate, below);
        }
        self.below.end.done(up, unreachable);
    }
}

impl<T: Packets> Host for TransportHost<T> {
    fn poll(&mut self, now: Instant) -> Progress {
        self.below.begin();
        let mut taken = 0;
        while taken < BUDGET
            && let Some(arrival) = self.below.end.take_arrival()
        {
            taken += 1;
            match arrival {
                Arrival::Packet(up) => self.arrived(now, &up),
                Arrival::Error(error) => self.component.error(now, error, &mut self.below),
            }
        }
        while let Some(lent) = self.below.end.take_left() {
            self.component.left(now, lent, &mut self.below);
        }
        let progress = self.component.poll(now, &mut self.below);
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
            false => self.component.next_deadline(),
        }
    }

    fn is_ready(&self) -> bool {
        self.more || self.below.end.is_ready()
    }

    fn broken(&self) -> Option<Neighbour> {
        self.below.end.is_broken().then_some(Neighbour::Ip)
    }
}
