use super::orphans::{self, Gone, Orphanage};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;
use skink_control::{
    Grant, NicGrant, Owners, Peer, RegionKind, SignalDescriptor, StackStart, TetherParts,
    unguessable,
};
use skink_memory::Holder;
use skink_nic::{Adaptation, Load, NicParts, Opener};
use skink_socket_diag::SocketDiag;
use skink_tcp::State;
use skink_wire::FourTuple;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Opens the NIC for each process of the program.
pub struct NicOwners {
    opener: Opener,
    /// What a stack is to know that ends the connections of a process.
    start: StackStart,
    orphanage: Orphanage,
    /// How many processes have it.
    count: usize,
    /// How those use it that have said so.
    loads: BTreeMap<u16, Load>,
    adaptation: Adaptation,
    /// The interface's MTU, as all have been told.
    mtu: Option<u32>,
    /// Whose turn it is to take in what others hand over.
    turn: usize,
    /// To processes that end connections, of which the broker doesn't know yet.
    links: Vec<(u16, OwnedFd)>,
}

impl NicOwners {
    /// Nobody has it yet. A stack that ends the connections of a process is told what `start` says.
    pub fn new(opener: Opener, start: StackStart) -> NicOwners {
        NicOwners {
            adaptation: opener.adaptation(),
            mtu: opener.mtu(),
            turn: 0,
            links: Vec::new(),
            opener,
            start,
            orphanage: Orphanage::default(),
            count: 0,
            loads: BTreeMap::new(),
        }
    }

    /// Sees to connections of processes that have ended: to be called after [`skink_control::Server::serve`]. Answers whether
    /// there are some whose peers are being told.
    pub fn tend(&mut self, signals: &SignalDescriptor) -> bool {
        for gone in self.orphanage.tend(signals) {
            self.forget(&gone);
        }
        !self.orphanage.is_empty()
    }

    /// The broker's ends of connections with processes that end connections of owners.
    pub fn take_links(&mut self) -> Vec<(u16, OwnedFd)> {
        std::mem::take(&mut self.links)
    }

    /// Something has happened to an interface: answers the new MTU, if it is ours that has one.
    pub fn changed_mtu(&mut self) -> Option<u32> {
        let now = self.opener.mtu()?;
        (self.mtu.replace(now) != Some(now)).then_some(now)
    }

    /// A child has ended.
    pub fn ended(&mut self, pid: u32) {
        if let Some(gone) = self.orphanage.ended(pid) {
            self.forget(&gone);
        }
    }

    /// Whether a process ends connections.
    pub fn is_ours(&self, pid: Pid) -> bool {
        self.orphanage
            .has_process(pid.as_raw_nonzero().get().unsigned_abs())
    }

    fn forget(&mut self, gone: &Gone) {
        self.opener.retire(gone.owner);
        if gone.is_released {
            self.opener.close(gone.owner);
        }
    }

    /// A process has ended: answers whether the peers of its connections will be told.
    fn take_in(
        &mut self,
        owner: u16,
        memory: BTreeMap<RegionKind, OwnedFd>,
        tethers: Vec<TetherParts>,
    ) -> Result<bool, String> {
        let Some(files) = orphans::files(memory) else {
            return Ok(false);
        };
        // First: who is in reserve there and counts on it goes on to be so from now on.
        self.opener.orphan(owner);
        let listens = self.listens_for_others(owner, &files);
        // Requests may lie in its part of the NIC, for others.
        let listened = self.opener.steering().is_some() && !orphans::listeners(&files).is_empty();
        let needs_none = listens.is_empty() && !listened && tethers.is_empty();
        if needs_none && !orphans::have_peers(&files) {
            return Ok(false);
        }
        let ports: Vec<u16> = listens.iter().map(|(end, _)| end.port()).collect();
        let parts = self.opener.succeed(owner, &ports);
        let NicParts {
            description,
            mut descriptors,
        } = parts.map_err(|error| error.to_string())?;
        let mut start = self.start.clone();
        start.nic = serde_json::to_string(&description).map_err(|error| error.to_string())?;
        start.nic_descriptors = descriptors.len();
        start.listens = listens;
        let ends = |flow: &FourTuple| {
            let FourTuple { local, remote } = flow;
            [local, remote].map(|end| SocketAddr::new(end.addr, end.port))
        };
        start.tethers = tethers.iter().map(|(flow, ..)| ends(flow).into()).collect();
        start.seed = unguessable().map_err(|error| error.to_string())?;
        let steering = self.opener.steering();
        let ports = steering.map(|steering| steering.port_maps()).transpose();
        if let Some(ports) = ports.map_err(|error| error.to_string())? {
            start.owner = Some(owner);
            descriptors.extend([ports.tcp, ports.udp]);
        }
        descriptors.extend(files);
        descriptors.extend(tethers.into_iter().flat_map(|(_, end, file)| [end, file]));
        let link = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        let (ours, theirs) = link.map_err(|error| error.to_string())?;
        descriptors.push(theirs);
        self.links.push((owner, ours));
        self.orphanage.take_in(owner, start, descriptors);
        Ok(true)
    }

    /// Where the owner has listened, and nobody does who has a stack, though somebody has the socket; and that one's cookie.
    fn listens_for_others(&mut self, owner: u16, files: &[OwnedFd; 3]) -> Vec<(SocketAddr, u64)> {
        // Where nothing steers, the next process would have to put an end to it.
        if self.opener.steering().is_none() || !self.orphanage.has_room_to_stay() {
            return Vec::new();
        }
        let mut all = orphans::listeners(files);
        all.retain(|local| !self.opener.others_listen(owner, local.port));
        if all.is_empty() {
            return Vec::new();
        }
        let Ok(mut diag) = SocketDiag::open() else {
            return Vec::new();
        };
        let found = all.into_iter().filter_map(|local| {
            let end = SocketAddr::new(local.addr, local.port);
            Some((end, diag.find(local)?))
        });
        let found: Vec<_> = found.collect();
        tracing::debug!(owner, ?found, "somebody has what it listened on");
        found
    }

