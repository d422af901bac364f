//! What a spinning consumer does between two looks: as little as the processor lets it.
//!
//! NewtOS (section 2.4.2) wished for MWAIT outside the kernel. Processors have it by now: UMWAIT and
//! TPAUSE (Intel, "waitpkg"), MWAITX (AMD, "monitorx"), unless a hypervisor hides them. Elsewhere it is
//! `pause`.
use crate::queue::Watch;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::Ordering;

/// The processor's time-stamp counter (on x86-64), for measurements: it runs at one rate on all
/// processors of a machine, usually not at that of the cores. Elsewhere, nanoseconds.
pub fn time_stamp() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has RDTSC, and Linux allows it unless it was told not to by
    // prctl(PR_SET_TSC), which nobody does who runs this.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        (now.tv_sec as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(now.tv_nsec as u64)
    }
}

/// How to wait for a moment in user mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relax {
    /// UMONITOR and UMWAIT on a word, TPAUSE without one.
    #[cfg(target_arch = "x86_64")]
    WaitPackage,
    /// MONITORX and MWAITX on a word, PAUSE without one.
    #[cfg(target_arch = "x86_64")]
    MonitorX,
    Pause,
}

/// For how long one wait lasts at most, in ticks of the time-stamp counter: under a microsecond.
#[cfg(target_arch = "x86_64")]
const TICKS: u32 = 2_000;

impl Relax {
    /// The best that this processor has.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn detect() -> Relax {
        use std::arch::x86_64::__cpuid_count;
        #[allow(unused_unsafe, reason = "safe in newer compilers")]
        // SAFETY: every x86-64 processor has CPUID.
        let leaf = |number, sub| unsafe { __cpuid_count(number, sub) };
        if leaf(0, 0).eax >= 7 && leaf(7, 0).ecx & 1 << 5 != 0 {
            Relax::WaitPackage
        } else if leaf(0x8000_0000, 0).eax >= 0x8000_0001 && leaf(0x8000_0001, 0).ecx & 1 << 29 != 0
        {
            Relax::MonitorX
        } else {
            Relax::Pause
        }
    }

    /// The best that this processor has.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn detect() -> Relax {
        Relax::Pause
    }

    /// Waits for a moment, or until the watched word changes if the processor can watch one.
    #[inline]
    pub(crate) fn relax(self, watch: Option<Watch<'_>>) {
        match (self, watch) {
            #[cfg(target_arch = "x86_64")]
            (Relax::WaitPackage, Some(watch)) => umwait(watch),
            #[cfg(target_arch = "x86_64")]
            (Relax::WaitPackage, None) => tpause(),
            #[cfg(target_arch = "x86_64")]
            (Relax::MonitorX, Some(watch)) => mwaitx(watch),
            #[cfg(target_arch = "x86_64")]
            (Relax::MonitorX, None) => std::hint::spin_loop(),
            (Relax::Pause, _) => std::hint::spin_loop(),
        }
    }
}

/// The time-stamp counter some time from now, in halves.
#[cfg(target_arch = "x86_64")]
fn deadline() -> (u32, u32) {
    let until = time_stamp().wrapping_add(u64::from(TICKS));
    ((until >> 32) as u32, until as u32)
}

#[cfg(target_arch = "x86_64")]
fn umwait(watch: Watch<'_>) {
    let (high, low) = deadline();
    // SAFETY: UMONITOR reads the address's translation only; CPUID said that it is there.
    unsafe {
        std::arch::asm!("umonitor {}", in(reg) watch.word.as_ptr(), options(nostack, readonly));
    }
    // It may have changed before it was watched.
    if watch.word.load(Ordering::Relaxed) == watch.seen {
        // SAFETY: waits for a store to what is watched, an interrupt, or the deadline; in state C0.1.
        unsafe {
            std::arch::asm!("umwait ecx", in("ecx") 1, in("edx") high, in("eax") low, options(nostack));
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn tpause() {
    let (high, low) = deadline();
    // SAFETY: waits for an interrupt or the deadline, in state C0.1; CPUID said that it is there.
    unsafe {
        std::arch::asm!("tpause ecx", in("ecx") 1, in("edx") high, in("eax") low, options(nostack));
    }
}

#[cfg(target_arch = "x86_64")]
fn mwaitx(watch: Watch<'_>) {
    // SAFETY: MONITORX reads at the address, which is mapped; CPUID said that it is there.
    unsafe {
        std::arch::asm!(
            "monitorx",
            in("rax") watch.word.as_ptr(), in("ecx") 0, in("edx") 0,
            options(nostack, readonly)
        );
    }
    if watch.word.load(Ordering::Relaxed) == watch.seen {
        // SAFETY: waits for a store to what is watched, an interrupt, or as many ticks as EBX says
        // (ECX bit 1), in state C0 (EAX 0xf0). The compiler keeps RBX to itself, so it is put back.
        unsafe {
            std::arch::asm!(
                "xchg rbx, {ticks}", "mwaitx", "xchg rbx, {ticks}",
                ticks = inout(reg) u64::from(TICKS) => _,
                in("eax") 0xf0, in("ecx") 2,
                options(nostack)
            );
        }
    }
}
