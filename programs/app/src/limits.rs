//! `RLIMIT_AS`. Mail and FTP servers bound their address space, to bound their memory. Skink's shared memory takes 65 GiB and more of
//! addresses for each program, and hardly any memory. So what a program sets becomes a bound of its data (`RLIMIT_DATA`, which
//! counts all private memory since Linux 4.7), and the address space stays as large as it is.
use crate::descriptor::is_guest;
use crate::errno::{Answer, fail};
use crate::raw;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use libc::rlimit;

/// The limits that the program has set, if it has.
static HAS_SET: AtomicBool = AtomicBool::new(false);
static SET: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Those of its data before it did.
static BEFORE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn load(of: &[AtomicU64; 2]) -> rlimit {
    let [rlim_cur, rlim_max] = [0, 1].map(|at| of[at].load(Ordering::Relaxed));
    rlimit { rlim_cur, rlim_max }
}

fn store(at: &[AtomicU64; 2], limits: &rlimit) {
    at[0].store(limits.rlim_cur, Ordering::Relaxed);
    at[1].store(limits.rlim_max, Ordering::Relaxed);
}

/// What the program has set, if it has.
pub fn get() -> Option<rlimit> {
    HAS_SET.load(Ordering::Relaxed).then(|| load(&SET))
}

/// The program bounds its address space.
pub fn set(limits: &rlimit) -> Answer<()> {
    if limits.rlim_cur > limits.rlim_max {
        return fail(libc::EINVAL);
    }
    let before = match HAS_SET.load(Ordering::Relaxed) {
        true => load(&BEFORE),
        false => exchange(None)?,
    };
    exchange(Some(&rlimit {
        rlim_cur: limits.rlim_cur.min(before.rlim_cur),
        rlim_max: limits.rlim_max.min(before.rlim_max),
    }))?;
    // A guest's limits are its own, and this memory is its host's.
    if !is_guest() {
        store(&BEFORE, &before);
        store(&SET, limits);
        HAS_SET.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Sets the limits of data, and answers what they were.
fn exchange(new: Option<&rlimit>) -> Answer<rlimit> {
    let mut old = rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let new = new.map_or(core::ptr::null(), core::ptr::from_ref);
    let arguments = [
        0,
        libc::RLIMIT_DATA as usize,
        new as usize,
        &raw mut old as usize,
        0,
        0,
    ];
    // SAFETY: both are ours.
    unsafe { raw::call(libc::SYS_prlimit64, arguments) }?;
    Ok(old)
}