    /// Whether a process stays in place of one that has ended, for others.
    pub fn have_stand_ins(&self) -> bool {
        self.orphanage.stay()
    }

    fn bind(&self, flow: &FourTuple, owner: u16) {
        match self.opener.bind_flow(flow, owner) {
            Ok(()) => tracing::debug!(%flow, owner, "goes to its process"),
            Err(error) => tracing::warn!(%flow, owner, "doesn't go to its process: {error}"),
        }
    }

    /// Adapts the NIC to all loads: interrupts are put off if anybody is busy; segmentation, if somebody's packets are
    /// small and nobody is busy with others; AF_XDP steps aside, if somebody receives in bulk and nobody is busy with anything else.
    fn adapt(&mut self) {
        let busy = self.loads.values().any(|load| load.busy);
        let small = self.loads.values().any(|load| load.small)
            && self.loads.values().all(|load| load.small || !load.busy);
        let bulk = self.loads.values().any(|load| load.bulk)
            && self.loads.values().all(|load| load.bulk || !load.busy);
        tracing::debug!(busy, small, bulk, "load");
        self.adaptation.adapt(Load { busy, small, bulk });
        self.opener.step_aside(bulk);
    }
}

/// Whether a process's records have a connection. (Of one in TIME-WAIT another process may have the successor; and of one that is on its
/// way to another process, that one may have it.)
fn has_it(table: [OwnedFd; 2], flow: &FourTuple) -> bool {
    orphans::has_connection(table, |state, record| {
        let lives = state.is_synchronized() || state == State::SynReceived;
        let leaves = matches!(record.holder(), Some(Holder::Away | Holder::Passed));
        lives && !leaves && state != State::TimeWait && record.four_tuple() == *flow
    })
}

impl Owners for NicOwners {
    fn grant(&mut self, owner: u16, _peer: &Peer) -> Result<Grant, String> {
        // Without a program that knows who listens, inbound flows would reach any of them.
        if self.opener.steering().is_none() {
            while let Some(gone) = self.orphanage.give_up_one() {
                self.forget(&gone);
            }
        }
        if self.count > 0 && self.opener.steering().is_none() {
            return Err(
                "only one process at a time can have a stack on this NIC, since the steering program \
                 couldn't be loaded: run skink as root, or give it CAP_BPF"
                    .to_owned(),
            );
        }
        let parts = self.opener.open(owner).map_err(|error| error.to_string())?;
        let ports = self
            .opener
            .steering()
            .map(|steering| steering.port_maps())
            .transpose();
        let ports = ports.map_err(|error| format!("can't hand the port table over: {error}"))?;
        self.count += 1;
        Ok(Grant::Nic(NicGrant::new(parts, ports)))
    }

    fn load(&mut self, owner: u16, load: Load) {
        self.loads.insert(owner, load);
        self.adapt();
    }

    fn find(&self, flow: &FourTuple, owners: Vec<(u16, [OwnedFd; 2])>) -> Option<u16> {
        let mut owners = owners.into_iter();
        owners.find_map(|(owner, table)| has_it(table, flow).then_some(owner))
    }

    fn have_stacks(&self) -> bool {
        true
    }

    fn heir(&mut self, tried: &[u16], flow: &FourTuple, only_waiting: bool) -> Option<u16> {
        self.turn = self.turn.wrapping_add(1);
        self.opener
            .other_listener(tried, flow.local.port, only_waiting, self.turn)
    }

    fn lead_to(&mut self, flow: &FourTuple, owner: u16, table: Option<[OwnedFd; 2]>) {
        if table.is_none_or(|table| has_it(table, flow)) {
            self.bind(flow, owner);
        }
    }

    fn retire(
        &mut self,
        owner: u16,
        memory: BTreeMap<RegionKind, OwnedFd>,
        mut tethers: Vec<TetherParts>,
    ) -> bool {
        self.loads.remove(&owner);
        self.adapt();
        self.count = self.count.saturating_sub(1);
        if !self.orphanage.has_room_to_stay() {
            tethers.clear();
        }
        let keeps = !tethers.is_empty();
        let told = self.take_in(owner, memory, tethers).unwrap_or_else(|why| {
            tracing::warn!(
                owner,
                "a process of the program has ended, and its peers aren't told: {why}"
            );
            false
        });
        if !told {
            self.opener.retire(owner);
        }
        told && keeps
    }

    fn release(&mut self, owner: u16) {
        if !self.orphanage.release(owner) {
            self.opener.close(owner);
        }
    }

    fn make_room(&mut self) {
        if let Some(gone) = self.orphanage.give_up_one() {
            self.forget(&gone);
        }
    }

    fn is_free(&self, owner: u16) -> bool {
        !self.orphanage.has(owner)
    }

    /// The broker tells the processes.
    fn load_filter(&mut self, rules: &str) -> Result<String, String> {
        let accepted = crate::filter::accept(rules)?;
        rules.clone_into(&mut self.start.rules);
        Ok(crate::filter::in_force(&accepted, &self.start.interface))
    }

    fn answering(&mut self, owner: u16) {
        // The NIC shows ARP, neighbour discovery and ICMP errors to every owner.
        tracing::debug!(owner, "answers for the addresses");
    }
}
