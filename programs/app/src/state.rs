//! Everything that Skink knows in this process, behind the one lock.
use crate::engine::Engine;
use crate::epoll_set::Epolls;
use crate::errno::{Answer, Stop, fail};
use crate::exec::Guest;
use crate::fd_table::{self, Entry};
use crate::log::log;
use crate::pace::Pace;
use crate::parking::Parking;
use crate::raw;
use crate::socket::{Role, Sockets};
use crate::spawn::Spawning;
use crate::spin::Spin;
use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use skink_control::NetworkInfo;
use skink_memory::{SocketId, SocketTable};
use skink_messages::{ConnectionOption, Counter, Events, TcpRequest, UdpRequest};
use skink_nic::Judge;

/// The state.
pub struct State {
    /// Sockets, by index.
    pub sockets: Sockets,
    /// Epoll sets with Skink's sockets in them, by index.
    pub epolls: Epolls,
    /// Sockets that listen on the stack, and some that did.
    pub listeners: Vec<u32>,
    /// The stack, once there is one.
    pub engine: Option<Box<Engine>>,
    /// The stack couldn't be made: sockets go to the kernel.
    pub refused: bool,
    /// What the broker says of the network, once it was asked.
    pub network: Option<NetworkInfo>,
    /// Threads that wait.
    pub parking: Parking,
    /// Threads that were cancelled, and haven't heard of it here.
    pub cancelled: Vec<crate::cancel::Cancelled>,
    /// What is held back until the program waits.
    pub pace: Pace,
    /// How the program uses the NIC.
    pub judge: Judge,
    /// Whether to look longer before sleeping.
    pub spin: Spin,
    /// The socket that accepted connections' descriptors are duplicates of, by domain.
    templates: [c_int; 2],
    /// What children of `posix_spawn` are to do.
    pub spawning: Spawning,
    /// What a guest in this process's memory has done.
    pub guest: Guest,
    /// Addresses of libc's streams that were opened on sockets.
    pub streams: Vec<usize>,
    /// The number of the interface that Skink uses, once it is known.
    pub interface_index: u32,
    /// What that interface takes, in bytes, if that was asked.
    pub interface_mtu: Option<u32>,
    /// Addresses of the kernel's interfaces, see [`crate::fallback`].
    pub interfaces: crate::fallback::Interfaces,
}

impl State {
    /// Nothing yet.
    pub const fn new() -> State {
        State {
            sockets: Sockets::new(),
            epolls: Epolls::new(),
            listeners: Vec::new(),
            engine: None,
            refused: false,
            network: None,
            parking: Parking::new(),
            cancelled: Vec::new(),
            pace: Pace::new(),
            judge: Judge::new(),
            spin: Spin::new(),
            templates: [-1, -1],
            spawning: Spawning::new(),
            guest: Guest::new(),
            streams: Vec::new(),
            interface_index: 0,
            interface_mtu: None,
            interfaces: crate::fallback::Interfaces::new(),
        }
    }

    /// The index of the socket behind `fd`, if it is Skink's.
    #[inline]
    pub fn socket_of(&self, fd: c_int) -> Answer<u32> {
        match fd_table::get(fd) {
            Entry::Socket(index) => Ok(index),
            Entry::Internal => fail(libc::EBADF),
            Entry::Ordinary | Entry::Epoll(_) | Entry::Plain(_) => Err(Stop::Kernel),
        }
    }

    /// As [`State::socket_of`], for a call that neither sends nor receives.
    pub fn socket_asked(&self, fd: c_int) -> Answer<u32> {
        let index = self.socket_of(fd)?;
        self.count(Counter::AppOtherCalls);
        Ok(index)
    }

    /// Counts one, if there is a stack.
    #[inline]
    pub fn count(&self, counter: Counter) {
        if let Some(engine) = &self.engine {
            engine.count(counter);
        }
    }

    /// The stack; a socket with a role other than undecided or dormant has one.
    #[inline]
    pub fn engine(&mut self) -> Answer<&mut Engine> {
        match &mut self.engine {
            Some(engine) => Ok(engine),
            None => fail(libc::ENETDOWN),
        }
    }

    /// The socket, never connected, of which descriptors of accepted connections are duplicates. It is made when a socket begins
    /// to listen: a program that has run out of descriptors closes a spare one to accept, and has just that.
    pub fn template(&mut self, domain: c_int) -> Answer<c_int> {
        let which = usize::from(domain == libc::AF_INET6);
        if self.templates[which] < 0 {
            let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as usize;
            let arguments = [domain as usize, kind, 0, 0, 0, 0];
            // SAFETY: only numbers.
            let fd = unsafe { raw::call(libc::SYS_socket, arguments) }? as c_int;
            self.templates[which] = internal(fd);
        }
        Ok(self.templates[which])
    }

