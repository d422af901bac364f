use crate::CONTROL_VARIABLE;
use crate::error::ControlError;
use crate::message::{
    AttachedMessage, NetworkInfo, PROTOCOL, RegionKind, Reply, Request, TableSize,
};
use crate::transport::{self, MAXIMUM_REPLY, ReceiveError};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use skink_messages::{Ports, SoleOwner};
use skink_nic::{Nic, NicParts};
use skink_steering::{Owner, PortTable};
use skink_wire::IpCidr;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long a process waits for the broker. It answers at once unless the machine is overloaded.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a process is handed for its own instance of the stack.
#[derive(Debug)]
pub struct Attached {
    /// Its slot among the owners of the NIC, below [`crate::MAXIMUM_OWNERS`].
    pub owner: u16,
    /// The addresses of the stack.
    pub addresses: Vec<IpCidr>,
    /// Default routes, at most one for each family.
    pub gateways: Vec<IpAddr>,
    /// Seed for whatever must be hard to guess; no two processes get the same.
    pub seed: u64,
    /// Whether this process answers ARP, NDP and echo requests; see also [`Notice::Answer`].
    pub answers: bool,
    /// [`skink_nic::Description`] of the NIC as JSON; see [`Attached::take_nic`].
    pub nic: String,
    /// The NIC's descriptors, in the order that the description tells.
    pub nic_descriptors: Vec<OwnedFd>,
    /// The port table that steers inbound packets, if there are several owners.
    pub port_table: Option<OwnedFd>,
    /// How large to make the table of TCP sockets.
    pub tcp_table: TableSize,
    /// How large to make the table of UDP sockets.
    pub udp_table: TableSize,
}

impl Attached {
    /// Makes the NIC of its description and descriptors. Works once.
    pub fn take_nic(&mut self) -> Result<Nic, ControlError> {
        let description = serde_json::from_str(&self.nic);
        let description =
            description.map_err(|error| ControlError::Malformed(error.to_string()))?;
        let descriptors = std::mem::take(&mut self.nic_descriptors);
        let parts = NicParts {
            description,
            descriptors,
        };
        parts.attach().map_err(ControlError::Nic)
    }

    /// This owner's view of the port table, or that of a sole owner if there is none. Works once.
    pub fn take_ports(&mut self) -> Result<Box<dyn Ports + Send>, ControlError> {
        let Some(map) = self.port_table.take() else {
            return Ok(Box::new(SoleOwner));
        };
        let owner = u8::try_from(self.owner).ok().and_then(Owner::new);
        let impossible = || ControlError::Malformed(format!("owner {}", self.owner));
        let table = PortTable::map(map, owner.ok_or_else(impossible)?);
        Ok(Box::new(table.map_err(ControlError::Nic)?))
    }
}

/// Something the broker says unasked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The process that answered ARP, NDP and echo requests is gone: this one does from now on.
    Answer,
}

/// A process's connection to the broker. To be kept open for as long as the process uses its slot;
/// a child after `fork` drops its copy and connects anew.
#[derive(Debug)]
pub struct Broker {
    socket: OwnedFd,
    token: String,
    notices: VecDeque<Notice>,
}

impl Broker {
    /// Connects to the broker called `name` (with its leading `@`).
    pub fn connect(name: &str, token: &str) -> Result<Broker, ControlError> {
        let bad = ControlError::BadEnvironment(CONTROL_VARIABLE);
        let Some(abstract_name) = name.strip_prefix('@') else {
            return Err(bad);
        };
        let address =
            SocketAddrUnix::new_abstract_name(abstract_name.as_bytes()).map_err(|_| bad)?;
        Ok(Broker {
            socket: connect(&address)?,
            token: token.to_owned(),
            notices: VecDeque::new(),
        })
    }

