//! What the program's threads work, for the judge of how the NIC is used.
use crate::{raw, threads};
use core::sync::atomic::{AtomicU32, Ordering};
use skink_nic::Work;
use std::time::Duration;

/// On how many processors the process's first thread could run when the first helper began, or 0: later a program may have confined
/// itself.
static PROCESSORS: AtomicU32 = AtomicU32::new(0);

/// A helper begins.
pub fn begin() {
    if PROCESSORS.load(Ordering::Relaxed) == 0 {
        PROCESSORS.store(raw::processors(), Ordering::Relaxed);
    }
}

/// What all threads have worked so far, if the program has several. For so long they have `looked` for frames, for want of anything
/// else to do.
pub fn so_far(looked: Duration) -> Option<Work> {
    let work = || Work {
        time: raw::processor_time().saturating_sub(looked),
        processors: PROCESSORS.load(Ordering::Relaxed),
    };
    (!threads::is_one()).then(work)
}
