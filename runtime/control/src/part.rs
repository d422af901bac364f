//! What is said to processes that host a part of a stack each (topology `split`).
use crate::component::StackStart;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A component that can be apart from the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// `link`, with the NIC.
    Link,
    /// `ip`
    Ip,
    /// `filter`
    Filter,
    /// `udp`
    Udp,
    /// `tcp`
    Tcp,
    /// `syscall`
    Syscall,
    /// `store`
    Store,
}

impl Part {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// All of them, in the order of [`Part::index`].
    pub const ALL: [Part; Part::COUNT] = [
        Part::Link,
        Part::Ip,
        Part::Filter,
        Part::Udp,
        Part::Tcp,
        Part::Syscall,
        Part::Store,
    ];

    /// Its number, from 0 to 6.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// As in a topology file.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Link => "link",
            Part::Ip => "ip",
            Part::Filter => "filter",
            Part::Udp => "udp",
            Part::Tcp => "tcp",
            Part::Syscall => "syscall",
            Part::Store => "store",
        }
    }

    /// Whether programs have a channel to it.
    pub const fn serves_programs(self) -> bool {
        matches!(self, Part::Udp | Part::Tcp | Part::Syscall)
    }
}

/// What a process that hosts parts of a stack needs to know. Beside it: the memory of the counters and of
/// the capture ring, the two descriptors of the process's sleeper, and both ends of the pipe that tells
/// whether the stack is needed any more: the reading one, and the writing one if programs have a
/// channel to the process. Then, for each part in the order of `parts`,
///
/// - `link`: its lane to `ip` (six descriptors each), then the NIC's;
/// - `ip`: lanes to `link`, `tcp`, `udp` and `filter`, and the board to write;
/// - `filter`: its lane to `ip`, and the memory of its flows of datagrams;
/// - `tcp`, `udp`: the lane to `ip`, that to `syscall`, the board to read, and the descriptor of the table of
///   its own ports if there is one;
/// - `syscall`: lanes to `tcp`, `udp` and `store`;
/// - `store`: its lane to `syscall`, and the memory of what is stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartStart {
    /// Which parts, in the order of [`Part::index`]; at least one.
    pub parts: Vec<Part>,
    /// As for a whole stack.
    pub stack: StackStart,
    /// What a part makes a pool of has this number and that of its [`Part::index`]; no pool has or had it.
    pub pool: u32,
    /// Which restart of each part it is or will meet first, counted from 1, by [`Part::index`].
    pub incarnations: [u32; Part::COUNT],
    /// What the link takes; for `ip`, unless `link` is in the same process.
    pub link: Option<LinkSizes>,
}

/// What `link` says of its NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkSizes {
    /// Its address.
    pub mac: [u8; 6],
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Largest packet in bytes that may be cut to segments.
    pub cut_bytes: u32,
    /// The NIC cuts them, and not `link`.
    pub cuts: bool,
}

/// A pool, as one part made it for others to read. Its memory travels beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolSizes {
    /// Its id.
    pub id: u32,
    /// Size of a chunk in bytes.
    pub chunk_bytes: u32,
    /// How many chunks.
    pub chunks: u32,
}

/// A connection as the filter must know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// How far it has come.
    pub phase: FlowPhase,
    /// Our initial sequence number, where the phase is [`FlowPhase::Answered`].
    pub iss: u32,
}

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowPhase {
    /// We have asked for it.
    Asked,
    /// The peer has, and we have answered.
    Answered,
    /// Established.
    Established,
    /// We have finished sending.
    LocalClosed,
    /// The peer has.
    RemoteClosed,
    /// Both have.
    BothClosed,
}
