//! `ip` and its ends. This file has what it is made of and its turn; `up` and `down` have the ways of
//! packets, and `judge` where they meet the filter.

mod asking;
mod down;
mod judge;
mod up;

use crate::host::{Host, Neighbour};
use crate::{BUDGET, FRAME_BYTES};
use core::net::IpAddr;
use judge::Judging;
use skink_channel::{AttachError, Pool, PoolReader, PoolSet};
use skink_filter::Filter;
use skink_ip::{Ip, IpConfig};
use skink_lanes::board::{self, BoardWriter};
use skink_lanes::{
    AttachParts, EndCounters, Incarnation, IpLinkEnd, IpTransportEnd, Lender, PacketDown, Regions,
    Transport,
};
use skink_memory::SendRegion;
use skink_messages::{Counters, FrameOutput, LinkLimits, NetworkError, Progress};
use skink_time::Instant;
use skink_wire::MacAddr;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Who judges packets.
pub enum Judge {
    /// Nobody.
    Nobody,
    /// A filter in this process.
    Inline(Box<Filter>),
    /// A filter in another one, over this lane. While it is dead, what it would judge waits; packets of flows that
    /// it let pass go on.
    Asked(AttachParts),
}

/// What an [`IpHost`] is made of.
pub struct IpHostParts {
    /// The component's configuration.
    pub config: IpConfig,
    /// What the link takes, until it says otherwise.
    pub limits: LinkLimits,
    /// Whether to tell the link that our addresses are ours: not if only this process is new.
    pub announces: bool,
    /// Where to count.
    pub counters: Counters,
    /// The lane to `link`.
    pub link: AttachParts,
    /// The lanes to `tcp` and `udp`.
    pub transports: [AttachParts; 2],
    /// Who judges packets.
    pub judge: Judge,
    /// For payload of `ip`'s own, of [`crate::packet_geometry`] and
    /// [`skink_lanes::holder::COUNT`] holders; to be mapped by `link`, `tcp` and `udp`.
    pub pool: Pool,
    /// Where to publish, see [`board::BoardDescriptors::writer`].
    pub board: OwnedFd,
}

/// `ip` and its ends towards `link`, `tcp`, `udp` and `filter`.
pub struct IpHost {
    ip: Ip,
    out: IpLinkEnd,
    transports: [IpTransportEnd; 2],
    judging: Judging,
    pools: PoolSet,
    regions: Regions,
    board: BoardWriter,
    /// What was published last.
    published: Option<(u64, LinkLimits)>,
    /// Whose packets are taken before the other's.
    first: [Transport; 2],
    /// Packets that may leave, and that the link had no room for, or the filter for messages that go before
    /// them. Nothing is taken from transports meanwhile.
    blocked: VecDeque<(Lender, PacketDown)>,
    /// What transports haven't been told yet of packets that the filter didn't let out.
    prohibited: VecDeque<NetworkError>,
    /// A frame, or as much of it as is looked at.
    scratch: Box<[u8]>,
    announces: bool,
    more: bool,
}

impl IpHost {
    /// Starts.
    ///
    /// # Errors
    /// If a lane isn't one, or the board.
    pub fn new(parts: IpHostParts) -> Result<IpHost, AttachError> {
        let IpHostParts {
            config,
            limits,
            announces,
            counters,
            link,
            transports: [tcp, udp],
            judge,
            pool,
            board,
        } = parts;
        let mut pools = PoolSet::new();
        // To quote from what was looped back, if nobody wants it.
        pools.insert(PoolReader::attach(pool.descriptors()?)?);
        let seed = config.seed.wrapping_mul(0xa076_1d64_78bd_642f);
        Ok(IpHost {
            ip: Ip::new(config, counters),
            out: IpLinkEnd::attach(link, pool, limits)?,
            transports: [IpTransportEnd::attach(tcp)?, IpTransportEnd::attach(udp)?],
            judging: Judging::new(judge, seed.rotate_left(29))?,
            pools,
            regions: Regions::new(),
            board: BoardWriter::attach(board)?,
            published: None,
            first: Transport::ALL,
            blocked: VecDeque::new(),
            prohibited: VecDeque::new(),
            scratch: vec![0; FRAME_BYTES].into_boxed_slice(),
            announces,
            more: true,
        })
    }

    /// `ip`'s own pool.
    pub fn pool(&mut self) -> &Pool {
        self.out.pool()
    }

    /// Maps a pool of `link`.
    pub fn add_pool(&mut self, pool: PoolReader) {
        self.pools.insert(pool);
    }

    /// Unmaps the pool of one that died.
    pub fn remove_pool(&mut self, id: u32) {
        self.pools.remove(id);
    }

    /// Maps a program's sockets of a transport, opened for reading.
    pub fn add_region(&mut self, transport: Transport, index: u32, region: SendRegion) {
        self.regions.insert(transport, index, region);
    }

    /// Unmaps a program's sockets.
    pub fn remove_regions(&mut self, index: u32) {
        for transport in Transport::ALL {
            self.regions.remove(transport, index);
        }
    }

    /// `link` was replaced.
    pub fn link_restarted(&mut self, incarnation: Incarnation) {
        self.out.link_restarted(incarnation);
        self.ip.link_restarted();
        self.more = true;
    }

