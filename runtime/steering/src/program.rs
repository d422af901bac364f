use crate::owners::{Owners, QUEUES};
use crate::ports::{self, Port};
use crate::shared::MappedArray;
use crate::{Owner, SteeringError};
use aya::maps::{HashMap as BpfHash, Map, MapData, XskMap};
use aya::programs::{ProgramError, SocketFilter, Xdp, XdpFlags};
use aya::{Ebpf, EbpfError, EbpfLoader};
use skink_wire::IpCidr;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The compiled programs, at an address where the ELF parser can read their words in place.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/steer.bpf.o");

/// How an XDP program sits in front of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachMode {
    /// In the driver, before the kernel makes a socket buffer.
    Driver,
    /// After that, because the driver can't: slower, and never without a copy.
    Generic,
}

/// The steering of one NIC, as the broker holds it. Dropping it takes the XDP program off; the maps
/// and the fan-out program live as long as somebody has descriptors of them.
pub struct Steering {
    programs: Ebpf,
    owners: Owners,
    ports: MappedArray<Port>,
    port_map: OwnedFd,
    owner_map: OwnedFd,
    addresses: BpfHash<MapData, [u8; 16], u32>,
    sockets: XskMap<MapData>,
}

impl Steering {
    /// Loads the programs into the kernel and makes their maps.
    pub fn load() -> Result<Steering, SteeringError> {
        Self::load_with(131_072)
    }

    /// As [`Steering::load`], with room for `flows` flows in the table that binds flows to owners
    /// where several owners use one port. An entry takes about 110 bytes of kernel memory; when it is
    /// full, the flow that was longest without a packet is pushed out and goes by hash again.
    pub fn load_with(flows: u32) -> Result<Steering, SteeringError> {
        let mut programs = EbpfLoader::new()
            .set_max_entries("flows", flows.max(1024))
            .load(OBJECT)
            .map_err(load_error)?;
        for name in ["skink_fanout", "skink_steered", "skink_control"] {
            socket_filter(&mut programs, name)?
                .load()
                .map_err(|error| program_error(name, error))?;
        }
        xdp(&mut programs)?
            .load()
            .map_err(|error| program_error("skink_xdp", error))?;

        let port_map = take_array(&mut programs, "ports")?;
        let owner_map = take_array(&mut programs, "owners")?;
        let memory = |map| move |source| SteeringError::Memory { map, source };
        Ok(Steering {
            owners: Owners::map(owner_map.fd().as_fd()).map_err(memory("owners"))?,
            ports: MappedArray::map(port_map.fd().as_fd(), ports::ENTRIES)
                .map_err(memory("ports"))?,
            port_map: duplicate(port_map.fd().as_fd()).map_err(memory("ports"))?,
            owner_map: duplicate(owner_map.fd().as_fd()).map_err(memory("owners"))?,
            addresses: take_map(&mut programs, "addresses")?
                .try_into()
                .map_err(|error| map_error("addresses", error))?,
            sockets: take_map(&mut programs, "sockets")?
                .try_into()
                .map_err(|error| map_error("sockets", error))?,
            programs,
        })
    }

    /// Puts the XDP program in front of `interface` (of the calling thread's network namespace): in
    /// the driver if it can, otherwise behind it. It stays until this value is dropped.
    pub fn attach_xdp(&mut self, interface: &str) -> Result<AttachMode, SteeringError> {
        let program = xdp(&mut self.programs)?;
        if program.attach(interface, XdpFlags::DRV_MODE).is_ok() {
            return Ok(AttachMode::Driver);
        }
        match program.attach(interface, XdpFlags::SKB_MODE) {
            Ok(_) => Ok(AttachMode::Generic),
            Err(error) => Err(SteeringError::Attach {
                interface: interface.to_owned(),
                what: words(&error),
            }),
        }
    }

    /// Sets which addresses are ours: packets to others are left to the kernel.
    pub fn set_addresses(&mut self, addresses: &[IpCidr]) -> Result<(), SteeringError> {
        let wanted: Vec<[u8; 16]> = addresses.iter().map(|cidr| key(cidr.addr)).collect();
        let present: Vec<[u8; 16]> = self.addresses.keys().filter_map(Result::ok).collect();
        for gone in present.iter().filter(|key| !wanted.contains(key)) {
            self.addresses
                .remove(gone)
                .map_err(|error| map_error("addresses", error))?;
        }
        for address in &wanted {
            self.addresses
                .insert(address, 1, 0)
                .map_err(|error| map_error("addresses", error))?;
        }
        Ok(())
    }

    /// Packets may go to `owner` from now on. Add it when its sockets are open. It starts without
    /// ports, even if a predecessor of that number left some.
    pub fn add_owner(&mut self, owner: Owner) {
        if !self.owners.is_live(owner) {
            ports::clear(&self.ports, owner);
            self.owners.set_live(owner, true);
        }
    }

    /// `owner`'s process has a successor, which will say anew which ports it uses. Packets go on
    /// coming to it.
    pub fn succeed_owner(&mut self, owner: Owner) {
        ports::clear(&self.ports, owner);
    }

