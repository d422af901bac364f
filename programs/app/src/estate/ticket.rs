//! Tickets: what is left to whoever receives a socket over a Unix socket (see [`crate::passing`]); the
//! sender's part and the receiver's.
use super::keeper::{KEEPERS, Keeper};
use super::packet::{Message, Place, Ticket, VERSION};
use super::passed::File;
use super::{Id, RoleEntry, SocketEntry, end, halves, id, plain};
use crate::attach;
use crate::calls::kernel_name;
use crate::errno::{Answer, fail};
use crate::fd_table::{self, Entry};
use crate::log::{log, write};
use crate::passing::{descriptor, places, replace};
use crate::provider::Provider;
use crate::raw;
use crate::socket::Role;
use crate::state::State;
use core::ffi::c_int;
use rustix::net::{AddressFamily, SocketType, sockopt};
use skink_memory::SocketId;
use skink_messages::{Holder, Protocol, SocketCall};
use skink_sockets::{Client, RequestBody, Routes};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The tickets of a message.
#[derive(Default)]
pub struct Tickets {
    /// In the order of their sockets.
    pub written: Vec<OwnedFd>,
    /// Who holds which sockets for their receivers.
    kept: Vec<(Holder, Vec<(Protocol, SocketId)>)>,
    /// Those of connections that leave with them.
    passed: Vec<File>,
}

