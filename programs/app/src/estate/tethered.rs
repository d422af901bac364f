//! Connections that several processes have, where each has a stack of its own: after `fork`, and in programs that were begun with them.
//!
//! Such a connection is on the stack of one of them, and goes to that of another one when that uses it: see [`skink_control::tether`].
//! If its process ends, by whatever, the one that comes in its place goes on with it. And once nobody has a descriptor
//! any more, which the kernel tells, it is closed, and not before.
//!
//! A thread of its own, the *usher*, hears who asks: the program may wait for anything, and the helper's descriptors are its own.
use super::passed::{End, Passed, PassedOn};
use crate::attach;
use crate::descriptor::is_guest;
use crate::engine::Engine;
use crate::errno::{Answer, Stop, WOULD_BLOCK};
use crate::fd_table::{self, Entry};
use crate::lock::{Guard, lock};
use crate::log::log;
use crate::provider::Provider;
use crate::raw;
use crate::signals::Mark;
use crate::socket::Role;
use crate::state::State;
use crate::threads;
use core::ffi::c_int;
use rustix::event::epoll;
use rustix::io::{Errno, FdFlags};
use rustix::net::Shutdown;
use skink_control::tether::{self, Found, Given, MOST_TETHERS, Numbers, seal, write_parcel};
use skink_memory::{Parcel, SocketId};
use skink_messages::TcpRequest;
use skink_time::Instant;
use skink_wire::FourTuple;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Who asks so that it may look at the connection waits so long: whose stack has it may be stopped.
const PATIENCE: Duration = Duration::from_secs(2);

/// It may leave again before it is looked at.
const MOST_ROUNDS: u32 = 8;

/// And so long who doesn't want to wait.
pub const SOON: Duration = Duration::from_millis(50);

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
    flow: FourTuple,
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

    /// The connection leaves otherwise. Answers whether it is one of these.
    pub(super) fn forget(&mut self, id: SocketId) -> bool {
        let at = self.list.iter().position(|tether| tether.id == id);
        at.map(|at| self.take(at)).is_some()
    }

    /// Nothing more is to be written to the program's end: who does hears `EPIPE`.
    fn be_deaf(&mut self, at: usize) {
        let end = self.list[at].end.as_fd();
        let _ = rustix::net::shutdown(end, Shutdown::Read);
        if let Some(set) = &self.set {
            // Only that it hangs up.
            let (data, events) = (epoll::EventData::new_u64(0), epoll::EventFlags::empty());
            let _ = epoll::modify(set.as_fd(), end, data, events);
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
        let _ = summon_slowly(fd, Some(raw::now() + PATIENCE), false);
    }
}

/// As [`summon`], until then at the longest.
///
/// # Errors
/// That it would block, or that a signal came.
#[inline]
pub fn summon_until(fd: c_int, deadline: Instant) -> Answer<()> {
    if ELSEWHERE.load(Ordering::Relaxed) && matches!(fd_table::get(fd), Entry::Socket(_)) {
        return summon_slowly(fd, Some(deadline), false);
    }
    Ok(())
}

/// Fetches a connection until `deadline`, or for as long as it takes. Of a call that doesn't wait it is only asked for, if it doesn't come
/// soon: such a call, and one whose time is up, is told that it would block, and the next one finds what was asked for.
///
/// # Errors
/// That, or that a signal came.
#[cold]
fn summon_slowly(fd: c_int, deadline: Option<Instant>, may_not_wait: bool) -> Answer<()> {
    if is_guest() || crate::lock::is_held_here() {
        return Ok(());
    }
    let begun = raw::now();
    let (mut asked, mut signals) = (None, Mark::now());
    loop {
        let mut state = lock()?;
        let Entry::Socket(index) = fd_table::get(fd) else {
            return Ok(());
        };
        let socket = &state.sockets[index];
        if !socket.is_elsewhere() {
            return Ok(());
        }
        let ends = match may_not_wait || socket.nonblocking && deadline.is_none() {
            true => Some(begun + SOON),
            false => deadline,
        };
        if !matches!(state.fetch(fd, index, &mut asked), Fetched::Asked) {
            return Ok(());
        }
        drop(state);
        let now = raw::now();
        if ends.is_some_and(|ends| now >= ends) {
            return Err(WOULD_BLOCK);
        }
        let wait = ends.map_or(AGAIN, |ends| ends.since(now).min(AGAIN));
        let mut list = [raw::to_poll(fd, libc::POLLIN)];
        let polled = raw::ppoll(&mut list, Some(wait), core::ptr::null());
        if polled == Err(Stop::Errno(libc::EINTR)) && signals.interrupts() {
            return Err(Stop::Errno(libc::EINTR));
        }
    }
}

