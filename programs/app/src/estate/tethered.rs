//! Connections that several processes have, where each has a stack of its own: after `fork`, and in programs that were begun with them.
//!
//! Such a connection is on the stack of one of them, and goes to that of another one when that uses it. A *tether* holds it to all of
//! them: a pair of Unix sockets, of which the program's descriptors are the one end, in every process that has them by whatever way,
//! and the other one is with the process whose stack has the connection. Who uses it elsewhere asks by the one end, and finds it there as
//! a [`Parcel`], with the other end: the next one who takes that has it. If the other end is closed the connection has died
//! with its process. And once nobody has a descriptor any more, which the kernel tells, it is closed, and not before.
//!
//! A thread of its own, the *usher*, hears who asks: the program may wait for anything, and the helper's descriptors are its own.
use super::passed::{End, Passed, read_parcel, seal, write_parcel};
use crate::attach;
use crate::descriptor::is_guest;
use crate::engine::Engine;
use crate::errno::{Answer, Stop};
use crate::fd_table::{self, Entry};
use crate::lock::lock;
use crate::log::log;
use crate::provider::Provider;
use crate::raw;
use crate::socket::Role;
use crate::state::State;
use crate::threads;
use core::ffi::c_int;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::io::{Errno, FdFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};
use skink_memory::{Parcel, SocketId};
use skink_messages::TcpRequest;
use skink_time::Instant;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Versions that can't read each other's give each other nothing.
const VERSION: &str = concat!("skink-tether-1-", env!("CARGO_PKG_VERSION"));

/// What is said by who asks.
const WANT: &[u8; 10] = b"skink-want";

/// No packet is larger.
const MAXIMUM_BYTES: usize = 1024;

/// So many connections of a process are tethered at most: each takes a descriptor. Others stay with the parent.
const MOST: usize = 256;

/// Who asks waits so long: whose stack has the connection may be stopped.
const PATIENCE: Duration = Duration::from_secs(10);

/// After so long it asks again: another one may have taken what it had asked for.
const AGAIN: Duration = Duration::from_millis(200);

/// So long a connection stays where it has come: two processes that wait for it at once would do nothing but ask each other.
const STAY: Duration = Duration::from_millis(20);

/// One of this process's sockets may be on another one's stack.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// The usher is there.
static USHER: AtomicBool = AtomicBool::new(false);

/// One of them, on this process's stack.
struct Tether {
    id: SocketId,
    /// The program's socket and its cookie; it may have closed that.
    socket: (u32, u32),
    end: End,
    /// Not given to anybody before.
    stays: Instant,
    /// Somebody has asked.
    wanted: bool,
}

/// All of them.
#[derive(Default)]
pub struct Tethers {
    list: Vec<Tether>,
    /// A set of their ends, once there are some.
    set: Option<End>,
}

impl Tethers {
    /// After `fork`, in the child: they are the parent's.
    pub fn leave_to_parent(&mut self) {
        self.list.clear();
        self.set = None;
        USHER.store(false, Ordering::Relaxed);
    }

    fn add(&mut self, tether: Tether) -> Result<(), Errno> {
        let set = match &self.set {
            Some(set) => set,
            None => {
                let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                self.set.insert(End::keep(set))
            }
        };
        let data = epoll::EventData::new_u64(0);
        epoll::add(set.as_fd(), tether.end.as_fd(), data, epoll::EventFlags::IN)?;
        self.list.push(tether);
        Ok(())
    }

    /// The connection leaves otherwise.
    pub(super) fn forget(&mut self, id: SocketId) {
        if let Some(at) = self.list.iter().position(|tether| tether.id == id) {
            self.take(at);
        }
    }

    fn take(&mut self, at: usize) -> Tether {
        let tether = self.list.swap_remove(at);
        if let Some(set) = &self.set {
            let _ = epoll::delete(set.as_fd(), tether.end.as_fd());
        }
        tether
    }
}

/// What goes with a parcel.
#[derive(Serialize, Deserialize)]
struct Packet {
    version: String,
    /// As in [`super::Place::Passed`].
    broker: String,
    from: u16,
    serial: u32,
    seal: u64,
}

/// What has become of a question.
enum Fetched {
    /// The connection is here.
    Here,
    /// Nobody has it any more, or this process can't.
    Lost,
    /// It isn't here yet.
    Asked,
}

