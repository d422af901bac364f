//! What the broker answers to each request.
use super::{Owners, Role, Server, random};
use crate::MAXIMUM_OWNERS;
use crate::message::{AttachedMessage, NetworkInfo, PROTOCOL, RegionKind, Reply, Request};
use crate::transport;
use rustix::fs::SealFlags;
use rustix::net::SendFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

impl<O: Owners> Server<O> {
    /// Answers one request. An error closes the connection: the other end doesn't play by the rules.
    pub(super) fn handle(
        &mut self,
        key: u64,
        request: Request,
        descriptors: Vec<OwnedFd>,
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
            (Role::Owner(_), Request::Register { kind }) => self.register(key, kind, descriptors),
            (Role::Tool, Request::List {}) => {
                self.reply(key, &Reply::Instance(Box::new(self.describe())), &[])
            }
            (Role::Tool, Request::Open { owner, kind }) => self.open(key, owner, kind),
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
        let info = NetworkInfo {
            addresses: self.config.addresses.clone(),
            gateways: self.config.gateways.clone(),
        };
        self.reply(key, &Reply::Network(info), &[])
    }

    fn attach(&mut self, key: u64, protocol: u32, token: &str) -> Result<(), String> {
        self.check_token(token)?;
        if protocol != PROTOCOL {
            return self.refuse(key, other_version(protocol));
        }
        self.release_predecessors(key);
        let attached = self
            .connections
            .values()
            .filter_map(|connection| match connection.role {
                Role::Owner(owner) => Some(owner),
                Role::Stranger | Role::Tool | Role::Outsider => None,
            });
        let departing = self.departing.values().map(|departing| departing.owner);
        let taken = attached.chain(departing);
        let taken = taken.fold(self.lost, |taken, owner| taken | 1u64 << owner);
        let owner = taken.trailing_ones() as u16;
        if usize::from(owner) >= MAXIMUM_OWNERS {
            return self.refuse(key, format!("{MAXIMUM_OWNERS} processes have a stack of their own already, and there can't be more under one `skink run`"));
        }
        let grant = match self.owners.grant(owner) {
            Ok(grant) => grant,
            Err(reason) => {
                tracing::warn!(owner, "a process gets no stack: {reason}");
                return self.refuse(key, reason);
            }
        };
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.role = Role::Owner(owner);
            tracing::info!(
                pid = connection.pid,
                uid = connection.uid,
                owner,
                "attached"
            );
        }
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
            answers,
            nic: grant.nic,
            nic_descriptors: grant.nic_descriptors.len(),
            port_table: grant.port_table.is_some(),
            tcp_table: self.config.tcp_table,
            udp_table: self.config.udp_table,
        };
        let all = grant.nic_descriptors.iter().chain(&grant.port_table);
        let all: Vec<BorrowedFd<'_>> = all.map(|descriptor| descriptor.as_fd()).collect();
        self.reply(key, &Reply::Attached(Box::new(message)), &all)
    }

    /// A process that comes again has become another program by `exec`, which closed what it had.
    fn release_predecessors(&mut self, key: u64) {
        let pid = self.connections.get(&key).map(|connection| connection.pid);
        let predecessors = self.departing.iter();
        let predecessors: Vec<u64> = predecessors
            .filter(|(_, departing)| Some(departing.pid) == pid)
            .map(|(key, _)| *key)
            .collect();
        for key in predecessors {
            self.release(key);
        }
    }

    fn register(
        &mut self,
        key: u64,
        kind: RegionKind,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<(), String> {
        let memory = match (descriptors.pop(), descriptors.is_empty()) {
            (Some(memory), true) => memory,
            _ => return Err("it registered memory without exactly one descriptor".to_owned()),
        };
        // What could shrink under a tool would kill it.
        let seals = rustix::fs::fcntl_get_seals(&memory).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) {
            return Err("it registered memory that isn't a sealed memfd".to_owned());
        }
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.regions.insert(kind, memory);
        }
        self.reply(key, &Reply::Registered {}, &[])
    }

    fn open(&mut self, key: u64, owner: u16, kind: RegionKind) -> Result<(), String> {
        let mut connections = self.connections.values();
        let connection = connections.find(|connection| connection.role == Role::Owner(owner));
        let memory = connection.and_then(|connection| connection.regions.get(&kind));
        let Some(memory) = memory else {
            return self.refuse(
                key,
                format!("process {owner} has ended or hasn't registered its {kind:?}"),
            );
        };
        match reopen(memory, kind == RegionKind::Capture) {
            Ok(memory) => self.reply(key, &Reply::Region {}, &[memory.as_fd()]),
            Err(error) => self.refuse(
                key,
                format!("the memory of process {owner} can't be opened: {error}"),
            ),
        }
    }

    fn refuse(&self, key: u64, reason: String) -> Result<(), String> {
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

/// An open file description of our own for the memory file, so that neither its access mode nor a
/// lock is shared with the process that registered it.
fn reopen(memory: &OwnedFd, writable: bool) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(writable)
        .open(path)?;
    Ok(file.into())
}

fn other_version(protocol: u32) -> String {
    format!(
        "skink run speaks version {PROTOCOL} of the control protocol and the library version \
         {protocol}: install both from one release"
    )
}
