use crate::kernel::words;
use crate::link::{self, Place};
use crate::{SteeringError, addresses};
use aya::EbpfLoader;
use aya::maps::Map;
use aya::programs::SchedClassifier;
use serde::{Deserialize, Serialize};
use skink_wire::IpCidr;
use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};

/// The compiled program, at an address where the ELF parser can read its words in place.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/ingress.bpf.o");

/// Keeps what comes in by one interface to Skink's addresses from the kernel's own stack: packet sockets have had their
/// copy by then, and the kernel would look at it again, and if it forwards pass it on, or refuse it in our name.
///
/// That ends when this value is dropped, and by all who have a copy: processes that were forked off, or the program that
/// this process has become (`skink_inherit`).
#[derive(Serialize, Deserialize)]
pub struct Ingress {
    #[serde(with = "skink_inherit::descriptors")]
    link: OwnedFd,
}

impl Ingress {
    /// Puts the program behind `interface` (of the calling thread's network namespace), beside those of others, for
    /// these addresses. Needs Linux 6.6.
    pub fn attach(interface: &str, ours: &[IpCidr]) -> Result<Ingress, SteeringError> {
        load_and_attach(interface, ours).map_err(|error| SteeringError::Ingress {
            interface: interface.to_owned(),
            what: words(error.as_ref()),
        })
    }
}

fn load_and_attach(interface: &str, ours: &[IpCidr]) -> Result<Ingress, Box<dyn Error>> {
    let mut programs = EbpfLoader::new().load(OBJECT)?;
    let Some(Map::HashMap(addresses)) = programs.map(addresses::NAME) else {
        return Err("the object that was built in lacks its map".into());
    };
    addresses::set(addresses.fd().as_fd(), ours)?;
    let program = programs.program_mut("skink_ingress");
    let program = program.ok_or("the object that was built in lacks its program")?;
    let program: &mut SchedClassifier = program.try_into()?;
    program.load()?;
    let index = link::index_of(interface)?;
    let link = link::attach(program.fd()?.as_fd(), index, Place::Ingress)?;
    Ok(Ingress { link })
}
