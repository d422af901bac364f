//! What the supervisor and a component's process say to each other: one JSON message in one
//! `SOCK_SEQPACKET` packet each, on a pair of connected sockets that the process is born with.
use crate::build::Build;
use crate::message::TableSize;
use crate::part::{FlowSummary, LinkSizes, Part, PartStart, PoolSizes};
use crate::transport::{self, MAXIMUM_REPLY, ReceiveError};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use skink_sockets::Attachment;
use skink_wire::IpCidr;
use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a stack needs to know. Beside it: the NIC's descriptors, those of the tables of TCP's and of UDP's
/// ports if there are any, the memory of the counters, the two of the stack's sleeper (its page, to be written, and its pipe), the
/// memory of the capture ring, of what is stored, and of the packet filter's flows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StackStart {
    /// Name of the process in the topology, for the log.
    pub process: String,
    /// User and group to run as; nobody's if none is given.
    pub user: Option<(u32, u32)>,
    /// The addresses of the stack.
    #[serde(with = "crate::message::as_text")]
    pub addresses: Vec<IpCidr>,
    /// Default routes, at most one for each family.
    pub gateways: Vec<IpAddr>,
    /// Seed for whatever must be hard to guess.
    pub seed: u64,
    /// `skink_nic::Description` of the NIC as JSON.
    pub nic: String,
    /// How many descriptors it has.
    pub nic_descriptors: usize,
    /// This stack's number among the owners of the NIC, if packets are steered by a port table.
    pub owner: Option<u16>,
    /// Size of each program's region of TCP sockets.
    pub tcp_table: TableSize,
    /// Size of each program's region of UDP sockets.
    pub udp_table: TableSize,
    /// What the data of TCP sockets may take of the machine's memory, in bytes.
    pub socket_memory: u64,
    /// How many processors the process shares with all that it waits for, other processes and programs: more than one that is pinned
    /// counts. 0 if nobody knows.
    #[serde(default)]
    pub processors: usize,
    /// Name of the interface in filter rules.
    pub interface: String,
    /// The packet filter's rules as text, checked; empty to pass everything.
    pub rules: String,
    /// Of a process that has ended: where it listened, if others have the sockets and don't, with the cookies of the kernel's. They are
    /// to be kept for those.
    #[serde(default)]
    pub listens: Vec<(SocketAddr, u64)>,
    /// Likewise: its connections that others may ask for, each by its [tether](crate::tether). Of each there are two descriptors: the stack's end,
    /// and a file for the parcel.
    #[serde(default)]
    pub tethers: Vec<(SocketAddr, SocketAddr)>,
    /// It takes over from one that died: it begins with [`Order::Go`], after the programs are attached.
    pub successor: bool,
    /// Connections of predecessors are reset instead of taken over (`skink_tcp::Tcp::set_stateless`).
    pub stateless: bool,
}

/// From the supervisor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum Order {
    /// The first one: become a stack.
    Start(Box<StackStart>),
    /// The first one: become a part of a stack.
    StartPart(Box<PartStart>),
    /// The first one: end the connections of a program that had a stack of its own and has ended. Beside it: the NIC's descriptors,
    /// those of the tables of ports if there are any, the three files of the program's region of TCP sockets, the tethers', and a connection to the
    /// broker, for [`Broker::resume`](crate::Broker::resume).
    EndOrphans(Box<StackStart>),
    /// Another part runs, which may be a successor. The memory of its pool travels beside this, if it
    /// has one and a part here reads it.
    Neighbour {
        /// Which.
        part: Part,
        /// Which restart of it.
        incarnation: u32,
        /// What it keeps packets in, for who reads them.
        pool: Option<PoolSizes>,
    },
    /// All neighbours know of this part, which may begin or go on. For a whole stack that is a successor, any
    /// part stands for all.
    Go {
        /// Which.
        part: Part,
    },
    /// A program attaches; for `link` and `ip`. Beside it, all for reading: records and rings of its TCP sockets, and of
    /// its UDP sockets.
    Map {
        /// Its number.
        program: u32,
    },
    /// The last socket of a program is gone; for `link` and `ip`.
    Unmap {
        /// Its number.
        program: u32,
    },
    /// To `tcp`: which connections are there?
    ShowFlows {},
    /// To the filter: connections that there are. One that waits for [`Order::Go`] enters them; one that works goes on
    /// to remember those that it knows.
    Flows {
        /// Some of them.
        flows: Vec<FlowSummary>,
    },
    /// A program attaches; for each process that programs have a channel to. Beside it: the program's region of
    /// TCP sockets (records, rings) if `tcp` is there, that of UDP sockets if `udp` is, and the seven
    /// descriptors of its channel to this process (`skink_sockets::ChannelParts::for_stack`).
    Attach {
        /// What is agreed on.
        attachment: Attachment,
        /// Process id of the program.
        pid: u32,
        /// Its user id: who may share ports with whom.
        uid: u32,
    },
    /// The program has ended; for `syscall`, which tells the transports.
    Detach {
        /// Its number.
        program: u32,
    },
    /// New rules for the packet filter, checked.
    Filter {
        /// Their text.
        rules: String,
    },
    /// To `ip`: packets are to be asked about, whatever the filter said before. It has new rules, or will have.
    AskFilter {},
    /// What the packet filter counted.
    ShowFilter {},
    /// End in good order.
    Stop {},
}

