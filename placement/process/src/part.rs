//! Making the components of a process out of what came with its first order.
use crate::clock;
use crate::host::{Common, Host, Life};
use crate::neighbours::Neighbours;
use crate::random::random;
use crate::start::{StartError, first_unprivileged_port, ports};
use skink_channel::{AttachError, Pool, PoolDescriptors, SpinBudget};
use skink_control::{LinkSizes, Part, PartStart, PoolSizes, Report};
use skink_filter::FilterConfig;
use skink_ip::{Ip, IpConfig};
use skink_lanes::{
    AttachParts, Coded, Exchange, FromFilter, FromLink, FromTransport, ToFilter, ToLink,
    ToTransport, holder,
};
use skink_memory::{CaptureRing, StoredTable, TableConfig};
use skink_messages::{
    CallOutcome, Counters, LinkLimits, Protocol, StoreReply, StoreRequest, TransportCall,
};
use skink_nic::{Nic, NicParts};
use skink_split::{
    Apart, CallEnd, FilterHost, IpHost, IpHostParts, Judge, LinkHost, LinkHostParts, Serving,
    StoreHost, StoreWay, SyscallHost, TcpHost, TransportParts, TransportWay, UdpHost,
    packet_geometry, receive_geometry,
};
use skink_store::Store;
use skink_syscall::{Syscall, SyscallConfig};
use skink_wire::MacAddr;
use std::fmt::Display;
use std::os::fd::OwnedFd;

/// Chunks of 64 KiB for packets of `ip`'s own.
const IP_CHUNKS: u32 = 64;
// Each of its three holders may hold some back, and `ip` keeps as many and one for what leaves.
const _: () = assert!(IP_CHUNKS as usize > 4 * skink_lanes::HELD_BACK + 1);

fn parts(what: &str) -> impl Fn(&dyn Display) -> StartError {
    move |error| StartError::Parts(format!("{what}: {error}"))
}

/// Why an end of `what` can't be had.
fn lane_failed(what: &str) -> impl Fn(AttachError) -> StartError {
    move |error| match error {
        // Whoever wrote there was out of its mind, unless this is another build: the supervisor knows.
        AttachError::Corrupt | AttachError::OtherLayout => {
            StartError::Spoilt(format!("{what}: {error}"))
        }
        AttachError::Memory(_) | AttachError::MessageTooLarge(_) => parts(what)(&error),
    }
}

fn other_descriptors() -> StartError {
    StartError::Parts("other descriptors than announced".into())
}

/// What is common to all parts of the process, and the rest of the descriptors.
struct Kit {
    start: PartStart,
    rest: std::vec::IntoIter<OwnedFd>,
    counters: Counters,
    sleeper: (OwnedFd, OwnedFd),
    /// A NIC that is there already.
    nic: Option<Nic>,
}

impl Kit {
    /// A lane to another part.
    fn lane<In: Coded, Out: Coded>(
        &mut self,
        own: Part,
        to: Part,
    ) -> Result<AttachParts, StartError> {
        let descriptors = take(&mut self.rest)?;
        let number = |part: Part| self.start.incarnations.get(part.index()).copied();
        let (own, neighbour) = (number(own).unwrap_or(1), number(to).unwrap_or(1));
        AttachParts::from_descriptors::<In, Out>(descriptors, own, neighbour)
            .ok_or_else(|| StartError::Parts("a lane of impossible sizes".into()))
    }

    fn exchange<In: Coded, Out: Coded>(
        &mut self,
        own: Part,
        to: Part,
    ) -> Result<Exchange<In, Out>, StartError> {
        let lane = self.lane::<In, Out>(own, to)?;
        Exchange::attach(lane).map_err(lane_failed("a lane"))
    }

    fn pool_id(&self, part: Part) -> u32 {
        // They are few.
        self.start.pool.wrapping_add(part.index() as u32)
    }

    fn ip_config(&self, mac: MacAddr) -> IpConfig {
        let stack = &self.start.stack;
        IpConfig {
            gateways: stack.gateways.clone(),
            seed: stack.seed.rotate_left(31),
            answers: true,
            ..IpConfig::new(mac, stack.addresses.clone())
        }
    }

