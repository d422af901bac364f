//! Making components out of what is between them.

use super::{Filtering, MachineConfig, Who, ip_config, udp_geometry};
use skink_channel::{Pool, PoolReader, SleeperDescriptors};
use skink_filter::{Filter, FilterConfig};
use skink_lanes::board::BoardDescriptors;
use skink_lanes::{AttachParts, Lane, holder};
use skink_memory::{Region, StoredTable};
use skink_messages::{Capabilities, Counters, LinkLimits};
use skink_nic::Nic;
use skink_split::{
    FilterHost, IpHost, IpHostParts, Judge, LinkHost, LinkHostParts, TcpHost, TransportParts,
    UdpHost, packet_geometry, receive_geometry,
};
use skink_time::Instant;

/// Chunks for packets of `ip`'s own.
const IP_CHUNKS: u32 = 64;

pub(super) struct Broker<'a> {
    pub lanes: &'a [Lane; 4],
    pub sleepers: &'a [SleeperDescriptors; 5],
    pub incarnations: &'a [u32; 5],
    pub board: &'a BoardDescriptors,
    pub config: &'a MachineConfig,
    pub capabilities: &'a Capabilities,
    pub counters: &'a Counters,
}

fn lane_at(lanes: &[Lane; 4], lower: Who, upper: Who) -> &Lane {
    match (lower, upper) {
        (Who::Link, Who::Ip) => &lanes[0],
        (Who::Filter, Who::Ip) => &lanes[1],
        (Who::Ip, Who::Tcp) => &lanes[2],
        (Who::Ip, Who::Udp) => &lanes[3],
        other => panic!("no lane between {other:?}"),
    }
}

impl Broker<'_> {
    fn lower(&self, lower: Who, upper: Who) -> AttachParts {
        let bell = self.sleepers[upper as usize].doorbell().expect("a bell");
        let own = self.incarnations[lower as usize];
        let neighbour = self.incarnations[upper as usize];
        let lane = lane_at(self.lanes, lower, upper);
        lane.lower(own, neighbour, bell).expect("parts")
    }

    fn upper(&self, lower: Who, upper: Who) -> AttachParts {
        let bell = self.sleepers[lower as usize].doorbell().expect("a bell");
        let own = self.incarnations[upper as usize];
        let neighbour = self.incarnations[lower as usize];
        let lane = lane_at(self.lanes, lower, upper);
        lane.upper(own, neighbour, bell).expect("parts")
    }

    fn transport(&self, who: Who) -> TransportParts {
        // Nothing depends on the next one's being the same.
        let lives = u64::from(self.incarnations[who as usize] - 1);
        TransportParts {
            ip: self.upper(Who::Ip, who),
            board: self.board.reader().expect("a board"),
            ports: (self.config.ports)(),
            seed: self.config.seed.wrapping_add(lives << 32),
        }
    }

    pub fn link(&self, nic: Nic, pool: u32) -> LinkHost {
        let geometry = receive_geometry(&nic.capabilities).expect("sizes");
        let parts = LinkHostParts {
            nic,
            addresses: None,
            counters: self.counters.clone(),
            ip: self.lower(Who::Link, Who::Ip),
            pool: Pool::create(pool, "received", geometry, 1).expect("a pool"),
        };
        LinkHost::new(parts).expect("link starts")
    }

    fn filter_config() -> FilterConfig {
        FilterConfig::new("skink0", 7)
    }

    fn judge(&self) -> Judge {
        match &self.config.filtering {
            Filtering::None => Judge::Nobody,
            Filtering::Inline(rules) => {
                let mut filter = Filter::new(Broker::filter_config(), self.counters.clone());
                filter.load(rules.clone());
                Judge::Inline(Box::new(filter))
            }
            Filtering::Apart(_) => Judge::Asked(self.upper(Who::Filter, Who::Ip)),
        }
    }

    pub fn ip(&self, pool: u32, seed: u64) -> IpHost {
        let geometry = packet_geometry(IP_CHUNKS).expect("sizes");
        let parts = IpHostParts {
            limits: LinkLimits {
                mac: self.capabilities.mac,
                mtu: self.capabilities.mtu,
                cut_bytes: 65_535,
            },
            config: ip_config(self.capabilities, self.config, seed),
            announces: false,
            counters: self.counters.clone(),
            link: self.upper(Who::Link, Who::Ip),
            transports: [self.lower(Who::Ip, Who::Tcp), self.lower(Who::Ip, Who::Udp)],
            judge: self.judge(),
            pool: Pool::create(pool, "ip", geometry, holder::COUNT).expect("a pool"),
            board: self.board.writer().expect("a board"),
        };
        IpHost::new(parts).expect("ip starts")
    }

    /// If there is one apart. It keeps flows of datagrams in the table.
    pub fn filter(&self, now: Instant, flows: &StoredTable) -> Option<FilterHost> {
        let Filtering::Apart(rules) = &self.config.filtering else {
            return None;
        };
        let mut filter = FilterHost::new(
            Broker::filter_config(),
            rules.clone(),
            self.counters.clone(),
            self.lower(Who::Filter, Who::Ip),
        )
        .expect("filter starts");
        filter.keep_in(now, flows.clone());
        Some(filter)
    }

    pub fn tcp(&self) -> TcpHost {
        let parts = self.transport(Who::Tcp);
        let sockets = self.config.tcp.sockets;
        TcpHost::new(parts, sockets, self.counters.clone()).expect("tcp starts")
    }

    pub fn udp(&self, pool: u32) -> UdpHost {
        let parts = self.transport(Who::Udp);
        let sockets = self.config.udp.sockets;
        let pool = Pool::create(pool, "udp", udp_geometry(), 1).expect("a pool");
        UdpHost::new(parts, sockets, self.counters.clone(), pool).expect("udp starts")
    }
}

/// A neighbour's view of a pool.
pub(super) fn map(pool: &Pool) -> PoolReader {
    let descriptors = pool.descriptors().expect("descriptors");
    PoolReader::attach(descriptors).expect("a pool")
}

/// A neighbour's view of a program's sockets.
pub(super) fn read_only(region: &Region) -> Region {
    let clone = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().expect("a descriptor");
    Region::open_read_only(clone(region.records_fd()), clone(region.rings_fd())).expect("a region")
}
