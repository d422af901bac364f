use crate::CONTROL_VARIABLE;
use crate::error::ControlError;
use crate::message::{
    AttachedMessage, Hex, NetworkInfo, PROTOCOL, RegionKind, Reply, Request, ServedMessage,
    TableSize,
};
use crate::transport::{self, MAXIMUM_REPLY, ReceiveError};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::time::{ClockId, clock_gettime};
use skink_messages::{Ports, SoleOwner};
use skink_nic::{Load, Nic, NicParts};
use skink_sockets::Attachment;
use skink_steering::{Owner, PortMaps, PortTable};
use skink_wire::{Endpoint, FourTuple, IpCidr};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long a process waits for the broker. It answers at once unless the machine is overloaded.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Descriptors of a program's two regions.
const REGION_DESCRIPTORS: usize = 6;

/// In milliseconds: who has handed a connection over waits for twice as long until it is somebody else's turn.
pub(crate) const TOO_LATE: u64 = 500;

/// What the monotonic clock says, which all processes have in common.
pub(crate) fn milliseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// What a process is handed.
#[derive(Debug)]
pub enum Attached {
    /// For an instance of the stack in the process itself.
    Library(Box<LibraryGrant>),
    /// To be served by a stack in another process.
    Served(ServedGrant),
}

/// What a process is handed to be served by a stack in another process.
#[derive(Debug)]
pub struct ServedGrant {
    /// What the stack has been told of it.
    pub attachment: Attachment,
    /// The addresses of the stack.
    pub addresses: Vec<IpCidr>,
    /// Default routes, at most one for each family.
    pub gateways: Vec<IpAddr>,
    /// Its region of TCP sockets, for [`skink_memory::Region::open_for_program`].
    pub tcp_region: [OwnedFd; 3],
    /// Its region of UDP sockets.
    pub udp_region: [OwnedFd; 3],
    /// Its channels, for [`skink_sockets::Client::attach`]: as many as the attachment's routes say.
    pub channel: Vec<OwnedFd>,
}

/// Regions of sockets that were made for another process.
#[derive(Debug)]
pub struct ForeignRegions {
    /// Of TCP sockets, for [`skink_memory::Region::open_for_program`].
    pub tcp: [OwnedFd; 3],
    /// Of UDP sockets.
    pub udp: [OwnedFd; 3],
}

/// What a process is handed for its own instance of the stack.
#[derive(Debug)]
pub struct LibraryGrant {
    /// Its slot among the owners of the NIC, below [`crate::MAXIMUM_OWNERS`].
    pub owner: u16,
    /// The addresses of the stack.
    pub addresses: Vec<IpCidr>,
    /// Default routes, at most one for each family.
    pub gateways: Vec<IpAddr>,
    /// Seed for whatever must be hard to guess; no two processes get the same.
    pub seed: u64,
    /// What the initial sequence numbers of TCP connections are drawn from, the same for all processes on the NIC.
    pub sequence_secret: u64,
    /// Whether this process answers ARP, NDP and echo requests; see also [`Notice::Answer`].
    pub answers: bool,
    /// [`skink_nic::Description`] of the NIC as JSON; see [`LibraryGrant::take_nic`].
    pub nic: String,
    /// The NIC's descriptors, in the order that the description tells.
    pub nic_descriptors: Vec<OwnedFd>,
    /// The tables of ports that steer inbound packets, if there are several owners.
    pub ports: Option<PortMaps>,
    /// How large to make the table of TCP sockets.
    pub tcp_table: TableSize,
    /// How large to make the table of UDP sockets.
    pub udp_table: TableSize,
    /// What the data of TCP sockets may take of the machine's memory, in bytes.
    pub socket_memory: u64,
    /// The packet filter's rules as text; empty to pass everything.
    pub rules: String,
    /// Name of the interface in these rules.
    pub interface: String,
}

impl LibraryGrant {
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

    /// Whether nothing tells the packets of several owners apart, so that there can be one only.
    pub fn is_sole(&self) -> bool {
        self.ports.is_none()
    }

