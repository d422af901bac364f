mod describe;
mod requests;

use crate::instance;
use crate::message::{RegionKind, Reply, Request, TableSize};
use crate::transport::{self, MAXIMUM_REQUEST, ReceiveError};
use crate::{CONTROL_VARIABLE, TOKEN_VARIABLE};
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use skink_messages::{Counter, Counters};
use skink_nic::NicParts;
use skink_wire::IpCidr;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// A connection that says nothing for this long is closed, unless it has attached.
const SILENCE: Duration = Duration::from_secs(5);
/// Connections beyond this many are closed at once.
const MAXIMUM_CONNECTIONS: usize = 256;
const CONTROL_KEY: u64 = 0;
const TOOLS_KEY: u64 = 1;
const FIRST_KEY: u64 = 2;

/// What a new owner is handed besides what all owners have in common.
#[derive(Debug, Default)]
pub struct Grant {
    /// [`skink_nic::Description`] of the NIC as JSON.
    pub nic: String,
    /// Its descriptors, in the order that the description tells.
    pub nic_descriptors: Vec<OwnedFd>,
    /// The port table, if packets are steered by one.
    pub port_table: Option<OwnedFd>,
}

impl Grant {
    /// A NIC in parts and the port table.
    pub fn new(parts: NicParts, port_table: Option<OwnedFd>) -> Grant {
        Grant {
            // Plain data without maps that aren't text: it always has a text form.
            nic: serde_json::to_string(&parts.description).unwrap_or_default(),
            nic_descriptors: parts.descriptors,
            port_table,
        }
    }
}

/// Opens a NIC queue for each owner and steers packets: what the broker doesn't know how to do.
pub trait Owners {
    /// A NIC for the new owner in slot `owner`. An error is a sentence for the program's user.
    fn grant(&mut self, owner: u16) -> Result<Grant, String>;
    /// The owner's process is about to end, or has left its stack by `exec`: no packet goes to it any
    /// more, but its descriptors may still be open.
    fn retire(&mut self, owner: u16);
    /// The owner's process has closed all descriptors: its part of the NIC may be given to another.
    fn release(&mut self, owner: u16);
    /// From now on `owner` answers ARP, NDP and echo requests; its NIC must get them.
    fn answering(&mut self, owner: u16);
}

/// What all owners have in common.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Name for tools.
    pub name: String,
    /// The program and its arguments, for tools.
    pub command: Vec<String>,
    /// The NIC, for tools.
    pub nic: String,
    /// The addresses of the stack.
    pub addresses: Vec<IpCidr>,
    /// Default routes.
    pub gateways: Vec<IpAddr>,
    /// Size of each process's table of TCP sockets.
    pub tcp_table: TableSize,
    /// Size of each process's table of UDP sockets.
    pub udp_table: TableSize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Hasn't shown its token yet.
    Stranger,
    Owner(u16),
    Tool,
    /// A tool of another user's: told so when it asks.
    Outsider,
}

struct Connection {
    socket: OwnedFd,
    role: Role,
    pid: u32,
    uid: u32,
    accepted: Instant,
    regions: BTreeMap<RegionKind, OwnedFd>,
}

/// An owner whose connection is closed, while its process may still hold the NIC's descriptors: the
/// kernel closes a dying process's descriptors one after the other, and a packet socket takes it
/// some 10 ms.
struct Departing {
    owner: u16,
    pid: u32,
    /// Polls readable when the process has ended, by when all its descriptors are closed.
    _process: OwnedFd,
}

/// The broker. It does nothing by itself: whoever owns it polls [`Server::as_fd`] for reading and
/// calls [`Server::serve`].
pub struct Server<O: Owners> {
    config: ServerConfig,
    owners: O,
    poll: OwnedFd,
    control: OwnedFd,
    tools: OwnedFd,
    socket_path: PathBuf,
    control_name: String,
    token: String,
    started: SystemTime,
    connections: BTreeMap<u64, Connection>,
    departing: BTreeMap<u64, Departing>,
    /// Bitmap of slots that can't be given out again.
    lost: u64,
    next_key: u64,
    answering: Option<u16>,
    finished: Vec<u64>,
}

impl<O: Owners> Server<O> {
    /// Begins to listen. An error says which of the two sockets couldn't be made.
    pub fn new(config: ServerConfig, owners: O) -> io::Result<Server<O>> {
        let directory = instance::writable_directory().map_err(|error| {
            let text = format!(
                "none of /run/skink, $XDG_RUNTIME_DIR/skink and /tmp/skink-UID can be written ({error})"
            );
            io::Error::new(error.kind(), text)
        })?;
        Server::in_directory(config, owners, &directory)
    }

