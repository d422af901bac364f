//! `exec` and `posix_spawn`: what must be done before another program begins.
//!
//! Sockets that stay open are left to the new program as an `estate`. If a stack in another process serves this one, so
//! it does the new program. A process that goes on in that leaves its channel as well; a child (of `posix_spawn`, or one
//! after `vfork`, which is a guest in its parent's memory until it executes a program) gets one of its own. If this
//! process has a stack of its own, `skink run` ends its connections, once what was written has left; the new program gets
//! what listens or is bound, for a stack of its own.
use crate::attach;
use crate::descriptor::is_guest;
use crate::estate::{self, Estate};
use crate::exit;
use crate::lock::{Guard, lock};
use crate::log::log;
use crate::provider::Provider;
use crate::raw;
use crate::socket::Role;
use crate::state::{State, duplicate_high};
use crate::threads;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicU32, Ordering};
use skink_control::{CONTROL_VARIABLE, MEMORY_VARIABLE, TOKEN_VARIABLE};
use skink_messages::Protocol;
use std::cell::RefCell;
use std::ffi::CString;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::OnceLock;

const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// What the loader was told to preload, this library among it.
static PRELOAD: OnceLock<String> = OnceLock::new();

/// Notes what the environment says before programs change it.
pub fn start() {
    if let Ok(preload) = std::env::var(PRELOAD_VARIABLE) {
        let _ = PRELOAD.set(preload);
    }
}

/// An environment, ended by null.
pub type Environment = *const *const c_char;

/// What is left to a new program. Dropped if it doesn't begin, or has begun elsewhere.
pub struct Legacy {
    environment: Vec<*const c_char>,
    _strings: Vec<CString>,
    /// Descriptors that stay open for the new program only.
    descriptors: Vec<c_int>,
    /// Nobody may change anything before the new program has begun.
    _guard: Option<Guard>,
}

impl Legacy {
    /// The environment for the new program.
    pub fn environment(&self) -> Environment {
        self.environment.as_ptr()
    }
}

thread_local! {
    /// What the last guest of this thread had here when it became another program, in which none of its code ran any more. Its
    /// host has gone on since then.
    static LEFT_BY_GUEST: RefCell<Remains> = const { RefCell::new(Remains(None)) };
}

/// Memory alone: the descriptors are the guest's.
struct Remains(Option<Legacy>);

impl Drop for Remains {
    fn drop(&mut self) {
        if let Some(legacy) = &mut self.0 {
            legacy.descriptors.clear();
        }
    }
}

/// Runs `call`, which makes this process or the guest in it another program, with the environment for that.
pub fn begin(legacy: Legacy, call: impl FnOnce(Environment) -> c_int) -> c_int {
    let environment = legacy.environment();
    if !is_guest() {
        return call(environment);
    }
    let mut legacy = Some(legacy);
    let _ = LEFT_BY_GUEST.try_with(|left| *left.borrow_mut() = Remains(legacy.take()));
    let answer = call(environment);
    let _ = LEFT_BY_GUEST.try_with(|left| left.borrow_mut().0.take());
    answer
}

impl Drop for Legacy {
    fn drop(&mut self) {
        for fd in &self.descriptors {
            raw::close(*fd);
        }
    }
}

/// Before this process, or the guest in it that calls, becomes another program.
///
/// # Safety
/// `environment` must be a list of strings that ends with null.
pub unsafe fn leave(environment: Environment) -> Option<Legacy> {
    if !crate::is_on() {
        return None;
    }
    let mut state = lock().ok()?;
    let staying = state.staying();
    let guest = is_guest();
    if !guest {
        state.defer_no_signals();
        exit::before_exec(&mut state);
        state.tether(staying.iter().map(|(_, index)| *index));
    }
    state.leave_to_program(staying.iter().map(|(_, index)| *index));
    let left = state.bequeath(&staying, guest, raw::process_id())?;
    // A guest's lock would be its host's for ever.
    let guard = (!guest).then_some(state);
    // SAFETY: the caller's promise.
    Some(unsafe { legacy(environment, left, guard) })
}

/// Before `posix_spawn` begins a program with these descriptors.
///
/// # Safety
/// As for [`leave`].
pub unsafe fn leave_to_child(
    environment: Environment,
    staying: impl FnOnce(&State) -> Vec<(c_int, u32)>,
) -> Option<Legacy> {
    if !crate::is_on() {
        return None;
    }
    let mut state = lock().ok()?;
    let staying = staying(&state);
    state.tether(staying.iter().map(|(_, index)| *index));
    state.leave_to_program(staying.iter().map(|(_, index)| *index));
    let left = state.bequeath(&staying, true, 0)?;
    drop(state);
    // SAFETY: the caller's promise.
    Some(unsafe { legacy(environment, left, None) })
}

