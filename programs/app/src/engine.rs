//! The process's stack: how it comes to be, who owns which of its sockets, and how it is driven.
use crate::errno;
use crate::fd_table::{self, Entry};
use crate::log::log;
use crate::raw;
use crate::socket::{Role, Socket};
use crate::state::internal;
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use skink_control::{Broker, CONTROL_VARIABLE, Notice, RegionKind, TOKEN_VARIABLE};
use skink_library::{Protocol, Stack, StackConfig};
use skink_memory::{CaptureRing, FallbackTable, SocketId};
use skink_messages::{Counter, Counters, Events, Progress};
use skink_tcp::State;
use skink_time::Instant;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;

const NOBODY: u32 = u32::MAX;

/// Whose a slot of a table is, and what has happened to it.
#[derive(Clone, Copy)]
struct Slot {
    generation: u32,
    owner: u32,
    /// What is for good: `READ_CLOSED`, `CLOSED`, `ERROR`.
    lasting: Events,
}

const FREE: Slot = Slot {
    generation: 0,
    owner: NOBODY,
    lasting: Events::empty(),
};

/// The stack and what belongs to it.
pub struct Engine {
    /// The stack.
    pub stack: Stack,
    /// Where to count.
    pub counters: Counters,
    /// Where to say which sockets went to the kernel.
    pub fallbacks: Option<FallbackTable>,
    /// Descriptors that poll readable when frames wait.
    pub receive_fds: Vec<c_int>,
    /// When the stack was last driven.
    pub last_poll: Instant,
    /// The last drive left something to do at once.
    pub unfinished: bool,
    broker: Broker,
    /// All descriptors of the stack: a child after `fork` closes its copies.
    pub descriptors: Vec<c_int>,
    tcp: Vec<Slot>,
    udp: Vec<Slot>,
}

/// What lasts of an event.
fn lasting(events: Events) -> Events {
    events & (Events::READ_CLOSED | Events::CLOSED | Events::ERROR)
}

impl Engine {
    /// Asks the broker for what a stack needs, and makes it.
    pub fn start() -> Result<Engine, String> {
        let mut broker = reach_broker()?;
        let attached = broker.attach().map_err(|error| error.to_string());
        let mut attached = attached?;
        let mut descriptors = vec![broker.as_fd().as_raw_fd()];
        let nic_descriptors = std::mem::take(&mut attached.nic_descriptors).into_iter();
        attached.nic_descriptors = nic_descriptors
            .map(|fd| adopt(fd, &mut descriptors))
            .collect();
        let nic = attached.take_nic().map_err(|error| error.to_string())?;
        let ports = attached.take_ports().map_err(|error| error.to_string())?;
        let counters = Counters::create().map_err(|error| format!("no memory: {error}"))?;
        let fallbacks = FallbackTable::create().ok();
        let capture = CaptureRing::create(CAPTURE_BYTES).ok();
        let config = StackConfig {
            addresses: attached.addresses,
            gateways: attached.gateways,
            seed: attached.seed,
            answers: attached.answers,
            tcp_table: attached.tcp_table.into(),
            udp_table: attached.udp_table.into(),
            counters: counters.clone(),
        };
        let mut stack = Stack::new(config, nic, ports).map_err(|error| error.to_string())?;
        let regions = [
            (RegionKind::TcpTable, Some(stack.tcp_table().fd())),
            (RegionKind::UdpTable, Some(stack.udp_table().fd())),
            (RegionKind::Counters, Some(counters.fd())),
            (
                RegionKind::Fallbacks,
                fallbacks.as_ref().map(FallbackTable::fd),
            ),
            (RegionKind::Capture, capture.as_ref().map(CaptureRing::fd)),
        ];
        for (kind, memory) in regions {
            if let Some(memory) = memory {
                register(&mut broker, kind, memory, &mut descriptors);
            }
        }
        stack.set_capture(capture);
        let mut receive_fds = Vec::new();
        stack.receive_descriptors(&mut |fd| receive_fds.push(fd.as_raw_fd()));
        for fd in &descriptors {
            fd_table::set(*fd, Entry::Internal);
        }
        log!(
            Info,
            "this process has a stack of its own (owner {})",
            attached.owner
        );
        Ok(Engine {
            stack,
            counters,
            fallbacks,
            receive_fds,
            last_poll: raw::now(),
            unfinished: false,
            broker,
            descriptors,
            tcp: Vec::new(),
            udp: Vec::new(),
        })
    }

    /// Drives the stack once.
    pub fn poll(&mut self) {
        let now = raw::now();
        self.unfinished = self.stack.poll(now) == Progress::More;
        self.last_poll = now;
        while let Some((address, mac)) = self.stack.take_conflict() {
            log!(
                Warn,
                "{mac} on the link has {address} too: give one of the two another address"
            );
        }
    }

