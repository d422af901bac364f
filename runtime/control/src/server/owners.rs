//! What a broker is told by whoever owns it, and what it asks of it.
use super::tethered::TetherParts;
use crate::message::{ComponentInfo, QueueInfo, RegionKind, TableSize};
use serde::{Deserialize, Serialize};
use skink_nic::{Load, NicParts};
use skink_sockets::Attachment;
use skink_steering::PortMaps;
use skink_wire::{FourTuple, IpCidr};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

/// What a new owner is handed besides what all owners have in common.
#[derive(Debug)]
pub enum Grant {
    /// A part of the NIC, for a stack in the process itself.
    Nic(NicGrant),
    /// A channel to a stack in another process.
    Served(ServedParts),
    /// It isn't known yet: [`Server::grant`](super::Server::grant) will be called.
    Later,
}

/// A part of the NIC.
#[derive(Debug, Default)]
pub struct NicGrant {
    /// [`skink_nic::Description`] of the NIC as JSON.
    pub nic: String,
    /// Its descriptors, in the order that the description tells.
    pub nic_descriptors: Vec<OwnedFd>,
    /// The tables of ports, if packets are steered by them.
    pub ports: Option<PortMaps>,
}

impl NicGrant {
    /// A NIC in parts and the tables of ports.
    pub fn new(parts: NicParts, ports: Option<PortMaps>) -> NicGrant {
        NicGrant {
            // Plain data without maps that aren't text: it always has a text form.
            nic: serde_json::to_string(&parts.description).unwrap_or_default(),
            nic_descriptors: parts.descriptors,
            ports,
        }
    }
}

/// The program's share of what it has in common with the stack that serves it.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServedParts {
    /// What both are told.
    pub attachment: Attachment,
    /// Its region of TCP sockets: [`skink_memory::Region::program_files`].
    #[serde(with = "skink_inherit::descriptors")]
    pub tcp_region: [OwnedFd; 3],
    /// Its region of UDP sockets.
    #[serde(with = "skink_inherit::descriptors")]
    pub udp_region: [OwnedFd; 3],
    /// `skink_sockets::ChannelParts::for_program`.
    #[serde(with = "skink_inherit::descriptors")]
    pub channel: Vec<OwnedFd>,
}

/// Who connected, as the kernel knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Process id.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Group ids: its own first, then the supplementary ones.
    pub groups: Vec<u32>,
}

/// A question that a tool asked and that isn't answered yet; for
/// [`Server::answer`](super::Server::answer).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Question(pub(super) u64);

/// What an answer may be: there is one, or it comes later.
pub type Answered = Result<Option<String>, String>;

/// Serves each owner: what the broker doesn't know how to do.
pub trait Owners {
    /// What the new owner in slot `owner` is handed. An error is a sentence for the program's user.
    fn grant(&mut self, owner: u16, peer: &Peer) -> Result<Grant, String>;
    /// The owner's process is about to end, or has left its stack by `exec`: no new flow goes to it any
    /// more, but its descriptors may still be open. `memory` is what it had registered, and `tethers` are those of its connections that
    /// others may ask for. Answers whether somebody goes on with those in its place.
    fn retire(
        &mut self,
        owner: u16,
        memory: BTreeMap<RegionKind, OwnedFd>,
        tethers: Vec<TetherParts>,
    ) -> bool;
    /// The owner's process has closed all descriptors, if it [is waited for](Owners::is_waited_for): its part of the NIC may be given to another.
    fn release(&mut self, owner: u16);
    /// Whether an owner whose connection is closed is released only when its process has ended, or comes again, and not at once.
    fn is_waited_for(&self) -> bool {
        true
    }
    /// From now on `owner` answers ARP, NDP and echo requests; its NIC must get them.
    fn answering(&mut self, owner: u16);
    /// How the owner's process uses its part of the NIC from now on; of who is retired nothing is known any more.
    fn load(&mut self, _owner: u16, _load: Load) {}
    /// Whose connection `flow` is, if it is one of these. Each has the records of its TCP sockets and its send rings beside it
    /// ([`skink_memory::SendRegion`]).
    fn find(&self, _flow: &FourTuple, _owners: Vec<(u16, [OwnedFd; 2])>) -> Option<u16> {
        None
    }