impl State {
    /// The descriptors of sockets that stay open over `exec`.
    fn staying(&self) -> Vec<(c_int, u32)> {
        let stays = |fd: c_int| {
            let flags = raw::fcntl(fd, libc::F_GETFD, 0);
            flags.is_ok_and(|flags| flags & libc::FD_CLOEXEC as usize == 0)
        };
        let mut all = self.descriptors_of_sockets();
        all.retain(|(fd, _)| stays(*fd));
        all
    }

    /// All descriptors of sockets that the calling process has.
    pub fn descriptors_of_sockets(&self) -> Vec<(c_int, u32)> {
        let own = self.sockets.iter().flat_map(|(index, socket)| {
            let fds = socket.fds.iter();
            fds.map(move |fd| (*fd, index))
        });
        self.guest.view(own.collect())
    }

    /// Writes down what is left to a successor: in a channel of its own (`heir`), or in this process's.
    /// Answers the descriptors that it needs, the estate's first.
    fn bequeath(
        &mut self,
        staying: &[(c_int, u32)],
        heir: bool,
        process: u32,
    ) -> Option<Vec<c_int>> {
        if staying.is_empty() {
            return None;
        }
        let is_standard = |(fd, index): &(c_int, u32)| {
            let socket = &self.sockets[*index];
            let lost = matches!(socket.role, Role::Stream(_) | Role::Lost) && !socket.tethered;
            *fd <= libc::STDERR_FILENO && lost
        };
        if staying.iter().any(is_standard) && !self.is_served() {
            self.tell_of_sharing(
                "a program is started whose standard input or output is a connection",
            );
        }
        let engine = self.engine.as_deref();
        let left = match engine.map(|engine| &engine.stack) {
            Some(Provider::Served(remote)) if heir && remote.is_down() => Ok(None),
            Some(Provider::Served(_)) if heir => self.bequeath_heir(staying, process),
            Some(Provider::Served(_)) => {
                // What a restarted stack offers again is for this program to answer: the new one doesn't know what
                // was closed.
                self.pump();
                self.flush();
                let engine = self.engine.as_deref()?;
                let Provider::Served(remote) = &engine.stack else {
                    return None;
                };
                write_down(Estate::of(self, engine, remote, staying, process))
            }
            Some(Provider::Library(_)) | None => {
                write_down(Estate::without_stack(self, staying, process, !heir))
            }
        };
        match left {
            Ok(left) => left,
            Err(reason) => {
                log!(Error, "the new program can't inherit sockets: {reason}");
                None
            }
        }
    }

    fn bequeath_heir(
        &mut self,
        staying: &[(c_int, u32)],
        process: u32,
    ) -> Result<Option<Vec<c_int>>, String> {
        let engine = self.engine.as_deref();
        let Some(Provider::Served(remote)) = engine.map(|engine| &engine.stack) else {
            return Ok(None);
        };
        // A guest's descriptors mean nothing to its host: none of these is marked.
        let mut engine = attach::start_for_heir(remote.holdings.clone())?;
        let Provider::Served(remote) = &mut engine.stack else {
            return Ok(None);
        };
        for (_, index) in staying {
            self.bind_for_heir(*index, remote);
            let (protocol, halves) = match self.sockets[*index].role {
                Role::Stream(id) => (Protocol::Tcp, [Some(id), None]),
                Role::Datagram(halves) => (Protocol::Udp, halves),
                Role::Undecided | Role::Dormant | Role::Listener(_) | Role::Lost => continue,
            };
            for id in halves.into_iter().flatten() {
                remote.share(protocol, id);
            }
        }
        let known = remote.synchronize();
        known.map_err(|stop| format!("the stack doesn't answer ({stop:?})"))?;
        let Provider::Served(remote) = &engine.stack else {
            return Ok(None);
        };
        let own = self.engine.as_deref().unwrap_or(&engine);
        let mut estate = Estate::of(self, own, remote, staying, process);
        estate.for_heir(engine.broker_fd());
        write_down(estate)
    }
}

/// Duplicates what the estate needs, for the new program only, and writes it to memory that stays open.
fn write_down(mut estate: Estate) -> Result<Option<Vec<c_int>>, String> {
    let mut descriptors = vec![-1];
    let mut failed = None;
    estate.each_descriptor(|fd| match duplicate_high(*fd, libc::F_DUPFD) {
        Ok(copy) => {
            *fd = copy;
            descriptors.push(*fd);
        }
        Err(stop) => failed = Some(stop),
    });
    let memory = match failed {
        Some(stop) => Err(format!("no descriptors left ({stop:?})")),
        None => estate.write().map_err(|error| error.to_string()),
    };
    match memory {
        Ok(memory) => {
            let moved = duplicate_high(memory.as_raw_fd(), libc::F_DUPFD);
            descriptors[0] = moved.unwrap_or_else(|_| memory.into_raw_fd());
            Ok(Some(descriptors))
        }
        Err(reason) => {
            for fd in descriptors {
                raw::close(fd);
            }
            Err(reason)
        }
    }
}

