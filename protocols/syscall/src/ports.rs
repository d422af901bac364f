//! Which programs may bind to which ports.
use crate::SyscallOutput;
use crate::stored::{Item, forget, keep};
use skink_memory::SocketId;
use skink_messages::{PortOptions, Protocol, SocketError};
use skink_wire::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// Tickets of ports that nobody has any more and that still admit who shows them: a parent may be gone
/// before the child that inherited its socket binds.
const RETIRED: usize = 1024;
/// Sockets that may be bound at a time, all programs' together: `store` has room for them.
const BOUND: usize = 1 << 18;
/// Sockets that may be bound to one port: each `bind`, and the end of each, looks at all of them, and a datagram to a group goes to all.
const BOUND_TO_A_PORT: usize = 1024;

/// A bound socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bound {
    pub socket: SocketId,
    pub local: Endpoint,
    /// Of who opened it, whoever has inherited it since.
    pub uid: u32,
    pub reuse_port: bool,
    /// Never 0.
    pub ticket: u64,
}

/// A ticket that outlived its sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Retired {
    pub protocol: Protocol,
    pub port: u16,
    pub uid: u32,
    pub ticket: u64,
}

/// What a `bind` may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Permission {
    /// It may share the port with those that are bound to it.
    pub shared: bool,
    pub uid: u32,
    /// The ticket to be handed out, if it isn't a new one.
    pub ticket: Option<u64>,
}

/// All sockets that programs bound to ports.
#[derive(Debug)]
pub(crate) struct PortRegister {
    ports: BTreeMap<(Protocol, u16), BTreeMap<SocketId, Bound>>,
    by_socket: BTreeMap<(Protocol, SocketId), u16>,
    /// By the order in which they retired,
    retired: BTreeMap<u64, Retired>,
    /// and those of each user.
    retired_of: BTreeMap<u32, BTreeSet<u64>>,
    first_unprivileged: u16,
}

impl PortRegister {
    pub fn new(first_unprivileged: u16) -> PortRegister {
        PortRegister {
            ports: BTreeMap::new(),
            by_socket: BTreeMap::new(),
            retired: BTreeMap::new(),
            retired_of: BTreeMap::new(),
            first_unprivileged,
        }
    }

    /// Whether a program of `uid` may ask for `local` for a socket. Whether the end is free is for `tcp`
    /// and `udp` to say. A socket that is bound already isn't in its own way: it may be asked for again
    /// after a restart.
    ///
    /// # Errors
    /// [`SocketError::Prohibited`]: the port is privileged. [`SocketError::NoBuffers`]: too many sockets
    /// are bound, or bound to the port. [`SocketError::AddressInUse`]: another user has the end of a TCP socket. (With `SO_REUSEADDR`
    /// Linux lets him bind, and not listen as long as one of the others does; here the others' sockets may be about to, and
    /// who listens next is given what waits.)
    pub fn permission(
        &self,
        protocol: Protocol,
        socket: SocketId,
        local: Endpoint,
        uid: u32,
        options: PortOptions,
    ) -> Result<Permission, SocketError> {
        let own = self.of_socket(protocol, socket);
        if own.is_none() && self.is_full() {
            return Err(SocketError::NoBuffers);
        }
        let again = own.filter(|own| own.local == local);
        let port = self.ports.get(&(protocol, local.port));
        if own.is_none() && port.is_some_and(|port| port.len() >= BOUND_TO_A_PORT) {
            return Err(SocketError::NoBuffers);
        }
        let shown = self.origin(protocol, local.port, options.ticket);
        let known = again.map(|own| own.uid).or(shown);
        let privileged = local.port != 0 && local.port < self.first_unprivileged;
        if privileged && uid != 0 && known.is_none() {
            return Err(SocketError::Prohibited);
        }
        // A socket that was inherited is that of whoever opened it.
        let uid = known.unwrap_or(uid);
        let mut ticket = again.map(|own| own.ticket);
        ticket = ticket.or(shown.map(|_| options.ticket));
        let mut shared = true;
        let others = port.into_iter().flat_map(BTreeMap::values);
        let others = others.filter(|other| other.socket != socket);
        for other in others.filter(|other| overlap(other.local, local)) {
            if protocol == Protocol::Tcp && other.uid != uid {
                return Err(SocketError::AddressInUse);
            }
            let group = other.reuse_port && options.reuse_port && other.uid == uid;
            if ticket.is_none() && group {
                ticket = Some(other.ticket);
            }
            shared &= group || (shown.is_some() && other.ticket == options.ticket);
        }
        Ok(Permission {
            shared,
            uid,
            ticket,
        })
    }

    /// The user of the port that a ticket is of; `None` if it is of none.
    fn origin(&self, protocol: Protocol, port: u16, ticket: u64) -> Option<u32> {
        if ticket == 0 {
            return None;
        }
        let bound = self.ports.get(&(protocol, port));
        let mut bound = bound.into_iter().flat_map(BTreeMap::values);
        let current = bound.find(|other| other.ticket == ticket);
        let retired = || {
            let mut retired = self.retired.values();
            retired.find(|old| (old.protocol, old.port, old.ticket) == (protocol, port, ticket))
        };
        current
            .map(|other| other.uid)
            .or_else(|| retired().map(|old| old.uid))
    }

    /// A socket was bound; answers its ticket. `ticket` in `bound` counts unless it was bound to the same
    /// end already.
    pub fn bound(&mut self, protocol: Protocol, bound: Bound, out: &mut impl SyscallOutput) -> u64 {
        if let Some(own) = self.of_socket(protocol, bound.socket)
            && own.local == bound.local
        {
            return own.ticket;
        }
        // Whatever else is known of the slot is out of date.
        let slot = bound.socket.slot;
        self.release_slots(protocol, slot, slot, |_| true, out);
        self.insert(protocol, bound);
        keep(out, &Item::Port(protocol, bound));
        bound.ticket
    }