    /// Another owner than these who listens where `flow` ends, for a connection that nobody has accepted; `only_waiting`: one whose
    /// program waits for it.
    fn heir(&mut self, _tried: &[u16], _flow: &FourTuple, _only_waiting: bool) -> Option<u16> {
        None
    }
    /// The segments of `flow` are to go to this owner, who has taken it in, if its records, as in [`Owners::find`], say so; where
    /// there are none, in any case.
    fn lead_to(&mut self, _flow: &FourTuple, _owner: u16, _table: Option<[OwnedFd; 2]>) {}
    /// Whether owners have stacks of their own, which may hand connections over to each other.
    fn have_stacks(&self) -> bool {
        false
    }

    /// How many owners there can be; at most [`crate::FIRST_COMPONENT`].
    fn capacity(&self) -> u16 {
        crate::MAXIMUM_OWNERS as u16
    }
    /// Whether the slot may be given out, as far as its owner's process is concerned.
    fn is_free(&self, _owner: u16) -> bool {
        true
    }
    /// There is no free slot left for one more process: gives one up that isn't needed as much, if there is such a one.
    fn make_room(&mut self) {}
    /// Who may attach where no token is asked for. An error is a sentence for the program's user.
    fn admit(&self, _peer: &Peer) -> Result<(), String> {
        Ok(())
    }
    /// The memory of sockets of owner number `program`, for another owner who knows its `secret`:
    /// the files of its TCP region and of its UDP region.
    fn region(&self, _program: u32, _secret: u64) -> Result<[[OwnedFd; 3]; 2], String> {
        Err("there are no sockets to share under `skink run`".to_owned())
    }
    /// Memory of an owner or component that isn't registered by its process.
    fn memory(&self, _owner: u16, _kind: RegionKind) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The processes of the stack itself.
    fn components(&self) -> Vec<ComponentInfo> {
        Vec::new()
    }
    /// Who goes on if this process dies.
    fn standby(&self) -> Option<u32> {
        None
    }
    /// What waits for an owner's process.
    fn queues(&self, _owner: u16) -> Vec<QueueInfo> {
        Vec::new()
    }
    /// New rules for the packet filter. Answers what was done, in a sentence; an error says what is
    /// wrong with them. Owners that have a stack of their own are told of them if there is nothing.
    fn load_filter(&mut self, _rules: &str) -> Result<String, String> {
        Err(NO_FILTER.to_owned())
    }
    /// What the packet filter does, as JSON; not asked where each owner has one.
    fn show_filter(&mut self, _question: Question) -> Answered {
        Err(NO_FILTER.to_owned())
    }
    /// Another build, to take the place of the processes that host `component`, or of all. Answers what
    /// became of each, as JSON.
    fn upgrade(
        &mut self,
        _question: Question,
        _component: Option<&str>,
        _executable: OwnedFd,
    ) -> Answered {
        Err(
            "it has no processes of its own: a stack that was started with `skink up` has"
                .to_owned(),
        )
    }
}

const NO_FILTER: &str =
    "it has no packet filter: a stack of its own, started with `skink up`, has one";

/// Who may attach, and how he finds the broker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Access {
    /// Whoever has the token, which the environment has.
    Token,
    /// Whoever [`Owners::admit`] lets in; the broker is found by its name.
    Named,
}

/// What all owners have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerConfig {
    /// Name for tools.
    pub name: String,
    /// Who may attach.
    pub access: Access,
    /// The program and its arguments, for tools.
    pub command: Vec<String>,
    /// The NIC, for tools.
    pub nic: String,
    /// The topology, if the stack has processes of its own.
    pub topology: Option<String>,
    /// The addresses of the stack.
    #[serde(with = "crate::message::as_text")]
    pub addresses: Vec<IpCidr>,
    /// Default routes.
    pub gateways: Vec<IpAddr>,
    /// Size of each process's table of TCP sockets.
    pub tcp_table: TableSize,
    /// Size of each process's table of UDP sockets.
    pub udp_table: TableSize,
    /// What the data of the TCP sockets of each process that has a stack of its own may take of the machine's memory, in bytes.
    pub socket_memory: u64,
    /// The packet filter's rules as text, checked, for each process that has a stack of its own.
    pub rules: String,
    /// Name of the interface in these rules.
    pub interface: String,
}