    /// Slots of each program's regions.
    fn strides(&self) -> [u32; 2] {
        let stack = &self.start.stack;
        [stack.tcp_table, stack.udp_table].map(|table| table.sockets.next_power_of_two())
    }
}

fn take<const N: usize>(
    rest: &mut std::vec::IntoIter<OwnedFd>,
) -> Result<[OwnedFd; N], StartError> {
    let taken: Vec<OwnedFd> = rest.take(N).collect();
    taken.try_into().map_err(|_| other_descriptors())
}

impl Host {
    /// Makes what came with [`skink_control::Order::StartPart`]. Needs `/proc`, and no privileges.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn of_parts(start: PartStart, descriptors: Vec<OwnedFd>) -> Result<Host, StartError> {
        Host::of_parts_on(start, descriptors, None)
    }

    /// As [`Host::of_parts`], with a `link` on this NIC instead of one described in the order.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn of_parts_on(
        start: PartStart,
        descriptors: Vec<OwnedFd>,
        nic: Option<Nic>,
    ) -> Result<Host, StartError> {
        let serves = start.parts.iter().any(|part| part.serves_programs());
        let mut rest = descriptors.into_iter();
        let [counters, page, bell, reading] = take(&mut rest)?;
        let writing = match serves {
            true => Some(take::<1>(&mut rest)?).map(|[writing]| writing),
            false => None,
        };
        let mut kit = Kit {
            start,
            rest,
            counters: Counters::open(counters).map_err(|error| parts("the counters")(&error))?,
            sleeper: (page, bell),
            nic,
        };
        let strides = kit.strides();
        let mut host = Host::around(
            Serving::Apart(Box::new(Apart::new(strides))),
            Common {
                counters: kit.counters.clone(),
                sleeper: (
                    kit.sleeper.0.try_clone().map_err(clone_failed)?,
                    kit.sleeper.1.try_clone().map_err(clone_failed)?,
                ),
                strides,
                interface: kit.start.stack.interface.clone(),
                spin: spin_budget(kit.start.stack.processors),
            },
        )?;
        host.life = Some(Life { reading, writing });
        let incarnations = kit.start.incarnations;
        let mut parts = kit.start.parts.iter();
        let is_successor = parts.any(|part| incarnations.get(part.index()) > Some(&1));
        host.front.set_successor(is_successor);
        host.neighbours = Some(Neighbours::new(kit.start.incarnations));
        for part in kit.start.parts.clone() {
            host.add_part(&mut kit, part)?;
        }
        match kit.rest.next() {
            Some(_) => Err(other_descriptors()),
            None => Ok(host),
        }
    }

    fn add_part(&mut self, kit: &mut Kit, part: Part) -> Result<(), StartError> {
        match part {
            Part::Link => {
                let (host, nic) = link(kit)?;
                self.inner.link = Some(Box::new(host));
                self.inner.nic = Some(nic);
                self.watch_link()?;
            }
            Part::Ip => {
                let limits = self.inner.limits();
                self.inner.ip = Some(Box::new(ip(kit, limits)?));
            }
            Part::Filter => self.inner.filter = Some(Box::new(filter(kit)?)),
            Part::Tcp => {
                let (host, end) = tcp(kit)?;
                self.front
                    .set_transport(Protocol::Tcp, end, |apart| apart.set_tcp(host));
            }
            Part::Udp => {
                let (host, end) = udp(kit)?;
                self.front
                    .set_transport(Protocol::Udp, end, |apart| apart.set_udp(host));
            }
            Part::Syscall => self.front.set_syscall(syscall(kit)?),
            Part::Store => {
                let exchange = kit.exchange(Part::Store, Part::Syscall)?;
                let [memory] = take(&mut kit.rest)?;
                let table =
                    StoredTable::open(memory).map_err(|error| parts("what is stored")(&error))?;
                let host = StoreHost::new(Store::over(table), exchange);
                self.inner.store = Some(Box::new(host));
            }
        }
        Ok(())
    }

    /// What to tell the supervisor before [`Report::Started`].
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn introduction(&mut self) -> Result<Vec<(Report, Vec<OwnedFd>)>, StartError> {
        let mut told = Vec::new();
        if let Some(limits) = self.inner.limits() {
            told.push((Report::Link(sizes(limits)), Vec::new()));
        }
        for (part, pool) in self.inner.pools() {
            let PoolDescriptors {
                id,
                geometry,
                memory,
            } = pool
                .descriptors()
                .map_err(StartError::doing("handing a pool over"))?;
            let sizes = PoolSizes {
                id,
                chunk_bytes: geometry.chunk_bytes(),
                chunks: geometry.chunks(),
            };
            told.push((Report::Pool { part, sizes }, vec![memory]));
        }
        Ok(told)
    }
}

