/// For how long it pays to look at the queues again and again before sleeping.
///
/// A sleep and a wake-up cost several microseconds of two processors; spinning costs one of them for
/// as long as it lasts. So a consumer spins if messages lately came soon, and for no longer than the
/// maximum. If they come late it stops spinning altogether, and begins again when a sleep was short.
/// (Linux's KVM chooses its halt-polling time in the same way.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpinBudget {
    now_ns: u64,
    maximum_ns: u64,
}

impl SpinBudget {
    /// No consumer spins longer than this without a message.
    pub const MAXIMUM_NS: u64 = 20_000;
    /// It isn't worth less.
    const LEAST_NS: u64 = 2_000;

    /// At most `maximum_ns` nanoseconds (and never over [`SpinBudget::MAXIMUM_NS`]): 0 where all
    /// processes share one processor, since nobody can send while the consumer spins.
    pub fn new(maximum_ns: u64) -> SpinBudget {
        let maximum_ns = maximum_ns.min(Self::MAXIMUM_NS);
        SpinBudget {
            now_ns: maximum_ns.min(Self::LEAST_NS),
            maximum_ns,
        }
    }

    /// For a component that shares `processors` processors with its neighbours: 0 if that is one. (It
    /// counts where the neighbours may run, too. So who pins components has to say; the affinity of one
    /// that is pinned doesn't tell.)
    pub fn for_processors(processors: usize) -> SpinBudget {
        SpinBudget::new(if processors > 1 { Self::MAXIMUM_NS } else { 0 })
    }

    /// For how long to spin this time, in nanoseconds.
    pub fn budget_ns(&self) -> u64 {
        self.now_ns
    }

    /// A message came while spinning.
    pub fn on_paid(&mut self) {
        self.grow();
    }

    /// It didn't, and the sleep that followed took `slept_ns` nanoseconds, wake-up and all.
    pub fn on_slept(&mut self, slept_ns: u64) {
        // Twice: a wake-up takes about as long as the message was waited for.
        if slept_ns <= self.maximum_ns.saturating_mul(2) {
            self.grow();
        } else {
            self.now_ns /= 2;
            if self.now_ns < Self::LEAST_NS {
                self.now_ns = 0;
            }
        }
    }

    fn grow(&mut self) {
        let doubled = self.now_ns.saturating_mul(2).max(Self::LEAST_NS);
        self.now_ns = doubled.min(self.maximum_ns);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
