//! Taking over what a predecessor left.
use super::{Estate, Id, RoleEntry, SocketEntry, StackEntry, VARIABLE, end, halves, id};
use crate::attach;
use crate::engine::Engine;
use crate::fd_table::{self, Entry};
use crate::holdings::Holdings;
use crate::log::log;
use crate::provider::Provider;
use crate::raw;
use crate::socket::{Role, Taker};
use crate::state::{State, lift};
use core::ffi::c_int;
use skink_control::Broker;
use skink_memory::SocketTable;
use skink_messages::{ConnectionOption, Events, TcpRequest, UdpRequest};
use std::os::fd::{FromRawFd, OwnedFd};

/// Takes over what a predecessor left, if the environment names something.
pub fn take_over(state: &mut State) {
    let Ok(name) = std::env::var(VARIABLE) else {
        return;
    };
    // SAFETY: the program hasn't begun, so nobody else looks at the environment.
    unsafe { std::env::remove_var(VARIABLE) };
    let Ok(fd) = name.parse::<c_int>() else {
        return;
    };
    // An ordinary descriptor of that number is the program's own.
    let path = format!("/proc/self/fd/{fd}");
    let link = std::fs::read_link(path).ok();
    if !link.is_some_and(|link| link.to_string_lossy().starts_with("/memfd:skink-estate")) {
        return;
    }
    // SAFETY: it was left to us.
    let memory = unsafe { OwnedFd::from_raw_fd(fd) };
    let taken = Estate::read(&memory).and_then(|estate| state.take_estate(estate));
    if let Err(reason) = taken {
        log!(Error, "what this process was left can't be used: {reason}");
    }
}

impl State {
    fn take_estate(&mut self, estate: Estate) -> Result<(), String> {
        if estate.process != 0 && estate.process != raw::process_id() {
            return Err("it is another process's".to_owned());
        }
        match estate.stack {
            Some(stack) => self.take_with_stack(estate.process == 0, stack, estate.sockets),
            None => {
                self.take_without_stack(estate.sockets);
                Ok(())
            }
        }
    }

    /// The sockets have no stack yet. The process that has become this one listened on some.
    fn take_without_stack(&mut self, sockets: Vec<SocketEntry>) {
        for entry in sockets {
            let listens = matches!(entry.role, RoleEntry::Listening);
            if let Some(index) = self.take_socket(entry)
                && listens
                && let Err(stop) = self.activate(index)
            {
                log!(Warn, "nothing listens on an inherited socket: {stop:?}");
            }
        }
        self.listen_beside();
    }

    fn take_with_stack(
        &mut self,
        is_heir: bool,
        stack: StackEntry,
        sockets: Vec<SocketEntry>,
    ) -> Result<(), String> {
        // SAFETY: they were left to us, each once.
        let own = |fd: c_int| unsafe { OwnedFd::from_raw_fd(lift(fd)) };
        let mut holdings = Holdings {
            tcp: SocketTable::new(stack.attachment.tcp_stride),
            udp: SocketTable::new(stack.attachment.udp_stride),
            secrets: Vec::new(),
            addresses: Vec::new(),
            gateways: stack.gateways,
        };
        let addresses = stack.addresses.iter();
        holdings.addresses = addresses.filter_map(|text| text.parse().ok()).collect();
        for (program, secret, files) in stack.regions {
            let [tcp, udp] = files.map(|files| files.map(own));
            attach::add_regions(&mut holdings, program, secret, tcp, udp)?;
        }
        let token = attach::broker_named().map_or("", |(_, token)| token);
        let broker = Broker::resume(own(stack.broker), token);
        let channel = stack.channel.into_iter().map(own).collect();
        let mut engine = attach::resume(broker, stack.attachment, channel, holdings)?;
        let executor = match &engine.stack {
            // A channel that the parent got is the parent's to the broker, for as long as that lives.
            Provider::Served(remote) if is_heir => {
                let executor = remote.attachment.program;
                let mut holdings = remote.holdings.clone();
                holdings.retain(|program| program != executor);
                let own = attach::start(Some(holdings))?;
                Some(core::mem::replace(&mut engine, own))
            }
            _ => {
                attach::show(&mut engine);
                attach::mark(&engine);
                None
            }
        };
        self.adopt_engine(engine);
        for entry in sockets {
            self.take_socket(entry);
        }
        self.finish_estate(&stack.offers, &stack.closed);
        match executor {
            Some(executor) => {
                self.claim();
                self.dismiss(executor);
            }
            None => self.listen_in_reserve(),
        }
        Ok(())
    }

