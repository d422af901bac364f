//! A machine whose components are on their own: what a supervisor would do, in one process.
#![allow(dead_code, reason = "each test uses a part")]

pub mod programs;

use skink_channel::{Pool, PoolDescriptors, PoolReader, QueueDescriptors, SleeperDescriptors};
use skink_filter::{Filter, FilterConfig, RuleSet};
use skink_ip::IpConfig;
use skink_lanes::board::BoardDescriptors;
use skink_lanes::{
    FromLink, FromTransport, Lane, Question, ToLink, ToTransport, Transport, Verdicts, holder,
};
use skink_memory::{Mapping, Region, TableConfig};
use skink_messages::{Capabilities, Counters, LinkLimits, Progress, SoleOwner};
use skink_nic::Nic;
use skink_split::{
    FilterHost, Host, IpHost, IpHostParts, Judge, LinkHost, LinkHostParts, TcpHost, TransportParts,
    UdpHost, packet_geometry, receive_geometry,
};
use skink_time::Instant;
use skink_wire::IpCidr;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

/// The components, in the order of all arrays here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    Link,
    Ip,
    Filter,
    Tcp,
    Udp,
}

pub const ALL: [Who; 5] = [Who::Link, Who::Ip, Who::Filter, Who::Tcp, Who::Udp];

/// Where a machine's filter is.
#[derive(Clone, Debug)]
pub enum Filtering {
    None,
    Inline(RuleSet),
    Apart(RuleSet),
}

pub struct Machine {
    pub lanes: [Lane; 4],
    pub sleepers: [SleeperDescriptors; 5],
    pub board: BoardDescriptors,
    incarnations: [u32; 5],
    next_pool: u32,
    link_pool: u32,
    ip_pool: u32,
    addresses: Vec<IpCidr>,
    seed: u64,
    filtering: Filtering,
    capabilities: Capabilities,
    region: Region,
    pub counters: Counters,
    /// What the NIC is while `link` is dead.
    spare_nic: Option<Nic>,
    pub link: Option<LinkHost>,
    pub ip: Option<IpHost>,
    pub filter: Option<FilterHost>,
    pub tcp: TcpHost,
    pub udp: UdpHost,
}

pub const TABLE: TableConfig = TableConfig {
    sockets: 16,
    send_bytes: 64 * 1024,
    receive_bytes: 64 * 1024,
};

fn lane_at(lanes: &[Lane; 4], lower: Who, upper: Who) -> &Lane {
    match (lower, upper) {
        (Who::Link, Who::Ip) => &lanes[0],
        (Who::Filter, Who::Ip) => &lanes[1],
        (Who::Ip, Who::Tcp) => &lanes[2],
        (Who::Ip, Who::Udp) => &lanes[3],
        other => panic!("no lane between {other:?}"),
    }
}

struct Broker<'a> {
    lanes: &'a [Lane; 4],
    sleepers: &'a [SleeperDescriptors; 5],
    incarnations: &'a [u32; 5],
}

impl Broker<'_> {
    fn lower(&self, lower: Who, upper: Who) -> skink_lanes::AttachParts {
        let bell = self.sleepers[upper as usize].doorbell().expect("a bell");
        let own = self.incarnations[lower as usize];
        let neighbour = self.incarnations[upper as usize];
        lane_at(self.lanes, lower, upper)
            .lower(own, neighbour, bell)
            .expect("parts")
    }

    fn upper(&self, lower: Who, upper: Who) -> skink_lanes::AttachParts {
        let bell = self.sleepers[lower as usize].doorbell().expect("a bell");
        let own = self.incarnations[upper as usize];
        let neighbour = self.incarnations[lower as usize];
        lane_at(self.lanes, lower, upper)
            .upper(own, neighbour, bell)
            .expect("parts")
    }

    fn transport(&self, who: Who, board: &BoardDescriptors, seed: u64) -> TransportParts {
        TransportParts {
            ip: self.upper(Who::Ip, who),
            board: board.reader().expect("a board"),
            ports: Box::new(SoleOwner),
            seed,
        }
    }

    fn link(&self, nic: Nic, pool: u32, counters: &Counters) -> LinkHost {
        let geometry = receive_geometry(&nic.capabilities).expect("sizes");
        LinkHost::new(LinkHostParts {
            nic,
            addresses: None,
            counters: counters.clone(),
            ip: self.lower(Who::Link, Who::Ip),
            pool: Pool::create(pool, "received", geometry, 1).expect("a pool"),
        })
        .expect("link starts")
    }

    fn filter(&self, rules: RuleSet, counters: &Counters) -> FilterHost {
        FilterHost::new(
            FilterConfig::new("skink0", 7),
            rules,
            counters.clone(),
            self.lower(Who::Filter, Who::Ip),
        )
        .expect("filter starts")
    }
}

