use skink_control::{Grant, NicGrant, Owners, Peer};
use skink_nic::{Interrupts, NicSpec, Opener};
use std::collections::BTreeSet;

/// Opens the NIC for each process of the program.
pub struct NicOwners {
    opener: Opener,
    /// How many processes have it.
    count: usize,
    /// Those that have so much to do that they needn't be interrupted.
    busy: BTreeSet<u16>,
    /// If they can be put off.
    interrupts: Option<Interrupts>,
}

impl NicOwners {
    /// Nobody has it yet.
    pub fn new(opener: Opener, nic: &NicSpec) -> NicOwners {
        NicOwners {
            opener,
            count: 0,
            busy: BTreeSet::new(),
            interrupts: interrupts(nic),
        }
    }
}

/// A TAP has none: who reads from it finds what was written.
fn interrupts(nic: &NicSpec) -> Option<Interrupts> {
    let (NicSpec::Xdp(name) | NicSpec::Packet(name)) = nic else {
        return None;
    };
    let found = Interrupts::of(name);
    found
        .inspect_err(|error| tracing::info!(name, %error, "interrupts can't be put off"))
        .ok()
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
            .map(|steering| steering.port_map())
            .transpose();
        let ports = ports.map_err(|error| format!("can't hand the port table over: {error}"))?;
        self.count += 1;
        Ok(Grant::Nic(NicGrant::new(parts, ports)))
    }

    fn busy(&mut self, owner: u16, busy: bool) {
        match busy {
            true => self.busy.insert(owner),
            false => self.busy.remove(&owner),
        };
        let wanted = !self.busy.is_empty();
        let Some(interrupts) = &mut self.interrupts else {
            return;
        };
        tracing::debug!(owner, busy, wanted, "interrupts");
        if let Err(error) = interrupts.put_off(wanted) {
            tracing::warn!(%error, "can't put interrupts off");
            self.interrupts = None;
        }
    }

    fn retire(&mut self, owner: u16) {
        self.busy(owner, false);
        self.count = self.count.saturating_sub(1);
        self.opener.retire(owner);
    }

    fn release(&mut self, owner: u16) {
        self.opener.close(owner);
    }

    fn answering(&mut self, owner: u16) {
        // The NIC shows ARP, neighbour discovery and ICMP errors to every owner.
        tracing::debug!(owner, "answers for the addresses");
    }
}
