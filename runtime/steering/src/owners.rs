use crate::shared::{MappedArray, Shared};
use crate::{Owner, SteeringError};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Receive queues of a NIC that can have an AF_XDP socket.
pub(crate) const QUEUES: u32 = 256;

/// `struct owners` of `bpf/steer.bpf.c`.
#[repr(C)]
struct Table {
    live: AtomicU64,
    queued: AtomicU64,
    queue_owner: [AtomicU32; QUEUES as usize],
    fanout_index: [AtomicU32; Owner::MAXIMUM as usize],
}

// SAFETY: atomics only.
unsafe impl Shared for Table {}
const _: () = assert!(size_of::<Table>() == 1296);

/// The broker's view of the owners' map. Only the broker writes it.
pub(crate) struct Owners(MappedArray<Table>);

impl Owners {
    pub(crate) fn map(fd: impl AsFd) -> io::Result<Owners> {
        MappedArray::map(fd, 1).map(Owners)
    }

    fn table(&self) -> &Table {
        &self.0.entries()[0]
    }

    pub(crate) fn is_live(&self, owner: Owner) -> bool {
        self.table().live.load(Relaxed) & owner.bit() != 0
    }

    pub(crate) fn set_live(&self, owner: Owner, live: bool) {
        if live {
            self.table().live.fetch_or(owner.bit(), AcqRel);
        } else {
            self.table().live.fetch_and(!owner.bit(), AcqRel);
        }
    }

    /// Whose socket is on `queue`.
    pub(crate) fn queue_owner(&self, queue: u32) -> Option<Owner> {
        let entry = self.table().queue_owner.get(queue as usize)?;
        let number = entry.load(Relaxed).checked_sub(1)?;
        u8::try_from(number).ok().and_then(Owner::new)
    }

    pub(crate) fn set_queue_owner(
        &self,
        queue: u32,
        owner: Option<Owner>,
    ) -> Result<(), SteeringError> {
        let entry = self
            .table()
            .queue_owner
            .get(queue as usize)
            .ok_or(SteeringError::Queue { queue })?;
        entry.store(
            owner.map_or(0, |owner| u32::from(owner.number()) + 1),
            Release,
        );
        let queued = (0..QUEUES).filter_map(|queue| self.queue_owner(queue));
        let queued = queued.fold(0, |bits, owner| bits | owner.bit());
        self.table().queued.store(queued, Release);
        Ok(())
    }

    pub(crate) fn set_fanout_index(&self, owner: Owner, index: u32) {
        self.table().fanout_index[usize::from(owner.number())].store(index, Release);
    }
}
