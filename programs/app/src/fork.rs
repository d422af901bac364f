//! `fork`: what the child begins with.
//!
//! Where the stack is in the process itself, the child begins without one: its copy of the parent's is
//! dead memory, since the rings of a NIC have one user. Listening sockets rest in the child until it
//! waits on them (see `listen`), and then go on a stack of its own; connections stay with the parent.
//!
//! Where the stack is in another process, the child attaches to it by itself and says which sockets it
//! has inherited, before `fork` returns in the parent: else the parent could close, or end, before the
//! stack knows that somebody else goes on.
use crate::attach;
use crate::engine::Engine;
use crate::errno::{Answer, fail};
use crate::fd_table::{self, Entry};
use crate::holdings::Holdings;
use crate::lock::{Guard, lock};
use crate::log::log;
use crate::provider::Provider;
use crate::raw;
use crate::slots::Slots;
use crate::socket::{Role, Taker};
use crate::spin::Spin;
use crate::state::State;
use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use skink_nic::Judge;
use std::time::Duration;

/// How long a parent waits for its child.
const PATIENCE: Duration = Duration::from_secs(10);

/// A thread that forks.
struct Forking {
    _guard: Option<Guard>,
    /// A pipe that the child closes when it has said what it has inherited.
    pipe: Option<[c_int; 2]>,
}

thread_local! {
    /// This thread, while it forks.
    static FORKING: Cell<Option<Forking>> = const { Cell::new(None) };
}