    /// What the parent held for this process, it holds for itself now.
    fn dismiss(&mut self, mut executor: Engine) {
        let now = raw::now();
        for (_, socket) in self.sockets.iter() {
            match socket.role {
                Role::Stream(id) => executor.stack.tcp_request(now, TcpRequest::Close(id)),
                Role::Datagram(halves) => {
                    for id in halves.into_iter().flatten() {
                        executor.stack.udp_request(now, UdpRequest::Close(id));
                    }
                }
                Role::Undecided | Role::Dormant | Role::Listener(_) | Role::Lost => {}
            }
        }
        executor.stack.flush();
    }

    /// Its place, unless all of its descriptors have been closed meanwhile.
    pub(super) fn take_socket(&mut self, entry: SocketEntry) -> Option<u32> {
        let index = self.sockets.add(entry.domain, entry.datagram);
        let socket = &mut self.sockets[index];
        let open = |fd: &c_int| raw::fcntl(*fd, libc::F_GETFD, 0).is_ok();
        socket.fds = entry.fds.into_iter().filter(open).collect();
        socket.own_kernel_socket = entry.own_kernel_socket;
        socket.kernel_listens = entry.kernel_listens;
        socket.nonblocking = entry.nonblocking;
        socket.lent = true;
        socket.tethered = entry.tethered;
        if let RoleEntry::Dormant | RoleEntry::Listener(_) = entry.role {
            // Whoever had it may go on to use it: only waiting for connections shows that it is for this process.
            socket.taker = Taker::Others;
        }
        socket.role = match entry.role {
            RoleEntry::Undecided => Role::Undecided,
            RoleEntry::Dormant | RoleEntry::Listening => Role::Dormant,
            RoleEntry::Listener(ids) => Role::Listener(halves(ids)),
            RoleEntry::Stream(stream) => Role::Stream(id(stream)),
            RoleEntry::Datagram(ids) => Role::Datagram(halves(ids)),
            RoleEntry::Lost => Role::Lost,
        };
        socket.backlog = entry.backlog;
        socket.bound = end(entry.bound);
        socket.resting = halves(entry.resting);
        socket.tickets = entry.tickets;
        socket.peer = end(entry.peer);
        socket.error = entry.error;
        socket.connecting = entry.connecting;
        socket.shut_read = entry.shut_read;
        socket.shut_write = entry.shut_write;
        socket.more = entry.more;
        socket.unsupported = entry.unsupported;
        socket.options = entry.options;
        let (role, fds) = (socket.role, socket.fds.clone());
        if fds.is_empty() {
            self.release(index);
            self.sockets.remove(index);
            return None;
        }
        log!(Info, "descriptors {fds:?} are inherited");
        self.note_elsewhere();
        for fd in fds {
            fd_table::set(fd, Entry::Socket(index));
        }
        let Some(engine) = self.engine.as_deref_mut() else {
            return Some(index);
        };
        let lasting = Events::from_bits_truncate(entry.lasting);
        match role {
            Role::Stream(id) => {
                engine.own_tcp(id, index);
                engine.tcp.own(id, index, lasting);
                if let Some(remote) = engine.stack.remote() {
                    remote.restore_taken(id);
                }
            }
            Role::Listener(halves) => {
                for id in halves.into_iter().flatten() {
                    engine.own_tcp(id, index);
                }
                self.note_listener(index);
                // Threads of the program before may have waited.
                self.show_waiting(index);
                self.pass_option(index, ConnectionOption::Reserve(true));
            }
            Role::Datagram(halves) => {
                for id in halves.into_iter().flatten() {
                    engine.own_udp(id, index);
                }
            }
            Role::Undecided | Role::Dormant | Role::Lost => {}
        }
        self.catch_up(index);
        Some(index)
    }

    fn finish_estate(&mut self, offers: &[(Id, Id)], [tcp, udp]: &[Vec<Id>; 2]) {
        let now = raw::now();
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        let Provider::Served(remote) = &mut engine.stack else {
            return;
        };
        for (listener, connection) in offers {
            remote.restore_offer(id(*listener), id(*connection));
        }
        for closed in tcp {
            let request = TcpRequest::Close(id(*closed));
            engine.stack.tcp_request(now, request);
        }
        for closed in udp {
            let request = UdpRequest::Close(id(*closed));
            engine.stack.udp_request(now, request);
        }
        self.pump();
    }
}
