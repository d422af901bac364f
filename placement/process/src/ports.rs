//! Which programs may bind to which ports.
use skink_memory::SocketId;
use skink_messages::SocketError;
use skink_sockets::{BindOptions, Protocol};
use skink_wire::Endpoint;
use std::collections::{HashMap, VecDeque};

/// Tickets of ports that nobody has any more and that still admit who shows them: a parent may be gone
/// before the child that inherited its socket binds.
const RETIRED: usize = 1024;

/// A bound socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bound {
    socket: SocketId,
    local: Endpoint,
    /// Of who opened it, whoever has inherited it since.
    uid: u32,
    reuse_port: bool,
    ticket: u64,
}

/// What a `bind` may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Permission {
    /// It may share the port with those that are bound to it.
    pub shared: bool,
    uid: u32,
    /// The ticket to be handed out, if it isn't a new one.
    ticket: Option<u64>,
}

/// All sockets that programs bound to ports.
pub(crate) struct PortRegister {
    ports: HashMap<(Protocol, u16), Vec<Bound>>,
    by_socket: HashMap<(Protocol, SocketId), u16>,
    /// Protocol, port, user and ticket.
    retired: VecDeque<(Protocol, u16, u32, u64)>,
    first_unprivileged: u16,
}

impl PortRegister {
    pub fn new(first_unprivileged: u16) -> PortRegister {
        PortRegister {
            ports: HashMap::new(),
            by_socket: HashMap::new(),
            retired: VecDeque::new(),
            first_unprivileged,
        }
    }

    /// Whether a program of `uid` may ask for `local`. Whether the end is free is for `tcp` and `udp`
    /// to say.
    ///
    /// # Errors
    /// [`SocketError::Prohibited`]: the port is privileged.
    pub fn permission(
        &self,
        protocol: Protocol,
        local: Endpoint,
        uid: u32,
        options: BindOptions,
    ) -> Result<Permission, SocketError> {
        let key = (protocol, local.port);
        let bound = self.ports.get(&key).map_or(&[][..], Vec::as_slice);
        let shown = self.origin(key, bound, options.ticket);
        let privileged = local.port != 0 && local.port < self.first_unprivileged;
        if privileged && uid != 0 && shown.is_none() {
            return Err(SocketError::Prohibited);
        }
        // A socket that was inherited is that of whoever opened it.
        let uid = shown.unwrap_or(uid);
        let mut ticket = shown.map(|_| options.ticket);
        let mut shared = true;
        for other in bound.iter().filter(|other| overlap(other.local, local)) {
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
    fn origin(&self, key: (Protocol, u16), bound: &[Bound], ticket: u64) -> Option<u32> {
        if ticket == 0 {
            return None;
        }
        let current = bound.iter().find(|other| other.ticket == ticket);
        let retired = || {
            let mut retired = self.retired.iter();
            let found = retired.find(|old| (old.0, old.1) == key && old.3 == ticket);
            found.map(|old| old.2)
        };
        current.map(|other| other.uid).or_else(retired)
    }

    /// A socket was bound; answers its ticket.
    pub fn bound(
        &mut self,
        protocol: Protocol,
        socket: SocketId,
        local: Endpoint,
        options: BindOptions,
        permission: Permission,
    ) -> u64 {
        let ticket = permission.ticket.unwrap_or_else(random);
        self.by_socket.insert((protocol, socket), local.port);
        self.ports
            .entry((protocol, local.port))
            .or_default()
            .push(Bound {
                socket,
                local,
                uid: permission.uid,
                reuse_port: options.reuse_port,
                ticket,
            });
        ticket
    }

    /// Whether a socket is bound.
    pub fn is_bound(&self, protocol: Protocol, socket: SocketId) -> bool {
        self.by_socket.contains_key(&(protocol, socket))
    }

    /// A socket is closed.
    pub fn release(&mut self, protocol: Protocol, socket: SocketId) {
        let Some(port) = self.by_socket.remove(&(protocol, socket)) else {
            return;
        };
        let key = (protocol, port);
        let Some(bound) = self.ports.get_mut(&key) else {
            return;
        };
        let at = bound.iter().position(|other| other.socket == socket);
        let gone = at.map(|at| bound.swap_remove(at));
        let lives = |ticket| bound.iter().any(|other| other.ticket == ticket);
        if let Some(gone) = gone.filter(|gone| !lives(gone.ticket)) {
            if self.retired.len() >= RETIRED {
                self.retired.pop_front();
            }
            self.retired
                .push_back((protocol, port, gone.uid, gone.ticket));
        }
        if bound.is_empty() {
            self.ports.remove(&key);
        }
    }

    /// The sockets that `is_theirs` says are closed.
    pub fn release_all(&mut self, is_theirs: impl Fn(Protocol, SocketId) -> bool) {
        let sockets = self.by_socket.keys().copied();
        let theirs: Vec<_> = sockets.filter(|(of, id)| is_theirs(*of, *id)).collect();
        for (protocol, socket) in theirs {
            self.release(protocol, socket);
        }
    }
}

/// Whether two ends with one port have something in common.
fn overlap(one: Endpoint, other: Endpoint) -> bool {
    let any = one.addr.is_unspecified() || other.addr.is_unspecified();
    one.addr.is_ipv4() == other.addr.is_ipv4() && (any || one.addr == other.addr)
}

/// 64 bits that can't be guessed, and aren't 0.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    while !matches!(
        rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes, flags)),
        Ok(8)
    ) || bytes == [0; 8]
    {}
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests;