/// Makes a ticket of which nobody needs the other end.
fn pack(message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<OwnedFd, String> {
    let (ticket, _end) = message
        .pack(descriptors)
        .map_err(|error| error.to_string())?;
    Ok(ticket)
}

impl State {
    /// Puts tickets in the places of the sockets of Skink's in these control messages, which are to leave by `way`. They are to be closed
    /// after the message was sent; if it wasn't, [`State::take_back`] is to follow.
    pub fn write_tickets(&mut self, way: c_int, control: &mut [u8]) -> Answer<Tickets> {
        let mut passed = Vec::new();
        for place in places(control) {
            let Some(fd) = descriptor(control, place) else {
                continue;
            };
            if let Entry::Socket(index) = fd_table::get(fd) {
                self.leave_to_program(core::iter::once(index));
                if self.passes(index) {
                    passed.push((place, fd, index));
                }
            }
        }
        if passed.is_empty() || self.is_served() && !self.has_shared_stack() {
            return Ok(Tickets::default());
        }
        let mut tickets = Tickets::default();
        let written = passed.iter().try_for_each(|(place, fd, index)| {
            // SAFETY: they are open: the program passes one, and sends by the other.
            let [fd, way] = [*fd, way].map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
            let ticket = self.write_ticket(fd, *index, way, &mut tickets)?;
            replace(control, *place, ticket.as_raw_fd());
            tickets.written.push(ticket);
            Ok(())
        });
        if let Err::<(), String>(reason) = written {
            self.take_back(&tickets);
            write(format_args!("a socket can't be passed: {reason}"));
            return fail(libc::ENOBUFS);
        }
        Ok(tickets)
    }

    /// The message with these tickets wasn't sent.
    pub fn take_back(&mut self, tickets: &Tickets) {
        for ticket in &tickets.passed {
            self.call_back(*ticket);
        }
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        for (holder, sockets) in &tickets.kept {
            let mut keepers = engine.keepers.iter_mut();
            if let Some(keeper) = keepers.find(|keeper| keeper.holder == *holder) {
                keeper.let_go(sockets);
            }
        }
    }

    /// Whether there is a stack in another process, which isn't lost.
    fn has_shared_stack(&self) -> bool {
        let engine = self.engine.as_deref();
        engine.is_some_and(|engine| engine.stack.is_served() && !engine.is_down())
    }

    /// Whether a socket is passed as Skink's.
    fn passes(&mut self, index: u32) -> bool {
        if !self.is_served() {
            if let Role::Stream(id) = self.sockets[index].role
                && self.may_pass(id)
            {
                return true;
            }
            return match self.sockets[index].without_stack() {
                Role::Undecided => self.sockets[index].bound.is_some(),
                Role::Lost => {
                    self.tell_of_sharing("a connection is passed to another process");
                    false
                }
                _ => true,
            };
        }
        let socket = &self.sockets[index];
        if socket.role == Role::Undecided && socket.datagram && socket.bound.is_some() {
            // If that fails, it is the kernel's.
            let _ = self.make_datagram(index);
        }
        self.rest_for_receiver(index);
        match self.sockets[index].role {
            Role::Undecided | Role::Lost => false,
            Role::Dormant => self.sockets[index].tickets != [0; 2],
            Role::Listener(_) | Role::Stream(_) | Role::Datagram(_) => true,
        }
    }

    fn write_ticket(
        &mut self,
        fd: BorrowedFd<'_>,
        index: u32,
        way: BorrowedFd<'_>,
        tickets: &mut Tickets,
    ) -> Result<OwnedFd, String> {
        let engine = self.engine.as_deref();
        let Some((own, Provider::Served(remote))) = engine.map(|own| (own, &own.stack)) else {
            if let Role::Stream(id) = self.sockets[index].role {
                let (ticket, file) = self.write_ticket_of_passed(fd, index, id)?;
                tickets.passed.push(file);
                return Ok(ticket);
            }
            let (broker, _) = attach::broker_named().ok_or("there is no stack")?;
            let message = Message {
                version: VERSION.to_owned(),
                socket: SocketEntry::without_stack(&self.sockets[index], Vec::new(), false),
                place: Place::Own {
                    broker: broker.clone(),
                },
            };
            return pack(&message, &[fd]);
        };
        let mut socket = SocketEntry::of(&self.sockets[index], Vec::new(), own);
        socket.resting = [None; 2];
        if let RoleEntry::Listener(_) = socket.role {
            socket.role = RoleEntry::Dormant;
        }
        let held: Vec<(Protocol, SocketId)> = socket.ids().collect();
        let Some((protocol, id)) = held.first() else {
            return self.write_ticket_of_bound(fd, index, socket);
        };
        let program = remote.table(*protocol).region_of(id.slot);
        let secret = remote.holdings.secret_of(program);
        let secret = secret.ok_or("it is in memory of an unknown program")?;
        let keeper = self.keep(&held, secret, way)?;
        let holder = keeper.holder;
        tickets.kept.push((holder, held));
        let message = Message {
            version: VERSION.to_owned(),
            socket,
            place: Place::Shared {
                region: (program, secret),
                holder: (holder.program, holder.secret),
            },
        };
        pack(&message, &[fd, keeper.broker()])
    }

    /// A keeper that holds these sockets, which are in the region with this secret.
    fn keep(
        &mut self,
        sockets: &[(Protocol, SocketId)],
        secret: u64,
        way: BorrowedFd<'_>,
    ) -> Result<&Keeper, String> {
        let way = rustix::fs::fstat(way).map_err(|error| error.to_string())?;
        let way = (way.st_dev, way.st_ino);
        let engine = self.engine.as_deref_mut().ok_or("there is no stack")?;
        // Some receiver may have ended it.
        let usable = |keeper: &mut Keeper| {
            keeper.way == way && keeper.has_room(sockets) && keeper.keep(sockets, secret).is_ok()
        };
        let known = engine.keepers.iter_mut().position(usable);
        let at = match known {
            Some(at) => at,
            None => {
                engine.keepers.retain(|keeper| keeper.way != way);
                if engine.keepers.len() >= KEEPERS {
                    engine.keepers.remove(0);
                }
                let mut keeper = Keeper::start(way)?;
                keeper.keep(sockets, secret)?;
                engine.keepers.push(keeper);
                if let Some(driver) = self.parking.driver {
                    // It sleeps, and doesn't know yet until when it may.
                    self.parking.wake(driver);
                }
                engine.keepers.len() - 1
            }
        };
        Ok(&engine.keepers[at])
    }

    /// The ticket of a socket that is bound or listens: a program binds one for the receiver, for as long as its connection to the
    /// broker is open.
    fn write_ticket_of_bound(
        &self,
        fd: BorrowedFd<'_>,
        index: u32,
        socket: SocketEntry,
    ) -> Result<OwnedFd, String> {
        let engine = self.engine.as_deref();
        let Some(Provider::Served(own)) = engine.map(|own| &own.stack) else {
            return Err("the stack is in no other process".to_owned());
        };
        let mut holder = attach::start_for_heir(own.holdings.clone())?;
        let Provider::Served(remote) = &mut holder.stack else {
            return Err("the stack is in no other process".to_owned());
        };
        let (opened, _) = self.bind_in_name_of(remote, index);
        let known = remote.synchronize();
        known.map_err(|stop| format!("the stack doesn't answer ({stop:?})"))?;
        let channel = skink_sockets::for_calls(&remote.channel, remote.attachment.routes);
        let channel = channel.ok_or("its holder has no channel")?;
        // SAFETY: the holder has them open.
        let channel = channel.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        let [a, b, c, d, e, f, g, h] = channel;
        let descriptors = [fd, holder.broker.as_fd(), a, b, c, d, e, f, g, h];
        let message = Message {
            version: VERSION.to_owned(),
            socket,
            place: Place::Bound {
                bound: opened.into_iter().map(plain).collect(),
            },
        };
        pack(&message, &descriptors)
    }

    /// Puts the socket in the place of its ticket, descriptor `fd`. If the message was only `peeked` at,
    /// the ticket is still in it.
    pub fn take_ticket(
        &mut self,
        fd: c_int,
        ticket: Ticket,
        close_on_exec: bool,
        peeked: bool,
    ) -> Result<(), String> {
        let mut entry = ticket.message.socket;
        entry.check(&ticket.message.place)?;
        let held: Vec<(Protocol, SocketId)> = entry.ids().collect();
        let same = match &ticket.message.place {
            Place::Passed { .. } if peeked => {
                return Err(
                    "it goes to who receives the message, and this was only looked at".into(),
                );
            }
            place @ Place::Passed { .. } => {
                // SAFETY: it is open: it was just received.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                self.receive_passed(fd, place, ticket.parcel.as_ref(), &mut entry)?
            }
            Place::Own { broker } => {
                self.check_own(broker, &entry, ticket.socket.as_fd())?;
                self.with_kernel_socket(ticket.socket.as_fd())
            }
            Place::Shared { .. } | Place::Bound { .. } => {
                let broker = ticket.broker.as_ref().ok_or("nobody holds it")?;
                let region = match ticket.message.place {
                    Place::Shared { region, .. } => Some(region),
                    _ => None,
                };
                self.take_hold(&entry, region, broker.as_fd())?
            }
        };
        let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
        let arguments = [
            ticket.socket.as_raw_fd() as usize,
            fd as usize,
            flags as usize,
            0,
            0,
            0,
        ];
        // SAFETY: only numbers; the ticket's is the program's, which hasn't seen it yet.
        let moved = unsafe { raw::call(libc::SYS_dup3, arguments) };
        moved.map_err(|stop| format!("it gets no descriptor ({stop:?})"))?;
        match same {
            Some(index) => {
                if fd_table::set(fd, Entry::Socket(index)) {
                    self.sockets[index].fds.push(fd);
                }
            }
            None => {
                entry.fds = vec![fd];
                self.take_socket(entry);
                if ticket.broker.is_some() {
                    self.listen_in_reserve();
                }
            }
        }
        match ticket.message.place {
            _ if peeked => {}
            Place::Shared {
                holder: (program, secret),
                ..
            } => self.relieve(&held, Holder { program, secret }),
            Place::Bound { bound } => {
                if let Some(channel) = ticket.channel {
                    dismiss(channel, &bound);
                }
            }
            Place::Own { .. } | Place::Passed { .. } => {}
        }
        self.pump();
        Ok(())
    }

    /// Whether a socket that was on a stack of the sender's own can be put on this process's. What its sender says of it must be true of
    /// the kernel's socket, which the sender was allowed to bind: anybody may have written the ticket.
    fn check_own(
        &mut self,
        broker: &str,
        entry: &SocketEntry,
        socket: BorrowedFd<'_>,
    ) -> Result<(), String> {
        if attach::broker_named().is_none_or(|(name, _)| name != broker) || self.is_served() {
            return Err("it is from another `skink run` than this process".to_owned());
        }
        let family = match entry.domain {
            libc::AF_INET6 => AddressFamily::INET6,
            _ => AddressFamily::INET,
        };
        let kind = match entry.datagram {
            true => SocketType::DGRAM,
            false => SocketType::STREAM,
        };
        let is_true = sockopt::socket_domain(socket) == Ok(family)
            && sockopt::socket_type(socket) == Ok(kind)
            && kernel_name(socket.as_raw_fd()).is_ok_and(|name| Some(name) == end(entry.bound))
            && entry.own_kernel_socket
            && entry.tickets == [0; 2];
        match is_true {
            true => Ok(()),
            false => Err("it says what can't be".to_owned()),
        }
    }

    /// The socket of this process behind which this one of the kernel's is.
    fn with_kernel_socket(&self, socket: BorrowedFd<'_>) -> Option<u32> {
        let identity = |fd: BorrowedFd<'_>| {
            let stat = rustix::fs::fstat(fd).ok()?;
            Some((stat.st_dev, stat.st_ino))
        };
        let wanted = identity(socket)?;
        let mut sockets = self.sockets.iter();
        let found = sockets.find(|(_, socket)| {
            let fd = socket.fds.first().filter(|_| socket.own_kernel_socket);
            // SAFETY: it is open as long as it stands for a socket.
            let fd = fd.map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) });
            fd.and_then(identity) == Some(wanted)
        });
        found.map(|(index, _)| index)
    }

    /// Holds a socket on a stack in another process, unless this process has it: answers the one that is the same.
    fn take_hold(
        &mut self,
        entry: &SocketEntry,
        region: Option<(u32, u64)>,
        broker: BorrowedFd<'_>,
    ) -> Result<Option<u32>, String> {
        if !self.need_engine() {
            return Err("no stack serves this process".to_owned());
        }
        self.check_stack(broker)?;
        if let Some((program, secret)) = region {
            self.take_region(program, secret)?;
        }
        let same = self.same_socket(entry);
        if same.is_none() {
            self.hold(entry, region)?;
        }
        Ok(same)
    }

    /// Whether the ticket is from the stack that serves this process.
    fn check_stack(&mut self, holder: BorrowedFd<'_>) -> Result<(), String> {
        let engine = self.engine.as_deref().ok_or("there is no stack")?;
        if !engine.stack.is_served() || engine.is_down() {
            return Err("no stack in another process serves this one".to_owned());
        }
        let supervisor = |fd| {
            let peer = sockopt::socket_peercred(fd).ok()?;
            Some((peer.pid, peer.uid))
        };
        match supervisor(holder) {
            Some(theirs) if Some(theirs) == supervisor(engine.broker.as_fd()) => Ok(()),
            _ => Err("it is from another `skink up` than the one that serves this process".into()),
        }
    }

    /// Maps the region of another program, unless it is there.
    fn take_region(&mut self, program: u32, secret: u64) -> Result<(), String> {
        let engine = self.engine.as_deref().ok_or("there is no stack")?;
        let Provider::Served(remote) = &engine.stack else {
            return Err("the stack is in this process".to_owned());
        };
        if remote.holdings.secret_of(program) == Some(secret) {
            return Ok(());
        }
        let own = remote.attachment.program;
        if program == own {
            return Err("its secret is wrong".to_owned());
        }
        // Of an older program of that number nothing is left, nor is another's region that nobody uses.
        let mut used = self.regions_in_use(&remote.holdings);
        used.retain(|other| *other != program);
        used.push(own);
        let engine = self.engine.as_deref_mut().ok_or("there is no stack")?;
        let regions = engine.broker.region(program, secret);
        let regions = regions.map_err(|error| error.to_string())?;
        for slots in [&mut engine.tcp, &mut engine.udp] {
            slots.retain(|region| used.contains(&region));
        }
        let remote = engine.stack.remote().ok_or("there is no stack")?;
        remote.holdings.retain(|region| used.contains(&region));
        let (tcp, udp) = (regions.tcp, regions.udp);
        attach::add_regions(&mut remote.holdings, program, secret, tcp, udp)?;
        attach::mark(engine);
        Ok(())
    }

    /// The socket of this process that is the same one.
    fn same_socket(&self, entry: &SocketEntry) -> Option<u32> {
        let same = |role: Role, tickets: [u64; 2]| match (&entry.role, role) {
            (RoleEntry::Stream(other), Role::Stream(own)) => id(*other) == own,
            (RoleEntry::Datagram(others), Role::Datagram(own)) => halves(*others) == own,
            (RoleEntry::Dormant, Role::Dormant | Role::Listener(_)) => {
                tickets == entry.tickets && tickets != [0; 2]
            }
            _ => false,
        };
        let mut sockets = self.sockets.iter();
        let found = sockets.find(|(_, socket)| same(socket.role, socket.tickets));
        found.map(|(index, _)| index)
    }

    /// The receiver holds these now.
    fn relieve(&mut self, held: &[(Protocol, SocketId)], holder: Holder) {
        let engine = self.engine.as_deref_mut();
        if let Some(remote) = engine.and_then(|engine| engine.stack.remote()) {
            for (protocol, id) in held {
                remote.relieve(*protocol, *id, holder);
            }
        }
    }

    /// Tells the stack that this process holds the socket as well.
    fn hold(&mut self, entry: &SocketEntry, region: Option<(u32, u64)>) -> Result<(), String> {
        let engine = self.engine.as_deref_mut().ok_or("there is no stack")?;
        let remote = engine.stack.remote().ok_or("there is no stack")?;
        let mut told = false;
        for (protocol, id) in entry.ids() {
            let table = remote.table(protocol);
            let theirs = region.is_some_and(|(program, _)| table.region_of(id.slot) == program);
            if !theirs || table.find(id).is_none() {
                return Err("the stack has no such socket".to_owned());
            }
            remote.take(protocol, id);
            told = true;
        }
        let refused = if told { remote.synchronize() } else { Ok(0) };
        match refused {
            Ok(0) => Ok(()),
            Ok(_) => Err("the stack doesn't share the socket".to_owned()),
            Err(stop) => Err(format!("the stack doesn't answer ({stop:?})")),
        }
    }
}

/// A holder has bound a socket for each of two families at most.
const MOST_BOUND: usize = 2;

/// The holder closes what it has bound for the receiver. It ends with its connection to the broker, but that
/// takes a while to be believed.
fn dismiss(channel: [OwnedFd; 8], bound: &[Id]) {
    let bound = bound.iter().take(MOST_BOUND);
    let calls = bound.map(|plain| SocketCall::Close(Protocol::Tcp, id(*plain)));
    let Ok(mut client) = Client::attach(channel.into(), Routes::SINGLE) else {
        log!(
            Debug,
            "a passed socket's holder has a channel that can't be used"
        );
        return;
    };
    for call in calls {
        // Whoever made the ticket may never make room.
        let told = match client.has_room_for_calls() {
            true => client.tell(RequestBody::Call(call)).is_ok(),
            false => false,
        };
        if !told {
            log!(Debug, "a passed socket's holder holds it for a while");
            break;
        }
    }
    client.flush();
}