    /// A transport was replaced. `tcp` is handed up again what its predecessor had taken, since a segment does no harm if it comes twice; a
    /// datagram would.
    pub fn transport_restarted(
        &mut self,
        now: Instant,
        transport: Transport,
        incarnation: Incarnation,
    ) {
        self.out.transport_restarted(transport, incarnation);
        let repeatable = transport == Transport::Tcp;
        self.transports[transport.index()].transport_restarted(now, incarnation, repeatable);
        self.blocked
            .retain(|(lender, _)| lender.transport != transport);
        self.more = true;
    }

    /// `filter` was replaced: it is asked again about all packets that wait.
    pub fn filter_restarted(&mut self, incarnation: Incarnation) {
        self.judging.filter_restarted(incarnation);
        self.more = true;
    }

    /// Packets are to be asked about, whatever the filter has said: there are rules that it may
    /// not know yet.
    pub fn ask_filter(&mut self) {
        self.judging.ask_all();
    }

    /// Takes a conflict: an address of ours that another station on the link claims to have.
    pub fn take_conflict(&mut self) -> Option<(IpAddr, MacAddr)> {
        self.ip.take_conflict()
    }

    /// Whether packets wait here to be judged, or for room.
    pub fn has_waiting(&self) -> bool {
        self.judging.waiting() > 0 || !self.blocked.is_empty()
    }

    /// Packets that wait for the filter, and that `tcp` and `udp` have.
    pub fn outstanding(&self) -> (u32, [u32; 2]) {
        let [tcp, udp] = &self.transports;
        (self.judging.waiting(), [tcp.lent(), udp.lent()])
    }

    /// Things that others lent, and don't know yet that they aren't needed any more.
    pub fn held_back(&self) -> usize {
        let transports = self.transports.iter().map(IpTransportEnd::held_back);
        self.out.held_back() + transports.sum::<usize>()
    }

    /// What was dropped at its ends: towards `link`, `tcp`, `udp` and `filter`.
    pub fn end_counters(&mut self) -> [EndCounters; 4] {
        let link = *self.out.counters();
        let [tcp, udp] = self.transports.each_mut().map(|end| *end.counters());
        [link, tcp, udp, self.judging.counters()]
    }

    fn begin(&mut self) {
        self.out.begin();
        self.transports.iter_mut().for_each(IpTransportEnd::begin);
        self.judging.begin();
    }

    fn flush(&mut self, now: Instant) {
        while let Some(lender) = self.out.take_sent() {
            self.transports[lender.transport.index()].sent(lender.id, lender.awaited);
        }
        self.out.flush();
        let transports = self.transports.iter_mut();
        transports.for_each(|end| end.flush(now));
        self.judging.flush();
    }

    /// Tells transports what has changed about addresses, routers and paths.
    fn publish(&mut self) {
        let now = Some((self.ip.view_revision(), self.out.limits()));
        if self.published != now {
            self.published = now;
            let words = board::encode(&self.ip.view(), &self.out.limits());
            self.board.write(&words);
        }
    }
}

impl Host for IpHost {
    fn poll(&mut self, now: Instant) -> Progress {
        self.begin();
        if std::mem::take(&mut self.announces) {
            self.ip.announce(now);
        }
        let mut busy = self.take_frames(now) >= BUDGET;
        let is_free = self.send_blocked(now);
        let judged = self.take_verdicts(now);
        // What was blocked by want of a chunk, or of room at the filter, may go now.
        busy |= judged >= BUDGET || (judged > 0 && !self.blocked.is_empty());
        busy |= is_free && {
            let sent = self
                .first
                .map(|transport| self.take_packets(now, transport));
            if sent[0] > 0 {
                // The link may have had no room for what came second.
                self.first.rotate_left(1);
            }
            sent.into_iter().any(|taken| taken >= BUDGET)
        };
        self.take_returned(now);
        let stuck = self.poll_component(now);
        self.publish();
        self.flush(now);
        self.more = busy || stuck;
        match self.more {
            true => Progress::More,
            false => Progress::Idle,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self.more {
            true => Some(Instant::ZERO),
            false => {
                let transports = self.transports.iter().map(IpTransportEnd::next_deadline);
                let own = [self.ip.next_deadline(), self.judging.next_deadline()];
                own.into_iter().chain(transports).flatten().min()
            }
        }
    }

    fn is_ready(&self) -> bool {
        let transports = self.transports.iter().any(IpTransportEnd::is_ready);
        let takes = self.blocked.is_empty() && self.judging.takes();
        self.more || self.out.is_ready() || (takes && transports) || self.judging.is_ready()
    }

    fn broken(&self) -> Option<Neighbour> {
        let [tcp, udp] = &self.transports;
        [
            (self.out.is_broken(), Neighbour::Link),
            (tcp.is_broken(), Neighbour::Tcp),
            (udp.is_broken(), Neighbour::Udp),
            (self.judging.is_broken(), Neighbour::Filter),
        ]
        .into_iter()
        .find_map(|(is_broken, neighbour)| is_broken.then_some(neighbour))
    }
}