    /// A new descriptor for an accepted connection: a duplicate of one that is never connected,
    /// which costs a tenth of a new socket (docs/decisions/0001-descriptors.md).
    pub fn make_descriptor(&mut self, domain: c_int, close_on_exec: bool) -> Answer<c_int> {
        let command = if close_on_exec {
            libc::F_DUPFD_CLOEXEC
        } else {
            libc::F_DUPFD
        };
        raw::fcntl(self.template(domain)?, command, 0).map(|fd| fd as c_int)
    }

    /// Makes `fd` stand for a new socket.
    pub fn open(&mut self, fd: c_int, domain: c_int, datagram: bool) -> Option<u32> {
        let index = self.sockets.add(domain, datagram);
        self.sockets[index].fds.push(fd);
        if !fd_table::set(fd, Entry::Socket(index)) {
            self.sockets.remove(index);
            return None;
        }
        Some(index)
    }

    /// The program closed `fd`; with its last descriptor the socket goes.
    pub fn forget_descriptor(&mut self, fd: c_int) {
        match fd_table::get(fd) {
            Entry::Socket(index) => {
                fd_table::set(fd, Entry::Ordinary);
                let fds = &mut self.sockets[index].fds;
                fds.retain(|other| *other != fd);
                if fds.is_empty() {
                    self.keep_for_others(index, fd);
                    self.destroy(index);
                }
            }
            Entry::Epoll(index) | Entry::Plain(index) => {
                fd_table::set(fd, Entry::Ordinary);
                self.epoll_descriptor_closed(index, fd);
            }
            Entry::Ordinary => {
                let fallbacks = self.engine.as_ref().map(|engine| &engine.fallbacks);
                if fd_table::take_fallen(fd)
                    && let Some(Some(fallbacks)) = fallbacks
                {
                    fallbacks.clear(fd as u32);
                }
            }
            Entry::Internal => {}
        }
    }

    /// No descriptor stands for the socket any more.
    pub fn destroy(&mut self, index: u32) {
        self.unwatch(index);
        self.wake_waiters(index);
        self.release(index);
        self.sockets.remove(index);
    }

    /// Closes what the socket has on the stack.
    pub fn release(&mut self, index: u32) {
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        let now = raw::now();
        match self.sockets[index].role {
            // As long as anybody has a descriptor it goes on.
            Role::Stream(id) if self.sockets[index].tethered => {
                engine.disown_tcp(id);
                return;
            }
            Role::Stream(id) => {
                engine.disown_tcp(id);
                let socket = &self.sockets[index];
                if let Some(remote) = engine.stack.remote()
                    && !socket.lent
                    && !crate::fork::has_lent_unmarked()
                    && socket.options.linger != Some(0)
                {
                    remote.finish(id);
                }
                engine.stack.tcp_request(now, TcpRequest::Close(id));
            }
            Role::Listener(halves) => {
                for id in halves.into_iter().flatten() {
                    engine.disown_tcp(id);
                    engine.stack.tcp_request(now, TcpRequest::Close(id));
                }
            }
            Role::Datagram(halves) => {
                for id in halves.into_iter().flatten() {
                    engine.disown_udp(id);
                    engine.stack.udp_request(now, UdpRequest::Close(id));
                }
            }
            Role::Dormant => {
                let resting = core::mem::take(&mut self.sockets[index].resting);
                for id in resting.into_iter().flatten() {
                    engine.stack.tcp_request(now, TcpRequest::Close(id));
                }
            }
            Role::Undecided if self.sockets[index].resting != [None; 2] => {
                let resting = core::mem::take(&mut self.sockets[index].resting);
                for id in resting.into_iter().flatten() {
                    engine.stack.udp_request(now, UdpRequest::Close(id));
                }
            }
            Role::Undecided | Role::Lost => return,
        }
        self.note_work();
    }

    /// Receives, does what is due, sends, and tells the sockets what happened.
    pub fn pump(&mut self) {
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        engine.poll();
        self.pace.left();
        if engine.passed.has_returned() {
            self.settle_returned();
        }
        self.deliver();
        if self.engine.as_deref().is_some_and(Engine::is_down) {
            self.unwatch_bell();
        }
    }

