//! The components that no program has a channel to, where they are apart from the rest.
use crate::filter::{parse, show};
use skink_channel::{Pool, PoolReader};
use skink_control::{FlowPhase, FlowSummary, Part};
use skink_filter::{Flow, FlowPhase as Phase};
use skink_lanes::{EndCounters, Transport};
use skink_memory::SendRegion;
use skink_messages::{LinkLimits, Progress};
use skink_split::{FilterHost, Host, IpHost, LinkHost, StoreHost};
use skink_time::Instant;
use skink_wire::{Endpoint, FourTuple};
use std::net::SocketAddr;

/// Those of them that are in this process.
#[derive(Default)]
pub(crate) struct Inner {
    pub link: Option<Box<LinkHost>>,
    /// The kind of its NIC, for the sandbox.
    pub nic: Option<&'static str>,
    pub ip: Option<Box<IpHost>>,
    pub filter: Option<Box<FilterHost>>,
    pub store: Option<Box<StoreHost>>,
    /// By [`Part::index`]: those that work. One doesn't until its neighbours know of it; the filter doesn't
    /// while its rules change either.
    going: [bool; Part::COUNT],
}

impl Inner {
    pub fn set_going(&mut self, part: Part, going: bool) {
        if let Some(place) = self.going.get_mut(part.index()) {
            *place = going;
        }
    }

    fn goes(&self, part: Part) -> bool {
        self.going.get(part.index()) == Some(&true)
    }

    /// Each that works.
    fn hosts(&self) -> impl Iterator<Item = &dyn Host> {
        let link = self.link.as_deref().map(|it| it as &dyn Host);
        let ip = self.ip.as_deref().map(|it| it as &dyn Host);
        let filter = self.filter.as_deref().map(|it| it as &dyn Host);
        let store = self.store.as_deref().map(|it| it as &dyn Host);
        let all = [
            (Part::Link, link),
            (Part::Ip, ip),
            (Part::Filter, filter),
            (Part::Store, store),
        ];
        let going = all.into_iter().filter(|(part, _)| self.goes(*part));
        going.filter_map(|(_, host)| host)
    }

    pub fn poll(&mut self, now: Instant) -> Progress {
        let mut more = false;
        if let Some(link) = self
            .link
            .as_mut()
            .filter(|_| self.going[Part::Link.index()])
        {
            more |= link.poll(now) == Progress::More;
        }
        if let Some(ip) = self.ip.as_mut().filter(|_| self.going[Part::Ip.index()]) {
            more |= ip.poll(now) == Progress::More;
            while let Some((address, mac)) = ip.take_conflict() {
                tracing::warn!(
                    "{mac} on the link has {address} too: give one of the two another address"
                );
            }
        }
        let filter = self.filter.as_mut();
        if let Some(filter) = filter.filter(|_| self.going[Part::Filter.index()]) {
            more |= filter.poll(now) == Progress::More;
        }
        if let Some(store) = self
            .store
            .as_mut()
            .filter(|_| self.going[Part::Store.index()])
        {
            more |= store.poll(now) == Progress::More;
        }
        match more {
            true => Progress::More,
            false => Progress::Idle,
        }
    }

    pub fn is_ready(&self) -> bool {
        self.hosts().any(Host::is_ready)
    }

    /// Whether packets of transports are still to leave.
    pub fn has_waiting(&self) -> bool {
        self.is_ready() || self.ip.as_ref().is_some_and(|ip| ip.has_waiting())
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.hosts().filter_map(Host::next_deadline).min()
    }

    /// Whether a neighbour has spoilt its queue to one of them.
    pub fn is_broken(&self) -> bool {
        self.hosts().any(|host| host.broken().is_some())
    }

    /// What the NIC takes, if it is here.
    pub fn limits(&self) -> Option<LinkLimits> {
        self.link.as_ref().map(|link| link.limits())
    }

    /// What they keep packets in.
    pub fn pools(&mut self) -> impl Iterator<Item = (Part, &Pool)> {
        let link = self.link.iter().map(|it| (Part::Link, it.pool()));
        let ip = self.ip.iter_mut().map(|it| (Part::Ip, it.pool()));
        link.chain(ip)
    }

    /// Maps a pool of another part for reading, once for each of them that does.
    pub fn add_pool(&mut self, map: &dyn Fn() -> Result<PoolReader, String>) -> Result<(), String> {
        if let Some(link) = &mut self.link {
            link.add_pool(map()?);
        }
        if let Some(ip) = &mut self.ip {
            ip.add_pool(map()?);
        }
        Ok(())
    }

    /// The pool of one that was replaced.
    pub fn remove_pool(&mut self, id: u32) {
        self.link
            .as_mut()
            .into_iter()
            .for_each(|it| it.remove_pool(id));
        self.ip
            .as_mut()
            .into_iter()
            .for_each(|it| it.remove_pool(id));
    }

