//! Memory that outlives a component: what every restart, hand-over and upgrade starts from.
//!
//! Four kinds of thing live in shared memory (a [`Mapping`] over a memfd):
//!
//! - a [`Region`], in three mappings: one [`Record`] for each socket of a program, which only the
//!   component that serves it can write; the rings that the program sends from, which it writes too; and those that it
//!   receives in, which only those two have. Who carries what is sent maps the first two ([`SendRegion`]);
//!   A component's [`SocketTable`] is made of them;
//! - a [`StoredTable`]: keys and values that components keep in `store`, which one process at a time writes;
//! - a [`CounterBlock`]: a component's counters, which a tool reads while they change;
//! - spans of bytes on their way out ([`Bytes`]), which another process may be able to write.
//!
//! Nothing here is ever lent out as a `&T` or `&[u8]`: indices and fields are atomics, and bytes are
//! copied in or out. So a neighbour that writes what it likes can spoil the values, but can't cause
//! undefined behaviour. All `unsafe` of the protocol side of Skink is in this crate.

mod bytes;
mod capture;
mod counters;
mod datagram;
mod fair_queue;
mod fallback;
mod mapping;
mod parcel;
mod record;
mod region;
mod region_slots;
mod ring;
mod slots;
mod stored;
mod table;

pub use bytes::Bytes;
pub use capture::{CaptureDirection, CaptureError, CaptureReader, CaptureRing, CapturedFrame};
pub use counters::CounterBlock;
pub use datagram::{Datagram, DatagramHeader, DatagramRing, PushError};
pub use fair_queue::FairQueue;
pub use fallback::{Fallback, FallbackReason, FallbackTable};
pub use mapping::{Mapping, keep_descriptors_from, keep_out_of_dumps};
pub use parcel::Parcel;
pub use record::{Holder, LAYOUT_VERSION, Record, SocketKind};
pub use region::{Region, RingSpan, SendRegion};
pub use region_slots::RegionSlots;
pub use ring::{KEEP_BYTES, Position, Ring, first_part};
pub use slots::Slots;
pub use stored::{
    STORED_LAYOUT_VERSION, StoredError, StoredKey, StoredPlace, StoredTable, StoredValue,
    StoredWriter,
};
pub use table::{Adopted, SocketId, SocketTable, TableConfig, TableError};
