//! Which descriptors are Skink's: a flat table indexed by descriptor number, so that an ordinary
//! descriptor costs one load.
use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Descriptors from this number on are never Skink's.
const ENTRIES: usize = 1 << 20;
const NOTHING: u32 = 0;
const INTERNAL: u32 = u32::MAX;
/// An ordinary descriptor that was a socket of Skink's, and stands in the table of fallbacks.
const FALLEN: u32 = u32::MAX - 1;
const EPOLL: u32 = 1 << 31;
/// From this on; the two above are beyond what an index reaches.
const PLAIN: u32 = 3 << 30;

static TABLE: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
/// How many entries the table has: none before it is made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// What a descriptor stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// The kernel's business.
    Ordinary,
    /// A socket, by its index.
    Socket(u32),
    /// An epoll set that has Skink's sockets in it, by its index.
    Epoll(u32),
    /// An epoll set that has none in it, by its index: all that is done with it is the kernel's business.
    Plain(u32),
    /// A descriptor that the library itself uses: the program must not close it.
    Internal,
}

/// Makes the table; before that every descriptor is ordinary. Its pages are taken as they are used.
pub fn start() -> bool {
    // SAFETY: a fresh mapping at an address that the kernel chooses aliases nothing.
    let base = unsafe {
        rustix::mm::mmap_anonymous(
            core::ptr::null_mut(),
            ENTRIES * size_of::<AtomicU32>(),
            rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
            rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::NORESERVE,
        )
    };
    match base {
        Ok(base) => TABLE.store(base.cast(), Ordering::Relaxed),
        Err(_) => return false,
    }
    MADE.store(ENTRIES as u32, Ordering::Release);
    true
}

#[inline]
fn slot(fd: c_int) -> Option<&'static AtomicU32> {
    let index = fd as u32;
    if index >= MADE.load(Ordering::Acquire) {
        return None;
    }
    let table = TABLE.load(Ordering::Relaxed);
    // SAFETY: the mapping is never unmapped, and the index was checked.
    Some(unsafe { &*table.add(index as usize) })
}

/// Whether the descriptor is a socket of Skink's, or an epoll set with such sockets in it.
#[inline]
pub fn is_ours(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| (NOTHING + 1..PLAIN).contains(&slot.load(Ordering::Acquire)))
}

/// Whether the descriptor is a socket of Skink's, or any epoll set.
#[inline]
pub fn is_known(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| (NOTHING + 1..FALLEN).contains(&slot.load(Ordering::Acquire)))
}

/// Whether the library must hear of the descriptor's end.
#[inline]
pub fn is_listed(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| slot.load(Ordering::Acquire) != NOTHING)
}

/// What the descriptor stands for.
#[inline]
pub fn get(fd: c_int) -> Entry {
    match slot(fd).map_or(NOTHING, |slot| slot.load(Ordering::Acquire)) {
        NOTHING | FALLEN => Entry::Ordinary,
        INTERNAL => Entry::Internal,
        value if value >= PLAIN => Entry::Plain(value & !PLAIN),
        value if value & EPOLL != 0 => Entry::Epoll(value & !EPOLL),
        value => Entry::Socket(value - 1),
    }
}

/// Stores what the descriptor stands for; `false` if its number is too large for the table.
pub fn set(fd: c_int, entry: Entry) -> bool {
    let value = match entry {
        Entry::Ordinary => NOTHING,
        Entry::Internal => INTERNAL,
        Entry::Epoll(index) => index | EPOLL,
        Entry::Plain(index) => index | PLAIN,
        Entry::Socket(index) => index + 1,
    };
    let slot = slot(fd);
    if let Some(slot) = slot {
        slot.store(value, Ordering::Release);
    }
    slot.is_some()
}

/// Makes the descriptor an ordinary one whose end the library must hear of.
pub fn fall(fd: c_int) {
    if let Some(slot) = slot(fd) {
        slot.store(FALLEN, Ordering::Release);
    }
}

/// Whether the descriptor was made so; it is an ordinary one as others from now on.
pub fn take_fallen(fd: c_int) -> bool {
    let swap = |slot: &AtomicU32| {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        slot.compare_exchange(FALLEN, NOTHING, success, failure)
    };
    slot(fd).is_some_and(|slot| swap(slot).is_ok())
}

/// The descriptors in `first..=last` that aren't ordinary.
pub fn in_range(first: u32, last: u32) -> impl Iterator<Item = (c_int, Entry)> {
    let end = (last as usize + 1).min(ENTRIES);
    (first as usize..end).filter_map(|fd| {
        let entry = get(fd as c_int);
        (entry != Entry::Ordinary).then_some((fd as c_int, entry))
    })
}

#[cfg(test)]
pub mod tests;