/// Whether the usher is there.
pub fn has_usher() -> bool {
    USHER.load(Ordering::Relaxed)
}

/// A call is about to use the socket behind `fd`: if its connection is on another process's stack, it comes to this one's.
#[inline]
pub fn summon(fd: c_int) {
    if ELSEWHERE.load(Ordering::Relaxed) && matches!(fd_table::get(fd), Entry::Socket(_)) {
        summon_slowly(fd);
    }
}

#[cold]
fn summon_slowly(fd: c_int) {
    if is_guest() || crate::lock::is_held_here() {
        return;
    }
    let deadline = raw::now() + PATIENCE;
    let mut asked = None;
    while let Ok(mut state) = lock() {
        let Entry::Socket(index) = fd_table::get(fd) else {
            return;
        };
        if !state.sockets[index].is_elsewhere() {
            return;
        }
        match state.fetch(fd, index, &mut asked) {
            Fetched::Here | Fetched::Lost => return,
            Fetched::Asked if raw::now() >= deadline => {
                log!(
                    Error,
                    "descriptor {fd}: the process that has the connection doesn't hand it over"
                );
                return;
            }
            Fetched::Asked => {}
        }
        drop(state);
        let mut list = [raw::to_poll(fd, libc::POLLIN)];
        let _ = raw::ppoll(&mut list, Some(AGAIN), core::ptr::null());
    }
}

/// Makes a call on the socket behind `fd`, if need be again: its connection may leave for another process while the call waits.
#[inline]
pub fn here<T>(fd: c_int, mut call: impl FnMut() -> Answer<T>) -> Answer<T> {
    loop {
        summon(fd);
        match call() {
            Err(Stop::Errno(libc::ENOTCONN)) if has_left(fd) => {}
            answer => return answer,
        }
    }
}

#[cold]
fn has_left(fd: c_int) -> bool {
    if !ELSEWHERE.load(Ordering::Relaxed) || is_guest() {
        return false;
    }
    let Ok(state) = lock() else { return false };
    matches!(fd_table::get(fd), Entry::Socket(index) if state.sockets[index].is_elsewhere())
}

/// Puts `end` in the place of a descriptor of the program's.
fn replace(fd: c_int, end: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: it is open: it stands for a socket of the program's.
    let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) })?;
    let flags = if flags.contains(FdFlags::CLOEXEC) {
        libc::O_CLOEXEC
    } else {
        0
    };
    let from = end.as_raw_fd() as usize;
    // SAFETY: only numbers. What was there is of no use: a socket that is never connected.
    let done = unsafe { raw::call(libc::SYS_dup3, [from, fd as usize, flags as usize, 0, 0, 0]) };
    done.map(|_| ()).map_err(|_| Errno::BADF)
}

/// Takes what waits at the program's end.
fn receive(fd: BorrowedFd<'_>) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let mut text = vec![0; MAXIMUM_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(&mut text)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let count = rustix::net::recvmsg(fd, &mut pieces, &mut ancillary, flags)?.bytes;
    let mut beside = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            beside.extend(rights);
        }
    }
    text.truncate(count);
    Ok((text, beside))
}

/// Whether nobody has a descriptor of a tether any more.
fn is_let_go(end: BorrowedFd<'_>) -> bool {
    let mut list = [PollFd::new(&end, PollFlags::empty())];
    let now = rustix::time::Timespec::default();
    let polled = poll(&mut list, Some(&now)).is_ok();
    polled && list[0].revents().contains(PollFlags::HUP)
}

impl State {
    /// Another process is about to get these sockets, too: their connections are tethered, if they are on this process's own stack.
    pub fn tether(&mut self, sockets: impl Iterator<Item = u32>) {
        if !self.has_own_stack() {
            return;
        }
        let mut added = false;
        for index in sockets {
            let socket = &self.sockets[index];
            let Role::Stream(id) = socket.role else {
                continue;
            };
            let room = |engine: &Engine| engine.tethers.list.len() < MOST;
            if socket.tethered
                || socket.connecting
                || !self.engine.as_deref().is_some_and(room)
                || !self.may_pass(id)
            {
                continue;
            }
            match self.tie(index, id) {
                Ok(()) => added = true,
                Err(error) => {
                    log!(
                        Error,
                        "a connection isn't shared with a new process: {error}"
                    );
                    break;
                }
            }
        }
        if added {
            self.need_usher();
        }
    }