    /// Asks for the addresses only: for a process that wants to know whether an address is Skink's
    /// before it needs a stack. It may attach next; a connection that does neither is closed by
    /// the broker after some seconds.
    pub fn network(&mut self) -> Result<NetworkInfo, ControlError> {
        let request = Request::Network {
            protocol: PROTOCOL,
            token: self.token.clone(),
        };
        match self.call(&request, &[])? {
            (Reply::Network(info), _) => Ok(info),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Asks for an owner slot.
    pub fn attach(&mut self) -> Result<Attached, ControlError> {
        let request = Request::Attach {
            protocol: PROTOCOL,
            token: self.token.clone(),
        };
        match self.call(&request, &[])? {
            (Reply::Attached(message), descriptors) => attached(*message, descriptors),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Hands in the memfd of what tools may look at. A second one of the same kind replaces the
    /// first.
    pub fn register(
        &mut self,
        kind: RegionKind,
        memory: BorrowedFd<'_>,
    ) -> Result<(), ControlError> {
        match self.call(&Request::Register { kind }, &[memory])? {
            (Reply::Registered {}, _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Takes the next notice, if one is there; never waits. The descriptor polls readable then.
    pub fn take_notice(&mut self) -> Result<Option<Notice>, ControlError> {
        if let Some(notice) = self.notices.pop_front() {
            return Ok(Some(notice));
        }
        let answer = transport::receive(self.socket.as_fd(), MAXIMUM_REPLY, RecvFlags::DONTWAIT);
        match answer {
            Ok((Reply::Answer {}, _)) => Ok(Some(Notice::Answer)),
            Ok((other, _)) => Err(unexpected(&other)),
            Err(ReceiveError::Nothing) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn call(
        &mut self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
        transport::send(
            self.socket.as_fd(),
            request,
            descriptors,
            SendFlags::empty(),
        )
        .map_err(ControlError::Connection)?;
        loop {
            match receive_reply(self.socket.as_fd())? {
                (Reply::Answer {}, _) => self.notices.push_back(Notice::Answer),
                other => return Ok(other),
            }
        }
    }
}

impl AsFd for Broker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Connects to a broker's socket, with time limits set.
pub(crate) fn connect(address: &SocketAddrUnix) -> Result<OwnedFd, ControlError> {
    let connection = |error: rustix::io::Errno| ControlError::Connection(error.into());
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(connection)?;
    for which in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, which, Some(PATIENCE)).map_err(connection)?;
    }
    rustix::io::retry_on_intr(|| rustix::net::connect(&socket, address))
        .map_err(|error| ControlError::Unreachable(error.into()))?;
    Ok(socket)
}

/// Waits for a reply; a refusal is an error.
pub(crate) fn receive_reply(socket: BorrowedFd<'_>) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
    match transport::receive(socket, MAXIMUM_REPLY, RecvFlags::empty())? {
        (Reply::Refused { reason }, _) => Err(ControlError::Refused(reason)),
        other => Ok(other),
    }
}

pub(crate) fn unexpected(reply: &Reply) -> ControlError {
    let what: String = format!("{reply:?}").chars().take(80).collect();
    ControlError::Malformed(what)
}

impl From<ReceiveError> for ControlError {
    fn from(error: ReceiveError) -> ControlError {
        match error {
            ReceiveError::Closed => ControlError::Closed,
            ReceiveError::Nothing => ControlError::Connection(io::ErrorKind::TimedOut.into()),
            ReceiveError::Failed(error) => ControlError::Connection(error),
            ReceiveError::Malformed(what) => ControlError::Malformed(what),
        }
    }
}

fn attached(
    message: AttachedMessage,
    mut descriptors: Vec<OwnedFd>,
) -> Result<Attached, ControlError> {
    let expected = message
        .nic_descriptors
        .saturating_add(usize::from(message.port_table));
    if descriptors.len() != expected {
        let have = descriptors.len();
        return Err(ControlError::Malformed(format!(
            "{have} descriptors instead of {expected}"
        )));
    }
    let port_table = if message.port_table {
        descriptors.pop()
    } else {
        None
    };
    Ok(Attached {
        owner: message.owner,
        addresses: message.addresses,
        gateways: message.gateways,
        seed: message.seed,
        answers: message.answers,
        nic: message.nic,
        nic_descriptors: descriptors,
        port_table,
        tcp_table: message.tcp_table,
        udp_table: message.udp_table,
    })
}
