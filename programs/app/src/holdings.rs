//! What a process holds of a stack in another one: the memory of its sockets, and who may use them.
use crate::fd_table::{self, Entry};
use core::ffi::c_int;
use core::net::IpAddr;
use skink_memory::SocketTable;
use skink_wire::IpCidr;
use std::os::fd::AsRawFd;

/// What a process knows of the network and of the regions that its sockets are in. It outlives the
/// channel: a child after `fork` has it too.
#[derive(Clone)]
pub struct Holdings {
    /// TCP sockets.
    pub tcp: SocketTable,
    /// UDP sockets.
    pub udp: SocketTable,
    /// The numbers of the programs whose regions are in the tables, with the secrets that show that
    /// their sockets may be used.
    pub secrets: Vec<(u32, u64)>,
    /// Skink's addresses.
    pub addresses: Vec<IpCidr>,
    /// Default routes.
    pub gateways: Vec<IpAddr>,
}

impl Holdings {
    /// The descriptors of the regions' memory.
    pub fn descriptors(&self) -> Vec<c_int> {
        let regions = self.tcp.regions().chain(self.udp.regions());
        let fds = regions.flat_map(|(_, region)| region.files());
        fds.map(|fd| fd.as_raw_fd()).collect()
    }

    /// Lets go of the regions of programs that `keep` doesn't want.
    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        let gone: Vec<u32> = self.secrets.iter().map(|(program, _)| *program).collect();
        for program in gone.into_iter().filter(|program| !keep(*program)) {
            for table in [&mut self.tcp, &mut self.udp] {
                if let Some(region) = table.remove(program) {
                    for fd in region.files() {
                        fd_table::set(fd.as_raw_fd(), Entry::Ordinary);
                    }
                }
            }
            self.secrets.retain(|(other, _)| *other != program);
        }
    }

    /// What is left if it is handed on.
    pub fn none() -> Holdings {
        Holdings {
            tcp: SocketTable::new(1),
            udp: SocketTable::new(1),
            secrets: Vec::new(),
            addresses: Vec::new(),
            gateways: Vec::new(),
        }
    }

    /// Where inherited sockets of program `number` are from.
    pub fn secret_of(&self, number: u32) -> Option<u64> {
        let known = self.secrets.iter().find(|(program, _)| *program == number);
        known.map(|(_, secret)| *secret)
    }
}
