//! What Skink knows about one socket: what the program's descriptors (it may have several, by `dup`)
//! stand for.
use crate::kernel_half::Heard;
use crate::options::Options;
use core::ffi::c_int;
use skink_memory::SocketId;
use skink_wire::Endpoint;

/// The IPv4 half and the IPv6 half of a socket that may serve both.
pub type Halves = [Option<SocketId>; 2];

/// What a socket has become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Neither bound nor connected, or bound to every address: whether it is the kernel's or
    /// Skink's is open. The kernel socket behind the descriptor is bound as well, to hold the port.
    Undecided,
    /// `listen` was called, but the socket isn't on a stack: [`crate::listen`] says why.
    Dormant,
    /// Listening on Skink.
    Listener(Halves),
    /// A connection of Skink's.
    Stream(SocketId),
    /// A UDP socket of Skink's.
    Datagram(Halves),
    /// A connection that stayed with the parent process when this one was forked off, or that left for another process.
    Lost,
}

/// Who takes the connections that come to a listening socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taker {
    /// Nobody has waited for one yet.
    Unknown,
    /// So it is, but another process has the socket too, perhaps for that.
    Others,
    /// This process has waited for one.
    Own,
}

/// An epoll set that watches the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    /// Index of the set.
    pub epoll: u32,
    /// Index of the member in it.
    pub item: u32,
}

/// One socket.
pub struct Socket {
    /// Counts how often this place was used, to tell a new socket from the one waited for.
    pub cookie: u32,
    /// Descriptors that stand for it.
    pub fds: Vec<c_int>,
    /// `AF_INET` or `AF_INET6`.
    pub domain: c_int,
    /// UDP, not TCP.
    pub datagram: bool,
    /// The kernel socket behind the descriptor is this socket's own (it isn't for accepted ones).
    pub own_kernel_socket: bool,
    /// A listening socket on every address: the kernel socket listens too, on the kernel's own
    /// addresses (loopback first of all). It never blocks then.
    pub kernel_listens: bool,
    /// `O_NONBLOCK`
    pub nonblocking: bool,
    /// What it has become.
    pub role: Role,
    /// Who takes what comes to it, if it listens.
    pub taker: Taker,
    /// Another process has, or had, it as well.
    pub lent: bool,
    /// It was passed to another process, and is on no stack of this one's.
    pub passed_on: bool,
    /// Its connection is on the stack of whichever process has used it last ([`crate::estate::Tethers`]).
    pub tethered: bool,
    /// How many connections may wait to be accepted, if it listens; 0 for one that is bound only.
    pub backlog: u32,
    /// What `bind` was told, with the port that was chosen.
    pub bound: Option<Endpoint>,
    /// `bind` left the port to the system, and the program hasn't asked which it is: a connection may have any that is free
    /// towards its peer. The kernel, which has chosen one, doesn't know of Skink's connections.
    pub any_port: bool,
    /// What it has on a stack already, bound: a dormant socket on one in another process; a UDP socket that isn't decided yet on
    /// any, where what comes for it waits.
    pub resting: Halves,
    /// What shows such a stack that the halves' port is this process's too; 0 for nothing.
    pub tickets: [u64; 2],
    /// Whom a UDP socket is connected to.
    pub peer: Option<Endpoint>,
    /// Who has sent to the kernel's half of a UDP socket.
    pub heard: Heard,
    /// Datagrams received, as far as [`Socket::is_kernels_turn`] counts.
    pub received: u8,
    /// It was said that the kernel's half sends.
    pub told_half: bool,
    /// `SO_ERROR`
    pub error: c_int,
    /// The handshake goes on.
    pub connecting: bool,
    /// No `connect` has answered how the handshake ended.
    pub unanswered: bool,
    /// `shutdown` of the reading side.
    pub shut_read: bool,
    /// `shutdown` of the writing side.
    pub shut_write: bool,
    /// The last send had `MSG_MORE`.
    pub more: bool,
    /// `accept` has said that the stack is lost.
    pub told_down: bool,
    /// An option was set that only the kernel has; it was this one.
    pub unsupported: Option<c_int>,
    /// Options.
    pub options: Options,
    /// Epoll sets that watch it.
    pub watchers: Vec<Watch>,
    /// Threads that wait for it, by their numbers in [`crate::wait::Parking`].
    pub waiters: Vec<u32>,
}

