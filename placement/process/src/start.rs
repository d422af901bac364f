//! The first order: what a stack is made of.
use rustix::event::{PollFd, PollFlags};
use skink_control::{ComponentLink, LinkError, Order, PartStart, StackStart};
use skink_library::StackConfig;
use skink_memory::{CaptureRing, StoredTable};
use skink_messages::{Counters, Ports, SoleOwner};
use skink_nic::{Nic, NicParts};
use skink_steering::{Owner, PortTable};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

/// Why a process can't become a stack. All of it is for the supervisor's log.
#[derive(Debug)]
pub enum StartError {
    /// The supervisor is gone, or can't be understood.
    Link(String),
    /// The first order wasn't to start.
    OtherOrder,
    /// What came with the order doesn't fit it.
    Parts(String),
    /// A queue to another process is spoilt: all of them must be made anew. Tell the supervisor so by
    /// [`Report::Broken`](skink_control::Report::Broken).
    Spoilt(String),
    /// The system refused.
    System {
        /// In the form of "making an epoll set".
        doing: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Link(what) => write!(f, "no order came from the supervisor: {what}"),
            StartError::OtherOrder => f.write_str(
                "the supervisor's first order wasn't to start: are both of the same version?",
            ),
            StartError::Parts(what) => write!(
                f,
                "what the supervisor handed over can't be used: {what}; are both of the same version?"
            ),
            StartError::Spoilt(what) => write!(f, "{what}"),
            StartError::System { doing, source } => write!(f, "{doing} failed: {source}"),
        }
    }
}

impl std::error::Error for StartError {}

impl StartError {
    /// Something that was handed over.
    pub(crate) fn of_part(what: &str, error: &dyn fmt::Display) -> StartError {
        StartError::Parts(format!("{what}: {error}"))
    }

    pub(crate) fn doing<E: Into<std::io::Error>>(doing: &'static str) -> impl Fn(E) -> StartError {
        move |error| StartError::System {
            doing,
            source: error.into(),
        }
    }
}

/// What a process is to be.
pub enum First {
    /// A whole stack.
    Stack(Box<StackStart>),
    /// A part of one.
    Part(Box<PartStart>),
    /// What ends a program's connections.
    Orphans(Box<StackStart>),
}

/// Waits for the supervisor's first order.
///
/// # Errors
/// [`StartError::Link`], [`StartError::OtherOrder`].
pub fn receive_start(link: &ComponentLink) -> Result<(First, Vec<OwnedFd>), StartError> {
    loop {
        match link.receive() {
            Ok(Some((Order::Start(start), descriptors))) => {
                return Ok((First::Stack(start), descriptors));
            }
            Ok(Some((Order::StartPart(start), descriptors))) => {
                return Ok((First::Part(start), descriptors));
            }
            Ok(Some((Order::EndOrphans(start), descriptors))) => {
                return Ok((First::Orphans(start), descriptors));
            }
            Ok(Some(_)) => return Err(StartError::OtherOrder),
            Ok(None) => {
                let mut wait = [PollFd::from_borrowed_fd(link.as_fd(), PollFlags::IN)];
                rustix::io::retry_on_intr(|| rustix::event::poll(&mut wait, None))
                    .map_err(StartError::doing("waiting for the supervisor"))?;
            }
            Err(LinkError::Closed) => {
                return Err(StartError::Link("it has closed the connection".into()));
            }
            Err(LinkError::Failed(what)) => return Err(StartError::Link(what)),
        }
    }
}

/// What a stack is made of, ready for use.
pub struct Parts {
    /// What the supervisor wants.
    pub start: StackStart,
    /// The NIC.
    pub nic: Nic,
    /// The tables of ports that the NIC's owners share, if there are several.
    pub ports: Box<dyn Ports + Send>,
    /// Where to count.
    pub counters: Counters,
    /// Where tools look at frames.
    pub capture: Option<CaptureRing>,
    /// The page that says that the stack sleeps, and the pipe that wakes it.
    pub sleeper: (OwnedFd, OwnedFd),
    /// What outlives the stack.
    pub stored: StoredTable,
    /// Flows of datagrams that the packet filter knows.
    pub flows: StoredTable,
    /// The lowest port that a program may bind without being root's (`ip_unprivileged_port_start`).
    pub first_unprivileged_port: u16,
}

