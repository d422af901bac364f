//! Channels: shared memory between components that run in processes of their own.
//!
//! **Purpose.** What *Keep Net Working* (NewtOS, section 2.4) calls fast-path channels, in five parts:
//!
//! | part | what it is | when it is full |
//! | --- | --- | --- |
//! | [`Queue`] | messages of one size from one producer to one consumer | [`QueueError::Full`]; nobody waits |
//! | [`Sleeper`], [`Doorbell`] | how a consumer sleeps without missing a message | a doorbell that was rung stays rung |
//! | [`Pool`], [`PoolSet`] | bytes that are written once and read by many, by [`RichPointer`] | [`PoolError::Exhausted`] |
//! | [`RequestDatabase`] | which requests await an answer, from whom, and what to do without one | the request is handed back |
//! | [`Registry`] | who offers what under which name, in which generation, and who has it | it grows by none: names are given at first |
//!
//! **Place on the data path.** Between any two components of an isolated placement. Components that
//! share a process call each other instead and need none of this.
//!
//! **Trust.** Each piece of shared memory has one writer; everybody else maps it for reading only. A
//! neighbour may store any value at any time in what it writes: an index is read once and checked
//! ([`QueueError::Corrupt`]), messages are copied out before they are looked at, and memory is reached
//! as 64-bit atomics or as [`skink_memory::Bytes`], never as a reference to plain data.
//!
//! **What survives a restart.** Queues and pools are memfds: they live as long as somebody holds them.
//! Whoever attaches to a half of a queue goes on where its predecessor was: what wasn't published is
//! lost, what wasn't released is seen once more. A pool's accounts and a request database are private
//! memory, and end with their owner.
//!
//! **What it leaves out.** How descriptors travel (the supervisor passes them), what messages mean,
//! and what a component does when a queue is full.

#[cfg(not(loom))]
mod doorbell;
mod generation;
mod memory;
#[cfg(not(loom))]
mod pool;
mod queue;
mod registry;
#[cfg(not(loom))]
mod relax;
mod request;
mod sleep;
mod spin;

/// Version of the layouts in shared memory: queues, pools, and sleepers' pages. Raise it with every change of
/// one: processes of other builds look at them.
// Layout digest: 776745ecd886be05
pub const LAYOUT_VERSION: u32 = 5;

#[cfg(not(loom))]
pub use doorbell::{
    Doorbell, DoorbellDescriptors, Pulse, Sleeper, SleeperDescriptors, Woken, side_bell,
};
#[cfg(loom)]
pub use generation::ChunkInMemory;
#[cfg(not(loom))]
pub use pool::{
    Chunk, HolderId, Pool, PoolDescriptors, PoolError, PoolGeometry, PoolReader, PoolSet,
    ResolveError, RichPointer,
};
#[cfg(not(loom))]
pub use queue::{AttachError, ConsumerDescriptors, ProducerDescriptors, QueueDescriptors};
pub use queue::{Consumer, Message, Producer, Queue, QueueError, QueueGeometry, Watch};
pub use registry::{Credentials, Refusal, Registry};
#[cfg(not(loom))]
pub use relax::time_stamp;
pub use request::{Aborted, NeighbourId, RequestDatabase, RequestId, RequestsFull};
#[cfg(loom)]
pub use sleep::in_memory;
pub use sleep::{Announcer, Beat, Berth, Caller, Fenced, SIDE_BELLS, SideBell};
pub use spin::SpinBudget;

/// How channels keep up: what each of them counted. Plain numbers, for the component's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounters {
    /// Messages published or released.
    pub messages: u64,
    /// How often there was no room (producer).
    pub full: u64,
    /// How often the neighbour's index made no sense.
    pub corrupt: u64,
}