    /// `owner` is gone: no packet goes to it any more, and its ports and queues are free.
    pub fn remove_owner(&mut self, owner: Owner) {
        self.owners.set_live(owner, false);
        for queue in 0..QUEUES {
            if self.owners.queue_owner(queue) == Some(owner) {
                // It can't fail: the queue's number is in range.
                let _ = self.clear_queue(queue);
            }
        }
        ports::clear(&self.ports, owner);
    }

    /// The AF_XDP socket `socket`, bound to receive queue `queue`, is `owner`'s: to be called before
    /// [`Steering::add_owner`], so that its first packet finds the socket.
    pub fn set_queue(
        &mut self,
        owner: Owner,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), SteeringError> {
        self.set_socket(queue, socket)?;
        self.owners.set_queue_owner(queue, Some(owner))
    }

    /// The AF_XDP socket `socket` is bound to receive queue `queue`. Owners say by themselves whose it is
    /// ([`QueueOwners::take`](crate::QueueOwners::take)).
    pub fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), SteeringError> {
        if queue >= QUEUES {
            return Err(SteeringError::Queue { queue });
        }
        self.sockets
            .set(queue, socket.as_raw_fd(), 0)
            .map_err(|error| map_error("sockets", error))
    }

    /// No AF_XDP socket is on `queue` any more.
    pub fn clear_queue(&mut self, queue: u32) -> Result<(), SteeringError> {
        // The socket map's entry is not looked at without an owner, and goes when its socket closes.
        self.owners.set_queue_owner(queue, None)
    }

    /// Whose AF_XDP socket is on `queue`.
    pub fn queue_owner(&self, queue: u32) -> Option<Owner> {
        self.owners.queue_owner(queue)
    }

    /// The program that chooses a member of a fan-out group (`PACKET_FANOUT_DATA` of a
    /// `PACKET_FANOUT_EBPF` group) or a queue of a TAP (`TUNSETSTEERINGEBPF`).
    pub fn fanout_program(&self) -> Result<BorrowedFd<'_>, SteeringError> {
        self.descriptor("skink_fanout")
    }

    /// A socket filter (`SO_ATTACH_BPF`) that lets through what goes to one owner: for members of the
    /// fan-out group.
    pub fn steered_filter(&self) -> Result<BorrowedFd<'_>, SteeringError> {
        self.descriptor("skink_steered")
    }

    /// A socket filter (`SO_ATTACH_BPF`) that lets through what every owner needs (ARP, neighbour
    /// discovery, ICMP errors): for a packet socket of each owner that is in no group.
    pub fn control_filter(&self) -> Result<BorrowedFd<'_>, SteeringError> {
        self.descriptor("skink_control")
    }

    /// Sets `owner`'s place among the sockets of a fan-out group, or the queues of a TAP: before
    /// [`Steering::add_owner`].
    pub fn set_fanout_index(&self, owner: Owner, index: u32) {
        self.owners.set_fanout_index(owner, index);
    }

    /// The port table, to be passed to owners for [`PortTable::map`](crate::PortTable::map).
    pub fn port_map(&self) -> io::Result<OwnedFd> {
        duplicate(self.port_map.as_fd())
    }

    /// The table of queues, to be passed to owners for [`QueueOwners::map`](crate::QueueOwners::map).
    pub fn owner_map(&self) -> io::Result<OwnedFd> {
        duplicate(self.owner_map.as_fd())
    }

    /// The XDP program itself, to be attached or tried by other means than [`Steering::attach_xdp`].
    pub fn xdp_program(&self) -> Result<BorrowedFd<'_>, SteeringError> {
        self.descriptor("skink_xdp")
    }

    fn descriptor(&self, name: &'static str) -> Result<BorrowedFd<'_>, SteeringError> {
        let program = self.programs.program(name).ok_or_else(|| missing(name))?;
        let fd = program.fd().map_err(|error| program_error(name, error))?;
        Ok(fd.as_fd())
    }
}

/// An address as the programs look it up: IPv4 as `::ffff:a.b.c.d`.
fn key(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn duplicate(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    fd.try_clone_to_owned()
}

fn xdp(programs: &mut Ebpf) -> Result<&mut Xdp, SteeringError> {
    let program = programs
        .program_mut("skink_xdp")
        .ok_or_else(|| missing("skink_xdp"))?;
    program
        .try_into()
        .map_err(|error| program_error("skink_xdp", error))
}

fn socket_filter<'a>(
    programs: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SocketFilter, SteeringError> {
    let program = programs.program_mut(name).ok_or_else(|| missing(name))?;
    program
        .try_into()
        .map_err(|error| program_error(name, error))
}

fn take_map(programs: &mut Ebpf, name: &'static str) -> Result<Map, SteeringError> {
    programs.take_map(name).ok_or_else(|| missing(name))
}

fn take_array(programs: &mut Ebpf, name: &'static str) -> Result<MapData, SteeringError> {
    match take_map(programs, name)? {
        Map::Array(data) => Ok(data),
        other => Err(map_error(name, format!("it is {other:?}"))),
    }
}

fn missing(name: &'static str) -> SteeringError {
    SteeringError::Load {
        what: format!("{name} isn't in the object that was built in"),
    }
}

fn map_error(map: &'static str, error: impl std::fmt::Display) -> SteeringError {
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

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

fn words(error: &(dyn Error + 'static)) -> String {
    let all: Vec<String> = causes(error).map(ToString::to_string).collect();
    all.join(": ")
}
