//! What the broker answers to each request.
use super::tools::only_file;
use super::{
    Access, Asked, Connection, Grant, NicGrant, Owners, Peer, Role, ServedParts, Server, random,
};
use crate::FIRST_COMPONENT;
use crate::client::{TOO_LATE, ends, four_tuple, milliseconds};
use crate::message::{
    AttachedMessage, Hex, NetworkInfo, PROTOCOL, RegionKind, Reply, Request, ServedMessage,
};
use crate::peer::is_stopped;
use crate::tether;
use crate::transport;
use rustix::fs::SealFlags;
use rustix::net::SendFlags;
use skink_wire::FourTuple;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `TMPFS_MAGIC` (linux/magic.h).
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// Whoever passed a connection and was killed had not heard for so many milliseconds at most that it was received.
const LATELY: u64 = 1000;
/// So many are remembered.
const MOST_RECEIVED: usize = 256;

impl<O: Owners> Server<O> {
    /// Answers one request. What is wanted of the descriptors that came beside it is taken out. An error closes the connection:
    /// the other end doesn't play by the rules.
    pub(super) fn handle(
        &mut self,
        key: u64,
        request: Request,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<(), String> {
        let role = self
            .connections
            .get(&key)
            .map_or(Role::Stranger, |connection| connection.role);
        match (role, request) {
            (Role::Stranger, Request::Attach { protocol, token }) => {
                self.attach(key, protocol, &token)
            }
            (Role::Stranger, Request::Network { protocol, token }) => {
                self.network(key, protocol, &token)
            }
            // Who still waits here may have been granted everything by a supervisor that died right after that.
            (Role::Owner(_) | Role::Waiting(_), Request::Register { kind }) => {
                self.register(key, kind, descriptors)
            }
            (Role::Owner(_) | Role::Waiting(_), Request::Region { program, secret }) => {
                self.region(key, program, secret)
            }
            (Role::Owner(owner), Request::Load(load)) => {
                self.owners.load(owner, load);
                Ok(())
            }
            (Role::Owner(owner), Request::Misled { local, remote }) => {
                self.lead_back(owner, &four_tuple(local, remote));
                Ok(())
            }
            (
                Role::Owner(owner) | Role::Orphans(owner),
                Request::HandOver {
                    local,
                    remote,
                    parcel,
                    may_stay,
                },
            ) if self.owners.have_stacks() => {
                let flow = four_tuple(local, remote);
                self.bring_to_heir(key, owner, &flow, parcel, may_stay);
                Ok(())
            }
            (
                Role::Owner(owner) | Role::Orphans(owner),
                Request::TakenIn {
                    from,
                    serial,
                    local,
                    remote,
                    taken,
                },
            ) if self.owners.have_stacks() => {
                let flow = four_tuple(local, remote);
                if taken {
                    self.lead_to_heir(key, owner, &flow);
                }
                if taken && serial != 0 {
                    self.note_received(&flow, owner);
                    let gone = self.tethers.remove(from, &flow);
                    self.let_go(gone);
                }
                self.asked.retain(|it| it.heir != key || it.flow != flow);
                let from = self.key_of_stack(from);
                self.tell_handed_over(from, &flow, serial, taken.then_some(owner));
                Ok(())
            }
            (Role::Owner(owner), Request::Tethered { local, remote })
                if self.owners.have_stacks() =>
            {
                if !matches!(descriptors.as_slice(), [end] if tether::is_one(end.as_fd())) {
                    return Err("it handed in something else than its end of a tether".to_owned());
                }
                let flow = four_tuple(local, remote);
                // Who has taken it since may have been heard first.
                if self.lately_received(owner, &flow).is_none() {
                    let gone = self.tethers.add(owner, flow, descriptors.pop());
                    self.let_go(gone);
                }
                Ok(())
            }
            (Role::Owner(owner) | Role::Orphans(owner), Request::Untethered { local, remote }) => {
                let gone = self.tethers.remove(owner, &four_tuple(local, remote));
                self.let_go(gone);
                Ok(())
            }
            (
                Role::Orphans(owner),
                Request::Give {
                    serial,
                    local,
                    remote,
                },
            ) => {
                let flow = four_tuple(local, remote);
                if let Err(error) = self.tethers.give(owner, &flow, serial, &self.token) {
                    tracing::warn!(%flow, "a shared connection can't be given: {error}");
                    self.tell_handed_over(Some(key), &flow, serial, None);
                }
                Ok(())
            }
            (Role::Orphans(owner), Request::Whose { local, remote }) => {
                let flow = four_tuple(local, remote);
                let heir = self.owner_with(owner, &flow);
                let heir = heir.or_else(|| self.lately_received(owner, &flow));
                // What lies in the queue of a tether somebody will take.
                if heir.is_some() || !self.tethers.has(owner, &flow) {
                    self.tell_handed_over(Some(key), &flow, 0, heir);
                }
                Ok(())
            }
            (
                Role::Owner(_) | Role::Orphans(_),
                Request::Late {
                    to,
                    local,
                    remote,
                    segment,
                },
            ) if self.owners.have_stacks() => {
                let reply = Reply::Late {
                    local,
                    remote,
                    segment,
                };
                if let Some(key) = self.key_of_stack(to)
                    && self.reply(key, &reply, &[]).is_err()
                {
                    tracing::debug!("a segment that came late doesn't arrive");
                }
                Ok(())
            }
            (
                Role::Owner(owner) | Role::Orphans(owner),
                Request::Stray {
                    local,
                    remote,
                    segment,
                },
            ) if self.owners.have_stacks() => {
                self.bring_to_listener(owner, &four_tuple(local, remote), segment);
                Ok(())
            }
            (Role::Owner(owner), Request::FilterShown { question }) => {
                self.on_shown(owner, question, descriptors)
            }
            (Role::Tool, request) => self.handle_tool(key, request, descriptors),
            (Role::Outsider, _) => {
                let own = rustix::process::geteuid().as_raw();
                self.refuse(
                    key,
                    format!(
                        "it belongs to another user: only root and user {own} may look into it"
                    ),
                )
            }
            (_, request) => Err(format!("it asked out of turn: {request:?}")),
        }
    }

    fn check_token(&self, token: &str) -> Result<(), String> {
        // Compared in constant time: each wrong byte counts, none ends the comparison.
        let mut wrong = token.len() ^ self.token.len();
        for (given, right) in token.bytes().zip(self.token.bytes()) {
            wrong |= usize::from(given ^ right);
        }
        if wrong != 0 {
            return Err("its token is wrong".to_owned());
        }
        Ok(())
    }

    /// Tells a process of the program the addresses, without giving it a slot.
    fn network(&self, key: u64, protocol: u32, token: &str) -> Result<(), String> {
        self.check_token(token)?;
        if protocol != PROTOCOL {
            return self.refuse(key, other_version(protocol));
        }
        if let Some(connection) = self.connections.get(&key)
            && let Err(reason) = self.admit(&connection.peer)
        {
            return self.refuse(key, reason);
        }
        let info = NetworkInfo {
            addresses: self.config.addresses.clone(),
            gateways: self.config.gateways.clone(),
            name: self.config.name.clone(),
            nic: self.config.nic.clone(),
            topology: self.config.topology.clone(),
        };
        self.reply(key, &Reply::Network(info), &[])
    }

    fn attach(&mut self, key: u64, protocol: u32, token: &str) -> Result<(), String> {
        self.check_token(token)?;
        if protocol != PROTOCOL {
            return self.refuse(key, other_version(protocol));
        }
        let Some(connection) = self.connections.get(&key) else {
            return Ok(());
        };
        let peer = connection.peer.clone();
        if let Err(reason) = self.admit(&peer) {
            return self.refuse(key, reason);
        }
        self.release_predecessors(key);
        let slot = self.free_slot().or_else(|| {
            self.owners.make_room();
            self.free_slot()
        });
        let Some(owner) = slot else {
            let most = self.owners.capacity();
            return self.refuse(key, match self.config.access {
                Access::Token => format!("{most} processes have a stack of their own already, and there can't be more under one `skink run`"),
                Access::Named => format!("{most} programs are served already, or their last connections are still ending: try again later, or start another `skink up`"),
            });
        };
        let role = Role::Waiting(owner);
        self.set_role(key, role);
        match self.owners.grant(owner, &peer) {
            Ok(Grant::Later) => Ok(()),
            granted => self.hand_over(key, owner, granted),
        }
    }

    /// Answers an owner for whom [`Grant::Later`] was said.
    pub fn grant(&mut self, owner: u16, granted: Result<Grant, String>) {
        let Some(key) = self.key_of(Role::Waiting(owner)) else {
            return;
        };
        if let Err(why) = self.hand_over(key, owner, granted) {
            self.close(key, &why);
        }
    }

    /// Ends the connection of an owner, who is treated as one that died.
    pub fn dismiss(&mut self, owner: u16, why: &str) {
        let roles = [Role::Owner(owner), Role::Waiting(owner)];
        for key in roles.map(|role| self.key_of(role)).into_iter().flatten() {
            self.close(key, why);
        }
    }

    pub(super) fn key_of(&self, role: Role) -> Option<u64> {
        let mut connections = self.connections.iter();
        let found = connections.find(|(_, connection)| connection.role == role);
        found.map(|(key, _)| *key)
    }

    /// Of the process that has the stack of this owner: its own, or one that ends its connections.
    fn key_of_stack(&self, owner: u16) -> Option<u64> {
        let roles = [Role::Owner(owner), Role::Orphans(owner)];
        roles.into_iter().find_map(|role| self.key_of(role))
    }

    fn set_role(&mut self, key: u64, role: Role) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.role = role;
        }
    }

    fn admit(&self, peer: &Peer) -> Result<(), String> {
        match self.config.access {
            Access::Token => Ok(()),
            Access::Named => self.owners.admit(peer),
        }
    }

    /// The lowest slot that nobody has.
    fn free_slot(&self) -> Option<u16> {
        let attached = self.connections.values();
        let attached = attached.filter_map(|connection| match connection.role {
            Role::Owner(owner) | Role::Waiting(owner) => Some(owner),
            // (Of whom others end the connections, the owners know.)
            Role::Stranger | Role::Orphans(_) | Role::Tool | Role::Outsider => None,
        });
        let departing = self.departing.values().map(|departing| departing.owner);
        let taken: BTreeSet<u16> = attached.chain(departing).collect();
        let mut slots = 0..self.owners.capacity().min(FIRST_COMPONENT);
        slots.find(|slot| {
            !taken.contains(slot) && !self.lost.contains(slot) && self.owners.is_free(*slot)
        })
    }

    fn hand_over(
        &mut self,
        key: u64,
        owner: u16,
        granted: Result<Grant, String>,
    ) -> Result<(), String> {
        let granted = match granted {
            Ok(granted) => granted,
            Err(reason) => {
                tracing::warn!(owner, "a process gets no stack: {reason}");
                self.set_role(key, Role::Stranger);
                return self.refuse(key, reason);
            }
        };
        self.set_role(key, Role::Owner(owner));
        if let Some(connection) = self.connections.get(&key) {
            let (pid, uid) = (connection.peer.pid, connection.peer.uid);
            tracing::info!(pid, uid, owner, "attached");
        }
        match granted {
            Grant::Nic(grant) => self.hand_nic_over(key, owner, &grant),
            Grant::Served(parts) => self.hand_channel_over(key, &parts),
            Grant::Later => Err("nothing was granted".to_owned()),
        }
    }

    fn hand_channel_over(&self, key: u64, parts: &ServedParts) -> Result<(), String> {
        let message = ServedMessage {
            attachment: parts.attachment,
            addresses: self.config.addresses.clone(),
            gateways: self.config.gateways.clone(),
        };
        let all = parts.tcp_region.iter().chain(&parts.udp_region);
        let all: Vec<BorrowedFd<'_>> = all.chain(&parts.channel).map(AsFd::as_fd).collect();
        self.reply(key, &Reply::Served(Box::new(message)), &all)
    }

    fn hand_nic_over(&mut self, key: u64, owner: u16, grant: &NicGrant) -> Result<(), String> {
        let answers = self.answering.is_none();
        if answers {
            self.answering = Some(owner);
            self.owners.answering(owner);
        }
        let message = AttachedMessage {
            owner,
            addresses: self.config.addresses.clone(),
            gateways: self.config.gateways.clone(),
            seed: random().map_err(|error| error.to_string())? as u64,
            sequence_secret: self.sequence_secret,
            answers,
            nic: grant.nic.clone(),
            nic_descriptors: grant.nic_descriptors.len(),
            ports: grant.ports.is_some(),
            rules: self.config.rules.clone(),
            interface: self.config.interface.clone(),
            tcp_table: self.config.tcp_table,
            udp_table: self.config.udp_table,
            socket_memory: self.config.socket_memory,
        };
        let ports = grant.ports.iter().flat_map(|maps| [&maps.tcp, &maps.udp]);
        let all = grant.nic_descriptors.iter().chain(ports);
        let all: Vec<BorrowedFd<'_>> = all.map(AsFd::as_fd).collect();
        self.reply(key, &Reply::Attached(Box::new(message)), &all)
    }

    fn region(&self, key: u64, program: u32, secret: u64) -> Result<(), String> {
        match self.owners.region(program, secret) {
            Ok(regions) => {
                let files: Vec<_> = regions.iter().flatten().map(AsFd::as_fd).collect();
                self.reply(key, &Reply::Region {}, &files)
            }
            Err(reason) => self.refuse(key, reason),
        }
    }

    fn register(
        &mut self,
        key: u64,
        kind: RegionKind,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<(), String> {
        let memory = only_memory(descriptors, "memory that it registers")?;
        // What the stack writes, the supervisor shows to tools; a program is believed what it says of
        // itself only.
        let own = matches!(kind, RegionKind::Counters | RegionKind::Fallbacks);
        if self.config.access == Access::Named && !own {
            return self.refuse(key, "tools see the stack's own memory instead".to_owned());
        }
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.regions.insert(kind, memory);
        }
        self.reply(key, &Reply::Registered {}, &[])
    }

    pub(super) fn refuse(&self, key: u64, reason: String) -> Result<(), String> {
        tracing::info!(reason, "refused");
        self.reply(key, &Reply::Refused { reason }, &[])
    }

    pub(super) fn reply(
        &self,
        key: u64,
        reply: &Reply,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), String> {
        let Some(connection) = self.connections.get(&key) else {
            return Ok(());
        };
        transport::send(
            connection.socket.as_fd(),
            reply,
            descriptors,
            SendFlags::DONTWAIT,
        )
        .map_err(|error| format!("it doesn't take its answer: {error}"))
    }
}