fn reader(descriptors: PoolDescriptors) -> PoolReader {
    PoolReader::attach(descriptors).expect("a pool")
}

fn map(pool: &Pool) -> PoolReader {
    reader(pool.descriptors().expect("descriptors"))
}

fn judge(broker: &Broker<'_>, filtering: &Filtering, counters: &Counters) -> Judge {
    match filtering {
        Filtering::None => Judge::Nobody,
        Filtering::Inline(rules) => {
            let config = FilterConfig::new("skink0", 7);
            let mut filter = Filter::new(config, counters.clone());
            filter.load(rules.clone());
            Judge::Inline(Box::new(filter))
        }
        Filtering::Apart(_) => Judge::Asked(broker.upper(Who::Filter, Who::Ip)),
    }
}

fn ip_parts(
    broker: &Broker<'_>,
    filtering: &Filtering,
    counters: &Counters,
    board: &BoardDescriptors,
    pool: u32,
    config: IpConfig,
    capabilities: &Capabilities,
) -> IpHostParts {
    let geometry = packet_geometry(64).expect("sizes");
    IpHostParts {
        limits: LinkLimits {
            mac: capabilities.mac,
            mtu: capabilities.mtu,
            cut_bytes: 65_535,
        },
        config,
        announces: false,
        counters: counters.clone(),
        link: broker.upper(Who::Link, Who::Ip),
        transports: [
            broker.lower(Who::Ip, Who::Tcp),
            broker.lower(Who::Ip, Who::Udp),
        ],
        judge: judge(broker, filtering, counters),
        pool: Pool::create(pool, "ip", geometry, holder::COUNT).expect("a pool"),
        board: board.writer().expect("a board"),
    }
}

impl Machine {
    pub fn new(nic: Nic, addresses: &[&str], seed: u64, filtering: Filtering) -> Machine {
        let lanes = [
            Lane::create::<ToLink, FromLink>("link-ip").expect("a lane"),
            Lane::create::<Question, Verdicts>("ip-filter").expect("a lane"),
            Lane::create::<FromTransport, ToTransport>("ip-tcp").expect("a lane"),
            Lane::create::<FromTransport, ToTransport>("ip-udp").expect("a lane"),
        ];
        let sleepers = ["link", "ip", "filter", "tcp", "udp"]
            .map(|name| SleeperDescriptors::create(name).expect("a sleeper"));
        let board = BoardDescriptors::create("network").expect("a board");
        let incarnations = [1; 5];
        let counters = Counters::create().expect("counters");
        let addresses: Vec<IpCidr> = addresses
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect();
        let broker = Broker {
            lanes: &lanes,
            sleepers: &sleepers,
            incarnations: &incarnations,
        };
        let capabilities = nic.capabilities;
        let mut link = broker.link(nic, 1, &counters);
        let config = IpConfig {
            seed,
            ..IpConfig::new(capabilities.mac, addresses.clone())
        };
        let mut ip = IpHost::new(ip_parts(
            &broker,
            &filtering,
            &counters,
            &board,
            2,
            config,
            &capabilities,
        ))
        .expect("ip starts");
        let geometry = packet_geometry(32).expect("sizes");
        let sent = Pool::create(3, "udp", geometry, 1).expect("a pool");
        let mut tcp = TcpHost::new(
            broker.transport(Who::Tcp, &board, seed),
            TABLE.sockets,
            counters.clone(),
        )
        .expect("tcp starts");
        let mut udp = UdpHost::new(
            broker.transport(Who::Udp, &board, seed),
            TABLE.sockets,
            counters.clone(),
            sent,
        )
        .expect("udp starts");
        let filter = match &filtering {
            Filtering::Apart(rules) => Some(broker.filter(rules.clone(), &counters)),
            Filtering::None | Filtering::Inline(_) => None,
        };
        let region = Region::create("tcp", TABLE).expect("a region");
        link.add_region(0, read_only(&region));
        ip.add_region(0, read_only(&region));
        tcp.add_region(0, region.clone()).expect("a region");
        let datagrams = Region::create("udp", TABLE).expect("a region");
        udp.add_region(0, datagrams).expect("a region");
        let sent = udp.pool().expect("a pool");
        link.add_pool(map(sent));
        ip.add_pool(map(sent));
        link.add_pool(map(ip.pool()));
        tcp.add_pool(map(ip.pool()));
        udp.add_pool(map(ip.pool()));
        ip.add_pool(map(link.pool()));
        tcp.add_pool(map(link.pool()));
        udp.add_pool(map(link.pool()));
        Machine {
            lanes,
            sleepers,
            board,
            incarnations,
            next_pool: 4,
            link_pool: 1,
            ip_pool: 2,
            addresses,
            seed,
            filtering,
            capabilities,
            region,
            counters,
            spare_nic: None,
            link: Some(link),
            ip: Some(ip),
            filter,
            tcp,
            udp,
        }
    }

