mod answering;
mod departing;
mod describe;
mod filtering;
mod listening;
mod owners;
mod requests;
mod tethered;
mod tools;

use crate::closer::Closer;
use crate::instance;
use crate::message::{RegionKind, Reply};
use crate::peer;
use crate::transport::{self, MAXIMUM_REPLY, MAXIMUM_REQUEST, ReceiveError};
use crate::{CONTROL_VARIABLE, TOKEN_VARIABLE};
use departing::Departing;
use filtering::Questions;
use listening::Listening;
pub use owners::{
    Access, Answered, Grant, NicGrant, Owners, Peer, Question, ServedParts, ServerConfig,
};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketFlags};
use serde::{Deserialize, Serialize};
use skink_messages::{Counter, Counters};
use skink_wire::FourTuple;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
pub use tethered::TetherParts;
use tethered::Tethers;

/// A connection that says nothing for this long is closed, unless it has attached.
const SILENCE: Duration = Duration::from_secs(5);
/// Connections of one user that haven't attached beyond this many are closed at once.
pub(crate) const STRANGERS_PER_USER: usize = 128;
/// Of connections there are as many more than there can be owners.
const SPARE_CONNECTIONS: usize = 192;
const CONTROL_KEY: u64 = 0;
const TOOLS_KEY: u64 = 1;
const PATH_KEY: u64 = 2;
const FIRST_KEY: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Role {
    /// Hasn't shown its token yet.
    Stranger,
    Owner(u16),
    /// Will be an owner, or be refused, when that is known.
    Waiting(u16),
    /// Ends the connections of that owner, whose process is gone.
    Orphans(u16),
    Tool,
    /// A tool of another user's: told so when it asks.
    Outsider,
}

#[derive(Serialize, Deserialize)]
struct Connection {
    #[serde(with = "skink_inherit::descriptors")]
    socket: OwnedFd,
    role: Role,
    peer: Peer,
    #[serde(with = "skink_inherit::moments")]
    accepted: Instant,
    #[serde(with = "skink_inherit::descriptors")]
    regions: BTreeMap<RegionKind, OwnedFd>,
    /// It has a stack of its own, and there was no room to tell it of the rules that are in force now.
    #[serde(default)]
    lacks_rules: bool,
}

#[derive(Serialize, Deserialize)]
struct Known<C> {
    key: u64,
    connection: C,
}

/// What [`Server::connection_of`] has answered in another process.
#[derive(Deserialize)]
pub struct KnownConnection(Known<Connection>);

/// The broker. It does nothing by itself: whoever owns it polls [`Server::as_fd`] for reading and
/// calls [`Server::serve`].
#[derive(Serialize, Deserialize)]
pub struct Server<O: Owners> {
    config: ServerConfig,
    owners: O,
    #[serde(with = "skink_inherit::descriptors")]
    poll: OwnedFd,
    listening: Listening,
    token: String,
    /// Of all stacks that programs have in themselves.
    sequence_secret: u64,
    started: SystemTime,
    connections: BTreeMap<u64, Connection>,
    departing: BTreeMap<u64, Departing>,
    /// Slots that can't be given out again.
    lost: BTreeSet<u16>,
    next_key: u64,
    answering: Option<u16>,
    finished: Vec<u64>,
    /// Only owners with a stack of their own are asked, and they have no supervisor that another takes the place of.
    #[serde(skip)]
    questions: Questions,
    /// Who was asked to take in a connection, and hasn't answered.
    #[serde(skip)]
    asked: Vec<Asked>,
    /// Who has lately taken in a connection that was passed, and when.
    #[serde(skip)]
    received: VecDeque<(FourTuple, u16, u64)>,
    /// Connections that others may ask for than whose stack has them.
    #[serde(skip)]
    tethers: Tethers,
    /// When it was looked last whether the process that answers is stopped.
    #[serde(skip)]
    looked: Option<Instant>,
    /// Something has happened, other than that tools looked.
    #[serde(skip)]
    has_changed: bool,
    /// Given back for a moment when there are no descriptors left.
    #[serde(skip)]
    spare: Option<OwnedFd>,
    /// Closes what came from others.
    #[serde(skip)]
    closer: Closer,
}