    fn tie(&mut self, index: u32, id: SocketId) -> Result<(), Errno> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        for fd in &self.sockets[index].fds {
            replace(*fd, near.as_fd())?;
        }
        self.keep_tether(index, id, End::keep(far), Instant::ZERO)?;
        let socket = &mut self.sockets[index];
        (socket.tethered, socket.own_kernel_socket) = (true, false);
        Ok(())
    }

    /// The connection is on this process's stack, and this is its end of the tether.
    fn keep_tether(
        &mut self,
        index: u32,
        id: SocketId,
        end: End,
        stays: Instant,
    ) -> Result<(), Errno> {
        let socket = (index, self.sockets[index].cookie);
        let engine = self.engine.as_deref_mut().ok_or(Errno::NOTCONN)?;
        engine.tethers.add(Tether {
            id,
            socket,
            end,
            stays,
            wanted: false,
        })
    }

    /// A thread hears who asks, from now on. (Just after `fork`, in the parent, or whenever a connection has come.)
    fn need_usher(&mut self) {
        let set = self
            .engine
            .as_deref()
            .and_then(|it| it.tethers.set.as_ref());
        let Some(set) = set.map(|set| set.as_fd().as_raw_fd()) else {
            return;
        };
        if USHER.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Err(error) = threads::spawn_ours("skink-usher", move || usher(set)) {
            USHER.store(false, Ordering::Relaxed);
            log!(
                Error,
                "nobody hears who asks for a shared connection: {error}"
            );
        }
    }

    /// Looks after all tethers. Answers until when there is nothing to do unless somebody asks; or no usher is needed any more.
    fn look_after_tethers(&mut self) -> Option<Option<Instant>> {
        let now = raw::now();
        if let Some(engine) = self.engine.as_deref_mut()
            && let Provider::Library(stack) = &mut engine.stack
        {
            engine.passed.look_after(now, stack);
        }
        self.settle_returned();
        let mut at = 0;
        while let Some(engine) = self.engine.as_deref_mut() {
            let Some(tether) = engine.tethers.list.get_mut(at) else {
                break;
            };
            tether.hear();
            if is_let_go(tether.end.as_fd()) {
                self.close_tethered(at);
            } else if tether.wanted && now >= tether.stays {
                self.give(at, false);
            } else {
                at += 1;
            }
        }
        self.flush();
        let engine = self.engine.as_deref()?;
        let away = engine.passed.tethered_until();
        let list = &engine.tethers.list;
        if list.is_empty() && away.is_none() {
            USHER.store(false, Ordering::Relaxed);
            return None;
        }
        let wanted = list.iter().filter(|tether| tether.wanted);
        Some(wanted.map(|tether| tether.stays).chain(away).min())
    }

    /// Nobody has a descriptor any more.
    fn close_tethered(&mut self, at: usize) {
        if let Some(engine) = self.engine.as_deref_mut() {
            let tether = engine.tethers.take(at);
            engine.disown_tcp(tether.id);
            let close = TcpRequest::Close(tether.id);
            engine.stack.tcp_request(raw::now(), close);
            self.note_work();
        }
    }

    /// Gives a connection to whoever has asked for it; or to whoever asks next, if this process is about to end and leaves it behind.
    fn give(&mut self, at: usize, left_behind: bool) {
        let now = raw::now();
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        let tether = engine.tethers.take(at);
        let (index, cookie) = tether.socket;
        let is_ours = self.sockets[index].cookie == cookie;
        let given = match &mut engine.stack {
            Provider::Library(stack) => {
                let serial = engine.passed.next_serial();
                stack
                    .tcp_pass(now, tether.id, serial, left_behind)
                    .map(|parcel| (serial, parcel))
            }
            Provider::Served(_) => None,
        };
        let Some((serial, parcel)) = given else {
            // It is over, or can't move: who asks hears that from the end of the tether.
            if is_ours {
                self.sockets[index].tethered = false;
            } else {
                engine.stack.tcp_request(now, TcpRequest::Close(tether.id));
            }
            return;
        };
        let (flow, from) = (parcel.four_tuple(), engine.owner);
        let sent = send_parcel(&tether.end, &parcel, (from, serial));
        engine.disown_tcp(tether.id);
        let (id, end, socket) = (tether.id, tether.end, tether.socket);
        let passed = Passed::by_tether(id, flow, serial, socket, end, left_behind);
        engine.passed.add(now, passed);
        if is_ours {
            let socket = &mut self.sockets[index];
            (socket.role, socket.passed_on) = (Role::Lost, true);
            ELSEWHERE.store(true, Ordering::Relaxed);
            self.wake_waiters(index);
        }
        if let Err(error) = sent {
            log!(Error, "a shared connection can't be handed over: {error}");
            self.take_back_serial(serial);
        }
        self.note_work();
    }

    /// This process ends: connections that others have, too, are left to those, and the rest is closed.
    pub fn leave_behind(&mut self) {
        while let Some(engine) = self.engine.as_deref_mut() {
            let Some(at) = engine.tethers.list.len().checked_sub(1) else {
                return;
            };
            let (index, cookie) = engine.tethers.list[at].socket;
            if self.sockets[index].cookie == cookie {
                for fd in core::mem::take(&mut self.sockets[index].fds) {
                    fd_table::set(fd, Entry::Ordinary);
                    raw::close(fd);
                }
            }
            match is_let_go(engine.tethers.list[at].end.as_fd()) {
                true => self.close_tethered(at),
                false => self.give(at, true),
            }
        }
    }

    /// This process is about to become another program, which has these sockets, too.
    pub fn hand_to_program(&mut self, sockets: impl Iterator<Item = u32>) {
        for index in sockets {
            let Role::Stream(id) = self.sockets[index].role else {
                continue;
            };
            let Some(engine) = self.engine.as_deref() else {
                return;
            };
            let mut list = engine.tethers.list.iter();
            if let Some(at) = list.position(|tether| tether.id == id) {
                self.give(at, true);
            }
        }
    }

    /// Takes a connection from the tether, or asks for it.
    fn fetch(&mut self, fd: c_int, index: u32, asked: &mut Option<Instant>) -> Fetched {
        // SAFETY: it is open: it stands for a socket of the program's.
        let end = unsafe { BorrowedFd::borrow_raw(fd) };
        let received = match receive(end) {
            // What was said before the other end was closed.
            Err(Errno::CONNRESET) => receive(end),
            received => received,
        };
        let gone = match received {
            Ok((text, _)) if text.is_empty() => "its process has ended".to_owned(),
            Ok((text, beside)) => match self.adopt_tethered(index, &text, beside) {
                Ok(()) => return Fetched::Here,
                Err(reason) => reason,
            },
            Err(Errno::AGAIN | Errno::INTR) => {
                let now = raw::now();
                if asked.is_some_and(|at| now < at + AGAIN) {
                    return Fetched::Asked;
                }
                if !self.need_engine() || self.is_served() {
                    "this process has no stack of its own".to_owned()
                } else {
                    *asked = Some(now);
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    match rustix::net::send(end, WANT, flags) {
                        // (The queue may be full of such questions.)
                        Ok(_) | Err(Errno::AGAIN) => return Fetched::Asked,
                        Err(_) => "its process has ended".to_owned(),
                    }
                }
            }
            Err(error) => error.to_string(),
        };
        log!(Warn, "descriptor {fd}: a shared connection is lost: {gone}");
        let socket = &mut self.sockets[index];
        (socket.tethered, socket.passed_on) = (false, false);
        socket.error = libc::ECONNRESET;
        self.mark_ready(index);
        self.wake_waiters(index);
        Fetched::Lost
    }

    fn adopt_tethered(
        &mut self,
        index: u32,
        text: &[u8],
        beside: Vec<OwnedFd>,
    ) -> Result<(), String> {
        let packet: Packet = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let [parcel, end] = <[OwnedFd; 2]>::try_from(beside)
            .map_err(|_| "there are no free descriptors".to_owned())?;
        let (name, token) = attach::broker_named().ok_or("there is no stack")?;
        if packet.version != VERSION || packet.broker != *name {
            return Err("it is from another `skink run` than this process".to_owned());
        }
        if self.take_back_own(packet.from, packet.serial) {
            return Ok(());
        }
        if !self.need_engine() {
            return Err("this process has no stack".to_owned());
        }
        let most = self.most_parcel_bytes()?;
        let bytes = read_parcel(parcel.as_fd(), most)?;
        if seal(token, (packet.from, packet.serial), &bytes) != packet.seal {
            return Err("it was made by somebody else".to_owned());
        }
        let parcel = Parcel::from_bytes(&bytes).ok_or("it can't be read")?;
        let id = self.adopt_parcel(&parcel, packet.from, packet.serial)?;
        let socket = &mut self.sockets[index];
        (socket.role, socket.passed_on) = (Role::Stream(id), false);
        let stays = raw::now() + STAY;
        let kept = self.keep_tether(index, id, End::keep(end), stays);
        kept.map_err(|error| error.to_string())?;
        self.need_usher();
        self.is_here(index, id);
        Ok(())
    }

    /// Whether a parcel is one that this process has sent, and that nobody has taken: then the connection goes on here.
    fn take_back_own(&mut self, from: u16, serial: u32) -> bool {
        let engine = self.engine.as_deref();
        engine.is_some_and(|engine| engine.owner == from) && self.take_back_serial(serial)
    }

    /// The connection goes on on this process's stack, which gave it away.
    pub(super) fn tether_again(&mut self, passed: Passed) {
        let (id, (index, cookie)) = (passed.id, passed.socket);
        let is_ours = self.sockets[index].cookie == cookie && self.sockets[index].is_elsewhere();
        if is_ours {
            let socket = &mut self.sockets[index];
            (socket.role, socket.passed_on) = (Role::Stream(id), false);
        }
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        let tether = Tether {
            id,
            socket: passed.socket,
            end: passed.end,
            stays: raw::now() + STAY,
            wanted: false,
        };
        if let Err(error) = engine.tethers.add(tether) {
            log!(Error, "a shared connection stays here: {error}");
        }
        self.need_usher();
        if is_ours {
            self.is_here(index, id);
        }
        self.note_work();
    }

    /// The connection of a socket has come to this process's stack.
    fn is_here(&mut self, index: u32, id: SocketId) {
        if let Some(engine) = self.engine.as_deref_mut() {
            engine.own_tcp(id, index);
        }
        self.catch_up(index);
        self.mark_ready(index);
        self.wake_waiters(index);
        self.note_work();
        self.pump();
    }

    /// After `fork`, in the child: the parent's stack has the connections.
    pub fn leave_tethered(&mut self) {
        let mut sockets = self.sockets.iter();
        if sockets.any(|(_, socket)| socket.is_elsewhere()) {
            ELSEWHERE.store(true, Ordering::Relaxed);
        }
    }
}

