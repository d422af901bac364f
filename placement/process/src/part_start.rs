//! Making a part out of what came with its first order.
use crate::host::Host as Server;
use crate::neighbours::Neighbours;
use crate::part::{Hosted, Inner, PartProcess};
use crate::serving::Serving;
use crate::start::{StartError, first_unprivileged_port, ports};
use crate::transports::Transports;
use skink_channel::{Pool, Sleeper, SpinBudget};
use skink_control::{Part, PartStart};
use skink_filter::FilterConfig;
use skink_ip::{Ip, IpConfig};
use skink_memory::CaptureRing;
use skink_messages::{Counters, LinkLimits};
use skink_nic::{Nic, NicParts};
use skink_packets::{
    AttachParts, Coded, FromLink, FromTransport, Question, ToLink, ToTransport, Verdicts, holder,
};
use skink_split::{
    FilterHost, IpHost, IpHostParts, Judge, LinkHost, LinkHostParts, TcpHost, TransportParts,
    UdpHost, packet_geometry, receive_geometry,
};
use skink_wire::MacAddr;
use std::collections::VecDeque;
use std::fmt::Display;
use std::os::fd::OwnedFd;

/// Chunks of 64 KiB for packets of `ip`'s own, and for datagrams on their way.
const IP_CHUNKS: u32 = 64;
const UDP_CHUNKS: u32 = 256;
const DESCRIPTORS: &str = "other descriptors than announced";

fn parts(what: &str) -> impl Fn(&dyn Display) -> StartError {
    move |error| StartError::Parts(format!("{what}: {error}"))
}

/// What is common to all parts, and the rest of the descriptors.
struct Kit {
    start: PartStart,
    rest: std::vec::IntoIter<OwnedFd>,
    counters: Counters,
    capture: CaptureRing,
    sleeper: (OwnedFd, OwnedFd),
    life: OwnedFd,
}

impl Kit {
    fn new(start: PartStart, descriptors: Vec<OwnedFd>) -> Result<Kit, StartError> {
        let mut rest = descriptors.into_iter();
        let [counters, capture, page, bell, life] = take(&mut rest)?;
        Ok(Kit {
            start,
            rest,
            counters: Counters::open(counters).map_err(|error| parts("the counters")(&error))?,
            capture: CaptureRing::open(capture)
                .map_err(|error| parts("the capture ring")(&error))?,
            sleeper: (page, bell),
            life,
        })
    }

    fn lane<In: Coded, Out: Coded>(&mut self, to: Part) -> Result<AttachParts, StartError> {
        let descriptors = take(&mut self.rest)?;
        let number = |part: Part| self.start.incarnations.get(part.index()).copied();
        let own = number(self.start.part).unwrap_or(1);
        let neighbour = number(to).unwrap_or(1);
        AttachParts::from_descriptors::<In, Out>(descriptors, own, neighbour)
            .ok_or_else(|| StartError::Parts("a lane of impossible sizes".into()))
    }

    fn sleeper(&self) -> Result<Sleeper, StartError> {
        let failed = StartError::doing("duplicating a descriptor");
        let page = self.sleeper.0.try_clone().map_err(&failed)?;
        let bell = self.sleeper.1.try_clone().map_err(&failed)?;
        Sleeper::attach((page, bell), SpinBudget::new(0))
            .map_err(|error| parts("the sleeper")(&error))
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

    fn finish(mut self, hosted: Hosted, nic: Option<&'static str>) -> Result<Inner, StartError> {
        match self.rest.next() {
            Some(_) => Err(StartError::Parts(DESCRIPTORS.into())),
            None => Ok(Inner {
                hosted,
                neighbours: Neighbours::new(self.start.incarnations),
                held: true,
                life: self.life,
                reports: VecDeque::new(),
                nic,
            }),
        }
    }
}

fn take<const N: usize>(
    rest: &mut std::vec::IntoIter<OwnedFd>,
) -> Result<[OwnedFd; N], StartError> {
    let taken: Vec<OwnedFd> = rest.take(N).collect();
    taken
        .try_into()
        .map_err(|_| StartError::Parts(DESCRIPTORS.into()))
}

impl PartProcess {
    /// Makes a part of what came with [`skink_control::Order::StartPart`]. Needs `/proc`, and no
    /// privileges.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(start: PartStart, descriptors: Vec<OwnedFd>) -> Result<PartProcess, StartError> {
        let kit = Kit::new(start, descriptors)?;
        let inner = match kit.start.part {
            Part::Link => link(kit)?,
            Part::Ip => ip(kit)?,
            Part::Filter => filter(kit)?,
            Part::Transport => return transport(kit).map(Box::new).map(PartProcess::Transport),
        };
        Ok(PartProcess::Inner(Box::new(inner)))
    }
}

impl PartProcess {
    /// As [`PartProcess::new`], for `link` on a NIC that is there already instead of one described in
    /// the order.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn on_nic(
        start: PartStart,
        descriptors: Vec<OwnedFd>,
        nic: Nic,
    ) -> Result<PartProcess, StartError> {
        let mut kit = Kit::new(start, descriptors)?;
        let lane = kit.lane::<ToLink, FromLink>(Part::Ip)?;
        let inner = link_on(kit, lane, nic)?;
        Ok(PartProcess::Inner(Box::new(inner)))
    }
}