    /// As [`Server::new`], with the socket for tools in `directory`.
    pub fn in_directory(
        config: ServerConfig,
        owners: O,
        directory: &Path,
    ) -> io::Result<Server<O>> {
        let pid = std::process::id();
        let control_name = format!("skink-{pid}-{:016x}", random()? as u64);
        let control = listen(&SocketAddrUnix::new_abstract_name(control_name.as_bytes())?)?;
        let socket_path = directory.join(format!("{pid}.sock"));
        let _ = std::fs::remove_file(&socket_path);
        let tools = listen(&SocketAddrUnix::new(&socket_path)?)?;
        // Who may ask is decided by the peer's user id, so that a refusal can say why.
        std::fs::set_permissions(&socket_path, std::fs::Permissions::from_mode(0o666))?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let sockets = [(control.as_fd(), CONTROL_KEY), (tools.as_fd(), TOOLS_KEY)];
        for (socket, key) in sockets {
            let data = epoll::EventData::new_u64(key);
            epoll::add(&poll, socket, data, epoll::EventFlags::IN)?;
        }
        Ok(Server {
            config,
            owners,
            poll,
            control,
            tools,
            socket_path,
            control_name: format!("@{control_name}"),
            token: format!("{:032x}", random()?),
            started: SystemTime::now(),
            connections: BTreeMap::new(),
            departing: BTreeMap::new(),
            lost: 0,
            next_key: FIRST_KEY,
            answering: None,
            finished: vec![0; Counter::ALL.len()],
        })
    }

