//! Connections that leave this process's own stack for that of the process which receives them (see [`crate::passing`]).
//!
//! Under `skink up` a passed socket stays where it is, on the stack that all share. Here it must move: the message's ticket has the
//! connection in it, as a [`Parcel`], which the receiver's stack adopts. Until then the connection is *away* on this process's stack. The
//! receiver *claims* it by a byte that it writes to the ticket, of whose pair of sockets this process has the other end: so there is one
//! that has the connection at any moment. Nobody has claimed it when the last descriptor of the ticket is closed: then it goes on here,
//! or is closed, if the program has closed its own. The broker leads the flow to the receiver, and says so.
use super::packet::{Message, Place, VERSION};
use super::{RoleEntry, SocketEntry, plain};
use crate::attach;
use crate::engine::Engine;
use crate::fd_table::{self, Entry};
use crate::log::log;
use crate::provider::Provider;
use crate::raw;
use crate::socket::Role;
use crate::state::{State, internal};
use core::ffi::c_int;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use skink_control::tether::{self, Numbers, read_parcel, seal, write_parcel};
use skink_library::Stack;
use skink_memory::{Parcel, SocketId};
use skink_messages::TcpRequest;
use skink_time::Instant;
use skink_wire::FourTuple;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;

/// How often it is looked what has become of those that nobody has told of.
const AGAIN: Duration = Duration::from_millis(50);

/// Who has claimed a connection, and of whom nothing is heard for so long, has taken it along into death.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a receiver claims it by.
const CLAIM: &[u8; 11] = b"skink-claim";

/// Which file a ticket is.
pub type File = (u64, u64);

/// One of the library's own descriptors: the other end of what a program, or a message, has.
pub(super) struct End(OwnedFd);

impl End {
    /// Moves it out of the program's way.
    pub fn keep(fd: OwnedFd) -> End {
        // SAFETY: it is ours, and moved only.
        End(unsafe { OwnedFd::from_raw_fd(internal(fd.into_raw_fd())) })
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        fd_table::set(self.0.as_raw_fd(), Entry::Ordinary);
    }
}

/// One of them.
pub(super) struct Passed {
    pub(super) id: SocketId,
    pub(super) flow: FourTuple,
    serial: u32,
    /// The program's socket and its cookie, if that still has it.
    pub(super) socket: (u32, u32),
    /// The other end of the ticket, or this one of the tether, until somebody has it.
    pub(super) end: End,
    /// `None` if it left by a tether ([`super::tethered`]).
    ticket: Option<File>,
    /// When it was first seen that somebody has claimed it.
    claimed: Option<Instant>,
    /// Whoever has claimed it hasn't been heard of.
    forgotten: bool,
}

impl Passed {
    pub(super) fn by_tether(
        id: SocketId,
        flow: FourTuple,
        serial: u32,
        socket: (u32, u32),
        end: End,
    ) -> Passed {
        Passed {
            id,
            flow,
            serial,
            socket,
            end,
            ticket: None,
            claimed: None,
            forgotten: false,
        }
    }

    /// Whether somebody has claimed it; `None` if that may still be. (The helper, which has descriptors of its own, can't say.)
    fn is_claimed(&self) -> Option<bool> {
        match self.ticket {
            Some(_) => is_claimed(&self.end),
            None => is_taken(&self.end),
        }
    }

    fn comes_back(&self, now: Instant, stack: &mut Stack) {
        stack.on_handed_over(now, &self.flow, self.serial, None, |_, _| {});
    }
}

/// All of them.
#[derive(Default)]
pub struct PassedOn {
    list: Vec<Passed>,
    /// Those that nobody has taken.
    returned: Vec<Passed>,
    /// Those of which only the descriptor is left. The helper, which has descriptors of its own, can't close it.
    over: Vec<Passed>,
    /// When to look after them.
    look: Instant,
    /// The number of the last one.
    serial: u32,
}