/// From a component.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub enum Report {
    /// The first one, before it has any order: which build it is.
    Born(Build),
    /// It serves.
    Started {
        /// What the sandbox couldn't do on this kernel, in words.
        sandbox: String,
    },
    /// What the part's NIC takes; before [`Report::Started`].
    Link(LinkSizes),
    /// A part's pool, whose memory travels beside this; before [`Report::Started`].
    Pool {
        /// Whose.
        part: Part,
        /// What it is like.
        sizes: PoolSizes,
    },
    /// To [`Order::Neighbour`].
    Knows {
        /// Which.
        part: Part,
        /// Which restart of it.
        incarnation: u32,
    },
    /// To [`Order::Map`].
    Mapped {
        /// The program's number.
        program: u32,
    },
    /// A neighbour has spoilt the queues between the two, and this process ends.
    Broken {},
    /// To [`Order::ShowFlows`], and every few hours unasked, for connections on which nothing happens.
    Flows {
        /// Some of them.
        flows: Vec<FlowSummary>,
        /// There are no more.
        last: bool,
    },
    /// A program was attached, or not, with the reason.
    Attached {
        /// Its number.
        program: u32,
        /// Why not.
        refused: Option<String>,
    },
    /// The last socket of a program that ended is gone from all transports of this process; once from all
    /// of the stack, its number may be given out again.
    Finished {
        /// Its number.
        program: u32,
    },
    /// To [`Order::ShowFilter`]: as JSON.
    Filter {
        /// Rules and counters.
        shown: String,
    },
    /// A program spoilt its channel and is treated as one that ended.
    Spoilt {
        /// Its number.
        program: u32,
    },
}

/// One end of the pair of sockets: sends `Out`, receives `In`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Link<Out, In> {
    #[serde(with = "skink_inherit::descriptors")]
    socket: OwnedFd,
    #[serde(skip)]
    messages: PhantomData<fn(Out) -> In>,
}

/// The component's end.
pub type ComponentLink = Link<Report, Order>;
/// The supervisor's end.
pub type SupervisorLink = Link<Order, Report>;

/// A message could not be received.
#[derive(Debug)]
pub enum LinkError {
    /// The other end is gone.
    Closed,
    /// The socket failed, or something came that isn't a message.
    Failed(String),
}

/// A new pair: the supervisor's end, and the component's as a descriptor for it to be born with.
///
/// # Errors
/// What the system says.
pub fn link() -> io::Result<(SupervisorLink, OwnedFd)> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok((Link::new(ours), theirs))
}

impl<Out: Serialize, In: DeserializeOwned> Link<Out, In> {
    /// An end that was handed over.
    pub fn new(socket: OwnedFd) -> Link<Out, In> {
        Link {
            socket,
            messages: PhantomData,
        }
    }

    /// Sends a message with descriptors beside it. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` if the other end doesn't listen; else it is gone.
    pub fn send(&self, message: &Out, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        transport::send(
            self.socket.as_fd(),
            message,
            descriptors,
            SendFlags::DONTWAIT,
        )
    }

    /// Takes the next message and what came beside it; `None` if there is none. Never waits.
    ///
    /// # Errors
    /// If the other end is gone, or doesn't say what makes sense.
    pub fn receive(&self) -> Result<Option<(In, Vec<OwnedFd>)>, LinkError> {
        match transport::receive(self.socket.as_fd(), MAXIMUM_REPLY, RecvFlags::DONTWAIT) {
            Ok(received) => Ok(Some(received)),
            Err(ReceiveError::Nothing) => Ok(None),
            Err(ReceiveError::Closed) => Err(LinkError::Closed),
            Err(ReceiveError::Failed(error)) => Err(LinkError::Failed(error.to_string())),
            Err(ReceiveError::Malformed(what)) => Err(LinkError::Failed(what)),
        }
    }
}

impl<Out, In> AsFd for Link<Out, In> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