    /// What the program's environment must say.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            (CONTROL_VARIABLE, self.control_name.clone()),
            (TOKEN_VARIABLE, self.token.clone()),
        ]
    }

    /// The socket for tools.
    pub fn socket_path(&self) -> &Path {
        &self.socket_path
    }

    /// How many processes are attached.
    pub fn attached(&self) -> usize {
        let connections = self.connections.values();
        connections
            .filter(|connection| matches!(connection.role, Role::Owner(_)))
            .count()
    }

    /// Does whatever there is to do and never waits. Answers when to call again at the latest; there
    /// is such a time only while somebody has connected and not said who he is.
    pub fn serve(&mut self, now: Instant) -> Option<Duration> {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 32];
        loop {
            let zero = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let Ok(count) = epoll::wait(&self.poll, events.as_mut_slice(), Some(&zero)) else {
                break;
            };
            for event in events.iter().take(count) {
                match event.data.u64() {
                    CONTROL_KEY => self.accept(Role::Stranger, now),
                    TOOLS_KEY => self.accept(Role::Tool, now),
                    key if self.departing.contains_key(&key) => self.release(key),
                    key => self.hear(key),
                }
            }
            if count < events.len() {
                break;
            }
        }
        self.close_silent(now)
    }

    fn close_silent(&mut self, now: Instant) -> Option<Duration> {
        let mut soonest = None;
        let mut silent = Vec::new();
        for (key, connection) in &self.connections {
            if !matches!(connection.role, Role::Stranger | Role::Outsider) {
                continue;
            }
            let left = SILENCE.saturating_sub(now.saturating_duration_since(connection.accepted));
            if left.is_zero() {
                silent.push(*key);
            } else {
                soonest = Some(soonest.map_or(left, |soonest: Duration| soonest.min(left)));
            }
        }
        for key in silent {
            self.close(key, "it said nothing");
        }
        soonest
    }

    fn accept(&mut self, role: Role, now: Instant) {
        let listener = if role == Role::Tool {
            &self.tools
        } else {
            &self.control
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = rustix::net::accept_with(listener, flags) else {
            return;
        };
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&socket) else {
            return;
        };
        let (pid, uid) = (
            peer.pid.as_raw_nonzero().get().unsigned_abs(),
            peer.uid.as_raw(),
        );
        if self.connections.len() >= MAXIMUM_CONNECTIONS {
            tracing::warn!(pid, uid, "too many connections: one more was refused");
            return;
        }
        let own_uid = rustix::process::geteuid().as_raw();
        let role = match role {
            Role::Tool if uid != 0 && uid != own_uid => Role::Outsider,
            role => role,
        };
        let key = self.next_key;
        self.next_key += 1;
        let data = epoll::EventData::new_u64(key);
        if epoll::add(&self.poll, &socket, data, epoll::EventFlags::IN).is_err() {
            return;
        }
        tracing::debug!(pid, uid, tool = role == Role::Tool, "connected");
        let regions = BTreeMap::new();
        let connection = Connection {
            socket,
            role,
            pid,
            uid,
            accepted: now,
            regions,
        };
        self.connections.insert(key, connection);
    }

    /// Takes one message of connection `key`; the poll descriptor tells of more.
    fn hear(&mut self, key: u64) {
        let Some(connection) = self.connections.get(&key) else {
            return;
        };
        let socket = connection.socket.as_fd();
        match transport::receive::<Request>(socket, MAXIMUM_REQUEST, RecvFlags::DONTWAIT) {
            Ok((request, descriptors)) => {
                let handled = self.handle(key, request, descriptors);
                if let Err(why) = handled {
                    self.close(key, &why);
                }
            }
            Err(ReceiveError::Nothing) => {}
            Err(ReceiveError::Closed) => self.close(key, ""),
            Err(ReceiveError::Failed(error)) => self.close(key, &error.to_string()),
            Err(ReceiveError::Malformed(what)) => self.close(key, &what),
        }
    }

    /// Closes a connection; if it was an owner's, its process is gone. `why` is empty if the other
    /// end closed it.
    fn close(&mut self, key: u64, why: &str) {
        let Some(connection) = self.connections.remove(&key) else {
            return;
        };
        let (pid, uid) = (connection.pid, connection.uid);
        if why.is_empty() {
            tracing::debug!(pid, uid, "disconnected");
        } else {
            tracing::warn!(pid, uid, why, "connection closed");
        }
        let Role::Owner(owner) = connection.role else {
            return;
        };
        if let Some(memory) = connection.regions.get(&RegionKind::Counters) {
            self.keep_counters(memory);
        }
        self.owners.retire(owner);
        self.depart(key, owner, pid);
        if self.answering == Some(owner) {
            self.answering = None;
            self.hand_answering_over();
        }
    }

    /// Waits for the end of an owner's process.
    fn depart(&mut self, key: u64, owner: u16, pid: u32) {
        let watched = || -> rustix::io::Result<Option<OwnedFd>> {
            use rustix::process::{Pid, PidfdFlags, pidfd_open};
            let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
                return Ok(None);
            };
            let process = match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(process) => process,
                // Ended already, and waited for.
                Err(rustix::io::Errno::SRCH) => return Ok(None),
                Err(error) => return Err(error),
            };
            let data = epoll::EventData::new_u64(key);
            epoll::add(&self.poll, &process, data, epoll::EventFlags::IN)?;
            Ok(Some(process))
        };
        match watched() {
            Ok(Some(_process)) => {
                let departing = Departing {
                    owner,
                    pid,
                    _process,
                };
                self.departing.insert(key, departing);
            }
            Ok(None) => self.owners.release(owner),
            Err(error) => {
                // Better a slot less than two processes on one queue.
                self.lost |= 1 << owner;
                tracing::warn!(pid, owner, %error, "can't tell when the process ends");
            }
        }
    }

    /// A departing owner's process has ended.
    fn release(&mut self, key: u64) {
        if let Some(departing) = self.departing.remove(&key) {
            tracing::debug!(pid = departing.pid, owner = departing.owner, "ended");
            self.owners.release(departing.owner);
        }
    }

    /// The process that answered for the addresses is gone: the next one does.
    fn hand_answering_over(&mut self) {
        for (key, connection) in &self.connections {
            if let Role::Owner(owner) = connection.role
                && self.reply(*key, &Reply::Answer {}, &[]).is_ok()
            {
                self.answering = Some(owner);
                self.owners.answering(owner);
                return;
            }
        }
    }

    /// Adds a dead process's counters to the sums, so that totals never go backwards.
    fn keep_counters(&mut self, memory: &OwnedFd) {
        let counters = memory.try_clone().and_then(Counters::open_read_only);
        let Ok(counters) = counters else {
            return;
        };
        for (sum, counter) in self.finished.iter_mut().zip(Counter::ALL) {
            *sum = sum.saturating_add(counters.get(*counter));
        }
    }
}

impl<O: Owners> AsFd for Server<O> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }
}

impl<O: Owners> Drop for Server<O> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket_path);
    }
}

fn listen(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::net::bind(&socket, address)?;
    rustix::net::listen(&socket, 128)?;
    Ok(socket)
}

/// 128 random bits from the kernel.
fn random() -> io::Result<u128> {
    let mut bytes = [0; 16];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    // So few bytes always come at once (getrandom(2)).
    if filled == bytes.len() {
        Ok(u128::from_ne_bytes(bytes))
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