/// # Safety
/// As for [`leave`].
unsafe fn legacy(
    environment: Environment,
    descriptors: Vec<c_int>,
    guard: Option<Guard>,
) -> Legacy {
    let memory = descriptors.first().copied().unwrap_or(-1);
    let mut list = Vec::new();
    let mut preloads = None;
    let [mut has_control, mut has_token, mut has_memory] = [false; 3];
    let mut at = environment;
    // SAFETY: the caller's promise.
    while let Some(entry) = unsafe { at.as_ref() }
        .copied()
        .filter(|entry| !entry.is_null())
    {
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        // SAFETY: the list goes on until null.
        at = unsafe { at.add(1) };
        let value = |name: &str| {
            let rest = text.strip_prefix(name.as_bytes())?;
            rest.strip_prefix(b"=")
        };
        has_control |= value(CONTROL_VARIABLE).is_some();
        has_token |= value(TOKEN_VARIABLE).is_some();
        has_memory |= value(MEMORY_VARIABLE).is_some();
        match (value(PRELOAD_VARIABLE), value(estate::VARIABLE)) {
            (Some(preload), _) => preloads = Some(String::from_utf8_lossy(preload).into_owned()),
            (_, Some(_)) => {}
            (None, None) => list.push(entry),
        }
    }
    let mut strings = vec![format!("{}={memory}", estate::VARIABLE)];
    let ours = PRELOAD.get().map_or("", String::as_str);
    strings.push(match preloads {
        Some(theirs) if theirs.contains(ours) => format!("{PRELOAD_VARIABLE}={theirs}"),
        Some(theirs) => format!("{PRELOAD_VARIABLE}={ours}:{theirs}"),
        None => format!("{PRELOAD_VARIABLE}={ours}"),
    });
    if let Some((name, token)) = attach::broker_named() {
        if !has_control {
            strings.push(format!("{CONTROL_VARIABLE}={name}"));
        }
        if !has_token {
            strings.push(format!("{TOKEN_VARIABLE}={token}"));
        }
    }
    if let Some(memory) = attach::send_memory().filter(|_| !has_memory) {
        strings.push(format!("{MEMORY_VARIABLE}={memory}"));
    }
    let strings: Vec<CString> = strings
        .into_iter()
        .filter_map(|text| CString::new(text).ok())
        .collect();
    list.extend(strings.iter().map(|text| text.as_ptr()));
    list.push(core::ptr::null());
    Legacy {
        environment: list,
        _strings: strings,
        descriptors,
        _guard: guard,
    }
}

/// The last guest that has made a descriptor stand for a socket, by its process id; 0 if there was none.
static GUEST: AtomicU32 = AtomicU32::new(0);

/// Whether the caller is a guest that has made descriptors stand for sockets: the table of descriptors, which is its host's,
/// doesn't know of them.
#[inline]
pub fn is_guest_with_sockets() -> bool {
    GUEST.load(Ordering::Relaxed) != 0 && is_last_guest()
}

#[cold]
fn is_last_guest() -> bool {
    let is_it = raw::process_id() == GUEST.load(Ordering::Relaxed);
    // A host waits for its guest, but for its other threads.
    if !is_it && threads::is_one() {
        GUEST.store(0, Ordering::Relaxed);
    }
    is_it
}

/// What a guest has done with descriptors: a child after `vfork` has a table of its own, but writes to
/// its parent's memory.
pub struct Guest {
    process: u32,
    changes: Vec<(c_int, Option<u32>)>,
}

impl Guest {
    /// There is none.
    pub const fn new() -> Guest {
        Guest {
            process: 0,
            changes: Vec::new(),
        }
    }

    /// The calling guest made `fd` stand for a socket, or for none.
    pub fn note(&mut self, fd: c_int, socket: Option<u32>) {
        let process = raw::process_id();
        if socket.is_some() {
            GUEST.store(process, Ordering::Relaxed);
        }
        if self.process != process {
            self.process = process;
            self.changes.clear();
        }
        self.changes.push((fd, socket));
    }

    /// What `fd` stands for if the caller is a guest that changed it.
    pub fn changed(&self, fd: c_int) -> Option<Option<u32>> {
        if self.process != raw::process_id() {
            return None;
        }
        let last = self.changes.iter().rev().find(|(other, _)| *other == fd);
        last.map(|(_, socket)| *socket)
    }

    /// The caller's descriptors, if `all` are its host's.
    fn view(&self, mut all: Vec<(c_int, u32)>) -> Vec<(c_int, u32)> {
        if self.process == raw::process_id() {
            for (fd, socket) in &self.changes {
                all.retain(|(other, _)| other != fd);
                all.extend(socket.map(|index| (*fd, index)));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