    /// When the stack must be driven at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        if self.unfinished {
            return Some(Instant::ZERO);
        }
        let due = self.stack.next_deadline();
        if self.stack.send_blocked_on().is_some() {
            // Not every sleep can watch for room in the NIC's queue; it comes soon.
            let soon = self.last_poll + BLOCKED;
            return Some(due.map_or(soon, |due| due.min(soon)));
        }
        due
    }

    /// Takes the next event that a socket of the program must hear of.
    pub fn take_event(&mut self) -> Option<(u32, Events)> {
        while let Some((protocol, event)) = self.stack.take_event() {
            let slot = slot(self.slots(protocol), event.socket);
            slot.lasting |= lasting(event.events);
            if slot.owner != NOBODY {
                return Some((slot.owner, event.events));
            }
        }
        None
    }

    fn slots(&mut self, protocol: Protocol) -> &mut Vec<Slot> {
        match protocol {
            Protocol::Tcp => &mut self.tcp,
            Protocol::Udp => &mut self.udp,
        }
    }

    /// Events of this TCP socket concern socket `index` from now on. Answers what lasts so far.
    pub fn own_tcp(&mut self, id: SocketId, index: u32) -> Events {
        let record = self.stack.tcp_table().find(id);
        let state = record.map(|record| record.state.load(Ordering::Acquire));
        let error = record.map_or(0, |record| record.error.load(Ordering::Acquire));
        let slot = slot(&mut self.tcp, id);
        slot.owner = index;
        // What happened before somebody accepted the connection was said to nobody.
        slot.lasting |= match state.and_then(State::from_number) {
            Some(State::CloseWait) => Events::READ_CLOSED,
            Some(State::Closing | State::LastAck | State::TimeWait) => Events::READ_CLOSED,
            Some(State::Closed) if error != 0 => {
                Events::READ_CLOSED | Events::CLOSED | Events::ERROR
            }
            _ => Events::empty(),
        };
        slot.lasting
    }

    /// As [`Engine::own_tcp`], for a UDP socket.
    pub fn own_udp(&mut self, id: SocketId, index: u32) {
        slot(&mut self.udp, id).owner = index;
    }

    /// Nobody is interested in this TCP socket any more.
    pub fn disown_tcp(&mut self, id: SocketId) {
        slot(&mut self.tcp, id).owner = NOBODY;
    }

    /// Nobody is interested in this UDP socket any more.
    pub fn disown_udp(&mut self, id: SocketId) {
        slot(&mut self.udp, id).owner = NOBODY;
    }

    /// What has happened to this TCP socket for good.
    #[inline]
    pub fn lasting(&self, id: SocketId) -> Events {
        let slot = self.tcp.get(id.slot as usize);
        slot.filter(|slot| slot.generation == id.generation)
            .map_or(Events::empty(), |slot| slot.lasting)
    }

    /// The errno in a socket's record, or 0.
    pub fn error_of(&self, socket: &Socket) -> c_int {
        let (table, halves) = match socket.role {
            Role::Stream(id) => (self.stack.tcp_table(), [Some(id), None]),
            Role::Datagram(halves) => (self.stack.udp_table(), halves),
            _ => return 0,
        };
        let records = halves.into_iter().flatten().filter_map(|id| table.find(id));
        let errors = records.map(|record| errno::of_number(record.error.load(Ordering::Acquire)));
        errors.into_iter().find(|error| *error != 0).unwrap_or(0)
    }

    /// Counts one.
    pub fn count(&self, counter: Counter) {
        self.counters.count(counter);
    }

    /// Listens to what the broker says unasked.
    pub fn take_notices(&mut self) {
        while let Ok(Some(notice)) = self.broker.take_notice() {
            match notice {
                Notice::Answer => self.stack.set_answers(true),
            }
        }
    }

    /// The descriptor that is readable when the broker has said something.
    pub fn broker_fd(&self) -> c_int {
        self.broker.as_fd().as_raw_fd()
    }
}

/// When to try again if the NIC had no room.
const BLOCKED: std::time::Duration = std::time::Duration::from_millis(1);
/// Bytes of frames that the capture ring holds.
const CAPTURE_BYTES: usize = 1 << 20;

/// The slot of `id`, begun anew if it was an older socket's.
fn slot(slots: &mut Vec<Slot>, id: SocketId) -> &mut Slot {
    let index = id.slot as usize;
    if index >= slots.len() {
        slots.resize(index + 1, FREE);
    }
    let slot = &mut slots[index];
    if slot.generation != id.generation {
        *slot = Slot {
            generation: id.generation,
            ..FREE
        };
    }
    slot
}

/// What the environment said when the program began: programs such as nginx clear it later.
static BROKER: OnceLock<(String, String)> = OnceLock::new();

/// Notes where the broker is; `false` if the environment names none.
pub fn note_broker() -> bool {
    let Some(name) = std::env::var_os(CONTROL_VARIABLE) else {
        return false;
    };
    let token = std::env::var_os(TOKEN_VARIABLE).unwrap_or_default();
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    BROKER.set((text(name), text(token))).is_ok()
}

/// Connects to the broker.
pub fn reach_broker() -> Result<Broker, String> {
    let (name, token) = BROKER.get().ok_or("the environment names no `skink run`")?;
    Broker::connect(name, token).map_err(|error| error.to_string())
}

/// Skink's addresses, without taking a slot.
pub fn addresses() -> Result<Vec<skink_wire::IpCidr>, String> {
    let network = reach_broker()?.network();
    network
        .map(|network| network.addresses)
        .map_err(|error| error.to_string())
}

/// Moves a descriptor up and notes it.
fn adopt(fd: OwnedFd, descriptors: &mut Vec<c_int>) -> OwnedFd {
    let fd = internal(fd.into_raw_fd());
    descriptors.push(fd);
    // SAFETY: it was handed over, or duplicated from what was.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn register(
    broker: &mut Broker,
    kind: RegionKind,
    memory: BorrowedFd<'_>,
    descriptors: &mut Vec<c_int>,
) {
    descriptors.push(memory.as_raw_fd());
    if let Err(error) = broker.register(kind, memory) {
        log!(Warn, "tools won't see everything of this process: {error}");
    }
}