fn link(mut kit: Kit) -> Result<Inner, StartError> {
    let lane = kit.lane::<ToLink, FromLink>(Part::Ip)?;
    let description = serde_json::from_str(&kit.start.stack.nic)
        .map_err(|error| parts("the NIC's description")(&error))?;
    let descriptors = kit.rest.by_ref().collect();
    let nic = NicParts {
        description,
        descriptors,
    };
    let nic = nic.attach().map_err(|error| parts("the NIC")(&error))?;
    link_on(kit, lane, nic)
}

fn link_on(kit: Kit, lane: AttachParts, nic: Nic) -> Result<Inner, StartError> {
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
        pool: Pool::create(kit.start.pool, "skink-received", geometry, 1)
            .map_err(StartError::doing("making a pool"))?,
        sleeper: kit.sleeper()?,
    });
    let mut host = host.map_err(|error| parts("the lane to ip")(&error))?;
    host.set_capture(Some(kit.capture.clone()));
    kit.finish(Hosted::Link(Box::new(host)), Some(capabilities.kind))
}

fn ip(mut kit: Kit) -> Result<Inner, StartError> {
    let link = kit.lane::<FromLink, ToLink>(Part::Link)?;
    let tcp = kit.lane::<FromTransport, ToTransport>(Part::Transport)?;
    let udp = kit.lane::<FromTransport, ToTransport>(Part::Transport)?;
    let judge = kit.lane::<Verdicts, Question>(Part::Filter)?;
    let [board] = take(&mut kit.rest)?;
    let sizes = kit.start.link;
    let sizes = sizes.ok_or_else(|| StartError::Parts("no word of the NIC".into()))?;
    let limits = LinkLimits {
        mac: MacAddr(sizes.mac),
        mtu: sizes.mtu,
        cut_bytes: sizes.cut_bytes,
    };
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
        pool: Pool::create(kit.start.pool, "skink-ip", geometry, holder::COUNT)
            .map_err(StartError::doing("making a pool"))?,
        board,
        sleeper: kit.sleeper()?,
    });
    let host = host.map_err(|error| parts("the lanes of ip")(&error))?;
    kit.finish(Hosted::Ip(Box::new(host)), None)
}

fn filter(mut kit: Kit) -> Result<Inner, StartError> {
    let lane = kit.lane::<Question, Verdicts>(Part::Ip)?;
    let stack = &kit.start.stack;
    let seed = stack.seed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let host = FilterHost::new(
        FilterConfig::new(&stack.interface, seed.rotate_left(23)),
        crate::filter::parse(&stack.rules).map_err(StartError::Parts)?,
        kit.counters.clone(),
        lane,
        kit.sleeper()?,
    );
    let host = host.map_err(|error| parts("the lane to ip")(&error))?;
    kit.finish(Hosted::Filter(Box::new(host)), None)
}

fn transport(mut kit: Kit) -> Result<Server, StartError> {
    let tcp_lane = kit.lane::<ToTransport, FromTransport>(Part::Ip)?;
    let udp_lane = kit.lane::<ToTransport, FromTransport>(Part::Ip)?;
    let boards: [OwnedFd; 2] = take(&mut kit.rest)?;
    let owner = kit.start.stack.owner;
    let maps = match owner {
        Some(_) => take::<2>(&mut kit.rest)?.map(Some),
        None => [None, None],
    };
    let seed = kit.start.stack.seed;
    let [tcp_board, udp_board] = boards;
    let [tcp_map, udp_map] = maps;
    let below = |ip, board, map, seed| {
        let ports = ports(owner, map)?;
        Ok::<_, StartError>(TransportParts {
            ip,
            board,
            ports,
            seed,
        })
    };
    // Each draws from a seed of its own.
    let udp_seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    let (tcp_size, udp_size) = (kit.start.stack.tcp_table, kit.start.stack.udp_table);
    let tcp = TcpHost::new(
        below(tcp_lane, tcp_board, tcp_map, seed)?,
        tcp_size.sockets,
        kit.counters.clone(),
        kit.sleeper()?,
    );
    let geometry = packet_geometry(UDP_CHUNKS)
        .ok_or_else(|| StartError::Parts("a pool of impossible sizes".into()))?;
    let pool = Pool::create(kit.start.pool, "skink-datagrams", geometry, 1)
        .map_err(StartError::doing("making a pool"))?;
    let udp = UdpHost::new(
        below(udp_lane, udp_board, udp_map, udp_seed)?,
        udp_size.sockets,
        kit.counters.clone(),
        pool,
        kit.sleeper()?,
    );
    let failed = parts("a lane to ip");
    let neighbours = Neighbours::new(kit.start.incarnations);
    let transports = Transports::new(
        tcp.map_err(|error| failed(&error))?,
        udp.map_err(|error| failed(&error))?,
        neighbours,
        kit.life,
    );
    Server::around(
        Serving::Transports(Box::new(transports)),
        kit.counters,
        kit.sleeper,
        first_unprivileged_port(),
        kit.start.stack.interface,
    )
}