    /// Another part was replaced.
    pub fn restarted(&mut self, now: Instant, part: Part, incarnation: u32) {
        match part {
            Part::Link => {
                if let Some(ip) = &mut self.ip {
                    ip.link_restarted(incarnation);
                }
            }
            Part::Ip => {
                if let Some(link) = &mut self.link {
                    link.ip_restarted(now, incarnation);
                }
                if let Some(filter) = &mut self.filter {
                    filter.ip_restarted(incarnation);
                }
            }
            Part::Filter => {
                if let Some(ip) = &mut self.ip {
                    ip.filter_restarted(incarnation);
                }
            }
            Part::Tcp | Part::Udp => {
                let transport = match part {
                    Part::Tcp => Transport::Tcp,
                    _ => Transport::Udp,
                };
                if let Some(ip) = &mut self.ip {
                    ip.transport_restarted(now, transport, incarnation);
                }
            }
            Part::Syscall => {
                if let Some(store) = &mut self.store {
                    store.syscall_restarted(incarnation);
                }
            }
            Part::Store => {}
        }
    }

    /// A program's sockets, to be read where they are sent from.
    pub fn map(&mut self, transport: Transport, program: u32, region: &SendRegion) {
        if let Some(link) = &mut self.link {
            link.add_region(transport, program, region.clone());
        }
        if let Some(ip) = &mut self.ip {
            ip.add_region(transport, program, region.clone());
        }
    }

    /// They are gone.
    pub fn unmap(&mut self, program: u32) {
        self.link
            .as_mut()
            .into_iter()
            .for_each(|it| it.remove_regions(program));
        self.ip
            .as_mut()
            .into_iter()
            .for_each(|it| it.remove_regions(program));
    }

    /// New rules: nothing is judged by them before it is known which connections there are. Answers whether
    /// the filter is here.
    pub fn load_rules(&mut self, rules: &str) -> Result<bool, String> {
        let Some(filter) = &mut self.filter else {
            return Ok(false);
        };
        filter.load(parse(rules)?);
        self.set_going(Part::Filter, false);
        Ok(true)
    }

    /// There are new rules, of which the filter may not know yet.
    pub fn ask_filter(&mut self) {
        if let Some(ip) = &mut self.ip {
            ip.ask_filter();
        }
    }

    /// Connections that there are. The filter enters them before it begins; later it only goes on to remember
    /// those that it knows.
    pub fn enter_flows(&mut self, now: Instant, flows: Vec<FlowSummary>) {
        let works = self.goes(Part::Filter);
        if let Some(filter) = &mut self.filter {
            let flows = flows.into_iter().map(flow);
            match works {
                true => filter.confirm(now, flows),
                false => filter.rebuild(now, flows),
            };
        }
    }

    /// What was dropped at their ends.
    pub fn dropped(&mut self) -> EndCounters {
        let link = self.link.iter().map(|it| it.end_counters());
        let ip = self.ip.iter_mut().flat_map(|it| it.end_counters());
        let filter = self.filter.iter().map(|it| it.end_counters());
        let store = self.store.iter().map(|it| it.end_counters());
        let all = link.chain(ip).chain(filter).chain(store);
        all.fold(EndCounters::default(), EndCounters::plus)
    }

    pub fn show_filter(&self) -> Option<String> {
        self.filter.as_ref().map(|it| show(it.filter()))
    }
}

/// A connection that there is, as the supervisor passes it on.
pub(crate) fn summary(flow: Flow) -> FlowSummary {
    let end = |end: Endpoint| SocketAddr::new(end.addr, end.port);
    let (phase, iss) = match flow.phase {
        Phase::Asked => (FlowPhase::Asked, 0),
        Phase::Answered { iss } => (FlowPhase::Answered, iss),
        Phase::LocalClosed => (FlowPhase::LocalClosed, 0),
        Phase::RemoteClosed => (FlowPhase::RemoteClosed, 0),
        Phase::BothClosed => (FlowPhase::BothClosed, 0),
        Phase::Established | Phase::Datagrams => (FlowPhase::Established, 0),
    };
    FlowSummary {
        local: end(flow.tuple.local),
        remote: end(flow.tuple.remote),
        phase,
        iss,
    }
}

fn flow(summary: FlowSummary) -> Flow {
    let FlowSummary {
        local,
        remote,
        phase,
        iss,
    } = summary;
    Flow {
        tuple: FourTuple {
            local: Endpoint::new(local.ip(), local.port()),
            remote: Endpoint::new(remote.ip(), remote.port()),
        },
        phase: match phase {
            FlowPhase::Asked => Phase::Asked,
            FlowPhase::Answered => Phase::Answered { iss },
            FlowPhase::Established => Phase::Established,
            FlowPhase::LocalClosed => Phase::LocalClosed,
            FlowPhase::RemoteClosed => Phase::RemoteClosed,
            FlowPhase::BothClosed => Phase::BothClosed,
        },
    }
}
