use skink_control::{Grant, NicGrant, Owners, Peer};
use skink_nic::{Adaptation, Load, Opener};
use std::collections::BTreeMap;

/// Opens the NIC for each process of the program.
pub struct NicOwners {
    opener: Opener,
    /// How many processes have it.
    count: usize,
    /// How those use it that have said so.
    loads: BTreeMap<u16, Load>,
    adaptation: Adaptation,
}

impl NicOwners {
    /// Nobody has it yet.
    pub fn new(opener: Opener) -> NicOwners {
        NicOwners {
            adaptation: opener.adaptation(),
            opener,
            count: 0,
            loads: BTreeMap::new(),
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

impl Owners for NicOwners {
    fn grant(&mut self, owner: u16, _peer: &Peer) -> Result<Grant, String> {
        // Without a program that knows who listens, inbound flows would reach any of them.
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

    fn retire(&mut self, owner: u16) {
        self.loads.remove(&owner);
        self.adapt();
        self.count = self.count.saturating_sub(1);
        self.opener.retire(owner);
    }

    fn release(&mut self, owner: u16) {
        self.opener.close(owner);
    }

    /// The broker tells the processes.
    fn load_filter(&mut self, rules: &str) -> Result<String, String> {
        crate::filter::accept(rules).map(crate::filter::in_force)
    }

    fn answering(&mut self, owner: u16) {
        // The NIC shows ARP, neighbour discovery and ICMP errors to every owner.
        tracing::debug!(owner, "answers for the addresses");
    }
}