    pub fn address(&self, index: usize) -> IpAddr {
        self.addresses[index].addr
    }

    /// Polls one component, unless it is dead; answers whether it had or has something to do at once.
    pub fn poll(&mut self, who: Who, now: Instant) -> bool {
        let Some(host) = self.host(who) else {
            return false;
        };
        let was_ready = host.is_ready();
        host.poll(now) == Progress::More || was_ready || host.is_ready()
    }

    pub fn host(&mut self, who: Who) -> Option<&mut dyn Host> {
        match who {
            Who::Link => self.link.as_mut().map(|host| host as &mut dyn Host),
            Who::Ip => self.ip.as_mut().map(|host| host as &mut dyn Host),
            Who::Filter => self.filter.as_mut().map(|host| host as &mut dyn Host),
            Who::Tcp => Some(&mut self.tcp),
            Who::Udp => Some(&mut self.udp),
        }
    }

    pub fn next_deadline(&mut self) -> Option<Instant> {
        ALL.into_iter()
            .filter_map(|who| self.host(who)?.next_deadline())
            .min()
    }

    /// The queues that a component produces, each with the one that it consumes from the same neighbour.
    pub fn queues(&self, who: Who) -> Vec<(&QueueDescriptors, &QueueDescriptors)> {
        let [link, filter, tcp, udp] = &self.lanes;
        match who {
            Who::Link => vec![(&link.up, &link.down)],
            Who::Filter => vec![(&filter.up, &filter.down)],
            Who::Tcp => vec![(&tcp.down, &tcp.up)],
            Who::Udp => vec![(&udp.down, &udp.up)],
            Who::Ip => vec![
                (&link.down, &link.up),
                (&filter.down, &filter.up),
                (&tcp.up, &tcp.down),
                (&udp.up, &udp.down),
            ],
        }
    }

    /// Polls a component and ends it before that is over: of what it did, some neighbours were told, some
    /// were told but still have their messages in the queue, and some know nothing.
    pub fn kill_in_poll(&mut self, who: Who, now: Instant, random: &mut Random) {
        let own = |queues: (&QueueDescriptors, &QueueDescriptors)| {
            [
                queues.0.producer().expect("parts").own,
                queues.1.consumer().expect("parts").own,
            ]
            .map(|memory| Snapshot::take(Mapping::from_fd(memory).expect("memory")))
        };
        let before: Vec<_> = self.queues(who).into_iter().map(own).collect();
        self.poll(who, now);
        for [sent, taken] in before {
            match random.below(3) {
                0 => {}
                1 => taken.restore(),
                _ => {
                    sent.restore();
                    taken.restore();
                }
            }
        }
        self.kill(who);
    }

    /// Ends a component as `kill -9` does.
    pub fn kill(&mut self, who: Who) {
        match who {
            Who::Link => {
                if let Some(link) = self.link.take() {
                    let (receiver, sender) = link.into_nic();
                    self.spare_nic = Some(Nic {
                        capabilities: self.capabilities,
                        receiver,
                        sender,
                    });
                }
            }
            Who::Ip => self.ip = None,
            Who::Filter => self.filter = None,
            Who::Tcp | Who::Udp => panic!("these have state"),
        }
    }

