//! What is said to processes that host a part of a stack each (topology `split`).
use crate::component::StackStart;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What one of these processes hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// `link`, with the NIC.
    Link,
    /// `ip`
    Ip,
    /// `filter`
    Filter,
    /// `tcp`, `udp` and what serves programs.
    Transport,
}

impl Part {
    /// All of them, in the order of [`Part::index`].
    pub const ALL: [Part; 4] = [Part::Link, Part::Ip, Part::Filter, Part::Transport];

    /// Its number, from 0 to 3.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What a part needs to know. Beside it: the memory of the counters and of the capture ring, the two
/// descriptors of the process's sleeper, and an end of the pipe that tells whether the stack is needed
/// any more (the writing one for the transports). Then, for
///
/// - `link`: its lane to `ip` (six descriptors each), then the NIC's;
/// - `ip`: lanes to `link`, `tcp`, `udp` and `filter`, and the board to write;
/// - `filter`: its lane to `ip`;
/// - the transports: lanes of `tcp` and of `udp` to `ip`, the board to read twice, and the port
///   table's descriptor twice if there is one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartStart {
    /// Which part.
    pub part: Part,
    /// As for a whole stack.
    pub stack: StackStart,
    /// The id of the pool that the part makes; no pool has or had it.
    pub pool: u32,
    /// Which restart of each part it is or will meet first, counted from 1.
    pub incarnations: [u32; 4],
    /// What the link takes; for `ip`.
    pub link: Option<LinkSizes>,
}

/// What `link` says of its NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkSizes {
    /// Its address.
    pub mac: [u8; 6],
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Largest packet in bytes that the NIC cuts to segments; 0 if it cuts none.
    pub cut_bytes: u32,
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