impl<O: Owners> Server<O> {
    /// Tells owners that have a stack of their own that their interface takes packets of `bytes` bytes from now on.
    pub fn tell_mtu(&mut self, bytes: u32) {
        let has_stack = |role| matches!(role, Role::Owner(_));
        let owners = self.connections.iter().filter(|(_, it)| has_stack(it.role));
        for key in owners.map(|(key, _)| *key).collect::<Vec<_>>() {
            if self.reply(key, &Reply::Mtu { bytes }, &[]).is_err() {
                tracing::warn!("a process doesn't hear that the interface's MTU has changed");
            }
        }
    }

    /// Owner `from`, at `key`, has a connection that nobody has accepted: another one that listens there takes it in, and waits for it
    /// if it may stay.
    fn bring_to_heir(
        &mut self,
        key: u64,
        from: u16,
        flow: &FourTuple,
        parcel: Hex,
        may_stay: bool,
    ) {
        let at = milliseconds();
        self.asked.retain(|it| at.saturating_sub(it.at) < TOO_LATE);
        if let Some(asked) = self.asked.iter_mut().find(|it| it.flow == *flow) {
            // By who had it, and has ended since: one that is asked may have it by now.
            asked.waits = key;
            return;
        }
        if self.is_of_orphans(key)
            && let Some(heir) = self.owner_with(from, flow)
        {
            return self.tell_handed_over(Some(key), flow, 0, Some(heir));
        }
        let reply = Reply::TakeIn { from, parcel, at };
        let mut tried = vec![from];
        while let Some(heir) = self.owners.heir(&tried, flow, may_stay) {
            tried.push(heir);
            if let Some(heir) = self.hearing(heir)
                && self.reply(heir, &reply, &[]).is_ok()
            {
                self.asked.push(Asked {
                    flow: *flow,
                    heir,
                    waits: key,
                    at,
                });
                return;
            }
        }
        self.tell_handed_over(Some(key), flow, 0, None);
    }

