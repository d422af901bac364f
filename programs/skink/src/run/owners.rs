use crate::failure::Failure;
use skink_control::{Grant, NicGrant, Owners, Peer};
use skink_nic::{NicSpec, Opener, Sharing};
use skink_wire::IpCidr;

/// Opens the NIC for each process of the program.
pub struct NicOwners {
    opener: Opener,
    /// How many processes have it.
    count: usize,
}

impl NicOwners {
    /// Checks that the NIC can be had, and makes what its owners share.
    pub fn open(nic: &NicSpec, addresses: &[IpCidr]) -> Result<NicOwners, Failure> {
        let opener = Opener::new(nic, Sharing::Several);
        let mut opener = opener.map_err(|error| Failure::own(error.to_string()))?;
        if let Some(steering) = opener.steering() {
            let set = steering.set_addresses(addresses);
            set.map_err(|error| Failure::own(error.to_string()))?;
        }
        Ok(NicOwners { opener, count: 0 })
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
            .map(|steering| steering.port_map())
            .transpose();
        let ports = ports.map_err(|error| format!("can't hand the port table over: {error}"))?;
        self.count += 1;
        Ok(Grant::Nic(NicGrant::new(parts, ports)))
    }

    fn retire(&mut self, owner: u16) {
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
