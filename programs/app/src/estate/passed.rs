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
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use skink_library::Stack;
use skink_memory::{Parcel, SocketId};
use skink_messages::TcpRequest;
use skink_time::Instant;
use skink_wire::FourTuple;
use std::hash::{Hash, Hasher};
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

/// One of them.
struct Passed {
    id: SocketId,
    flow: FourTuple,
    serial: u32,
    /// The program's socket and its cookie, if that still has it.
    socket: (u32, u32),
    /// The other end of the ticket, until somebody has it.
    end: OwnedFd,
    ticket: File,
    /// When that was first seen.
    claimed: Option<Instant>,
}

impl Passed {
    fn comes_back(&self, now: Instant, stack: &mut Stack) {
        stack.on_handed_over(now, &self.flow, self.serial, None, |_, _| {});
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        fd_table::set(self.end.as_raw_fd(), Entry::Ordinary);
    }
}

/// All of them.
#[derive(Default)]
pub struct PassedOn {
    list: Vec<Passed>,
    /// Those that nobody has taken.
    returned: Vec<Passed>,
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
        !self.returned.is_empty()
    }

    /// When they are to be looked after.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.list.is_empty()).then_some(self.look)
    }

    /// After `fork`, in the child: they are the parent's.
    pub fn leave_to_parent(&mut self) {
        self.list.clear();
        self.returned.clear();
    }

    /// The stack has heard whether another process has this one.
    pub fn heard(&mut self, serial: u32, taken: bool) {
        let mut list = self.list.iter();
        if let Some(at) = list.position(|passed| passed.serial == serial) {
            let passed = self.list.swap_remove(at);
            if !taken {
                self.returned.push(passed);
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
            match is_claimed(&passed.end) {
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
        for passed in forgotten {
            stack.forget_passed(now, &passed.flow, passed.serial);
        }
    }

    /// Takes back the one that left with this ticket.
    fn take_back(&mut self, now: Instant, ticket: File, stack: &mut Stack) -> Option<Passed> {
        let at = self.list.iter().position(|it| it.ticket == ticket)?;
        let passed = self.list.swap_remove(at);
        passed.comes_back(now, stack);
        Some(passed)
    }
}

/// Whether somebody has claimed the connection of a ticket; `None` if that may still be. (The helper, which has descriptors of its own,
/// can't say.)
fn is_claimed(end: &OwnedFd) -> Option<bool> {
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

/// What only who knows the token can make of a connection that is passed.
fn seal(token: &str, numbers: (u16, u32), parcel: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    (token, numbers, parcel, token).hash(&mut hasher);
    hasher.finish()
}

/// Which file a descriptor is of.
fn file_of(fd: BorrowedFd<'_>) -> Result<File, String> {
    let stat = rustix::fs::fstat(fd).map_err(|error| error.to_string())?;
    Ok((stat.st_dev, stat.st_ino))
}

/// A file with a parcel in it.
fn write_parcel(mut rest: &[u8]) -> std::io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("skink-connection", MemfdFlags::CLOEXEC)?;
    while !rest.is_empty() {
        let count = rustix::io::write(&file, rest)?;
        rest = &rest[count..];
    }
    Ok(file)
}

/// What is in such a file, which has no more than `most` bytes.
fn read_parcel(file: BorrowedFd<'_>, most: usize) -> Result<Vec<u8>, String> {
    let size = rustix::fs::fstat(file)
        .map_err(|error| error.to_string())?
        .st_size;
    let size = usize::try_from(size).ok().filter(|size| *size <= most);
    let mut bytes = vec![0; size.ok_or("it is too large")?];
    let count = rustix::io::pread(file, &mut bytes, 0).map_err(|error| error.to_string())?;
    bytes.truncate(count);
    Ok(bytes)
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
        let socket = SocketEntry::of(&self.sockets[index], Vec::new(), engine);
        let serial = engine.passed.serial.wrapping_add(1).max(1);
        engine.passed.serial = serial;
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
                seal: seal(token, (from, serial), &parcel),
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
        let socket = &mut self.sockets[index];
        (socket.role, socket.passed_on) = (Role::Lost, true);
        if engine.passed.is_empty() {
            engine.passed.look = now + AGAIN;
        }
        engine.passed.list.push(Passed {
            id,
            flow,
            serial,
            socket: (index, socket.cookie),
            // SAFETY: it is ours, and moved only.
            end: unsafe { OwnedFd::from_raw_fd(internal(end.into_raw_fd())) },
            ticket: file,
            claimed: None,
        });
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
        while let Some(engine) = self.engine.as_deref_mut() {
            let Some(passed) = engine.passed.returned.pop() else {
                return;
            };
            let (index, cookie) = passed.socket;
            let socket = &mut self.sockets[index];
            if socket.cookie == cookie && socket.passed_on && !socket.fds.is_empty() {
                (socket.role, socket.passed_on) = (Role::Stream(passed.id), false);
                engine.own_tcp(passed.id, index);
                self.catch_up(index);
                self.mark_ready(index);
                self.wake_waiters(index);
            } else {
                let close = TcpRequest::Close(passed.id);
                engine.stack.tcp_request(raw::now(), close);
            }
            self.note_work();
        }
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
        let Engine {
            stack,
            passed,
            broker,
            ..
        } = engine;
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
        let config = stack.tcp_table().region(0).map(|region| region.config());
        let config = config.ok_or("the stack has no sockets")?;
        let most = 4096 + config.send_bytes as usize + config.receive_bytes as usize;
        let parcel = parcel.ok_or("there is nothing in it")?;
        let parcel = read_parcel(parcel.as_fd(), most)?;
        if seal(token, (*from, *serial), &parcel) != *sealed {
            return Err("it was made by somebody else".to_owned());
        }
        let parcel = Parcel::from_bytes(&parcel).ok_or("it can't be read")?;
        let flow = parcel.four_tuple();
        // Whoever takes the packet out of the ticket has it, which may be open in several processes.
        let flags = RecvFlags::DONTWAIT;
        if rustix::net::recv(fd, &mut [0; 1], flags).is_err() {
            return Err("somebody else has it".to_owned());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if rustix::net::send(fd, CLAIM, flags).is_err() {
            return Err("its sender has ended".to_owned());
        }
        let adopted = stack.tcp_adopt(now, &parcel);
        broker.tell_taken_in(*from, *serial, &flow, adopted.is_some());
        if adopted.is_some() {
            // One that comes back is no longer on its way.
            passed.list.retain(|passed| passed.flow != flow);
        }
        let id = adopted.ok_or("the stack can't adopt it")?;
        engine.expect_word(now);
        log!(Info, "the connection {flow} comes from owner {from}");
        entry.role = RoleEntry::Stream(plain(id));
        Ok(None)
    }
}