    /// A request came to owner `from`, who doesn't listen any more: who does gets it, and what follows.
    fn bring_to_listener(&mut self, from: u16, flow: &FourTuple, segment: Hex) {
        let (local, remote) = ends(flow);
        let reply = Reply::Late {
            local,
            remote,
            segment,
        };
        let mut tried = vec![from];
        while let Some(heir) = self.owners.heir(&tried, flow, false) {
            tried.push(heir);
            if let Some(key) = self.hearing(heir) {
                self.owners.lead_to(flow, heir, None);
                if self.reply(key, &reply, &[]).is_ok() {
                    return;
                }
            }
        }
        tracing::debug!(%flow, "nobody listens there any more");
    }

    /// The connection to who has the stack of this owner, unless that process is stopped.
    fn hearing(&self, owner: u16) -> Option<u64> {
        let key = self.key_of_stack(owner)?;
        let peer = &self.connections.get(&key)?.peer;
        (!is_stopped(peer.pid)).then_some(key)
    }

    /// Connection `key` is closed: who waits for its answer is told. (Who was asked for it may take the connection in all the same.)
    pub(super) fn forget_asked(&mut self, key: u64) {
        let asked = core::mem::take(&mut self.asked).into_iter();
        let (gone, rest): (Vec<Asked>, Vec<Asked>) = asked.partition(|it| it.heir == key);
        self.asked = rest;
        for Asked { flow, waits, .. } in gone {
            self.tell_handed_over(Some(waits), &flow, 0, None);
        }
    }