fn clone_failed(error: std::io::Error) -> StartError {
    StartError::doing("duplicating a descriptor")(error)
}

/// With less than a processor for each, a component that spins takes one from whom it waits for.
fn spin_budget(processors: usize) -> SpinBudget {
    match processors > Part::COUNT {
        true => SpinBudget::for_processors(processors),
        false => SpinBudget::new(0),
    }
}

fn sizes(limits: LinkLimits) -> LinkSizes {
    LinkSizes {
        mac: limits.mac.0,
        mtu: limits.mtu,
        cut_bytes: limits.cut_bytes,
        cuts: limits.cuts,
    }
}

fn limits(sizes: LinkSizes) -> LinkLimits {
    LinkLimits {
        mac: MacAddr(sizes.mac),
        mtu: sizes.mtu,
        cut_bytes: sizes.cut_bytes,
        cuts: sizes.cuts,
    }
}

/// The host, and the NIC's kind as in [`skink_messages::Capabilities::kind`].
fn link(kit: &mut Kit) -> Result<(LinkHost, &'static str), StartError> {
    let lane = kit.lane::<ToLink, FromLink>(Part::Link, Part::Ip)?;
    let mut nic = match kit.nic.take() {
        Some(nic) => nic,
        None => {
            let stack = &kit.start.stack;
            let description = serde_json::from_str(&stack.nic)
                .map_err(|error| parts("the NIC's description")(&error))?;
            let descriptors = kit.rest.by_ref().take(stack.nic_descriptors).collect();
            let nic = NicParts {
                description,
                descriptors,
            };
            nic.attach().map_err(|error| parts("the NIC")(&error))?
        }
    };
    nic.sender.name_no_address();
    let [capture] = take(&mut kit.rest)?;
    let capture = CaptureRing::open(capture).map_err(|error| parts("the capture ring")(&error))?;
    let capabilities = nic.capabilities;
    let geometry = receive_geometry(&capabilities)
        .ok_or_else(|| StartError::Parts("a NIC of impossible sizes".into()))?;
    // Those that were given, and what follows from them.
    let ip = Ip::new(kit.ip_config(capabilities.mac), kit.counters.clone());
    let ours = ip.addresses().iter().map(|address| address.addr).collect();
    let host = LinkHost::new(LinkHostParts {
        nic,
        addresses: Some(ours),
        counters: kit.counters.clone(),
        ip: lane,
        pool: Pool::create(kit.pool_id(Part::Link), "skink-link-received", geometry, 1)
            .map_err(StartError::doing("making a pool"))?,
    });
    let mut host = host.map_err(lane_failed("the lane to ip"))?;
    host.set_capture(Some(capture));
    Ok((host, capabilities.kind))
}

/// `here` is what a `link` in the same process takes.
fn ip(kit: &mut Kit, here: Option<LinkLimits>) -> Result<IpHost, StartError> {
    let link = kit.lane::<FromLink, ToLink>(Part::Ip, Part::Link)?;
    let tcp = kit.lane::<FromTransport, ToTransport>(Part::Ip, Part::Tcp)?;
    let udp = kit.lane::<FromTransport, ToTransport>(Part::Ip, Part::Udp)?;
    let judge = kit.lane::<FromFilter, ToFilter>(Part::Ip, Part::Filter)?;
    let [board] = take(&mut kit.rest)?;
    let limits = here.or(kit.start.link.map(limits));
    let limits = limits.ok_or_else(|| StartError::Parts("no word of the NIC".into()))?;
    let geometry = packet_geometry(IP_CHUNKS)
        .ok_or_else(|| StartError::Parts("a pool of impossible sizes".into()))?;
    let host = IpHost::new(IpHostParts {
        config: kit.ip_config(limits.mac),
        limits,
        announces: kit.start.incarnations.get(Part::Ip.index()) == Some(&1),
        counters: kit.counters.clone(),
        link,
        transports: [tcp, udp],
        judge: Judge::Asked(judge),
        pool: Pool::create(
            kit.pool_id(Part::Ip),
            "skink-ip-packets",
            geometry,
            holder::COUNT,
        )
        .map_err(StartError::doing("making a pool"))?,
        board,
    });
    host.map_err(lane_failed("the lanes of ip"))
}