impl Socket {
    /// An empty place.
    const fn empty() -> Socket {
        Socket {
            cookie: 0,
            fds: Vec::new(),
            domain: 0,
            datagram: false,
            own_kernel_socket: false,
            kernel_listens: false,
            nonblocking: false,
            role: Role::Undecided,
            taker: Taker::Unknown,
            lent: false,
            passed_on: false,
            tethered: false,
            backlog: 4096,
            bound: None,
            any_port: false,
            resting: [None; 2],
            tickets: [0; 2],
            peer: None,
            heard: Heard::new(),
            received: 0,
            told_half: false,
            error: 0,
            connecting: false,
            unanswered: false,
            shut_read: false,
            shut_write: false,
            more: false,
            told_down: false,
            unsupported: None,
            options: Options::new(),
            watchers: Vec::new(),
            waiters: Vec::new(),
        }
    }

    /// Makes everything as in an empty place, except the cookie and the memory of the lists.
    fn reset(&mut self) {
        let mut old = core::mem::replace(self, Socket::empty());
        old.fds.clear();
        old.watchers.clear();
        old.waiters.clear();
        self.fds = old.fds;
        self.watchers = old.watchers;
        self.waiters = old.waiters;
        self.cookie = old.cookie.wrapping_add(1);
    }

    /// Whether its connection is on another process's stack, and comes if it is asked for.
    pub fn is_elsewhere(&self) -> bool {
        self.role == Role::Lost && self.tethered
    }

    /// Whether the socket is Skink's for good.
    pub fn is_decided(&self) -> bool {
        self.role != Role::Undecided
    }

    /// Whether it is bound, and other processes may have it, but nobody has called `listen` or `connect` here. (What
    /// listens has room for one connection at least.)
    pub fn is_bound_only(&self) -> bool {
        self.role == Role::Dormant && self.backlog == 0
    }

    /// Whether it is bound and may still listen, or connect, in this process or in another one that gets it.
    pub fn may_listen(&self) -> bool {
        self.role == Role::Undecided && !self.datagram && self.bound.is_some()
    }

    /// What it is in a process that gets it without the stack on which it was: a child after `fork`, or another program.
    pub fn without_stack(&self) -> Role {
        match self.role {
            Role::Undecided => Role::Undecided,
            Role::Dormant | Role::Listener(_) => Role::Dormant,
            Role::Datagram(_) if self.own_kernel_socket && self.peer.is_none() => Role::Undecided,
            Role::Datagram(_) | Role::Stream(_) | Role::Lost => Role::Lost,
        }
    }

    /// Other processes get it, and show by its tickets that it is theirs too.
    pub fn share_unheard(&mut self) {
        (self.role, self.backlog) = (Role::Dormant, 0);
        self.taker = Taker::Others;
    }

    /// Its IP protocol number.
    pub fn protocol(&self) -> u8 {
        if self.datagram { 17 } else { 6 }
    }

    /// Takes the pending error.
    pub fn take_error(&mut self) -> Option<c_int> {
        let error = core::mem::take(&mut self.error);
        (error != 0).then_some(error)
    }
}

/// All sockets of the process.
pub struct Sockets {
    list: Vec<Socket>,
    free: Vec<u32>,
}

impl Sockets {
    /// None.
    pub const fn new() -> Sockets {
        Sockets {
            list: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Makes room for a socket.
    pub fn add(&mut self, domain: c_int, datagram: bool) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.list.push(Socket::empty());
            self.list.len() as u32 - 1
        });
        // As in an empty place: it was reset when it was given back.
        let socket = &mut self.list[index as usize];
        socket.domain = domain;
        socket.datagram = datagram;
        index
    }

    /// Gives the place back.
    pub fn remove(&mut self, index: u32) {
        self.list[index as usize].reset();
        self.free.push(index);
    }

    /// The sockets in use, with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Socket)> {
        let used = |(_, socket): &(usize, &Socket)| !socket.fds.is_empty();
        self.list
            .iter()
            .enumerate()
            .filter(used)
            .map(|(at, socket)| (at as u32, socket))
    }

    /// As [`Sockets::iter`], to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Socket)> {
        let used = |(_, socket): &(usize, &mut Socket)| !socket.fds.is_empty();
        self.list
            .iter_mut()
            .enumerate()
            .filter(used)
            .map(|(at, socket)| (at as u32, socket))
    }
}

impl core::ops::Index<u32> for Sockets {
    type Output = Socket;
    #[inline]
    fn index(&self, index: u32) -> &Socket {
        &self.list[index as usize]
    }
}

impl core::ops::IndexMut<u32> for Sockets {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Socket {
        &mut self.list[index as usize]
    }
}