    /// It may be over by the time at which somebody asks whose it is.
    fn note_received(&mut self, flow: &FourTuple, heir: u16) {
        if self.received.len() >= MOST_RECEIVED {
            self.received.pop_front();
        }
        self.received.push_back((*flow, heir, milliseconds()));
    }

    /// Who has received a connection that the owner had passed. If the owner received it last itself nobody has had it since.
    fn lately_received(&self, owner: u16, flow: &FourTuple) -> Option<u16> {
        let at = milliseconds();
        let mut all = self.received.iter().rev();
        let (_, heir, since) = all.find(|(it, _, _)| it == flow)?;
        (at.saturating_sub(*since) < LATELY && *heir != owner).then_some(*heir)
    }

    fn is_of_orphans(&self, key: u64) -> bool {
        let connection = self.connections.get(&key);
        connection.is_some_and(|it| matches!(it.role, Role::Orphans(_)))
    }

    /// The owner other than this one whose records have a connection.
    fn owner_with(&mut self, than: u16, flow: &FourTuple) -> Option<u16> {
        let others = self.tables_of_others(than);
        self.owners.find(flow, others)
    }

    /// Who doesn't hear it finds out by the time it takes.
    fn tell_handed_over(&self, key: Option<u64>, flow: &FourTuple, serial: u32, heir: Option<u16>) {
        let (local, remote) = ends(flow);
        let reply = Reply::HandedOver {
            local,
            remote,
            serial,
            heir,
        };
        if let Some(key) = key
            && self.reply(key, &reply, &[]).is_err()
        {
            tracing::debug!(%flow, heir, "who handed it over doesn't hear of it");
        }
    }

