//! The estate: what a process leaves to the program that it becomes by `exec`, or begins by
//! `posix_spawn`, if sockets stay open.
//!
//! It is written to a memfd that stays open as well, and that a variable of the environment names. If a stack in another
//! process serves it, the descriptors of the channel and of the regions go with it. Otherwise the new program gets what a
//! child after `fork` has: sockets that listen or are bound, for a stack of its own. The library in the new program takes
//! all that over before the program begins.
use crate::engine::Engine;
use crate::holdings::Holdings;
use crate::options::Options;
use crate::remote::Remote;
use crate::socket::{Halves, Role, Socket, Taker};
use crate::state::State;
use core::ffi::c_int;
use core::net::IpAddr;
use serde::{Deserialize, Serialize};
use skink_memory::SocketId;
use skink_messages::Events;
use skink_sockets::Attachment;
use skink_wire::Endpoint;
use std::os::fd::{AsRawFd, OwnedFd};

/// The variable that names the estate's descriptor.
pub const VARIABLE: &str = "SKINK_ESTATE";
/// Versions that can't read each other's leave each other nothing.
const VERSION: &str = concat!("skink-estate-5-", env!("CARGO_PKG_VERSION"));
/// No estate is larger.
const MAXIMUM_BYTES: usize = 64 << 20;

type Id = (u32, u32);
type End = (IpAddr, u16);

/// What is left to a successor.
#[derive(Serialize, Deserialize)]
pub struct Estate {
    version: String,
    /// The process that may take it over; 0 for one that isn't known yet.
    process: u32,
    sockets: Vec<SocketEntry>,
    /// None if no stack in another process has them.
    stack: Option<StackEntry>,
}

/// The stack in another process, and what the successor goes on with there.
#[derive(Serialize, Deserialize)]
struct StackEntry {
    broker: c_int,
    attachment: Attachment,
    channel: Vec<c_int>,
    addresses: Vec<String>,
    gateways: Vec<IpAddr>,
    /// Number, secret and files of each program whose regions are in use.
    regions: Vec<(u32, u64, [[c_int; 3]; 2])>,
    /// Connections that were offered and not taken, with their listening sockets.
    offers: Vec<(Id, Id)>,
    /// Sockets that are closed with the old program: TCP, UDP.
    closed: [Vec<Id>; 2],
}

/// What is known of a socket.
#[derive(Serialize, Deserialize)]
pub struct SocketEntry {
    fds: Vec<c_int>,
    domain: c_int,
    datagram: bool,
    own_kernel_socket: bool,
    kernel_listens: bool,
    nonblocking: bool,
    /// See [`Tethers`].
    tethered: bool,
    role: RoleEntry,
    backlog: u32,
    /// [`Events`] of a connection that last.
    lasting: u8,
    bound: Option<End>,
    resting: [Option<Id>; 2],
    tickets: [u64; 2],
    peer: Option<End>,
    error: c_int,
    connecting: bool,
    shut_read: bool,
    shut_write: bool,
    more: bool,
    unsupported: Option<c_int>,
    options: Options,
}

#[derive(Serialize, Deserialize)]
enum RoleEntry {
    Undecided,
    Dormant,
    /// The process has listened on a stack that ends with it, and the new program does from its beginning on.
    Listening,
    Listener([Option<Id>; 2]),
    Stream(Id),
    Datagram([Option<Id>; 2]),
    Lost,
}

fn plain(id: SocketId) -> Id {
    (id.slot, id.generation)
}

fn id((slot, generation): Id) -> SocketId {
    SocketId { slot, generation }
}

fn plain_halves(halves: Halves) -> [Option<Id>; 2] {
    halves.map(|half| half.map(plain))
}

fn halves(halves: [Option<Id>; 2]) -> Halves {
    halves.map(|half| half.map(id))
}

fn plain_end(end: Option<Endpoint>) -> Option<End> {
    end.map(|end| (end.addr, end.port))
}

fn end(end: Option<End>) -> Option<Endpoint> {
    end.map(|(addr, port)| Endpoint::new(addr, port))
}