impl PassedOn {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether [`State::settle_returned`] has something to do.
    #[inline]
    pub fn has_returned(&self) -> bool {
        !self.returned.is_empty() || !self.over.is_empty()
    }

    /// Whether one has left by a tether, and isn't known to have arrived.
    pub(super) fn has_tethered(&self) -> bool {
        self.list.iter().any(|it| it.ticket.is_none())
    }

    /// Until when one that has left by a tether is to be looked after.
    pub(super) fn tethered_until(&self) -> Option<Instant> {
        let mut all = self.list.iter().chain(&self.returned);
        all.any(|it| it.ticket.is_none()).then_some(self.look)
    }

    /// The number of the next one.
    pub(super) fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1).max(1);
        self.serial
    }

    /// One more has left.
    pub(super) fn add(&mut self, now: Instant, passed: Passed) {
        if self.list.is_empty() {
            self.look = now + AGAIN;
        }
        self.list.push(passed);
    }

    /// When they are to be looked after.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.list.is_empty()).then_some(self.look)
    }

    /// After `fork`, in the child: they are the parent's.
    pub fn leave_to_parent(&mut self) {
        self.list.clear();
        self.returned.clear();
        self.over.clear();
    }

    /// The stack has heard whether another process has this one.
    pub fn heard(&mut self, serial: u32, taken: bool) {
        let mut list = self.list.iter();
        if let Some(at) = list.position(|passed| passed.serial == serial) {
            let passed = self.list.swap_remove(at);
            match taken {
                true => self.over.push(passed),
                false => self.returned.push(passed),
            }
        }
    }

    /// Looks what has become of them.
    pub fn look_after(&mut self, now: Instant, stack: &mut Stack) {
        if now < self.look {
            return;
        }
        self.look = now + AGAIN;
        for passed in &mut self.list {
            if passed.claimed.is_some() {
                continue;
            }
            match passed.is_claimed() {
                Some(true) => passed.claimed = Some(now),
                Some(false) => passed.comes_back(now, stack),
                None => {}
            }
        }
        let lives = |passed: &Passed| stack.tcp().is_away(passed.id);
        let (away, back): (Vec<Passed>, Vec<Passed>) =
            core::mem::take(&mut self.list).into_iter().partition(lives);
        self.returned.extend(back);
        let (forgotten, away): (Vec<Passed>, Vec<Passed>) = away
            .into_iter()
            .partition(|passed| passed.claimed.is_some_and(|since| now >= since + PATIENCE));
        self.list = away;
        for mut passed in forgotten {
            stack.forget_passed(now, &passed.flow, passed.serial);
            passed.forgotten = true;
            self.over.push(passed);
        }
    }

    /// Takes back the one that left with this ticket.
    fn take_back(&mut self, now: Instant, ticket: File, stack: &mut Stack) -> Option<Passed> {
        let at = self.list.iter();
        let at = at.clone().position(|it| it.ticket == Some(ticket))?;
        let passed = self.list.swap_remove(at);
        passed.comes_back(now, stack);
        Some(passed)
    }
}

/// Whether somebody has claimed the connection of a ticket.
fn is_claimed(end: &End) -> Option<bool> {
    let mut said = [0; CLAIM.len() + 1];
    let mut look = || rustix::net::recv(end, &mut said, RecvFlags::DONTWAIT);
    let count = match look() {
        // Its descriptors are closed, with what was in its queue: that is told before what it has said.
        Err(Errno::CONNRESET) => look(),
        count => count,
    };
    let (_, count) = count.ok()?;
    match said.get(..count) {
        Some([]) => Some(false),
        // (What a program writes that uses a ticket as its connection claims nothing.)
        said => (said == Some(CLAIM)).then_some(true),
    }
}