    /// The owner at `key` says that it has a connection now: its records must say so, too.
    fn lead_to_heir(&mut self, key: u64, owner: u16, flow: &FourTuple) {
        let Some(connection) = self.connections.get(&key) else {
            return;
        };
        match (connection.role, tables_of(connection)) {
            // It is Skink's own.
            (Role::Orphans(_), _) => self.owners.lead_to(flow, owner, None),
            (_, Some(table)) => self.owners.lead_to(flow, owner, Some(table)),
            (_, None) => {}
        }
    }

    /// A segment of `flow` came to owner `misled`, who doesn't have it.
    fn lead_back(&mut self, misled: u16, flow: &FourTuple) {
        match self.owner_with(misled, flow) {
            Some(owner) => self.owners.lead_to(flow, owner, None),
            None => tracing::debug!(%flow, "nobody has it"),
        }
    }

    fn tables_of_others(&self, than: u16) -> Vec<(u16, [OwnedFd; 2])> {
        let tables = self.connections.values().filter_map(|connection| {
            let (Role::Owner(owner) | Role::Waiting(owner)) = connection.role else {
                return None;
            };
            let tables = tables_of(connection).filter(|_| owner != than);
            tables.map(|tables| (owner, tables))
        });
        tables.collect()
    }
}

/// The records of an owner's TCP sockets, and its send rings.
fn tables_of(connection: &Connection) -> Option<[OwnedFd; 2]> {
    let table = |kind| connection.regions.get(&kind)?.try_clone().ok();
    Some([
        table(RegionKind::TcpTable)?,
        table(RegionKind::TcpSendRings)?,
    ])
}

/// Takes the one descriptor beside a request, if it is one of memory that may be looked into, and closed.
pub(super) fn only_memory(descriptors: &mut Vec<OwnedFd>, what: &str) -> Result<OwnedFd, String> {
    if let [memory] = descriptors.as_slice() {
        check_memory(memory)?;
    }
    only_file(descriptors, what)
}

/// Whether memory that was handed in may be looked into.
fn check_memory(memory: &OwnedFd) -> Result<(), String> {
    // What could shrink under a tool would kill it.
    let seals = rustix::fs::fcntl_get_seals(memory).unwrap_or(SealFlags::empty());
    if !seals.contains(SealFlags::SHRINK) {
        return Err("it handed in memory that isn't a sealed memfd".to_owned());
    }
    // Where there are no huge pages left, to look into a file of such would kill whoever does.
    let kind = rustix::fs::fstatfs(memory).ok();
    if kind.map(|status| status.f_type) != Some(TMPFS) {
        return Err("it handed in memory of another kind than a memfd's".to_owned());
    }
    Ok(())
}

fn other_version(protocol: u32) -> String {
    format!(
        "skink run speaks version {PROTOCOL} of the control protocol and the library version \
         {protocol}: install both from one release"
    )
}