impl SocketEntry {
    fn of(socket: &Socket, fds: Vec<c_int>, engine: &Engine) -> SocketEntry {
        let (role, lasting) = match socket.role {
            Role::Undecided => (RoleEntry::Undecided, Events::empty()),
            Role::Dormant => (RoleEntry::Dormant, Events::empty()),
            Role::Listener(halves) => (RoleEntry::Listener(plain_halves(halves)), Events::empty()),
            Role::Stream(id) => (RoleEntry::Stream(plain(id)), engine.lasting(id)),
            Role::Datagram(halves) => (RoleEntry::Datagram(plain_halves(halves)), Events::empty()),
            Role::Lost => (RoleEntry::Lost, Events::empty()),
        };
        SocketEntry::with_role(socket, fds, role, lasting)
    }

    /// As it is without the stack on which it was, if that was the process's own. `goes_on` says that the new program takes
    /// the place of who has it.
    fn without_stack(socket: &Socket, fds: Vec<c_int>, goes_on: bool) -> SocketEntry {
        let listens = goes_on && socket.taker != Taker::Others && !socket.is_bound_only();
        let role = match socket.without_stack() {
            Role::Dormant if listens => RoleEntry::Listening,
            Role::Dormant => RoleEntry::Dormant,
            Role::Undecided => RoleEntry::Undecided,
            _ => RoleEntry::Lost,
        };
        let mut entry = SocketEntry::with_role(socket, fds, role, Events::empty());
        entry.resting = [None; 2];
        entry
    }

    fn with_role(
        socket: &Socket,
        fds: Vec<c_int>,
        role: RoleEntry,
        lasting: Events,
    ) -> SocketEntry {
        SocketEntry {
            fds,
            domain: socket.domain,
            datagram: socket.datagram,
            own_kernel_socket: socket.own_kernel_socket,
            kernel_listens: socket.kernel_listens,
            nonblocking: socket.nonblocking,
            tethered: socket.tethered,
            role,
            backlog: socket.backlog,
            lasting: lasting.bits(),
            bound: plain_end(socket.bound),
            resting: plain_halves(socket.resting),
            tickets: socket.tickets,
            peer: plain_end(socket.peer),
            error: socket.error,
            connecting: socket.connecting,
            shut_read: socket.shut_read,
            shut_write: socket.shut_write,
            more: socket.more,
            unsupported: socket.unsupported,
            options: socket.options,
        }
    }
}

impl Estate {
    /// What the process leaves with these descriptors that stay open, and the sockets behind them. The
    /// successor goes on with `engine`'s channel. `process` is who may take it over.
    pub fn of(
        state: &State,
        engine: &Engine,
        remote: &Remote,
        staying: &[(c_int, u32)],
        process: u32,
    ) -> Estate {
        let addresses = remote.holdings.addresses.iter();
        let mut stack = StackEntry {
            broker: engine.broker_fd(),
            attachment: remote.attachment,
            channel: remote.channel.clone(),
            addresses: addresses.map(ToString::to_string).collect(),
            gateways: remote.holdings.gateways.clone(),
            regions: regions(&remote.holdings),
            offers: Vec::new(),
            closed: [Vec::new(), Vec::new()],
        };
        let mut sockets = Vec::new();
        for (index, socket) in state.sockets.iter() {
            let fds = descriptors(staying, index);
            if fds.is_empty() {
                stack.close(socket);
                continue;
            }
            if let Role::Listener(halves) = socket.role {
                for listener in halves.into_iter().flatten() {
                    let offers = remote.offers(listener).into_iter();
                    let offers = offers.map(|offer| (plain(listener), plain(offer)));
                    stack.offers.extend(offers);
                }
            }
            sockets.push(SocketEntry::of(socket, fds, engine));
        }
        Estate {
            version: VERSION.to_owned(),
            process,
            sockets,
            stack: Some(stack),
        }
    }

    /// The same of a process that no stack in another one serves. `goes_on` says that it becomes the new program itself.
    pub fn without_stack(
        state: &State,
        staying: &[(c_int, u32)],
        process: u32,
        goes_on: bool,
    ) -> Estate {
        let entries = state.sockets.iter().filter_map(|(index, socket)| {
            let fds = descriptors(staying, index);
            (!fds.is_empty()).then(|| SocketEntry::without_stack(socket, fds, goes_on))
        });
        Estate {
            version: VERSION.to_owned(),
            process,
            sockets: entries.collect(),
            stack: None,
        }
    }

