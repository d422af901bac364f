//! Which owner is to have which queue, and which has it.
//!
//! The opener says who is to have a queue, in memory that it shares with all owners; the owner that has it
//! lets go of it in its own time, and the next takes it. So nobody waits for anybody, and what a dead owner
//! had is free as soon as the opener says so.

use super::memory::Mapped;
use rustix::fs::{MemfdFlags, SealFlags};
use serde::{Deserialize, Serialize};
use skink_inherit::Inherit;
use skink_steering::Owner;
use std::collections::BTreeSet;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// Most queues that are used; frames of others take the kernel's way.
pub(super) const QUEUES: u32 = 32;

/// Beside an owner's number: the queue by which it sends, which it keeps as long as it lives.
const FIRST: u32 = 0x100;

/// The opener and the owners may be of different builds: whoever changes this changes the control protocol's version
/// too (`PROTOCOL` in `runtime/control`).
#[repr(C)]
struct Page {
    /// Grows with each change by the opener.
    changes: AtomicU32,
    /// By queue: the number of the owner that is to have it, plus one, perhaps with [`FIRST`]; 0 for nobody.
    given: [AtomicU32; QUEUES as usize],
    /// By queue: the number of the owner that has it, plus one, or 0.
    held: [AtomicU32; QUEUES as usize],
}

/// Whose a queue is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Share {
    pub(super) owner: Owner,
    /// It sends by this queue, and keeps it.
    pub(super) first: bool,
}

/// The shared memory, mapped.
pub(super) struct Shares(Mapped);

fn number(owner: Owner) -> u32 {
    u32::from(owner.number()) + 1
}

impl Shares {
    pub(super) fn map(memory: impl AsFd) -> io::Result<Shares> {
        let file = rustix::fs::fstat(&memory)?;
        if usize::try_from(file.st_size).is_ok_and(|size| size < size_of::<Page>()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the table of AF_XDP queues handed over is too small",
            ));
        }
        Mapped::map(memory.as_fd(), size_of::<Page>(), 0).map(Shares)
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped in this size for as long as `self` lives, at the start of a memory page; atomics
        // only, for which any bits will do.
        unsafe { self.0.base().cast::<Page>().as_ref() }
    }

    /// Changes whenever [`Shares::give`] was called.
    #[inline]
    pub(super) fn changes(&self) -> u32 {
        self.page().changes.load(Acquire)
    }

    /// The opener: says whose queues are to be, by their place in its list.
    pub(super) fn give(&self, shares: &[Option<Share>]) {
        for (given, share) in self.page().given.iter().zip(shares) {
            let first = |share: Share| if share.first { FIRST } else { 0 };
            let value = share.map_or(0, |share| number(share.owner) | first(share));
            given.store(value, Release);
        }
        self.page().changes.fetch_add(1, AcqRel);
    }

    /// The opener: `owner`'s process has ended.
    pub(super) fn forget(&self, owner: Owner) {
        for held in &self.page().held {
            let _ = held.compare_exchange(number(owner), 0, AcqRel, Acquire);
        }
    }

    /// Whether `owner` is to have the queue, and if so, whether it is the one that it keeps.
    pub(super) fn is_given(&self, queue: usize, owner: Owner) -> Option<bool> {
        let given = self.page().given.get(queue)?.load(Acquire);
        (given & !FIRST == number(owner)).then_some(given & FIRST != 0)
    }

    /// Whether `owner` has the queue; its predecessor in its place may have taken it.
    pub(super) fn is_held(&self, queue: usize, owner: Owner) -> bool {
        let held = self.page().held.get(queue);
        held.is_some_and(|held| held.load(Acquire) == number(owner))
    }

    /// Takes a queue; `false` if somebody else still has it.
    pub(super) fn take(&self, queue: usize, owner: Owner) -> bool {
        let Some(held) = self.page().held.get(queue) else {
            return false;
        };
        held.compare_exchange(0, number(owner), AcqRel, Acquire)
            .is_ok()
    }

    /// Lets go of a queue. Nothing of it may be touched any more.
    pub(super) fn release(&self, queue: usize, owner: Owner) {
        if let Some(held) = self.page().held.get(queue) {
            let _ = held.compare_exchange(number(owner), 0, AcqRel, Acquire);
        }
    }
}

/// The opener's: it hands the memory to owners.
pub(super) struct OwnShares {
    memory: OwnedFd,
    shares: Shares,
}

impl OwnShares {
    /// New memory, in which nobody has anything.
    pub(super) fn create() -> io::Result<OwnShares> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("skink-shares", flags)?;
        rustix::fs::ftruncate(&memory, size_of::<Page>() as u64)?;
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW)?;
        OwnShares::of(memory)
    }

    fn of(memory: OwnedFd) -> io::Result<OwnShares> {
        let shares = Shares::map(&memory)?;
        Ok(OwnShares { memory, shares })
    }

    /// For an owner.
    pub(super) fn memory(&self) -> io::Result<OwnedFd> {
        self.memory.try_clone()
    }
}

impl Deref for OwnShares {
    type Target = Shares;

    fn deref(&self) -> &Shares {
        &self.shares
    }
}

impl Inherit for OwnShares {
    type Shape = RawFd;

    fn lend(&self) -> Option<RawFd> {
        self.memory.lend()
    }

    fn take(memory: RawFd) -> Option<OwnShares> {
        OwnShares::of(OwnedFd::take(memory)?).ok()
    }
}

/// Shares the queues out: as evenly as can be with few changes. An owner that has one keeps its first; so
/// with more owners than queues, the last have none until others go.
pub(super) fn share_out(shares: &mut [Option<Share>], owners: &BTreeSet<Owner>) {
    for share in shares.iter_mut() {
        *share = share.filter(|share| owners.contains(&share.owner));
    }
    // Each step moves one queue nearer to an even share.
    for _ in 0..shares.len() {
        let count = |owner: &Owner| {
            let its = shares.iter().flatten();
            its.filter(|share| share.owner == *owner).count()
        };
        let Some(poorest) = owners.iter().copied().min_by_key(count) else {
            return;
        };
        let has = count(&poorest);
        let richest = owners.iter().copied().max_by_key(count);
        let can_give = |share: &Share| {
            Some(share.owner) == richest && !share.first && count(&share.owner) >= has + 2
        };
        let nobodys = shares.iter().position(Option::is_none);
        let spare = || {
            shares
                .iter()
                .rposition(|share| share.as_ref().is_some_and(can_give))
        };
        let Some(place) = nobodys.or_else(spare) else {
            return;
        };
        shares[place] = Some(Share {
            owner: poorest,
            first: has == 0,
        });
    }
}

#[cfg(test)]
mod tests;