/// A connection that an owner was asked to take in.
struct Asked {
    flow: FourTuple,
    /// The connection of who was asked, and of who waits for the answer.
    heir: u64,
    waits: u64,
    /// When, in milliseconds of the monotonic clock: see [`TOO_LATE`](crate::client::TOO_LATE).
    at: u64,
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
        let listening = Listening::new(&config, directory)?;
        Ok(Server {
            owners,
            poll: watch(&listening)?,
            token: match config.access {
                Access::Token => format!("{:032x}", random()?),
                Access::Named => String::new(),
            },
            sequence_secret: random()? as u64,
            listening,
            config,
            started: SystemTime::now(),
            connections: BTreeMap::new(),
            departing: BTreeMap::new(),
            lost: BTreeSet::new(),
            next_key: FIRST_KEY,
            answering: None,
            finished: vec![0; Counter::ALL.len()],
            questions: Questions::default(),
            asked: Vec::new(),
            received: VecDeque::new(),
            tethers: Tethers::default(),
            looked: None,
            has_changed: false,
            spare: None,
            closer: Closer::default(),
        })
    }

    /// This process is a copy of the server's that goes on in its place ([`crate::Standby`]): what the
    /// original did last with the descriptor that they share for polling is undone.
    ///
    /// # Errors
    /// What the system says.
    pub fn take_over(&mut self) -> io::Result<()> {
        self.listening.rename();
        let poll = watch(&self.listening)?;
        let connections = self.connections.iter();
        let sockets = connections.map(|(key, connection)| (*key, connection.socket.as_fd()));
        let departing = self.departing.iter();
        let processes = departing.map(|(key, departing)| (*key, departing.process.as_fd()));
        for (key, descriptor) in sockets.chain(processes) {
            let data = epoll::EventData::new_u64(key);
            epoll::add(&poll, descriptor, data, epoll::EventFlags::IN)?;
        }
        self.poll = poll;
        // What the original's were to close has other numbers here, if any.
        self.closer = Closer::default();
        Ok(())
    }

    /// The connection of an owner, or of one that waits to be one, for a copy of this process that doesn't know of it
    /// ([`Server::remember`]).
    pub fn connection_of(&self, owner: u16) -> Option<impl Serialize> {
        let roles = [Role::Owner(owner), Role::Waiting(owner)];
        let key = roles.into_iter().find_map(|role| self.key_of(role))?;
        let connection = self.connections.get(&key)?;
        Some(Known { key, connection })
    }

    /// In a copy of the server's process, after [`Server::take_over`]: what the original's [`Server::connection_of`] answered after the
    /// copy was made. Who had that slot before is gone.
    ///
    /// # Errors
    /// What the system says.
    pub fn remember(&mut self, known: KnownConnection) -> io::Result<()> {
        let Known { key, connection } = known.0;
        let mut gone = vec![key];
        if let Role::Owner(owner) | Role::Waiting(owner) = connection.role {
            let roles = [Role::Owner(owner), Role::Waiting(owner)];
            gone.extend(roles.into_iter().filter_map(|role| self.key_of(role)));
        }
        for key in gone {
            if let Some(before) = self.connections.remove(&key) {
                let _ = epoll::delete(&self.poll, &before.socket);
                self.closer.close([before.socket]);
            }
        }
        let data = epoll::EventData::new_u64(key);
        epoll::add(&self.poll, &connection.socket, data, epoll::EventFlags::IN)?;
        self.next_key = self.next_key.max(key + 1);
        self.connections.insert(key, connection);
        Ok(())
    }

    /// In a copy of the server's process that goes on: whoever hasn't attached may have asked the original. He finds his connection closed, and
    /// asks anew.
    pub fn dismiss_strangers(&mut self) {
        let all = self.connections.iter();
        let strangers = all.filter(|(_, connection)| connection.role == Role::Stranger);
        for key in strangers.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.close(key, "");
        }
    }

    /// This process is about to become another program, which inherits the server.
    pub fn prepare_to_execute(&mut self) {
        self.closer.end();
    }

    /// This program has inherited the server (`skink_inherit`), and can go on with it: only then dropping it
    /// removes its sockets from the file system.
    ///
    /// # Errors
    /// What the system says.
    pub fn inherit(&mut self) -> io::Result<()> {
        self.take_over()?;
        self.listening.is_lent = false;
        Ok(())
    }

    /// What the program's environment must say.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            (CONTROL_VARIABLE, self.listening.control_name.clone()),
            (TOKEN_VARIABLE, self.token.clone()),
        ]
    }

    /// The socket for tools.
    pub fn socket_path(&self) -> &Path {
        self.listening
            .paths
            .first()
            .map_or(Path::new(""), |path| path)
    }

    /// Who serves the owners.
    pub fn owners(&self) -> &O {
        &self.owners
    }

    /// Who serves the owners.
    pub fn owners_mut(&mut self) -> &mut O {
        &mut self.owners
    }

    /// How many processes are attached.
    pub fn attached(&self) -> usize {
        let connections = self.connections.values();
        connections
            .filter(|connection| matches!(connection.role, Role::Owner(_)))
            .count()
    }

    /// Does whatever there is to do and never waits. Answers when to call again at the latest; there
    /// is such a time only while somebody has connected and not said who he is, while several processes have
    /// a part of the NIC, or while one was asked what its packet filter does.
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
                self.has_changed |= !self.is_tools(event.data.u64());
                match event.data.u64() {
                    key if key < FIRST_KEY => self.accept(key, now),
                    key if self.departing.contains_key(&key) => self.release(key),
                    key => self.hear(key),
                }
            }
            if count < events.len() {
                break;
            }
        }
        let silent = self.close_silent(now);
        let stopped = self.replace_stopped(now);
        let unanswered = self.give_up_waiting(now);
        let unruly = self.tell_rules();
        let unclosed = self.closer.look(now);
        [silent, stopped, unanswered, unruly, unclosed]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether this is a tool's connection, or that on which tools come.
    fn is_tools(&self, key: u64) -> bool {
        let connection = self.connections.get(&key);
        let is_tool = |it: &Connection| matches!(it.role, Role::Tool | Role::Outsider);
        key == TOOLS_KEY || connection.is_some_and(is_tool)
    }

    /// Whether something has happened since this was called last that a copy of this process which goes on in its place
    /// ([`crate::Standby`]) should know of. That a tool looked isn't: its connection would be lost.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
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

    fn accept(&mut self, listener: u64, now: Instant) {
        let socket = match listener {
            TOOLS_KEY => Some(&self.listening.tools),
            PATH_KEY => self.listening.by_path.as_ref(),
            _ => Some(&self.listening.control),
        };
        let accepted = socket.map(|socket| accept_from(socket, &mut self.spare));
        let socket = match accepted {
            Some(Ok(socket)) => socket,
            Some(Err(refused)) => return self.closer.close(refused),
            None => return,
        };
        let Ok(peer) = peer::of(socket.as_fd()) else {
            return self.turn_away(socket, "who it is can't be told");
        };
        let (pid, uid) = (peer.pid, peer.uid);
        if pid == 0 {
            let why = "it doesn't see this process: start both in one PID namespace, or this one in a namespace within its own";
            return self.turn_away(socket, why);
        }
        if !self.has_room_for(uid) {
            tracing::warn!(pid, uid, "too many connections: one more was refused");
            return self.turn_away(socket, "its user has too many connections there already");
        }
        let own_uid = rustix::process::geteuid().as_raw();
        let role = match listener {
            TOOLS_KEY if uid != 0 && uid != own_uid => Role::Outsider,
            TOOLS_KEY => Role::Tool,
            _ => Role::Stranger,
        };
        match self.begin(socket, role, peer, now) {
            Ok(()) => tracing::debug!(pid, uid, tool = role == Role::Tool, "connected"),
            Err(socket) => self.turn_away(socket, "there is no memory for more connections"),
        }
    }

    /// Hears what comes on a connection from now on; gives it back if there is no memory for that.
    fn begin(
        &mut self,
        socket: OwnedFd,
        role: Role,
        peer: Peer,
        accepted: Instant,
    ) -> Result<(), OwnedFd> {
        let key = self.next_key;
        self.next_key += 1;
        let data = epoll::EventData::new_u64(key);
        if epoll::add(&self.poll, &socket, data, epoll::EventFlags::IN).is_err() {
            return Err(socket);
        }
        let connection = Connection {
            socket,
            role,
            peer,
            accepted,
            regions: BTreeMap::new(),
            lacks_rules: false,
        };
        self.connections.insert(key, connection);
        Ok(())
    }

    /// At the other end of `socket` is a process that ends the connections of `owner`, whose process is gone: it may hand some over
    /// to others, as [`Broker::hand_over`](crate::Broker::hand_over) does. If there is no memory for that it finds its end closed.
    pub fn hear_orphans(&mut self, owner: u16, socket: OwnedFd, now: Instant) {
        if let Ok(peer) = peer::of(socket.as_fd()) {
            let _ = self.begin(socket, Role::Orphans(owner), peer, now);
        }
    }

    /// Who goes on to listen for the program's other processes has nobody left to do it for: it finds its end of the connection closed.
    pub fn dismiss_orphans(&mut self) {
        let orphans = self.connections.iter();
        let orphans = orphans.filter(|(_, it)| matches!(it.role, Role::Orphans(_)));
        for key in orphans.map(|(key, _)| *key).collect::<Vec<u64>>() {
            self.connections.remove(&key);
        }
        let gone = self.tethers.take_all();
        self.let_go(gone);
    }

    /// Closes ends of tethers.
    fn let_go(&mut self, ends: Vec<OwnedFd>) {
        self.closer.close(ends.into_iter().filter(has_some));
    }

    /// Whether a user may have one more connection. If there are too many in all, one of another user's has to go that hasn't attached, of
    /// him who has the most of those, and more than this one will: so nobody is kept out by users who have many that say nothing.
    fn has_room_for(&mut self, uid: u32) -> bool {
        let mut strangers: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (key, connection) in &self.connections {
            if matches!(connection.role, Role::Stranger | Role::Outsider) {
                strangers.entry(connection.peer.uid).or_default().push(*key);
            }
        }
        let own = strangers.get(&uid).map_or(0, Vec::len);
        let most = usize::from(self.owners.capacity()) + SPARE_CONNECTIONS;
        if own >= STRANGERS_PER_USER || self.connections.len() < most {
            return own < STRANGERS_PER_USER;
        }
        match strangers.values().max_by_key(|keys| keys.len()) {
            Some(keys) if keys.len() > own + 1 => {
                let (key, why) = (keys[0], "its user has the most, and others need room");
                if let Some(connection) = self.connections.get(&key) {
                    say_refused(&connection.socket, why);
                }
                self.close(key, why);
                true
            }
            _ => false,
        }
    }

    /// Closes a connection that was just accepted. It may have messages in its queue already.
    fn turn_away(&mut self, socket: OwnedFd, reason: &str) {
        say_refused(&socket, reason);
        // Also where a standby still has it.
        let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
        self.closer.close([socket]);
    }

    /// Takes one message of connection `key`; the poll descriptor tells of more.
    fn hear(&mut self, key: u64) {
        let Some(connection) = self.connections.get(&key) else {
            return;
        };
        let socket = connection.socket.as_fd();
        let (flags, mut beside) = (RecvFlags::DONTWAIT, Vec::new());
        // Only who has a stack may hand over a connection with what it has received.
        let maximum = match connection.role {
            Role::Owner(_) | Role::Orphans(_) if self.owners.have_stacks() => MAXIMUM_REPLY,
            _ => MAXIMUM_REQUEST,
        };
        match transport::receive_beside(socket, maximum, flags, &mut beside) {
            Ok(request) => {
                if let Err(why) = self.handle(key, request, &mut beside) {
                    self.close(key, &why);
                }
            }
            Err(ReceiveError::Nothing) => {}
            Err(ReceiveError::Closed) => self.close(key, ""),
            Err(ReceiveError::Failed(error)) => self.close(key, &error.to_string()),
            Err(ReceiveError::Malformed(what)) => self.close(key, &what),
        }
        self.closer.close(beside);
    }

    /// Closes a connection; if it was an owner's, its process is gone, or has become another program. `why` is empty if the other
    /// end closed it.
    pub(super) fn close(&mut self, key: u64, why: &str) {
        let Some(connection) = self.connections.remove(&key) else {
            return;
        };
        // Also where a standby still has it.
        let _ = epoll::delete(&self.poll, &connection.socket);
        let _ = rustix::net::shutdown(&connection.socket, rustix::net::Shutdown::Both);
        let Connection {
            socket,
            role,
            peer,
            regions,
            ..
        } = connection;
        // Messages that nobody has taken may have descriptors beside them. No more come.
        if has_some(&socket) {
            self.closer.close([socket]);
        }
        let (pid, uid) = (peer.pid, peer.uid);
        if why.is_empty() {
            tracing::debug!(pid, uid, "disconnected");
        } else {
            tracing::warn!(pid, uid, why, "connection closed");
        }
        self.forget_asked(key);
        if let Role::Orphans(owner) = role {
            let gone = self.tethers.take_of(owner);
            self.let_go(gone);
        }
        let (Role::Owner(owner) | Role::Waiting(owner)) = role else {
            return;
        };
        // A program of any user could make the sums say anything.
        if self.config.access == Access::Token
            && let Some(memory) = regions.get(&RegionKind::Counters)
        {
            self.keep_counters(memory);
        }
        let (tethers, mut gone) = self.tethers.for_successor(owner);
        if !self.owners.retire(owner, regions, tethers) {
            gone.extend(self.tethers.take_of(owner));
        }
        self.let_go(gone);
        self.dismiss_questions(owner);
        match self.owners.is_waited_for() {
            true => self.depart(key, owner, pid),
            false => self.owners.release(owner),
        }
        if self.answering == Some(owner) {
            self.answering = None;
            self.hand_answering_over();
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

/// Whether messages wait in a socket. An empty one can be told from the end by its credentials, for which there is no room here.
fn has_some(socket: &OwnedFd) -> bool {
    let _ = rustix::net::sockopt::set_socket_passcred(socket, true);
    let mut nothing = RecvAncillaryBuffer::default();
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let mut pieces = [std::io::IoSliceMut::new(&mut [])];
    let first = rustix::net::recvmsg(socket, &mut pieces, &mut nothing, flags);
    first.is_ok_and(|first| first.flags.contains(ReturnFlags::CTRUNC))
}

/// Accepts a connection. If there are no descriptors left it is to be closed at once: one that waits to be accepted would keep
/// the event loop from sleeping.
fn accept_from(
    listener: &OwnedFd,
    spare: &mut Option<OwnedFd>,
) -> Result<OwnedFd, Option<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let accept = || rustix::net::accept_with(listener, flags);
    if spare.is_none() {
        *spare = eventfd(0, EventfdFlags::CLOEXEC).ok();
    }
    match accept() {
        Ok(socket) => Ok(socket),
        Err(Errno::MFILE | Errno::NFILE) => {
            *spare = None;
            tracing::warn!("a connection was refused: there are no descriptors left (ulimit -n)");
            Err(accept().ok())
        }
        Err(_) => Err(None),
    }
}

/// What tells of everything that comes.
fn watch(listening: &Listening) -> io::Result<OwnedFd> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let control = [
        (Some(&listening.control), CONTROL_KEY),
        (listening.by_path.as_ref(), PATH_KEY),
        (Some(&listening.tools), TOOLS_KEY),
    ];
    for (socket, key) in control {
        if let Some(socket) = socket {
            let data = epoll::EventData::new_u64(key);
            epoll::add(&poll, socket, data, epoll::EventFlags::IN)?;
        }
    }
    Ok(poll)
}

/// Tells who has connected why that is of no use.
fn say_refused(socket: &OwnedFd, reason: &str) {
    let refused = Reply::Refused {
        reason: reason.to_owned(),
    };
    let _ = transport::send(socket.as_fd(), &refused, &[], SendFlags::DONTWAIT);
}

/// 128 random bits from the kernel.
pub(crate) fn random() -> io::Result<u128> {
    let mut bytes = [0; 16];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    // So few bytes always come at once (getrandom(2)).
    if filled == bytes.len() {
        Ok(u128::from_ne_bytes(bytes))
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