fn filter(kit: &mut Kit) -> Result<FilterHost, StartError> {
    let lane = kit.lane::<ToFilter, FromFilter>(Part::Filter, Part::Ip)?;
    let stack = &kit.start.stack;
    let seed = stack.seed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let [memory] = take(&mut kit.rest)?;
    let flows = StoredTable::open(memory).map_err(|error| parts("the flows")(&error))?;
    let host = FilterHost::new(
        FilterConfig::new(&stack.interface, seed.rotate_left(23)),
        crate::filter::parse(&stack.rules).map_err(StartError::Parts)?,
        kit.counters.clone(),
        lane,
    );
    let mut host = host.map_err(lane_failed("the lane to ip"))?;
    host.keep_in(clock::now(), flows);
    Ok(host)
}

/// What a transport is given: its lanes, the board, and the table of its ports.
fn below(kit: &mut Kit, own: Part, seed: u64) -> Result<(TransportParts, CallEnd), StartError> {
    let ip = kit.lane::<ToTransport, FromTransport>(own, Part::Ip)?;
    let calls = kit.exchange::<TransportCall, CallOutcome>(own, Part::Syscall)?;
    let [board] = take(&mut kit.rest)?;
    let owner = kit.start.stack.owner;
    let [table] = match owner {
        Some(_) => take::<1>(&mut kit.rest)?.map(Some),
        None => [None],
    };
    let tables = match own {
        Part::Tcp => [table, None],
        _ => [None, table],
    };
    let parts = TransportParts {
        ip,
        board,
        ports: ports(owner, tables)?,
        seed,
    };
    Ok((parts, CallEnd::new(calls)))
}

fn tcp(kit: &mut Kit) -> Result<(TcpHost, CallEnd), StartError> {
    let (below, calls) = below(kit, Part::Tcp, kit.start.stack.seed)?;
    let host = TcpHost::new(
        below,
        TableConfig::from(kit.start.stack.tcp_table).sockets,
        kit.counters.clone(),
    );
    let mut host = host.map_err(lane_failed("the lane to ip"))?;
    host.set_stateless(kit.start.stack.stateless);
    host.set_memory(kit.start.stack.socket_memory);
    Ok((host, calls))
}

fn udp(kit: &mut Kit) -> Result<(UdpHost, CallEnd), StartError> {
    // Each draws from a seed of its own.
    let seed = kit.start.stack.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (below, calls) = below(kit, Part::Udp, seed.rotate_left(17))?;
    let host = UdpHost::new(
        below,
        TableConfig::from(kit.start.stack.udp_table).sockets,
        kit.counters.clone(),
    );
    let host = host.map_err(lane_failed("the lane to ip"))?;
    Ok((host, calls))
}

fn syscall(kit: &mut Kit) -> Result<SyscallHost, StartError> {
    let tcp = kit.exchange::<CallOutcome, TransportCall>(Part::Syscall, Part::Tcp)?;
    let udp = kit.exchange::<CallOutcome, TransportCall>(Part::Syscall, Part::Udp)?;
    let store = kit.exchange::<StoreReply, StoreRequest>(Part::Syscall, Part::Store)?;
    let config = SyscallConfig {
        first_unprivileged_port: first_unprivileged_port(),
        strides: kit.strides(),
    };
    Ok(SyscallHost::new(
        Syscall::new(config, kit.counters.clone()),
        [
            TransportWay::Lane(Box::new(tcp)),
            TransportWay::Lane(Box::new(udp)),
        ],
        StoreWay::Lane(Box::new(store)),
        Box::new(random),
    ))
}