/// Makes a call on the socket behind `fd`, if need be again: its connection may leave for another process while the call waits.
#[inline]
pub fn here<T>(fd: c_int, flags: c_int, mut call: impl FnMut() -> Answer<T>) -> Answer<T> {
    loop {
        if ELSEWHERE.load(Ordering::Relaxed) && matches!(fd_table::get(fd), Entry::Socket(_)) {
            summon_slowly(fd, None, flags & libc::MSG_DONTWAIT != 0)?;
        }
        match call() {
            Err(Stop::Errno(libc::ENOTCONN)) if has_left(fd) => {}
            answer => return answer,
        }
    }
}

/// As [`lock()`], with the connection of the socket behind `fd` on this process's stack.
///
/// # Errors
/// As [`lock()`]'s.
#[inline]
pub fn lock_here(fd: c_int) -> Answer<Guard> {
    for _ in 0..MOST_ROUNDS {
        let late = summon_until(fd, raw::now() + PATIENCE).is_err();
        let state = lock()?;
        let left = ELSEWHERE.load(Ordering::Relaxed)
            && matches!(fd_table::get(fd), Entry::Socket(index) if state.sockets[index].is_elsewhere());
        if late || !left || is_guest() {
            return Ok(state);
        }
    }
    lock()
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
            let room = |engine: &Engine| engine.tethers.list.len() < MOST_TETHERS;
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

    fn tie(&mut self, index: u32, id: SocketId) -> io::Result<()> {
        let (near, far) = tether::pair()?;
        // First: what a descriptor of the program's was is gone once it is replaced.
        self.keep_tether(index, id, End::keep(far), Instant::ZERO)?;
        for fd in &self.sockets[index].fds {
            replace(*fd, near.as_fd())?;
        }
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
    ) -> io::Result<()> {
        let socket = (index, self.sockets[index].cookie);
        let engine = self.engine.as_deref_mut().ok_or(Errno::NOTCONN)?;
        let flow = engine.stack.tcp_table().record(id.slot).four_tuple();
        // It outlives this process.
        engine.broker.tell_tethered(&flow, end.as_fd());
        engine.tethers.add(Tether {
            id,
            flow,
            socket,
            end,
            stays,
            wanted: false,
        })?;
        Ok(())
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
            let heard = tether::hear(tether.end.as_fd());
            tether.wanted |= heard.asked;
            if heard.other {
                log!(Error, "{}: {}", tether.flow, tether::UNKNOWN_WRITER);
                engine.tethers.be_deaf(at);
                continue;
            }
            if tether::is_let_go(tether.end.as_fd()) {
                self.close_tethered(at);
            } else if tether.wanted && now >= tether.stays {
                self.give(at);
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
            engine.broker.tell_untethered(&tether.flow);
            let close = TcpRequest::Close(tether.id);
            engine.stack.tcp_request(raw::now(), close);
            self.note_work();
        }
    }

    /// Gives a connection to whoever has asked for it.
    fn give(&mut self, at: usize) {
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
                    .tcp_pass(now, tether.id, serial)
                    .map(|parcel| (serial, parcel))
            }
            Provider::Served(_) => None,
        };
        let Some((serial, parcel)) = given else {
            // It is over, or can't move: who asks hears that from the end of the tether.
            engine.broker.tell_untethered(&tether.flow);
            if is_ours {
                self.sockets[index].tethered = false;
            } else {
                engine.stack.tcp_request(now, TcpRequest::Close(tether.id));
            }
            return;
        };
        let from = engine.owner;
        // Before anybody can have it, and say so to a thread that uses it then.
        ELSEWHERE.store(true, Ordering::Relaxed);
        let sent = send_parcel(&tether.end, &parcel, Numbers { from, serial });
        engine.disown_tcp(tether.id);
        let Tether {
            id,
            flow,
            socket,
            end,
            ..
        } = tether;
        let passed = Passed::by_tether(id, flow, serial, socket, end);
        engine.passed.add(now, passed);
        if is_ours {
            let socket = &mut self.sockets[index];
            (socket.role, socket.passed_on) = (Role::Lost, true);
            self.wake_waiters(index);
        }
        if let Err(error) = sent {
            log!(Error, "a shared connection can't be handed over: {error}");
            self.take_back_serial(serial);
        }
        self.note_work();
    }

    /// This process ends: connections that nobody else has are closed. Answers whether there are others, which whoever comes in its place
    /// goes on with.
    pub fn leave_behind(&mut self) -> bool {
        let mut at = 0;
        while let Some(engine) = self.engine.as_deref()
            && let Some(tether) = engine.tethers.list.get(at)
        {
            let (index, cookie) = tether.socket;
            if self.sockets[index].cookie == cookie {
                for fd in core::mem::take(&mut self.sockets[index].fds) {
                    fd_table::set(fd, Entry::Ordinary);
                    raw::close(fd);
                }
            }
            match tether::is_let_go(tether.end.as_fd()) {
                true => self.close_tethered(at),
                false => at += 1,
            }
        }
        let passed = self.engine.as_deref().map(|engine| &engine.passed);
        at > 0 || passed.is_some_and(PassedOn::has_tethered)
    }

    /// Takes a connection from the tether, or asks for it.
    fn fetch(&mut self, fd: c_int, index: u32, asked: &mut Option<Instant>) -> Fetched {
        // SAFETY: it is open: it stands for a socket of the program's.
        let end = unsafe { BorrowedFd::borrow_raw(fd) };
        let found = match !self.need_engine() || self.is_served() {
            true => {
                self.tell_of_sharing(
                    "this process uses another one's connection and can't have a stack of its own",
                );
                Err("this process has no stack of its own".to_owned())
            }
            false => tether::look(end),
        };
        let gone = match found {
            Ok(Found::Ended) => "its process has ended".to_owned(),
            Ok(Found::Given(given)) => match self.adopt_tethered(index, given) {
                Ok(()) => return Fetched::Here,
                Err(reason) => reason,
            },
            Ok(Found::Nothing) => {
                let now = raw::now();
                if asked.is_some_and(|at| now < at + AGAIN) {
                    return Fetched::Asked;
                }
                *asked = Some(now);
                match tether::ask(end) {
                    true => return Fetched::Asked,
                    false => "its process has ended".to_owned(),
                }
            }
            Err(reason) => reason,
        };
        log!(Warn, "descriptor {fd}: a shared connection is lost: {gone}");
        let socket = &mut self.sockets[index];
        (socket.tethered, socket.passed_on) = (false, false);
        socket.error = libc::ECONNRESET;
        self.note_elsewhere();
        self.mark_ready(index);
        self.wake_waiters(index);
        Fetched::Lost
    }

    fn adopt_tethered(&mut self, index: u32, given: Given) -> Result<(), String> {
        let Numbers { from, serial } = given.numbers;
        if self.take_back_own(from, serial) {
            return Ok(());
        }
        let read = self.read_given(&given);
        let Ok(parcel) = read else {
            // It goes on where it was.
            if let Some(engine) = self.engine.as_deref() {
                engine
                    .broker
                    .tell_taken_in(from, serial, &given.flow, false);
            }
            return read.map(|_| ());
        };
        let id = self.adopt_parcel(&parcel, from, serial)?;
        let socket = &mut self.sockets[index];
        (socket.role, socket.passed_on) = (Role::Stream(id), false);
        let stays = raw::now() + STAY;
        let end = given.into_end().ok_or("its end is missing")?;
        if tether::forget_questions(end.as_fd()) {
            log!(Error, "{}: {}", parcel.four_tuple(), tether::UNKNOWN_WRITER);
        }
        let kept = self.keep_tether(index, id, End::keep(end), stays);
        kept.map_err(|error| error.to_string())?;
        self.need_usher();
        self.is_here(index, id);
        Ok(())
    }

    fn read_given(&self, given: &Given) -> Result<Parcel, String> {
        let (_, token) = attach::broker_named().ok_or("there is no stack")?;
        let bytes = given.parcel(token, self.most_parcel_bytes()?)?;
        Ok(Parcel::from_bytes(&bytes).ok_or("it can't be read")?)
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
            flow: passed.flow,
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
        self.note_elsewhere();
        self.catch_up(index);
        self.mark_ready(index);
        self.wake_waiters(index);
        self.note_work();
        self.pump();
    }

    /// A connection has come here, or been lost; or others have come with this process, whose connections are on its parent's stack.
    pub fn note_elsewhere(&mut self) {
        let mut sockets = self.sockets.iter();
        let any = sockets.any(|(_, socket)| socket.is_elsewhere());
        ELSEWHERE.store(any, Ordering::Relaxed);
    }
}

fn send_parcel(end: &End, parcel: &Parcel, numbers: Numbers) -> Result<(), String> {
    let (_, token) = attach::broker_named().ok_or("there is no stack")?;
    let bytes = parcel.to_bytes();
    let sent = write_parcel(&bytes).and_then(|file| {
        let seal = seal(token, numbers, &bytes);
        tether::give(
            end.as_fd(),
            &parcel.four_tuple(),
            file.as_fd(),
            seal,
            numbers,
        )
    });
    sent.map_err(|error| error.to_string())
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