    /// The successor isn't this process: it shares sockets, and binds those that listen for itself.
    pub fn for_heir(&mut self, broker: c_int) {
        if let Some(stack) = &mut self.stack {
            stack.broker = broker;
            stack.offers.clear();
            stack.closed = [Vec::new(), Vec::new()];
        }
        for entry in &mut self.sockets {
            entry.resting = [None; 2];
            if let RoleEntry::Listener(_) = entry.role {
                entry.role = RoleEntry::Dormant;
            }
        }
    }

    /// The descriptors that must stay open besides the sockets'.
    pub fn each_descriptor(&mut self, mut each: impl FnMut(&mut c_int)) {
        let Some(stack) = &mut self.stack else {
            return;
        };
        each(&mut stack.broker);
        stack.channel.iter_mut().for_each(&mut each);
        let regions = stack.regions.iter_mut();
        let files = regions.flat_map(|(_, _, files)| files.as_flattened_mut());
        files.for_each(each);
    }
    /// Writes it down, in a memfd that stays open.
    pub fn write(&self) -> std::io::Result<OwnedFd> {
        let text = serde_json::to_vec(self)?;
        let memory = rustix::fs::memfd_create("skink-estate", rustix::fs::MemfdFlags::empty())?;
        rustix::fs::ftruncate(&memory, text.len() as u64)?;
        let mut done = 0;
        while done < text.len() {
            done += rustix::io::pwrite(&memory, &text[done..], done as u64)?;
        }
        Ok(memory)
    }

    fn read(memory: &OwnedFd) -> Result<Estate, String> {
        let fail = |error: rustix::io::Errno| error.to_string();
        let size = rustix::fs::fstat(memory).map_err(fail)?.st_size;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size > MAXIMUM_BYTES {
            return Err(format!("{size} bytes are too many"));
        }
        let mut text = vec![0; size];
        let mut done = 0;
        while done < size {
            match rustix::io::pread(memory, &mut text[done..], done as u64).map_err(fail)? {
                0 => break,
                count => done += count,
            }
        }
        let estate: Estate = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        if estate.version != VERSION {
            return Err(format!("it is of {}, not of {VERSION}", estate.version));
        }
        Ok(estate)
    }
}

impl StackEntry {
    /// The socket ends with the old program.
    fn close(&mut self, socket: &Socket) {
        let (protocol, halves) = match socket.role {
            Role::Stream(id) => (0, [Some(id), None]),
            Role::Listener(halves) => (0, halves),
            Role::Dormant => (0, socket.resting),
            Role::Datagram(halves) => (1, halves),
            Role::Undecided => (1, socket.resting),
            Role::Lost => return,
        };
        let ids = halves.into_iter().flatten().map(plain);
        self.closed[protocol].extend(ids);
    }
}

/// Those of `staying` that stand for the socket.
fn descriptors(staying: &[(c_int, u32)], index: u32) -> Vec<c_int> {
    let fds = staying.iter().filter(|(_, other)| *other == index);
    fds.map(|(fd, _)| *fd).collect()
}

/// Number, secret and files of each program whose regions are held.
fn regions(holdings: &Holdings) -> Vec<(u32, u64, [[c_int; 3]; 2])> {
    let memory = |program: u32| -> Option<[[c_int; 3]; 2]> {
        let (tcp, udp) = (holdings.tcp.region(program)?, holdings.udp.region(program)?);
        Some([tcp, udp].map(|region| region.files().map(|fd| fd.as_raw_fd())))
    };
    let known = holdings.secrets.iter();
    known
        .filter_map(|(program, secret)| Some((*program, *secret, memory(*program)?)))
        .collect()
}

mod keeper;
mod packet;
mod passed;
mod taken;
mod tethered;
mod ticket;

pub use keeper::Keeper;
pub use packet::look_at;
pub use passed::PassedOn;
pub use taken::take_over;
pub use tethered::{SOON, Tethers, has_usher, here, lock_here, summon, summon_until};
pub use ticket::Tickets;

#[cfg(test)]
mod tests;