impl Tether {
    /// Hears who asks. What a program writes that doesn't know of tethers asks for nothing.
    fn hear(&mut self) {
        let mut said = [0; WANT.len() + 1];
        while let Ok((_, count)) = rustix::net::recv(&self.end, &mut said, RecvFlags::DONTWAIT) {
            if count == 0 {
                break;
            }
            self.wanted |= said.get(..count) == Some(WANT);
        }
    }
}

fn send_parcel(end: &End, parcel: &Parcel, numbers: (u16, u32)) -> Result<(), String> {
    let (broker, token) = attach::broker_named().ok_or("there is no stack")?;
    let (from, serial) = numbers;
    let bytes = parcel.to_bytes();
    let packet = Packet {
        version: VERSION.to_owned(),
        broker: broker.clone(),
        from,
        serial,
        seal: seal(token, numbers, &bytes),
    };
    let text = serde_json::to_vec(&packet).map_err(|error| error.to_string())?;
    let file = write_parcel(&bytes).map_err(|error| error.to_string())?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [file.as_fd(), end.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = rustix::net::sendmsg(end, &[IoSlice::new(&text)], &mut ancillary, flags);
    sent.map(|_| ()).map_err(|error| error.to_string())
}

/// What the usher runs.
fn usher(set: c_int) {
    let mut until: Option<Instant> = None;
    loop {
        let wait = until.map(|until| until.since(raw::now()));
        let mut list = [raw::to_poll(set, libc::POLLIN)];
        let _ = raw::ppoll(&mut list, wait, core::ptr::null());
        let Ok(mut state) = lock() else { return };
        match state.look_after_tethers() {
            Some(next) => until = next,
            None => return,
        }
    }
}
