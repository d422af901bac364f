//! A machine whose components are on their own (topology `split`): what a supervisor does, in one
//! process. Each can be killed and replaced, as its process can.

mod broker;
mod death;
mod leaks;
mod programs;
mod succession;

pub use death::{Rewind, Shown};

use broker::Broker;
use core::net::IpAddr;
use skink_channel::{QueueDescriptors, SleeperDescriptors};
use skink_filter::RuleSet;
use skink_ip::IpConfig;
use skink_lanes::board::BoardDescriptors;
use skink_lanes::{
    EndCounters, FromFilter, FromLink, FromTransport, Lane, ToFilter, ToLink, ToTransport,
};
use skink_memory::{Region, StoredTable, TableConfig};
use skink_messages::{
    CallOutcome, Capabilities, Counters, Ports, Progress, StoreReply, StoreRequest, TransportCall,
};
use skink_nic::Nic;
use skink_sockets::ChannelParts;
use skink_split::{FilterHost, Front, Host, IpHost, LinkHost, StoreHost};
use skink_time::Instant;
use skink_wire::IpCidr;
use std::collections::BTreeMap;

/// A component. The order is that of all arrays here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who {
    /// `link`
    Link,
    /// `ip`
    Ip,
    /// `filter`
    Filter,
    /// `tcp`
    Tcp,
    /// `udp`
    Udp,
    /// `syscall`
    Syscall,
    /// `store`
    Store,
}

impl Who {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// All of them.
    pub const ALL: [Who; Who::COUNT] = [
        Who::Link,
        Who::Ip,
        Who::Filter,
        Who::Tcp,
        Who::Udp,
        Who::Syscall,
        Who::Store,
    ];

    /// Its name, as in a topology.
    pub fn name(self) -> &'static str {
        match self {
            Who::Link => "link",
            Who::Ip => "ip",
            Who::Filter => "filter",
            Who::Tcp => "tcp",
            Who::Udp => "udp",
            Who::Syscall => "syscall",
            Who::Store => "store",
        }
    }

    /// The component of this name.
    pub fn named(name: &str) -> Option<Who> {
        Who::ALL.into_iter().find(|who| who.name() == name)
    }

    /// Who it has a lane to, in the order in which it tells them what came of a turn.
    pub fn neighbours(self) -> &'static [Who] {
        match self {
            Who::Ip => &[Who::Link, Who::Filter, Who::Tcp, Who::Udp],
            Who::Link | Who::Filter => &[Who::Ip],
            Who::Tcp | Who::Udp => &[Who::Syscall, Who::Ip],
            Who::Syscall => &[Who::Store, Who::Tcp, Who::Udp],
            Who::Store => &[Who::Syscall],
        }
    }

    /// Which of a program's channels leads to it.
    pub fn channel(self) -> Option<usize> {
        match self {
            Who::Syscall => Some(0),
            Who::Tcp => Some(1),
            Who::Udp => Some(2),
            Who::Link | Who::Ip | Who::Filter | Who::Store => None,
        }
    }
}

/// Where a machine's filter is.
#[derive(Clone, Debug)]
pub enum Filtering {
    /// There is none.
    None,
    /// In the process of `ip`.
    Inline(RuleSet),
    /// In one of its own.
    Apart(RuleSet),
}

/// Makes a transport's port table.
pub type MakePorts = Box<dyn Fn() -> Box<dyn Ports + Send> + Send>;

/// What a [`Machine`] is made of.
pub struct MachineConfig {
    /// Its addresses.
    pub addresses: Vec<IpCidr>,
    /// What must be hard to guess comes from this.
    pub seed: u64,
    /// Where its filter is.
    pub filtering: Filtering,
    /// Sizes of each program's region of TCP sockets.
    pub tcp: TableConfig,
    /// Sizes of each program's region of UDP sockets.
    pub udp: TableConfig,
    /// What the data of TCP sockets may take of the memory, in bytes.
    pub socket_memory: u64,
    /// How many programs it serves, each with sockets of its own.
    pub programs: u32,
    /// Makes the port table that a transport is given.
    pub ports: MakePorts,
}