/// Whether somebody has taken a connection from a tether: nothing waits at the other end any more. Nobody will if nobody has that.
fn is_taken(end: &End) -> Option<bool> {
    let fd = end.as_fd().as_raw_fd();
    let mut list = [raw::to_poll(fd, 0)];
    let _ = raw::ppoll(&mut list, Some(Duration::ZERO), core::ptr::null());
    if list[0].revents & libc::POLLNVAL != 0 {
        return None;
    }
    if list[0].revents & libc::POLLHUP != 0 {
        return Some(!tether::is_lost(end.as_fd()));
    }
    let mut waits: c_int = 0;
    // SAFETY: the place is ours.
    let asked = unsafe {
        let arguments = [
            fd as usize,
            libc::TIOCOUTQ as usize,
            &raw mut waits as usize,
            0,
            0,
            0,
        ];
        raw::call(libc::SYS_ioctl, arguments)
    };
    (asked.is_ok() && waits == 0).then_some(true)
}

/// Which file a descriptor is of.
fn file_of(fd: BorrowedFd<'_>) -> Result<File, String> {
    let stat = rustix::fs::fstat(fd).map_err(|error| error.to_string())?;
    Ok((stat.st_dev, stat.st_ino))
}

impl State {
    /// Whether the connection of a socket can leave this process's own stack for another process's.
    pub(super) fn may_pass(&mut self, id: SocketId) -> bool {
        let Some(engine) = self.engine.as_deref_mut() else {
            return false;
        };
        match &mut engine.stack {
            Provider::Library(stack) if !engine.is_sole => stack.tcp_may_pass(id),
            _ => false,
        }
    }

    /// The ticket of a connection that leaves this process's own stack with it. Answers the file that it is, too, by which
    /// [`State::call_back`] finds it.
    pub(super) fn write_ticket_of_passed(
        &mut self,
        fd: BorrowedFd<'_>,
        index: u32,
        id: SocketId,
    ) -> Result<(OwnedFd, File), String> {
        let now = raw::now();
        let (broker, token) = attach::broker_named().ok_or("there is no stack")?;
        let engine = self.engine.as_deref_mut().ok_or("there is no stack")?;
        let mut socket = SocketEntry::of(&self.sockets[index], Vec::new(), engine);
        socket.tethered = false;
        let serial = engine.passed.next_serial();
        let Provider::Library(stack) = &mut engine.stack else {
            return Err("the stack is in another process".to_owned());
        };
        let parcel = stack.tcp_pass(now, id, serial).ok_or("it isn't open")?;
        let (flow, parcel) = (parcel.four_tuple(), parcel.to_bytes());
        let from = engine.owner;
        let message = Message {
            version: VERSION.to_owned(),
            socket,
            place: Place::Passed {
                broker: broker.clone(),
                from,
                serial,
                seal: seal(token, Numbers { from, serial }, &parcel),
            },
        };
        let pack = || {
            let file = write_parcel(&parcel).map_err(|error| error.to_string())?;
            let pair = message.pack(&[fd, file.as_fd()]);
            let (ticket, end) = pair.map_err(|error| error.to_string())?;
            let file = file_of(ticket.as_fd())?;
            Ok((ticket, end, file))
        };
        let (ticket, end, file) = pack().inspect_err(|_: &String| {
            stack.on_handed_over(now, &flow, serial, None, |_, _| {});
        })?;
        engine.disown_tcp(id);
        // Others that have it lose it.
        if engine.tethers.forget(id) {
            engine.broker.tell_untethered(&flow);
        }
        let socket = &mut self.sockets[index];
        (socket.role, socket.passed_on) = (Role::Lost, true);
        socket.tethered = false;
        let passed = Passed {
            id,
            flow,
            serial,
            socket: (index, socket.cookie),
            end: End::keep(end),
            ticket: Some(file),
            claimed: None,
            forgotten: false,
        };
        engine.passed.add(now, passed);
        Ok((ticket, file))
    }

    /// The message with this ticket wasn't sent.
    pub(super) fn call_back(&mut self, ticket: File) {
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        let Provider::Library(stack) = &mut engine.stack else {
            return;
        };
        if let Some(passed) = engine.passed.take_back(raw::now(), ticket, stack) {
            engine.passed.returned.push(passed);
            self.settle_returned();
        }
    }