/// Registers the handlers that run around `fork`.
pub fn start() {
    // SAFETY: the functions are there for as long as the library is.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// Whether another process may have this one's descriptors.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this process, or one that it comes from, has forked.
pub fn has_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// A child may have sockets that aren't marked as lent.
static UNMARKED: AtomicBool = AtomicBool::new(false);

/// Whether other processes may have any of this one's sockets, whatever is said of each.
pub fn has_lent_unmarked() -> bool {
    UNMARKED.load(Ordering::Relaxed)
}

/// Before `fork`: nobody is in the middle of a change.
pub extern "C" fn prepare() {
    FORKED.store(true, Ordering::Relaxed);
    // In a signal handler that interrupted a call of ours the lock is this thread's already.
    let mut guard = lock().ok();
    if guard.is_none() {
        UNMARKED.store(true, Ordering::Relaxed);
    }
    if let Some(guard) = &guard {
        guard.defer_no_signals();
    }
    if let Some(state) = guard.as_deref_mut() {
        state.leave_all();
        let all: Vec<u32> = state.sockets.iter().map(|(index, _)| index).collect();
        state.tether(all.into_iter());
    }
    let claims = guard.as_deref().is_some_and(State::would_claim);
    let pipe = if claims { raw::pipe().ok() } else { None };
    FORKING.set(Some(Forking {
        _guard: guard,
        pipe,
    }));
}

/// After `fork`, in the parent.
pub extern "C" fn parent() {
    let Some(forking) = FORKING.take() else {
        return;
    };
    if let Some([read, write]) = forking.pipe {
        raw::close(write);
        let mut list = [raw::to_poll(read, libc::POLLIN)];
        let until = raw::now() + PATIENCE;
        while list[0].revents == 0 && raw::now() < until {
            let left = until.since(raw::now());
            let _ = raw::ppoll(&mut list, Some(left), core::ptr::null());
        }
        raw::close(read);
    }
}

/// After `fork`, in the child.
pub extern "C" fn child() {
    let forking = FORKING.take();
    let pipe = forking.as_ref().and_then(|forking| forking.pipe);
    core::mem::forget(forking);
    let mut state = Guard::take_over();
    begin(&mut state);
    if let Some([read, write]) = pipe {
        // What was told must have left before the parent goes on.
        drop(state);
        raw::close(read);
        raw::close(write);
    }
}

fn begin(state: &mut State) {
    crate::descriptor::start();
    crate::threads::is_alone();
    crate::helper::forget();
    state.parking.forget_threads();
    state.judge = Judge::new();
    state.spin = Spin::new();
    state.epolls.leave_to_parent();
    for (_, socket) in state.sockets.iter_mut() {
        socket.waiters.clear();
        socket.taker = Taker::Others;
    }
    let claims = state.would_claim();
    let Some(mut engine) = state.engine.take() else {
        return;
    };
    // The parent's NIC and channel must be closed when the parent dies, and the broker must notice. What is under way is the parent's too.
    engine.keepers.clear();
    engine.passed.leave_to_parent();
    engine.tethers.leave_to_parent();
    for fd in &engine.descriptors {
        fd_table::set(*fd, Entry::Ordinary);
        raw::close(*fd);
    }
    let heritage = engine.heritage();
    // Never dropped: that would take down what is the parent's.
    core::mem::forget(engine);
    match heritage {
        Some(heritage) => state.inherit(heritage, claims),
        None => state.leave_connections(),
    }
}

/// What a child after `fork` takes over from the engine of its parent.
pub struct Heritage {
    holdings: Holdings,
    tcp: Slots,
    udp: Slots,
}

impl Engine {
    /// What a child takes over, if the stack is in another process. The engine is of no use then.
    fn heritage(&mut self) -> Option<Heritage> {
        let Provider::Served(remote) = &mut self.stack else {
            return None;
        };
        let none = || Slots::new(1);
        Some(Heritage {
            holdings: remote.take_holdings(),
            tcp: core::mem::replace(&mut self.tcp, none()),
            udp: core::mem::replace(&mut self.udp, none()),
        })
    }
}

impl State {
    /// Whether a child would have something to tell a stack in another process.
    fn would_claim(&self) -> bool {
        let engine = self.engine.as_deref();
        let served = engine.is_some_and(|engine| engine.stack.is_served() && !engine.is_down());
        served
            && self.sockets.iter().any(|(_, socket)| match socket.role {
                Role::Dormant => socket.tickets != [0; 2],
                Role::Stream(_) | Role::Datagram(_) | Role::Listener(_) => true,
                Role::Undecided | Role::Lost => false,
            })
    }

    /// The parent's stack was its own.
    fn leave_connections(&mut self) {
        let mut lost = 0;
        for (_, socket) in self.sockets.iter_mut() {
            socket.resting = [None; 2];
            socket.role = socket.without_stack();
            socket.passed_on &= !socket.tethered;
            if socket.role == Role::Lost {
                lost += u32::from(!socket.tethered);
                socket.connecting = false;
            }
        }
        self.note_elsewhere();
        if lost > 0 {
            log!(
                Warn,
                "{lost} connections stay with the parent process: calls on them fail here"
            );
        }
    }

    /// A call on a connection that stayed with the parent, or was passed to another process.
    #[cold]
    pub fn lost<T>(&mut self, index: u32) -> Answer<T> {
        if self.sockets[index].is_elsewhere() {
            // Who makes the call fetches it ([`crate::estate::here`]).
        } else if self.sockets[index].passed_on {
            self.tell_of_sharing(
                "this process uses a connection that it has passed to another one",
            );
        } else if let Some(error) = self.sockets[index].take_error() {
            return fail(error);
        } else if !self.is_served() {
            self.tell_of_sharing("this process uses a connection of its parent's");
        }
        fail(libc::ENOTCONN)
    }

    /// The parent was served by a stack in another process: so is this one, which goes on with its
    /// sockets.
    fn inherit(&mut self, mut heritage: Heritage, claims: bool) {
        let used = self.regions_in_use(&heritage.holdings);
        heritage.holdings.retain(|program| used.contains(&program));
        for (_, socket) in self.sockets.iter_mut() {
            socket.resting = [None; 2];
            if let Role::Listener(_) = socket.role {
                socket.role = Role::Dormant;
            }
        }
        if !claims {
            return;
        }
        match attach::start(Some(heritage.holdings)) {
            Ok(mut engine) if engine.stack.is_served() => {
                engine.tcp = heritage.tcp;
                engine.udp = heritage.udp;
                self.adopt_engine(engine);
                self.claim();
            }
            Ok(_) => self.leave_connections(),
            Err(reason) => {
                crate::log::write(format_args!(
                    "this process can't go on with its parent's sockets: {reason}"
                ));
                self.leave_connections();
            }
        }
    }

    /// The programs in whose regions sockets of this process are.
    pub fn regions_in_use(&self, holdings: &Holdings) -> Vec<u32> {
        let mut used = Vec::new();
        for (_, socket) in self.sockets.iter() {
            let (table, halves) = match socket.role {
                Role::Stream(id) => (&holdings.tcp, [Some(id), None]),
                Role::Datagram(halves) => (&holdings.udp, halves),
                Role::Undecided | Role::Dormant | Role::Listener(_) | Role::Lost => continue,
            };
            let ids = halves.into_iter().flatten();
            used.extend(ids.map(|id| table.region_of(id.slot)));
        }
        used
    }

    /// Tells the stack which sockets this process has inherited.
    pub fn claim(&mut self) {
        use skink_messages::Protocol::{Tcp, Udp};
        let held: Vec<u32> = self.sockets.iter().map(|(index, _)| index).collect();
        for index in &held {
            let (protocol, ids) = match self.sockets[*index].role {
                Role::Stream(id) => (Tcp, [Some(id), None]),
                Role::Datagram(halves) => (Udp, halves),
                Role::Undecided | Role::Dormant | Role::Listener(_) | Role::Lost => continue,
            };
            let remote = self.engine.as_deref_mut();
            if let Some(remote) = remote.and_then(|engine| engine.stack.remote()) {
                for id in ids.into_iter().flatten() {
                    remote.share(protocol, id);
                }
            }
        }
        self.listen_in_reserve();
        let engine = self.engine.as_deref_mut();
        if let Some(remote) = engine.and_then(|engine| engine.stack.remote()) {
            let _ = remote.synchronize();
        }
        for index in held {
            self.catch_up(index);
        }
        self.pump();
    }
}