/// Seven components, and what is between them and the programs.
pub struct Machine {
    /// Between `link` and `ip`, `filter` and `ip`, `ip` and `tcp`, `ip` and `udp`, `tcp` and `syscall`, `udp` and
    /// `syscall`, `store` and `syscall`.
    pub lanes: [Lane; 7],
    /// What each component sleeps on.
    pub sleepers: [SleeperDescriptors; Who::COUNT],
    /// What `ip` publishes.
    pub board: BoardDescriptors,
    /// Where all of them count.
    pub counters: Counters,
    /// `link`, unless it is dead.
    pub link: Option<LinkHost>,
    /// `ip`, unless it is dead.
    pub ip: Option<IpHost>,
    /// `filter`, unless it is dead or there is none.
    pub filter: Option<FilterHost>,
    /// `tcp`. While it is dead, nobody calls it, but its tables can be looked at.
    pub tcp: Front,
    /// `udp`, as `tcp`.
    pub udp: Front,
    /// `syscall`, unless it is dead.
    pub syscall: Option<Front>,
    /// `store`, unless it is dead.
    pub store: Option<StoreHost>,
    config: MachineConfig,
    capabilities: Capabilities,
    incarnations: [u32; Who::COUNT],
    dead: [bool; Who::COUNT],
    next_pool: u32,
    /// The pools that the others have mapped, of each that lives and of predecessors that they haven't been
    /// told to forget.
    pools: [Vec<u32>; Who::COUNT],
    /// The programs, with their sockets.
    regions: Vec<(u32, Region, Region)>,
    /// Their channels.
    channels: BTreeMap<u32, ChannelParts>,
    /// Programs that have ended, and aren't finished.
    ended: Vec<u32>,
    /// Where `filter` keeps flows of datagrams.
    flows: StoredTable,
    /// What `store` keeps.
    stored: StoredTable,
    /// What the NIC is while `link` is dead.
    spare_nic: Option<Nic>,
    /// What was dropped at the ends of those that are no more.
    dropped: EndCounters,
}

impl Machine {
    /// Starts all components.
    ///
    /// # Panics
    /// If there is no memory, or there are no descriptors left.
    pub fn new(nic: Nic, config: MachineConfig, counters: Counters) -> Machine {
        let lanes = [
            Lane::create::<ToLink, FromLink>("link-ip").expect("a lane"),
            Lane::create::<ToFilter, FromFilter>("ip-filter").expect("a lane"),
            Lane::create::<FromTransport, ToTransport>("ip-tcp").expect("a lane"),
            Lane::create::<FromTransport, ToTransport>("ip-udp").expect("a lane"),
            Lane::create::<TransportCall, CallOutcome>("tcp-syscall").expect("a lane"),
            Lane::create::<TransportCall, CallOutcome>("udp-syscall").expect("a lane"),
            Lane::create::<StoreRequest, StoreReply>("store-syscall").expect("a lane"),
        ];
        let sleepers =
            Who::ALL.map(|who| SleeperDescriptors::create(who.name()).expect("a sleeper"));
        let board = BoardDescriptors::create("network").expect("a board");
        let flows = StoredTable::create("flows", 256).expect("a table of flows");
        let stored = StoredTable::create("stored", 4096).expect("a table of what is stored");
        let capabilities = nic.capabilities;
        let incarnations = [1; Who::COUNT];
        let broker = Broker {
            lanes: &lanes,
            sleepers: &sleepers,
            incarnations: &incarnations,
            board: &board,
            config: &config,
            capabilities: &capabilities,
            counters: &counters,
        };
        let link = broker.link(nic, 1);
        let ip = broker.ip(2, config.seed);
        let filter = broker.filter(Instant::ZERO, &flows);
        let tcp = broker.tcp();
        let udp = broker.udp();
        let syscall = Some(broker.syscall());
        let store = Some(broker.store(&stored));
        let mut machine = Machine {
            lanes,
            sleepers,
            board,
            counters,
            link: Some(link),
            ip: Some(ip),
            filter,
            tcp,
            udp,
            syscall,
            store,
            capabilities,
            incarnations,
            dead: [false; Who::COUNT],
            next_pool: 3,
            pools: [&[1][..], &[2], &[], &[], &[], &[], &[]].map(Vec::from),
            regions: Vec::new(),
            channels: BTreeMap::new(),
            ended: Vec::new(),
            flows,
            stored,
            spare_nic: None,
            dropped: EndCounters::default(),
            config,
        };
        machine.introduce_all();
        machine
    }

    /// One of its addresses.
    pub fn address(&self, index: usize) -> IpAddr {
        self.config.addresses[index].addr
    }

    /// The programs' sockets of TCP and of UDP.
    pub fn regions(&self) -> &[(u32, Region, Region)] {
        &self.regions
    }