    fn insert(&mut self, protocol: Protocol, bound: Bound) {
        let port = bound.local.port;
        self.by_socket.insert((protocol, bound.socket), port);
        let others = self.ports.entry((protocol, port)).or_default();
        others.insert(bound.socket, bound);
    }

    /// Whether no more sockets may be bound.
    pub fn is_full(&self) -> bool {
        self.by_socket.len() >= BOUND
    }

    /// Whether a socket is bound.
    pub fn is_bound(&self, protocol: Protocol, socket: SocketId) -> bool {
        self.by_socket.contains_key(&(protocol, socket))
    }

    fn of_socket(&self, protocol: Protocol, socket: SocketId) -> Option<&Bound> {
        let port = self.by_socket.get(&(protocol, socket))?;
        self.ports.get(&(protocol, *port))?.get(&socket)
    }

    /// A socket is closed.
    pub fn release(&mut self, protocol: Protocol, socket: SocketId, out: &mut impl SyscallOutput) {
        let Some(port) = self.by_socket.remove(&(protocol, socket)) else {
            return;
        };
        let Some(bound) = self.ports.get_mut(&(protocol, port)) else {
            return;
        };
        let gone = bound.remove(&socket);
        let lives = |ticket| bound.values().any(|other| other.ticket == ticket);
        let last = gone.filter(|gone| !lives(gone.ticket));
        if bound.is_empty() {
            self.ports.remove(&(protocol, port));
        }
        if let Some(gone) = gone {
            forget(out, &Item::Port(protocol, gone));
        }
        if let Some(gone) = last {
            let retired = Retired {
                protocol,
                port,
                uid: gone.uid,
                ticket: gone.ticket,
            };
            self.retire(retired, out);
        }
    }

    fn retire(&mut self, retired: Retired, out: &mut impl SyscallOutput) {
        while self.retired.len() >= RETIRED
            && let Some((number, oldest)) = self.pop_retired()
        {
            forget(out, &Item::Retired(number, oldest));
        }
        let last = self.retired.last_key_value();
        let number = last.map_or(0, |(number, _)| number.saturating_add(1));
        self.insert_retired(number, retired);
        keep(out, &Item::Retired(number, retired));
    }

    fn insert_retired(&mut self, number: u64, retired: Retired) {
        self.retired.insert(number, retired);
        let own = self.retired_of.entry(retired.uid).or_default();
        own.insert(number);
    }

    /// Forgets the oldest ticket of the user that has the most.
    fn pop_retired(&mut self) -> Option<(u64, Retired)> {
        let users = self.retired_of.iter_mut();
        let (uid, most) = users.max_by_key(|(_, own)| own.len())?;
        let (uid, number) = (*uid, most.pop_first()?);
        if most.is_empty() {
            self.retired_of.remove(&uid);
        }
        Some((number, self.retired.remove(&number)?))
    }

    /// The sockets in these slots, both included, that `is_gone` are closed.
    pub fn release_slots(
        &mut self,
        protocol: Protocol,
        first: u32,
        last: u32,
        is_gone: impl Fn(SocketId) -> bool,
        out: &mut impl SyscallOutput,
    ) {
        let sockets = self.by_socket.range(key_range(protocol, first, last));
        let sockets = sockets.map(|((_, socket), _)| *socket);
        let gone: Vec<_> = sockets.filter(|socket| is_gone(*socket)).collect();
        for socket in gone {
            self.release(protocol, socket, out);
        }
    }

    /// Takes back what was stored of a bound socket. `false` if that makes no sense.
    pub fn restore_bound(&mut self, protocol: Protocol, bound: Bound) -> bool {
        let sound = bound.local.port != 0
            && bound.ticket != 0
            && !self.is_full()
            && !self.is_bound(protocol, bound.socket);
        if sound {
            self.insert(protocol, bound);
        }
        sound
    }

    /// Takes back a ticket. `false` if that makes no sense.
    pub fn restore_retired(&mut self, number: u64, retired: Retired) -> bool {
        let sound = retired.ticket != 0
            && self.retired.len() < RETIRED
            && !self.retired.contains_key(&number);
        if sound {
            self.insert_retired(number, retired);
        }
        sound
    }

    /// All that is stored of it.
    pub fn items(&self) -> impl Iterator<Item = Item> {
        let bound = self.ports.iter().flat_map(|((protocol, _), bound)| {
            let protocol = *protocol;
            bound.values().map(move |one| Item::Port(protocol, *one))
        });
        let retired = self.retired.iter();
        bound.chain(retired.map(|(number, retired)| Item::Retired(*number, *retired)))
    }
}

/// All ids of some slots, both included.
pub(crate) fn key_range(
    protocol: Protocol,
    first: u32,
    last: u32,
) -> std::ops::RangeInclusive<(Protocol, SocketId)> {
    let lowest = SocketId {
        slot: first,
        generation: 0,
    };
    let highest = SocketId {
        slot: last.max(first),
        generation: u32::MAX,
    };
    (protocol, lowest)..=(protocol, highest)
}

/// Whether two ends with one port have something in common.
fn overlap(one: Endpoint, other: Endpoint) -> bool {
    let any = one.addr.is_unspecified() || other.addr.is_unspecified();
    one.addr.is_ipv4() == other.addr.is_ipv4() && (any || one.addr == other.addr)
}

#[cfg(test)]
mod tests;
