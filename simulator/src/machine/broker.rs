//! Making components out of what is between them.

use super::{Filtering, MachineConfig, Who, ip_config};
use crate::random::{Random, mix};
use skink_channel::{Pool, PoolReader, SleeperDescriptors};
use skink_filter::{Filter, FilterConfig};
use skink_lanes::board::BoardDescriptors;
use skink_lanes::{AttachParts, Exchange, Lane, holder};
use skink_memory::{Region, SendRegion, StoredTable};
use skink_messages::{Capabilities, Counters, LinkLimits, Protocol};
use skink_nic::Nic;
use skink_split::{
    Apart, CallEnd, FilterHost, Front, IpHost, IpHostParts, Judge, LinkHost, LinkHostParts,
    Serving, StoreHost, StoreWay, SyscallHost, TcpHost, TransportParts, TransportWay, UdpHost,
    packet_geometry, receive_geometry,
};
use skink_store::Store;
use skink_syscall::{Syscall, SyscallConfig};
use skink_time::Instant;

/// Chunks for packets of `ip`'s own.
const IP_CHUNKS: u32 = 64;

pub(super) struct Broker<'a> {
    pub lanes: &'a [Lane; 7],
    pub sleepers: &'a [SleeperDescriptors; Who::COUNT],
    pub incarnations: &'a [u32; Who::COUNT],
    pub board: &'a BoardDescriptors,
    pub config: &'a MachineConfig,
    pub capabilities: &'a Capabilities,
    pub counters: &'a Counters,
}

fn lane_at(lanes: &[Lane; 7], lower: Who, upper: Who) -> &Lane {
    match (lower, upper) {
        (Who::Link, Who::Ip) => &lanes[0],
        (Who::Filter, Who::Ip) => &lanes[1],
        (Who::Ip, Who::Tcp) => &lanes[2],
        (Who::Ip, Who::Udp) => &lanes[3],
        (Who::Tcp, Who::Syscall) => &lanes[4],
        (Who::Udp, Who::Syscall) => &lanes[5],
        (Who::Store, Who::Syscall) => &lanes[6],
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
                cuts: true,
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

    fn strides(&self) -> [u32; 2] {
        [self.config.tcp, self.config.udp].map(|table| table.sockets.next_power_of_two())
    }

    fn front(&self, who: Who) -> Front {
        let strides = self.strides();
        let serving = Serving::Apart(Box::new(Apart::new(strides)));
        let mut front = Front::new(serving, strides, self.counters.clone());
        front.set_successor(self.incarnations[who as usize] > 1);
        front
    }

    fn call_end(&self, who: Who) -> CallEnd {
        let lane = Exchange::attach(self.lower(who, Who::Syscall));
        CallEnd::new(lane.expect("a lane"))
    }

    pub fn tcp(&self) -> Front {
        let parts = self.transport(Who::Tcp);
        let sockets = self.config.tcp.sockets;
        let host = TcpHost::new(parts, sockets, self.counters.clone());
        let mut host = host.expect("tcp starts");
        host.set_memory(self.config.socket_memory);
        let mut front = self.front(Who::Tcp);
        let end = self.call_end(Who::Tcp);
        front.set_transport(Protocol::Tcp, end, |apart| apart.set_tcp(host));
        front
    }

    pub fn udp(&self) -> Front {
        let parts = self.transport(Who::Udp);
        let sockets = self.config.udp.sockets;
        let host = UdpHost::new(parts, sockets, self.counters.clone()).expect("udp starts");
        let mut front = self.front(Who::Udp);
        let end = self.call_end(Who::Udp);
        front.set_transport(Protocol::Udp, end, |apart| apart.set_udp(host));
        front
    }

    pub fn syscall(&self) -> Front {
        let way = |who| {
            let lane = Exchange::attach(self.upper(who, Who::Syscall));
            TransportWay::Lane(Box::new(lane.expect("a lane")))
        };
        let store = Exchange::attach(self.upper(Who::Store, Who::Syscall)).expect("a lane");
        let config = SyscallConfig {
            first_unprivileged_port: 1024,
            strides: self.strides(),
        };
        let own = u64::from(self.incarnations[Who::Syscall as usize]);
        let mut random = Random::new(mix(self.config.seed ^ own << 40));
        let syscall = SyscallHost::new(
            Syscall::new(config, self.counters.clone()),
            [way(Who::Tcp), way(Who::Udp)],
            StoreWay::Lane(Box::new(store)),
            Box::new(move || random.next().max(1)),
        );
        let mut front = self.front(Who::Syscall);
        front.set_syscall(syscall);
        front
    }

    pub fn store(&self, stored: &StoredTable) -> StoreHost {
        let lane = Exchange::attach(self.lower(Who::Store, Who::Syscall));
        StoreHost::new(Store::over(stored.clone()), lane.expect("a lane"))
    }
}

/// A neighbour's view of a pool.
pub(super) fn map(pool: &Pool) -> PoolReader {
    let descriptors = pool.descriptors().expect("descriptors");
    PoolReader::attach(descriptors).expect("a pool")
}

/// A neighbour's view of a program's sockets.
pub(super) fn read_only(region: &Region) -> SendRegion {
    let files = region.sending().files();
    let files = files.map(|fd| fd.try_clone_to_owned().expect("a descriptor"));
    SendRegion::open_read_only(files).expect("a region")
}