    /// What nobody has taken goes on here, if the program still has it.
    #[cold]
    pub fn settle_returned(&mut self) {
        // The helper has descriptors of its own: others close these, and the usher has tethers.
        let is_helper = crate::helper::is_here();
        while let Some(engine) = self.engine.as_deref_mut() {
            if !is_helper {
                for passed in engine.passed.over.drain(..) {
                    if passed.forgotten && passed.ticket.is_none() {
                        // Who asks for it finds nobody.
                        engine.broker.tell_untethered(&passed.flow);
                    }
                }
            }
            let mut returned = engine.passed.returned.iter();
            let Some(at) = returned.position(|it| it.ticket.is_some() || !is_helper) else {
                return;
            };
            let passed = engine.passed.returned.swap_remove(at);
            if passed.ticket.is_none() {
                self.tether_again(passed);
                continue;
            }
            let (index, cookie) = passed.socket;
            let socket = &mut self.sockets[index];
            if socket.cookie == cookie && socket.passed_on && !socket.fds.is_empty() {
                (socket.role, socket.passed_on) = (Role::Stream(passed.id), false);
                engine.own_tcp(passed.id, index);
                engine.passed.over.push(passed);
                self.catch_up(index);
                self.mark_ready(index);
                self.wake_waiters(index);
            } else {
                let close = TcpRequest::Close(passed.id);
                engine.stack.tcp_request(raw::now(), close);
                engine.passed.over.push(passed);
            }
            self.note_work();
        }
    }

    /// The connection that left with this number, if it is still on its way, goes on here.
    pub(super) fn take_back_serial(&mut self, serial: u32) -> bool {
        let Some(engine) = self.engine.as_deref_mut() else {
            return false;
        };
        let Provider::Library(stack) = &mut engine.stack else {
            return false;
        };
        let mut list = engine.passed.list.iter();
        let Some(at) = list.position(|it| it.ticket.is_none() && it.serial == serial) else {
            return false;
        };
        let passed = engine.passed.list.swap_remove(at);
        passed.comes_back(raw::now(), stack);
        engine.passed.returned.push(passed);
        self.settle_returned();
        true
    }

    /// Whether a connection that this process has passed is on its stack again, as nobody has received it.
    #[cold]
    pub fn has_come_back(&mut self, index: u32) -> bool {
        if !self.sockets[index].passed_on {
            return false;
        }
        let now = raw::now();
        if let Some(engine) = self.engine.as_deref_mut()
            && let Provider::Library(stack) = &mut engine.stack
        {
            engine.passed.look = now;
            engine.passed.look_after(now, stack);
        }
        self.settle_returned();
        !self.sockets[index].passed_on
    }

    /// This process ends: whoever hasn't claimed what it was passed comes too late.
    pub fn stop_passing(&mut self) {
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        let Provider::Library(stack) = &mut engine.stack else {
            return;
        };
        let now = raw::now();
        // Those that left by tethers are others' to claim also after its end.
        engine.passed.list.retain(|passed| passed.ticket.is_some());
        for passed in &engine.passed.list {
            // From now on nobody can claim it.
            let _ = rustix::net::shutdown(&passed.end, rustix::net::Shutdown::Both);
        }
        engine.passed.look = now;
        engine.passed.look_after(now, stack);
        let rest = core::mem::take(&mut engine.passed.list);
        for passed in rest {
            if passed.claimed.is_some() {
                stack.forget_passed(now, &passed.flow, passed.serial);
            } else {
                passed.comes_back(now, stack);
                engine.passed.returned.push(passed);
            }
        }
        self.settle_returned();
    }

