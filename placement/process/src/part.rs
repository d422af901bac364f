//! A process that hosts `link`, `ip` or `filter` alone, and the one that hosts the transports.
use crate::filter::{parse, show};
use crate::host::Host as Server;
use crate::neighbours::{Neighbours, map_pool};
use crate::start::StartError;
use skink_channel::PoolDescriptors;
use skink_control::{FlowPhase, FlowSummary, LinkSizes, Order, Part, PoolSizes, Report};
use skink_filter::{Flow, FlowPhase as Phase};
use skink_memory::Region;
use skink_messages::LinkLimits;
use skink_packets::Transport;
use skink_split::{FilterHost, Host, IpHost, LinkHost};
use skink_time::Instant;
use skink_wire::{Endpoint, FourTuple};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// A part, ready to be run.
pub enum PartProcess {
    /// `link`, `ip` or `filter`: for [`crate::serve_part`].
    Inner(Box<Inner>),
    /// The transports: for [`crate::serve`].
    Transport(Box<Server>),
}

/// The component of a process that no program knows of.
pub(crate) enum Hosted {
    Link(Box<LinkHost>),
    Ip(Box<IpHost>),
    Filter(Box<FilterHost>),
}

/// A process that no program knows of.
pub struct Inner {
    pub(crate) hosted: Hosted,
    pub(crate) neighbours: Neighbours,
    /// Until the neighbours know of this process, and while rules change.
    pub(crate) held: bool,
    /// Hangs up when the stack isn't needed any more.
    pub(crate) life: OwnedFd,
    pub(crate) reports: VecDeque<Report>,
    /// The NIC's kind, for the sandbox.
    pub(crate) nic: Option<&'static str>,
}

impl PartProcess {
    /// What to tell the supervisor before [`Report::Started`].
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn introduction(&mut self) -> Result<Vec<(Report, Vec<OwnedFd>)>, StartError> {
        let failed = StartError::doing("handing a pool over");
        let mut told = Vec::new();
        let pool = match self {
            PartProcess::Inner(inner) => match &mut inner.hosted {
                Hosted::Link(link) => {
                    told.push((Report::Link(sizes(link.limits())), Vec::new()));
                    Some(link.pool())
                }
                Hosted::Ip(ip) => Some(ip.pool()),
                Hosted::Filter(_) => None,
            },
            PartProcess::Transport(server) => {
                let transports = server.stack.transports();
                transports.and_then(|transports| transports.pool())
            }
        };
        if let Some(pool) = pool {
            let descriptors = pool.descriptors().map_err(failed)?;
            let PoolDescriptors {
                id,
                geometry,
                memory,
            } = descriptors;
            let sizes = PoolSizes {
                id,
                chunk_bytes: geometry.chunk_bytes(),
                chunks: geometry.chunks(),
            };
            told.push((Report::Pool(sizes), vec![memory]));
        }
        Ok(told)
    }

    /// The NIC's kind as in [`skink_nic::Capabilities::kind`], if it is this part's.
    pub fn nic(&self) -> Option<&'static str> {
        match self {
            PartProcess::Inner(inner) => inner.nic,
            PartProcess::Transport(_) => None,
        }
    }

    /// Whether programs are served here.
    pub fn serves_programs(&self) -> bool {
        matches!(self, PartProcess::Transport(_))
    }
}

fn sizes(limits: LinkLimits) -> LinkSizes {
    LinkSizes {
        mac: limits.mac.0,
        mtu: limits.mtu,
        cut_bytes: limits.cut_bytes,
    }
}

impl Hosted {
    pub fn host(&mut self) -> &mut dyn Host {
        match self {
            Hosted::Link(host) => host.as_mut(),
            Hosted::Ip(host) => host.as_mut(),
            Hosted::Filter(host) => host.as_mut(),
        }
    }
}