    /// Hears what a stack in another process has said. A call that doesn't wait would else never learn what became of its
    /// connection.
    #[inline]
    pub fn catch_news(&mut self) {
        let engine = self.engine.as_deref();
        if engine.is_some_and(|engine| engine.stack.has_news()) {
            self.glance();
        }
    }

    /// As [`State::pump`], but what is held waits on, for as long as it may: for a program that is going to
    /// look at its sockets, not to sleep.
    pub fn glance(&mut self) {
        match &mut self.engine {
            Some(engine) if self.pace.has_held() && self.pace.is_holding(raw::now()) => {
                engine.receive();
            }
            _ => return self.pump(),
        }
        self.deliver();
    }

    /// Tells the sockets what happened to them.
    pub fn deliver(&mut self) {
        while let Some(engine) = self.engine.as_deref_mut() {
            let Some((owner, events)) = engine.take_event() else {
                break;
            };
            self.socket_event(owner, events);
        }
    }

    /// This process has got a connection that is another one's, too: what happened before the stack knew of that was told to others,
    /// also what became of a handshake.
    pub fn catch_up(&mut self, index: u32) {
        let (Role::Stream(id), Some(engine)) =
            (self.sockets[index].role, self.engine.as_deref_mut())
        else {
            return;
        };
        let mut events = engine.own_tcp(id, index);
        if self.is_connected(index) {
            events |= Events::WRITABLE;
        }
        if self.sockets[index].connecting && !events.is_empty() {
            self.socket_event(index, events);
        }
    }

    fn socket_event(&mut self, index: u32, events: Events) {
        let socket = &mut self.sockets[index];
        if events.intersects(Events::ERROR | Events::CLOSED)
            && let Some(engine) = self.engine.as_deref()
        {
            let error = engine.error_of(socket);
            if error != 0 && socket.error == 0 {
                socket.error = error;
            }
        }
        if events.intersects(Events::WRITABLE | Events::ERROR | Events::CLOSED) {
            socket.connecting = false;
        }
        self.mark_ready(index);
        self.wake_waiters(index);
    }

    /// The TCP table and the id of a connection.
    #[inline]
    pub fn stream(&self, index: u32) -> Answer<(&SocketTable, SocketId)> {
        match (self.sockets[index].role, &self.engine) {
            (Role::Stream(id), Some(engine)) => Ok((engine.stack.tcp_table(), id)),
            _ => fail(libc::ENOTCONN),
        }
    }

    /// Hands an option to the stack, if the socket is on it.
    pub fn pass_option(&mut self, index: u32, option: ConnectionOption) {
        let now = raw::now();
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        let halves = match self.sockets[index].role {
            Role::Stream(id) => [Some(id), None],
            Role::Listener(halves) => halves,
            Role::Undecided | Role::Dormant | Role::Datagram(_) | Role::Lost => return,
        };
        for id in halves.into_iter().flatten() {
            engine
                .stack
                .tcp_request(now, TcpRequest::SetOption(id, option));
        }
    }
}

/// [`floor`] as it was last worked out; 0 if it wasn't.
static FLOOR: AtomicUsize = AtomicUsize::new(0);

/// Where descriptors are out of the program's way.
pub fn floor() -> usize {
    match FLOOR.load(Relaxed) {
        0 => renew_floor(),
        known => known,
    }
}

/// Works it out anew: the program may have set another limit. (It may also have forbidden itself to ask for that, so it isn't asked for
/// each time.)
pub fn renew_floor() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is ours.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let floor = (limit.rlim_cur.min(1 << 19) / 4 * 3) as usize;
    FLOOR.store(floor, Relaxed);
    floor
}

/// Duplicates a descriptor out of the program's way; `command` says whether the new one is closed by `exec`.
pub fn duplicate_high(fd: c_int, command: c_int) -> Answer<c_int> {
    let at = |floor| raw::fcntl(fd, command, floor).map(|fd| fd as c_int);
    match at(floor()) {
        // The limit is another one, unheard of.
        Err(Stop::Errno(libc::EINVAL)) => at(renew_floor()),
        answer => answer,
    }
}

/// Moves a descriptor up out of the program's way.
pub fn lift(fd: c_int) -> c_int {
    match duplicate_high(fd, libc::F_DUPFD_CLOEXEC) {
        Ok(high) => {
            raw::close(fd);
            high
        }
        Err(_) => fd,
    }
}

/// Marks a descriptor as the library's own, after moving it up.
pub fn internal(fd: c_int) -> c_int {
    let fd = lift(fd);
    fd_table::set(fd, Entry::Internal);
    log!(Debug, "descriptor {fd} is Skink's own");
    fd
}