    /// A connection came with this ticket, and a parcel: this process's stack adopts it. Answers the socket of this
    /// process that is the same one, if there is one.
    pub(super) fn receive_passed(
        &mut self,
        fd: BorrowedFd<'_>,
        place: &Place,
        parcel: Option<&OwnedFd>,
        entry: &mut SocketEntry,
    ) -> Result<Option<u32>, String> {
        let Place::Passed {
            broker,
            from,
            serial,
            seal: sealed,
        } = place
        else {
            return Err("it isn't on its way".to_owned());
        };
        let (name, token) = attach::broker_named().ok_or("there is no stack")?;
        if name != broker || self.is_served() {
            return Err("it is from another `skink run` than this process".to_owned());
        }
        if !self.need_engine() {
            return Err("this process has no stack".to_owned());
        }
        let now = raw::now();
        let file = file_of(fd)?;
        let engine = self.engine.as_deref_mut().ok_or("there is no stack")?;
        let Engine { stack, passed, .. } = engine;
        let Provider::Library(stack) = stack else {
            return Err("the stack is in another process".to_owned());
        };
        if let Some(own) = passed.take_back(now, file, stack) {
            // From this process to itself.
            let (index, cookie) = own.socket;
            let socket = &self.sockets[index];
            if socket.cookie == cookie && socket.passed_on && !socket.fds.is_empty() {
                passed.returned.push(own);
                self.settle_returned();
                return Ok(Some(index));
            }
            entry.role = RoleEntry::Stream(plain(own.id));
            return Ok(None);
        }
        let parcel = parcel.ok_or("there is nothing in it")?;
        let parcel = read_parcel(parcel.as_fd(), self.most_parcel_bytes()?)?;
        let numbers = Numbers {
            from: *from,
            serial: *serial,
        };
        if seal(token, numbers, &parcel) != *sealed {
            return Err("it was made by somebody else".to_owned());
        }
        let parcel = Parcel::from_bytes(&parcel).ok_or("it can't be read")?;
        // Whoever takes the packet out of the ticket has it, which may be open in several processes.
        let flags = RecvFlags::DONTWAIT;
        if rustix::net::recv(fd, &mut [0; 1], flags).is_err() {
            return Err("somebody else has it".to_owned());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if rustix::net::send(fd, CLAIM, flags).is_err() {
            return Err("its sender has ended".to_owned());
        }
        let id = self.adopt_parcel(&parcel, *from, *serial)?;
        entry.role = RoleEntry::Stream(plain(id));
        Ok(None)
    }

    /// No parcel for this process's stack is larger.
    pub(super) fn most_parcel_bytes(&self) -> Result<usize, String> {
        let engine = self.engine.as_deref().ok_or("there is no stack")?;
        let region = engine.stack.tcp_table().region(0);
        let config = region.map(|region| region.config());
        let config = config.ok_or("the stack has no sockets")?;
        Ok(4096 + config.send_bytes as usize + config.receive_bytes as usize)
    }

    /// This process's stack adopts a connection that owner `from` gave this number.
    pub(super) fn adopt_parcel(
        &mut self,
        parcel: &Parcel,
        from: u16,
        serial: u32,
    ) -> Result<SocketId, String> {
        let engine = self.engine.as_deref_mut().ok_or("there is no stack")?;
        let Provider::Library(stack) = &mut engine.stack else {
            return Err("the stack is in another process".to_owned());
        };
        let (now, flow) = (raw::now(), parcel.four_tuple());
        let adopted = stack.tcp_adopt(now, parcel);
        let taken = adopted.is_some();
        engine.broker.tell_taken_in(from, serial, &flow, taken);
        let id = adopted.ok_or("the stack can't adopt it")?;
        // One that comes back is no longer on its way.
        let list = core::mem::take(&mut engine.passed.list);
        let (back, away) = list.into_iter().partition(|passed| passed.flow == flow);
        engine.passed.list = away;
        engine.passed.over.extend::<Vec<Passed>>(back);
        engine.expect_word(now);
        log!(Info, "the connection {flow} comes from owner {from}");
        Ok(id)
    }
}