    /// Starts a successor, and tells the neighbours.
    pub fn restart(&mut self, who: Who, now: Instant) {
        self.incarnations[who as usize] += 1;
        let incarnation = self.incarnations[who as usize];
        self.next_pool += 1;
        let pool = self.next_pool;
        match who {
            Who::Link => self.restart_link(incarnation, pool),
            Who::Ip => self.restart_ip(incarnation, pool),
            Who::Filter => {
                let Filtering::Apart(rules) = self.filtering.clone() else {
                    return;
                };
                let mut filter = self.broker().filter(rules, &self.counters);
                filter.rebuild(now, programs::flows(self.tcp.tcp()));
                self.filter = Some(filter);
                self.ip
                    .iter_mut()
                    .for_each(|ip| ip.filter_restarted(incarnation));
            }
            Who::Tcp | Who::Udp => panic!("these have state"),
        }
    }

    fn broker(&self) -> Broker<'_> {
        Broker {
            lanes: &self.lanes,
            sleepers: &self.sleepers,
            incarnations: &self.incarnations,
        }
    }

    fn restart_link(&mut self, incarnation: u32, pool: u32) {
        let Some(nic) = self.spare_nic.take() else {
            return;
        };
        let mut link = self.broker().link(nic, pool, &self.counters);
        link.add_region(0, read_only(&self.region));
        link.add_pool(map(self.udp.pool().expect("a pool")));
        if let Some(ip) = &mut self.ip {
            link.add_pool(map(ip.pool()));
            ip.add_pool(map(link.pool()));
            ip.link_restarted(incarnation);
        }
        self.tcp.add_pool(map(link.pool()));
        self.udp.add_pool(map(link.pool()));
        let old = std::mem::replace(&mut self.link_pool, link.pool().id());
        self.ip.iter_mut().for_each(|ip| ip.remove_pool(old));
        self.tcp.remove_pool(old);
        self.udp.remove_pool(old);
        self.link = Some(link);
    }

    fn restart_ip(&mut self, incarnation: u32, pool: u32) {
        let config = IpConfig {
            seed: self.seed + u64::from(pool),
            ..IpConfig::new(self.capabilities.mac, self.addresses.clone())
        };
        let mut ip = IpHost::new(ip_parts(
            &self.broker(),
            &self.filtering,
            &self.counters,
            &self.board,
            pool,
            config,
            &self.capabilities,
        ))
        .expect("ip starts");
        ip.add_region(0, read_only(&self.region));
        ip.add_pool(map(self.udp.pool().expect("a pool")));
        if let Some(link) = &mut self.link {
            ip.add_pool(map(link.pool()));
            link.add_pool(map(ip.pool()));
            link.ip_restarted(incarnation);
        }
        self.tcp.add_pool(map(ip.pool()));
        self.udp.add_pool(map(ip.pool()));
        let old = std::mem::replace(&mut self.ip_pool, ip.pool().id());
        self.link.iter_mut().for_each(|link| link.remove_pool(old));
        self.tcp.remove_pool(old);
        self.udp.remove_pool(old);
        self.tcp.ip_restarted(incarnation);
        self.udp.ip_restarted(incarnation);
        self.filter
            .iter_mut()
            .for_each(|filter| filter.ip_restarted(incarnation));
        self.ip = Some(ip);
    }

    /// Holds that no chunk is lent, kept or lost.
    pub fn assert_no_leak(&mut self) {
        let link = self.link.as_ref().expect("alive").pool();
        let all = link.geometry().chunks() as usize;
        assert_eq!(link.available(), all, "received frames");
        let ip = self.ip.as_mut().expect("alive");
        assert_eq!(ip.outstanding(), (0, [0, 0]), "accounts of ip");
        let all = ip.pool().geometry().chunks() as usize;
        assert_eq!(ip.pool().available(), all, "ip's own packets");
        let udp = self.udp.pool().expect("a pool");
        assert_eq!(
            udp.available(),
            udp.geometry().chunks() as usize,
            "datagrams"
        );
    }
}

/// What was in shared memory before a component did something.
struct Snapshot(Mapping, Vec<u64>);

impl Snapshot {
    fn take(memory: Mapping) -> Snapshot {
        let words = memory.words().iter();
        let words = words.map(|word| word.load(Ordering::Relaxed)).collect();
        Snapshot(memory, words)
    }

    fn restore(self) {
        for (word, value) in self.0.words().iter().zip(self.1) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

fn read_only(region: &Region) -> Region {
    let clone = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().expect("a descriptor");
    Region::open_read_only(clone(region.records_fd()), clone(region.rings_fd())).expect("a region")
}

/// A generator of numbers that are the same in each run with one seed (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }
}

pub const TRANSPORTS: [Transport; 2] = Transport::ALL;