impl Parts {
    /// Puts together what came with [`Order::Start`]. Needs no privileges.
    ///
    /// # Errors
    /// [`StartError::Parts`].
    pub fn new(start: StackStart, descriptors: Vec<OwnedFd>) -> Result<Parts, StartError> {
        let parts = StartError::of_part;
        let mut rest = descriptors.into_iter();
        let (nic, ports) = network(&start, &mut rest)?;
        let (
            Some(counters),
            Some(page),
            Some(bell),
            Some(capture),
            Some(stored),
            Some(flows),
            None,
        ) = (
            rest.next(),
            rest.next(),
            rest.next(),
            rest.next(),
            rest.next(),
            rest.next(),
            rest.next(),
        )
        else {
            return Err(StartError::Parts("other descriptors than announced".into()));
        };
        Ok(Parts {
            nic,
            ports,
            counters: Counters::open(counters).map_err(|error| parts("the counters", &error))?,
            capture: CaptureRing::open(capture)
                .map_err(|error| parts("the capture ring", &error))
                .map(Some)?,
            sleeper: (page, bell),
            stored: StoredTable::open(stored).map_err(|error| parts("what is stored", &error))?,
            flows: StoredTable::open(flows).map_err(|error| parts("the flows", &error))?,
            first_unprivileged_port: first_unprivileged_port(),
            start,
        })
    }
}

/// The NIC, and the tables of ports, whose descriptors come first beside an order.
pub(crate) fn network(
    start: &StackStart,
    descriptors: &mut impl Iterator<Item = OwnedFd>,
) -> Result<(Nic, Box<dyn Ports + Send>), StartError> {
    let nic = descriptors.by_ref().take(start.nic_descriptors).collect();
    let tables = match start.owner {
        Some(_) => [descriptors.next(), descriptors.next()],
        None => [None, None],
    };
    let description = serde_json::from_str(&start.nic);
    let nic = NicParts {
        description: description
            .map_err(|error| StartError::of_part("the NIC's description", &error))?,
        descriptors: nic,
    };
    let nic = nic.attach();
    let mut nic = nic.map_err(|error| StartError::of_part("the NIC", &error))?;
    nic.sender.name_no_address();
    Ok((nic, ports(start.owner, tables)?))
}

/// What a whole stack needs to know of it.
pub(crate) fn config(start: &StackStart, counters: Counters) -> StackConfig {
    StackConfig {
        addresses: start.addresses.clone(),
        gateways: start.gateways.clone(),
        seed: start.seed,
        answers: true,
        tcp_table: start.tcp_table.into(),
        udp_table: start.udp_table.into(),
        socket_memory: start.socket_memory,
        counters,
    }
}

/// What a process with the transports of these tables tells of its ports: TCP's and UDP's.
pub(crate) fn ports(
    owner: Option<u16>,
    [tcp, udp]: [Option<OwnedFd>; 2],
) -> Result<Box<dyn Ports + Send>, StartError> {
    let Some(owner) = owner else {
        return Ok(Box::new(SoleOwner));
    };
    let owner = u8::try_from(owner).ok().and_then(Owner::new);
    let owner = owner.ok_or_else(|| StartError::Parts("an impossible owner number".into()))?;
    let table = PortTable::map(owner, tcp, udp)
        .map_err(|error| StartError::Parts(format!("the table of ports: {error}")))?;
    Ok(Box::new(table))
}

/// As the kernel has it in this network namespace; 1024, its default, if it doesn't say.
pub(crate) fn first_unprivileged_port() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let number = text.ok().and_then(|text| text.trim().parse().ok());
    number.unwrap_or(1024)
}
