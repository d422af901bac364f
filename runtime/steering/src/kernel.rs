//! What is in the kernel, as descriptors: they can be handed on, which a library's objects can't.

use crate::link::{self, Place};
use crate::ports::TABLE_ENTRIES;
use crate::{SteeringError, addresses, flows};
use aya::maps::{Map, MapData, XskMap};
use aya::programs::{ProgramError, SocketFilter, Xdp};
use aya::{Ebpf, EbpfError, EbpfLoader};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The compiled programs, at an address where the ELF parser can read their words in place.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/steer.bpf.o");

/// How an XDP program sits in front of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AttachMode {
    /// In the driver, before the kernel makes a socket buffer.
    Driver,
    /// After that, because the driver can't: slower, and never without a copy.
    Generic,
}

/// The programs, their maps, and what holds the XDP program in its place.
#[derive(Serialize, Deserialize)]
pub(crate) struct InKernel {
    #[serde(with = "skink_inherit::descriptors")]
    pub(crate) fanout: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    pub(crate) steered: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    pub(crate) control: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    pub(crate) xdp: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    pub(crate) owners: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    pub(crate) tcp_ports: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    pub(crate) udp_ports: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    pub(crate) addresses: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    pub(crate) flow_rings: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    sockets: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    pub(crate) flows: OwnedFd,
    /// The XDP program is in front of an interface until the last descriptor of it is closed.
    #[serde(with = "skink_inherit::descriptors")]
    pub(crate) link: Option<OwnedFd>,
}

/// Loads the programs and makes their maps, with room for so many flows.
pub(crate) fn load(flows: u32) -> Result<InKernel, SteeringError> {
    let mut programs = EbpfLoader::new()
        .set_max_entries(flows::NAME, flows)
        .set_max_entries("tcp_ports", TABLE_ENTRIES as u32)
        .set_max_entries("udp_ports", TABLE_ENTRIES as u32)
        .load(OBJECT)
        .map_err(load_error)?;
    Ok(InKernel {
        fanout: socket_filter(&mut programs, "skink_fanout")?,
        steered: socket_filter(&mut programs, "skink_steered")?,
        control: socket_filter(&mut programs, "skink_control")?,
        xdp: xdp(&mut programs, "skink_xdp")?,
        owners: map(&programs, "owners")?,
        tcp_ports: map(&programs, "tcp_ports")?,
        udp_ports: map(&programs, "udp_ports")?,
        addresses: map(&programs, addresses::NAME)?,
        flow_rings: map(&programs, "flow_rings")?,
        sockets: map(&programs, "sockets")?,
        flows: map(&programs, flows::NAME)?,
        link: None,
    })
}

impl InKernel {
    /// The AF_XDP sockets, by queue and ring.
    pub(crate) fn sockets(&self) -> Result<XskMap<MapData>, SteeringError> {
        let map = map_of(self.sockets.as_fd(), "sockets")?;
        let map = Map::XskMap(map).try_into();
        map.map_err(|error| map_error("sockets", error))
    }

    /// Puts the XDP program in front of an interface: in the driver if it can, otherwise behind it.
    pub(crate) fn attach_xdp(&mut self, interface: &str) -> Result<AttachMode, SteeringError> {
        let refused = |error: io::Error| SteeringError::Attach {
            interface: interface.to_owned(),
            what: error.to_string(),
        };
        let index = link::index_of(interface).map_err(refused)?;
        let attach = |place| link::attach(self.xdp.as_fd(), index, place);
        let (link, mode) = match attach(Place::InDriver) {
            Ok(link) => (link, AttachMode::Driver),
            Err(_) => (
                attach(Place::BehindDriver).map_err(refused)?,
                AttachMode::Generic,
            ),
        };
        self.link = Some(link);
        Ok(mode)
    }

    /// Takes it off again, if it is there.
    pub(crate) fn detach_xdp(&mut self) -> Result<(), SteeringError> {
        let Some(link) = self.link.take() else {
            return Ok(());
        };
        link::detach(link.as_fd()).map_err(|error| SteeringError::Detach {
            what: error.to_string(),
        })
    }
}

pub(crate) fn map_of(
    descriptor: BorrowedFd<'_>,
    name: &'static str,
) -> Result<MapData, SteeringError> {
    let own = descriptor.try_clone_to_owned();
    let own = own.map_err(|error| map_error(name, error))?;
    MapData::from_fd(own).map_err(|error| map_error(name, error))
}

fn socket_filter(programs: &mut Ebpf, name: &'static str) -> Result<OwnedFd, SteeringError> {
    let failed = |error| program_error(name, error);
    let program = programs.program_mut(name).ok_or_else(|| missing(name))?;
    let program: &mut SocketFilter = program.try_into().map_err(failed)?;
    program.load().map_err(failed)?;
    own(name, program.fd().map_err(failed)?)
}

fn xdp(programs: &mut Ebpf, name: &'static str) -> Result<OwnedFd, SteeringError> {
    let failed = |error| program_error(name, error);
    let program = programs.program_mut(name).ok_or_else(|| missing(name))?;
    let program: &mut Xdp = program.try_into().map_err(failed)?;
    program.load().map_err(failed)?;
    own(name, program.fd().map_err(failed)?)
}

fn map(programs: &Ebpf, name: &'static str) -> Result<OwnedFd, SteeringError> {
    let map = programs.map(name).ok_or_else(|| missing(name))?;
    let data = match map {
        Map::Array(data) | Map::HashMap(data) | Map::LruHashMap(data) | Map::XskMap(data) => data,
        other => return Err(map_error(name, format!("it is {other:?}"))),
    };
    own(name, data.fd())
}

/// The library closes what it has.
fn own(name: &str, descriptor: impl AsFd) -> Result<OwnedFd, SteeringError> {
    let own = descriptor.as_fd().try_clone_to_owned();
    own.map_err(|error| SteeringError::Load {
        what: format!("{name}: {error}"),
    })
}

fn missing(name: &'static str) -> SteeringError {
    SteeringError::Load {
        what: format!("{name} isn't in the object that was built in"),
    }
}

pub(crate) fn map_error(map: &'static str, error: impl std::fmt::Display) -> SteeringError {
    SteeringError::Map {
        map,
        what: error.to_string(),
    }
}

fn load_error(error: EbpfError) -> SteeringError {
    classify("maps", &error)
}

fn program_error(name: &str, error: ProgramError) -> SteeringError {
    classify(name, &error)
}

/// Tells want of privileges from everything else: the cause at the bottom says so.
fn classify(what: &str, error: &(dyn Error + 'static)) -> SteeringError {
    let refused = causes(error).any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    });
    let what = format!("{what}: {}", words(error));
    if refused {
        SteeringError::Privileges { what }
    } else {
        SteeringError::Load { what }
    }
}

/// An error with all its causes.
pub(crate) fn words(error: &(dyn Error + 'static)) -> String {
    let words: Vec<String> = causes(error).map(ToString::to_string).collect();
    words.join(": ")
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}
