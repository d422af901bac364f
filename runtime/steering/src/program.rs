use crate::flow_rings::{self, RINGS};
use crate::kernel::{self, AttachMode, InKernel};
use crate::owners::{Owners, QUEUES};
use crate::ports::{self, Port, PortMaps};
use crate::shared::MappedArray;
use crate::{Owner, SteeringError, addresses, flows};
use serde::{Deserialize, Serialize, Serializer};
use skink_wire::{FourTuple, IpCidr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The steering of one NIC, as the broker holds it. The XDP program is in front of the interface until this value is
/// dropped, and by all who have a copy: processes that were forked off, or the program that this process has become
/// (`skink_inherit`). The maps and the fan-out program live as long as somebody has descriptors of them.
#[derive(Deserialize)]
#[serde(try_from = "InKernel")]
pub struct Steering {
    kernel: InKernel,
    owners: Owners,
    ports: [MappedArray<Port>; 2],
    flow_rings: MappedArray<flow_rings::Table>,
}

/// For an heir: descriptors are all that it needs.
impl Serialize for Steering {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.kernel.serialize(to)
    }
}

/// Maps the memory of its tables.
impl TryFrom<InKernel> for Steering {
    type Error = SteeringError;

    fn try_from(kernel: InKernel) -> Result<Steering, SteeringError> {
        let memory = |map| move |source| SteeringError::Memory { map, source };
        Ok(Steering {
            owners: Owners::map(&kernel.owners).map_err(memory("owners"))?,
            ports: [
                ports::map(&kernel.tcp_ports).map_err(memory("tcp_ports"))?,
                ports::map(&kernel.udp_ports).map_err(memory("udp_ports"))?,
            ],
            flow_rings: flow_rings::map(&kernel.flow_rings).map_err(memory("flow_rings"))?,
            kernel,
        })
    }
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
        kernel::load(flows.max(1024))?.try_into()
    }

    /// Puts the XDP program in front of `interface` (of the calling thread's network namespace): in
    /// the driver if it can, otherwise behind it. It stays until this value is dropped.
    pub fn attach_xdp(&mut self, interface: &str) -> Result<AttachMode, SteeringError> {
        self.kernel.attach_xdp(interface)
    }

    /// Takes the XDP program off its interface, also if others have a copy of this value. Its packets take the way of those
    /// that can't be redirected. [`Steering::attach_xdp`] puts it there again.
    pub fn detach_xdp(&mut self) -> Result<(), SteeringError> {
        self.kernel.detach_xdp()
    }

    /// Whether [`Steering::attach_xdp`] was called last.
    pub fn is_attached(&self) -> bool {
        self.kernel.link.is_some()
    }

    /// Sets which addresses are ours: packets to others are left to the kernel.
    pub fn set_addresses(&mut self, addresses: &[IpCidr]) -> Result<(), SteeringError> {
        addresses::set(self.kernel.addresses.as_fd(), addresses)
    }

    /// Packets may go to `owner` from now on. Add it when its sockets are open. It starts without
    /// ports, even if a predecessor of that number left some.
    pub fn add_owner(&mut self, owner: Owner) {
        if !self.owners.is_live(owner) {
            self.clear_tables(owner);
            self.owners.set_live(owner, true);
        }
    }

    /// The TCP connection `flow` is `owner`'s, as if it had begun there. For one that was pushed out of the table and goes astray.
    pub fn bind_flow(&self, flow: &FourTuple, owner: Owner) -> Result<(), SteeringError> {
        flows::bind(self.kernel.flows.as_fd(), flow, owner)
    }

    /// An owner other than these that listens on a port of TCP's, for a connection that nobody has accepted: one that waits for it, if
    /// there is one, and no other if that is asked. Of several it is the one that `choice` falls on.
    pub fn other_listener(
        &self,
        than: impl IntoIterator<Item = Owner>,
        port: u16,
        only_waiting: bool,
        choice: usize,
    ) -> Option<Owner> {
        let [tcp, _] = &self.ports;
        let than = than
            .into_iter()
            .fold(0, |owners, owner| owners | owner.bit());
        let others = self.owners.live() & !than;
        ports::give(tcp, port, others, only_waiting, choice)
    }

    /// Whether any owner but this one listens on a TCP port, and isn't in reserve.
    pub fn others_listen(&self, than: Owner, port: u16) -> bool {
        let [tcp, _] = &self.ports;
        ports::is_listened_on(tcp, port, self.owners.live() & !than.bit())
    }

    /// `owner`'s process has a successor, which will say anew which ports it uses. Packets go on
    /// coming to it.
    pub fn succeed_owner(&mut self, owner: Owner) {
        self.clear_tables(owner);
    }

    /// `owner`'s process is gone, and another one ends its connections: the packets of these go on coming to it. It is given
    /// no new flow, and its ports are anybody's.
    pub fn orphan_owner(&mut self, owner: Owner) {
        let [tcp, udp] = &self.ports;
        ports::unlisten(tcp, owner);
        ports::clear(udp, owner);
        self.clear_flow_rings(owner);
    }

    /// The process that ends the connections of `owner`'s goes on to listen on these TCP ports of its, in reserve.
    pub fn listen_in_reserve(&mut self, owner: Owner, listens: &[u16]) {
        let [tcp, _] = &self.ports;
        for port in listens {
            ports::listen_in_reserve(tcp, *port, owner);
        }
    }

    /// What the owner itself has written.
    fn clear_tables(&self, owner: Owner) {
        for table in &self.ports {
            ports::clear(table, owner);
        }
        self.clear_flow_rings(owner);
    }

    fn clear_flow_rings(&self, owner: Owner) {
        self.owners.set_threaded(owner, false);
        flow_rings::clear(&self.flow_rings, owner);
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
        self.clear_tables(owner);
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
        self.set_ring(queue, 0, socket)
    }

    /// The AF_XDP socket `socket`, which shares its memory with the first one on receive queue `queue`, is for the flows
    /// that the queue's owner steers to `ring` (1 to 31, see [`FlowRings`](crate::FlowRings)).
    pub fn set_ring(
        &mut self,
        queue: u32,
        ring: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), SteeringError> {
        if queue >= QUEUES || ring >= RINGS {
            return Err(SteeringError::Queue { queue });
        }
        self.kernel
            .sockets()?
            .set(queue * RINGS + ring, socket.as_raw_fd(), 0)
            .map_err(|error| kernel::map_error("sockets", error))
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
    pub fn fanout_program(&self) -> BorrowedFd<'_> {
        self.kernel.fanout.as_fd()
    }

    /// A socket filter (`SO_ATTACH_BPF`) that lets through what goes to one owner: for members of the
    /// fan-out group.
    pub fn steered_filter(&self) -> BorrowedFd<'_> {
        self.kernel.steered.as_fd()
    }

    /// A socket filter (`SO_ATTACH_BPF`) that lets through what every owner needs (ARP, neighbour
    /// discovery, ICMP errors): for a packet socket of each owner that is in no group.
    pub fn control_filter(&self) -> BorrowedFd<'_> {
        self.kernel.control.as_fd()
    }

    /// Sets `owner`'s place among the sockets of a fan-out group, or the queues of a TAP: before
    /// [`Steering::add_owner`].
    pub fn set_fanout_index(&self, owner: Owner, index: u32) {
        self.owners.set_fanout_index(owner, index);
    }

    /// The tables of ports, to be passed to owners for [`PortTable::map`](crate::PortTable::map).
    pub fn port_maps(&self) -> io::Result<PortMaps> {
        Ok(PortMaps {
            tcp: self.kernel.tcp_ports.try_clone()?,
            udp: self.kernel.udp_ports.try_clone()?,
        })
    }

    /// The table of queues, to be passed to owners for [`QueueOwners::map`](crate::QueueOwners::map).
    pub fn owner_map(&self) -> io::Result<OwnedFd> {
        self.kernel.owners.try_clone()
    }

    /// The tables of flow rings, to be passed to owners for [`FlowRings::map`](crate::FlowRings::map).
    pub fn flow_ring_map(&self) -> io::Result<OwnedFd> {
        self.kernel.flow_rings.try_clone()
    }

    /// The XDP program itself, to be attached or tried by other means than [`Steering::attach_xdp`].
    pub fn xdp_program(&self) -> BorrowedFd<'_> {
        self.kernel.xdp.as_fd()
    }
}