    /// This owner's view of the tables of ports, or that of a sole owner if there is none. Works once.
    pub fn take_ports(&mut self) -> Result<Box<dyn Ports + Send>, ControlError> {
        let Some(maps) = self.ports.take() else {
            return Ok(Box::new(SoleOwner));
        };
        let owner = u8::try_from(self.owner).ok().and_then(Owner::new);
        let impossible = || ControlError::Malformed(format!("owner {}", self.owner));
        let owner = owner.ok_or_else(impossible)?;
        let table = PortTable::map(owner, Some(maps.tcp), Some(maps.udp));
        Ok(Box::new(table.map_err(ControlError::Nic)?))
    }
}

/// Something the broker says unasked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The process that answered ARP, NDP and echo requests is gone: this one does from now on.
    Answer,
    /// These rules of the packet filter are in force from now on, as text; they were checked.
    LoadFilter(String),
    /// The interface takes packets of so many bytes from now on.
    Mtu(u32),
    /// Say by [`Broker::tell_filter`] what the packet filter does; the question's number.
    ShowFilter(u64),
    /// Take in this connection of the process with that number, where nobody accepts it: as [`Broker::hand_over`] was given it. Say by
    /// [`Broker::tell_taken_in`] whether it was.
    TakeIn {
        /// The process that has it.
        from: u16,
        /// The connection.
        parcel: Vec<u8>,
        /// It was said so long ago that another process may have been asked since: it mustn't be taken in.
        late: bool,
    },
    /// What has become of a connection that was handed over or passed.
    HandedOver {
        /// Its ends.
        flow: FourTuple,
        /// The message's with which it was passed, or 0.
        serial: u32,
        /// Which process has taken it in, if one has.
        heir: Option<u16>,
    },
    /// A segment, header and data, of a connection that this process has taken in, which went to who had it before; or a request that
    /// went to who listened before.
    Late(FourTuple, Vec<u8>),
}

impl Notice {
    /// What a reply is that nobody has asked for.
    fn unasked(reply: Reply) -> Result<Notice, Reply> {
        match reply {
            Reply::Answer {} => Ok(Notice::Answer),
            Reply::LoadFilter { rules } => Ok(Notice::LoadFilter(rules)),
            Reply::Mtu { bytes } => Ok(Notice::Mtu(bytes)),
            Reply::ShowFilter { question } => Ok(Notice::ShowFilter(question)),
            Reply::TakeIn { from, parcel, at } => {
                let late = milliseconds().saturating_sub(at) >= TOO_LATE;
                Ok(Notice::TakeIn {
                    from,
                    parcel: parcel.0,
                    late,
                })
            }
            Reply::HandedOver {
                local,
                remote,
                serial,
                heir,
            } => Ok(Notice::HandedOver {
                flow: four_tuple(local, remote),
                serial,
                heir,
            }),
            Reply::Late {
                local,
                remote,
                segment,
            } => Ok(Notice::Late(four_tuple(local, remote), segment.0)),
            other => Err(other),
        }
    }
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
    /// Goes on with a connection that a predecessor in the same process left when it executed this
    /// program.
    pub fn resume(socket: OwnedFd, token: &str) -> Broker {
        Broker {
            socket,
            token: token.to_owned(),
            notices: VecDeque::new(),
        }
    }

    /// Moves the connection to another descriptor of the same socket.
    pub fn moved(self, to: impl FnOnce(OwnedFd) -> OwnedFd) -> Broker {
        Broker {
            socket: to(self.socket),
            ..self
        }
    }

