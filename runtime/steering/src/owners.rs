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
    threaded: AtomicU64,
}

// SAFETY: atomics only.
unsafe impl Shared for Table {}
const _: () = assert!(size_of::<Table>() == 1304);

/// Whose queue it is by the number in the table.
fn owner_of(number: u32) -> Option<Owner> {
    let number = u8::try_from(number.checked_sub(1)?).ok()?;
    Owner::new(number)
}

/// An owner's view of which queues' frames go to which AF_XDP socket: owners that share a NIC pass queues on to one
/// another. Needs no privileges.
pub struct QueueOwners {
    owners: Owners,
    owner: Owner,
}

impl QueueOwners {
    /// Maps the table behind `map` (see [`Steering::owner_map`](crate::Steering::owner_map)) for `owner`.
    pub fn map(map: impl AsFd, owner: Owner) -> io::Result<QueueOwners> {
        let owners = Owners::map(map)?;
        Ok(QueueOwners { owners, owner })
    }

    /// From now on the owner's frames that come by `queue` go to the AF_XDP socket there: the owner has it.
    pub fn take(&self, queue: u32) -> Result<(), SteeringError> {
        self.owners.set_queue_owner(queue, Some(self.owner))
    }

    /// From now on nobody's frames go to the AF_XDP socket on `queue`, if they went to this owner.
    pub fn leave(&self, queue: u32) -> Result<(), SteeringError> {
        match self.owners.queue_owner(queue) == Some(self.owner) {
            true => self.owners.set_queue_owner(queue, None),
            false => Ok(()),
        }
    }
}

/// The broker's view of the owners' map. Owners write which queues they have, and nothing else.
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

    /// All that are live, as bits.
    pub(crate) fn live(&self) -> u64 {
        self.table().live.load(Relaxed)
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
        owner_of(entry.load(Relaxed))
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
        let value = owner.map_or(0, |owner| u32::from(owner.number()) + 1);
        let before = owner_of(entry.swap(value, AcqRel));
        if let Some(owner) = owner {
            self.table().queued.fetch_or(owner.bit(), AcqRel);
        }
        let still =
            |owner: &Owner| (0..QUEUES).any(|queue| self.queue_owner(queue) == Some(*owner));
        if let Some(gone) = before.filter(|before| !still(before)) {
            self.table().queued.fetch_and(!gone.bit(), AcqRel);
        }
        Ok(())
    }

    /// Whether the kernel looks at the owner's table of flow rings.
    pub(crate) fn set_threaded(&self, owner: Owner, threaded: bool) {
        if threaded {
            self.table().threaded.fetch_or(owner.bit(), AcqRel);
        } else {
            self.table().threaded.fetch_and(!owner.bit(), AcqRel);
        }
    }

    pub(crate) fn set_fanout_index(&self, owner: Owner, index: u32) {
        self.table().fanout_index[usize::from(owner.number())].store(index, Release);
    }
}