    /// A program's last socket is gone: nobody needs its sockets any more.
    pub fn forget_program(&mut self, program: u32) {
        self.regions.retain(|(other, _, _)| *other != program);
        self.ended.retain(|other| *other != program);
        self.link
            .iter_mut()
            .for_each(|link| link.remove_regions(program));
        self.ip.iter_mut().for_each(|ip| ip.remove_regions(program));
    }

    /// Rules for a filter in a process of its own that starts from now on.
    pub fn set_rules(&mut self, rules: RuleSet) {
        self.config.filtering = Filtering::Apart(rules);
    }

    /// Whether there is such a component, and it is dead.
    pub fn is_dead(&self, who: Who) -> bool {
        self.dead[who as usize]
    }

    /// Whether there is such a component, dead or alive.
    pub fn has(&self, who: Who) -> bool {
        match who {
            Who::Filter => matches!(self.config.filtering, Filtering::Apart(_)),
            Who::Link | Who::Ip | Who::Tcp | Who::Udp | Who::Syscall | Who::Store => true,
        }
    }

    /// Polls one component, unless it is dead; answers whether it had or has something to do at once.
    pub fn poll(&mut self, who: Who, now: Instant) -> bool {
        let Some(host) = self.host(who) else {
            return false;
        };
        let was_ready = host.is_ready();
        host.poll(now) == Progress::More || was_ready || host.is_ready()
    }

    /// A component, unless it is dead.
    pub fn host(&mut self, who: Who) -> Option<&mut dyn Host> {
        if self.dead[who as usize] {
            return None;
        }
        match who {
            Who::Link => self.link.as_mut().map(|host| host as &mut dyn Host),
            Who::Ip => self.ip.as_mut().map(|host| host as &mut dyn Host),
            Who::Filter => self.filter.as_mut().map(|host| host as &mut dyn Host),
            Who::Tcp => Some(&mut self.tcp),
            Who::Udp => Some(&mut self.udp),
            Who::Syscall => self.syscall.as_mut().map(|host| host as &mut dyn Host),
            Who::Store => self.store.as_mut().map(|host| host as &mut dyn Host),
        }
    }

    /// When to poll one of them at the latest.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        Who::ALL
            .into_iter()
            .filter_map(|who| self.host(who)?.next_deadline())
            .min()
    }

    /// The queues that a component produces, each with the one that it consumes from the same neighbour, in the
    /// order of [`Who::neighbours`].
    pub fn queues(&self, who: Who) -> Vec<(&QueueDescriptors, &QueueDescriptors)> {
        let [link, filter, tcp, udp, tcp_calls, udp_calls, store] = &self.lanes;
        match who {
            Who::Link => vec![(&link.up, &link.down)],
            Who::Filter => vec![(&filter.up, &filter.down)],
            Who::Tcp => vec![(&tcp_calls.up, &tcp_calls.down), (&tcp.down, &tcp.up)],
            Who::Udp => vec![(&udp_calls.up, &udp_calls.down), (&udp.down, &udp.up)],
            Who::Ip => vec![
                (&link.down, &link.up),
                (&filter.down, &filter.up),
                (&tcp.up, &tcp.down),
                (&udp.up, &udp.down),
            ],
            Who::Syscall => vec![
                (&store.down, &store.up),
                (&tcp_calls.down, &tcp_calls.up),
                (&udp_calls.down, &udp_calls.up),
            ],
            Who::Store => vec![(&store.up, &store.down)],
        }
    }

    /// What was dropped at all ends so far.
    pub fn dropped(&mut self) -> EndCounters {
        let link = self.link.iter().map(LinkHost::end_counters);
        let ip = self.ip.iter_mut().flat_map(IpHost::end_counters);
        let filter = self.filter.iter().map(FilterHost::end_counters);
        let transports = [self.tcp.dropped(), self.udp.dropped()];
        let syscall = self.syscall.iter_mut().map(Front::dropped);
        let store = self.store.iter().map(StoreHost::end_counters);
        let all = link.chain(ip).chain(filter).chain(transports);
        let all = all.chain(syscall).chain(store);
        all.fold(self.dropped, EndCounters::plus)
    }

    fn broker(&self) -> Broker<'_> {
        Broker {
            lanes: &self.lanes,
            sleepers: &self.sleepers,
            incarnations: &self.incarnations,
            board: &self.board,
            config: &self.config,
            capabilities: &self.capabilities,
            counters: &self.counters,
        }
    }
}

fn ip_config(capabilities: &Capabilities, config: &MachineConfig, seed: u64) -> IpConfig {
    IpConfig {
        seed,
        ..IpConfig::new(capabilities.mac, config.addresses.clone())
    }
}