impl Inner {
    /// Carries an order out; `false` if it was to stop.
    pub(crate) fn order(&mut self, now: Instant, order: Order, descriptors: Vec<OwnedFd>) -> bool {
        let done = match order {
            Order::Neighbour {
                part,
                incarnation,
                pool,
            } => {
                let met = self.meet(part, incarnation, pool, descriptors);
                self.reports.push_back(Report::Knows { part, incarnation });
                met
            }
            Order::Go {} => {
                self.held = false;
                Ok(())
            }
            Order::Map { program } => {
                let mapped = self.map(program, descriptors);
                self.reports.push_back(Report::Mapped { program });
                mapped
            }
            Order::Unmap { program } => {
                match &mut self.hosted {
                    Hosted::Link(link) => link.remove_region(program),
                    Hosted::Ip(ip) => ip.remove_region(program),
                    Hosted::Filter(_) => {}
                }
                Ok(())
            }
            Order::Filter { rules } => self.load(&rules),
            Order::Flows { flows } => {
                self.enter(now, flows);
                Ok(())
            }
            Order::ShowFilter {} => {
                if let Hosted::Filter(host) = &self.hosted {
                    let shown = show(host.filter());
                    self.reports.push_back(Report::Filter { shown });
                }
                Ok(())
            }
            Order::Stop {} => return false,
            Order::Start(_)
            | Order::StartPart(_)
            | Order::Attach { .. }
            | Order::Detach { .. }
            | Order::ShowFlows {} => Err("it is another process's".to_owned()),
        };
        if let Err(why) = done {
            tracing::warn!("an order isn't carried out: {why}");
        }
        true
    }

    fn meet(
        &mut self,
        part: Part,
        incarnation: u32,
        pool: Option<PoolSizes>,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), String> {
        let memory = descriptors.into_iter().next();
        let reader = pool.zip(memory).map(|(pool, fd)| map_pool(pool, fd));
        let reader = reader.transpose()?;
        let id = reader.as_ref().and(pool).map(|pool| pool.id);
        let met = self.neighbours.meet(part, incarnation, id);
        match &mut self.hosted {
            Hosted::Link(link) => {
                reader.into_iter().for_each(|pool| link.add_pool(pool));
                if met.restarted && part == Part::Ip {
                    link.ip_restarted(incarnation);
                }
                met.old_pool.into_iter().for_each(|id| link.remove_pool(id));
            }
            Hosted::Ip(ip) => {
                reader.into_iter().for_each(|pool| ip.add_pool(pool));
                if met.restarted {
                    restarted(ip, part, incarnation);
                }
                met.old_pool.into_iter().for_each(|id| ip.remove_pool(id));
            }
            Hosted::Filter(filter) => {
                if met.restarted && part == Part::Ip {
                    filter.ip_restarted(incarnation);
                }
            }
        }
        Ok(())
    }

    fn map(&mut self, program: u32, descriptors: Vec<OwnedFd>) -> Result<(), String> {
        let files: [OwnedFd; 2] = descriptors
            .try_into()
            .map_err(|_| "not both files of the region came along".to_owned())?;
        let [records, rings] = files;
        let region = Region::open_read_only(records, rings).map_err(|error| error.to_string())?;
        match &mut self.hosted {
            Hosted::Link(link) => link.add_region(program, region),
            Hosted::Ip(ip) => ip.add_region(program, region),
            Hosted::Filter(_) => {}
        }
        Ok(())
    }

    /// New rules: nothing is judged by them before it is known which connections there are.
    fn load(&mut self, rules: &str) -> Result<(), String> {
        if let Hosted::Filter(filter) = &mut self.hosted {
            self.held = true;
            filter.load(parse(rules)?);
        }
        Ok(())
    }

    fn enter(&mut self, now: Instant, flows: Vec<FlowSummary>) {
        if let Hosted::Filter(filter) = &mut self.hosted {
            filter.rebuild(now, flows.into_iter().map(flow));
        }
    }
}

fn restarted(ip: &mut IpHost, part: Part, incarnation: u32) {
    match part {
        Part::Link => ip.link_restarted(incarnation),
        Part::Filter => ip.filter_restarted(incarnation),
        Part::Transport => {
            for transport in Transport::ALL {
                ip.transport_restarted(transport, incarnation);
            }
        }
        Part::Ip => {}
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