    /// Connects to the broker called `name`: an abstract name with its leading `@`, or a path from the
    /// root.
    pub fn connect(name: &str, token: &str) -> Result<Broker, ControlError> {
        let address = match name.strip_prefix('@') {
            Some(abstract_name) => SocketAddrUnix::new_abstract_name(abstract_name.as_bytes()),
            None if name.starts_with('/') => SocketAddrUnix::new(name),
            None => Err(rustix::io::Errno::INVAL),
        };
        let address = address.map_err(|_| ControlError::BadEnvironment(CONTROL_VARIABLE))?;
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

    /// The user id that the broker had when it began to listen: who it really is.
    pub fn uid(&self) -> Result<u32, ControlError> {
        let peer = rustix::net::sockopt::socket_peercred(&self.socket);
        peer.map(|peer| peer.uid.as_raw())
            .map_err(|error| ControlError::Connection(error.into()))
    }

    /// Asks for the regions of sockets of another program, one of whose sockets this process was
    /// handed together with the `secret`. Only for processes that have attached and are served.
    pub fn region(&mut self, program: u32, secret: u64) -> Result<ForeignRegions, ControlError> {
        match self.call(&Request::Region { program, secret }, &[])? {
            (Reply::Region {}, descriptors) => {
                let [tcp, udp] = regions(descriptors)?;
                Ok(ForeignRegions { tcp, udp })
            }
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Asks for an owner slot, or to be served.
    pub fn attach(&mut self) -> Result<Attached, ControlError> {
        let request = Request::Attach {
            protocol: PROTOCOL,
            token: self.token.clone(),
        };
        match self.call(&request, &[])? {
            (Reply::Attached(message), descriptors) => library(*message, descriptors),
            (Reply::Served(message), descriptors) => served(*message, descriptors),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Hands in memfds of what tools may look at. A second one of the same kind replaces the first. If one is refused, the others may
    /// not be.
    ///
    /// # Errors
    /// The first that there is.
    pub fn register(&mut self, all: &[(RegionKind, BorrowedFd<'_>)]) -> Result<(), ControlError> {
        for (kind, memory) in all {
            let request = Request::Register { kind: *kind };
            send(self.socket.as_fd(), &request, &[*memory])?;
        }
        let mut refused = Ok(());
        for _ in all {
            let (reply, _) = self.answer(false)?;
            if !matches!(reply, Reply::Registered {}) {
                refused = refused.and(Err(unexpected(&reply)));
            }
        }
        refused
    }

    /// Says how this process, which has a part of the NIC, uses it from now on. If the broker doesn't hear, all goes
    /// on as before.
    pub fn tell_load(&self, load: Load) {
        let request = Request::Load(load);
        let _ = transport::send(self.socket.as_fd(), &request, &[], SendFlags::DONTWAIT);
    }

    /// Asks that the segments of `flow`, of which one came here, go to the process that has it, if there is one. If the broker
    /// doesn't hear, they don't.
    pub fn tell_misled(&self, flow: &FourTuple) {
        let (local, remote) = ends(flow);
        let request = Request::Misled { local, remote };
        let _ = transport::send(self.socket.as_fd(), &request, &[], SendFlags::DONTWAIT);
    }

    /// Another process that listens where `flow` ends is to take in this connection, at most 64 KiB and its record; if it `may_stay`,
    /// only one that waits for it. [`Notice::HandedOver`] tells of it, but doesn't come for certain.
    ///
    /// # Errors
    /// If the broker doesn't hear, for now or for good.
    pub fn hand_over(&self, flow: &FourTuple, parcel: Vec<u8>, may_stay: bool) -> io::Result<()> {
        let (local, remote) = ends(flow);
        let parcel = Hex(parcel);
        let request = Request::HandOver {
            local,
            remote,
            parcel,
            may_stay,
        };
        transport::send(self.socket.as_fd(), &request, &[], SendFlags::DONTWAIT)
    }

    /// Answers [`Notice::TakeIn`], `serial` being 0, or says the same of a connection that came with a message of that number. If the broker doesn't hear, the connection's segments come here once others have got some in vain.
    pub fn tell_taken_in(&self, from: u16, serial: u32, flow: &FourTuple, taken: bool) {
        let (local, remote) = ends(flow);
        let request = Request::TakenIn {
            from,
            serial,
            local,
            remote,
            taken,
        };
        let _ = transport::send(self.socket.as_fd(), &request, &[], SendFlags::DONTWAIT);
    }

    /// This process's stack has a connection that others may ask for by its [tether](crate::tether), of which the stack's end is `end`. If
    /// the broker doesn't hear, the connection dies with the process.
    pub fn tell_tethered(&self, flow: &FourTuple, end: BorrowedFd<'_>) {
        let (local, remote) = ends(flow);
        let request = Request::Tethered { local, remote };
        let _ = transport::send(self.socket.as_fd(), &request, &[end], SendFlags::DONTWAIT);
    }

    /// Who asks for the connection is to find nobody.
    pub fn tell_untethered(&self, flow: &FourTuple) {
        let (local, remote) = ends(flow);
        let request = Request::Untethered { local, remote };
        let _ = transport::send(self.socket.as_fd(), &request, &[], SendFlags::DONTWAIT);
    }

    /// Gives such a connection to who has asked for it, in the place of a process that died: its parcel is in the file for it.
    /// [`Notice::HandedOver`] tells what becomes of it.
    ///
    /// # Errors
    /// If the broker doesn't hear, for now or for good.
    pub fn give(&self, flow: &FourTuple, serial: u32) -> io::Result<()> {
        let (local, remote) = ends(flow);
        let request = Request::Give {
            serial,
            local,
            remote,
        };
        transport::send(self.socket.as_fd(), &request, &[], SendFlags::DONTWAIT)
    }

    /// Whose a connection is that a process had passed before it died, in whose place this one is: [`Notice::HandedOver`] tells.
    pub fn ask_whose(&self, flow: &FourTuple) {
        let (local, remote) = ends(flow);
        let request = Request::Whose { local, remote };
        let _ = transport::send(self.socket.as_fd(), &request, &[], SendFlags::DONTWAIT);
    }

    /// A request, header and data, that is for another process, which listens where this one doesn't any more. If the broker doesn't
    /// hear, it is lost as on any wire.
    pub fn tell_stray(&self, flow: &FourTuple, segment: Vec<u8>) {
        let (local, remote) = ends(flow);
        let request = Request::Stray {
            local,
            remote,
            segment: Hex(segment),
        };
        let _ = transport::send(self.socket.as_fd(), &request, &[], SendFlags::DONTWAIT);
    }

    /// A segment, header and data, of a connection that owner `to` has now. If the broker doesn't hear, it is lost as on any wire.
    pub fn tell_late(&self, to: u16, flow: &FourTuple, segment: Vec<u8>) {
        let (local, remote) = ends(flow);
        let request = Request::Late {
            to,
            local,
            remote,
            segment: Hex(segment),
        };
        let _ = transport::send(self.socket.as_fd(), &request, &[], SendFlags::DONTWAIT);
    }

    /// Answers [`Notice::ShowFilter`]: the sealed memfd holds JSON, and is read from where it stands on. If the broker
    /// doesn't hear, who asked is told that there is no answer.
    pub fn tell_filter(&self, question: u64, shown: BorrowedFd<'_>) {
        let request = Request::FilterShown { question };
        let _ = transport::send(self.socket.as_fd(), &request, &[shown], SendFlags::DONTWAIT);
    }

    /// Takes the next notice, if one is there; never waits. The descriptor polls readable then.
    pub fn take_notice(&mut self) -> Result<Option<Notice>, ControlError> {
        if let Some(notice) = self.notices.pop_front() {
            return Ok(Some(notice));
        }
        loop {
            let from = self.socket.as_fd();
            return match transport::receive(from, MAXIMUM_REPLY, RecvFlags::DONTWAIT) {
                // See `call`.
                Ok((Reply::Served(_), _)) => continue,
                Ok((reply, _)) => match Notice::unasked(reply) {
                    Ok(notice) => Ok(Some(notice)),
                    Err(other) => Err(unexpected(&other)),
                },
                Err(ReceiveError::Nothing) => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
    }

    /// What was granted is told once more by a supervisor that went on in the place of one that died just
    /// then; that isn't the answer to anything else.
    fn call(
        &mut self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
        send(self.socket.as_fd(), request, descriptors)?;
        self.answer(matches!(request, Request::Attach { .. }))
    }

    /// The next answer to a request, which `attaches`. (Who was granted a stack may be granted it once more, by another supervisor.)
    fn answer(&mut self, attaches: bool) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
        loop {
            let (reply, beside) = receive_reply(self.socket.as_fd())?;
            match Notice::unasked(reply) {
                Ok(notice) => self.notices.push_back(notice),
                Err(Reply::Served(_)) if !attaches => {}
                Err(reply) => return Ok((reply, beside)),
            }
        }
    }
}

impl AsFd for Broker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// As messages have it.
pub(crate) type End = (IpAddr, u16);

pub(crate) fn ends(flow: &FourTuple) -> (End, End) {
    let FourTuple { local, remote } = flow;
    ((local.addr, local.port), (remote.addr, remote.port))
}

pub(crate) fn four_tuple(local: End, remote: End) -> FourTuple {
    let [local, remote] = [local, remote].map(|(addr, port)| Endpoint::new(addr, port));
    FourTuple::new(local, remote)
}

/// Connects to a broker's socket, with time limits set.
pub(crate) fn connect(address: &SocketAddrUnix) -> Result<OwnedFd, ControlError> {
    connect_within(address, PATIENCE)
}

pub(crate) fn connect_within(
    address: &SocketAddrUnix,
    patience: Duration,
) -> Result<OwnedFd, ControlError> {
    let connection = |error: rustix::io::Errno| ControlError::Connection(error.into());
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(connection)?;
    for which in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, which, Some(patience)).map_err(connection)?;
    }
    rustix::io::retry_on_intr(|| rustix::net::connect(&socket, address))
        .map_err(|error| ControlError::Unreachable(error.into()))?;
    Ok(socket)
}

/// Sends a request. Who turns a connection away says why before closing it: that is there, though nothing can be sent any more.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    request: &Request,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), ControlError> {
    let Err(error) = transport::send(socket, request, descriptors, SendFlags::empty()) else {
        return Ok(());
    };
    match receive_reply(socket) {
        Err(refused @ ControlError::Refused(_)) => Err(refused),
        Ok(_) | Err(_) => Err(ControlError::Connection(error)),
    }
}

/// Waits for a reply; a refusal is an error.
pub(crate) fn receive_reply(socket: BorrowedFd<'_>) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
    let receive = || transport::receive(socket, MAXIMUM_REPLY, RecvFlags::empty());
    let reply = match receive() {
        // What was said before somebody turned us away was never read: that is told first, and then why.
        Err(ReceiveError::Failed(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
            receive()
        }
        other => other,
    };
    match reply? {
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

fn library(
    message: AttachedMessage,
    mut descriptors: Vec<OwnedFd>,
) -> Result<Attached, ControlError> {
    let tables = if message.ports { 2 } else { 0 };
    let expected = message.nic_descriptors.saturating_add(tables);
    if descriptors.len() != expected {
        return Err(other_count(descriptors.len(), expected));
    }
    let mut tables = descriptors.split_off(message.nic_descriptors).into_iter();
    let ports = match (tables.next(), tables.next()) {
        (Some(tcp), Some(udp)) => Some(PortMaps { tcp, udp }),
        _ => None,
    };
    Ok(Attached::Library(Box::new(LibraryGrant {
        owner: message.owner,
        addresses: message.addresses,
        gateways: message.gateways,
        seed: message.seed,
        sequence_secret: message.sequence_secret,
        answers: message.answers,
        nic: message.nic,
        nic_descriptors: descriptors,
        ports,
        tcp_table: message.tcp_table,
        udp_table: message.udp_table,
        socket_memory: message.socket_memory,
        rules: message.rules,
        interface: message.interface,
    })))
}

fn served(message: ServedMessage, descriptors: Vec<OwnedFd>) -> Result<Attached, ControlError> {
    let channel = skink_sockets::program_descriptors(message.attachment.routes.channels());
    let expected = REGION_DESCRIPTORS.saturating_add(channel);
    if descriptors.len() != expected {
        return Err(other_count(descriptors.len(), expected));
    }
    let mut descriptors = descriptors;
    let channel = descriptors.split_off(REGION_DESCRIPTORS);
    let [tcp_region, udp_region] = regions(descriptors)?;
    Ok(Attached::Served(ServedGrant {
        attachment: message.attachment,
        addresses: message.addresses,
        gateways: message.gateways,
        tcp_region,
        udp_region,
        channel,
    }))
}

/// The region of TCP sockets, and that of UDP sockets.
fn regions(descriptors: Vec<OwnedFd>) -> Result<[[OwnedFd; 3]; 2], ControlError> {
    let all: [OwnedFd; REGION_DESCRIPTORS] = descriptors
        .try_into()
        .map_err(|given: Vec<OwnedFd>| other_count(given.len(), REGION_DESCRIPTORS))?;
    let [a, b, c, d, e, f] = all;
    Ok([[a, b, c], [d, e, f]])
}

fn other_count(have: usize, expected: usize) -> ControlError {
    ControlError::Malformed(format!("{have} descriptors instead of {expected}"))
}
