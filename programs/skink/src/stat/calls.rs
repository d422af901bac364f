//! Which calls programs resolve by themselves: most, as in NEaT (section 3.2).
use serde::Serialize;
use skink_messages::Counter;

/// Calls about sockets of the programs that a stack serves, as long as they live.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Calls {
    made: u64,
    /// Messages to `syscall` because of them.
    to_syscall: u64,
    /// Of the calls, those without a message; None if there were no calls.
    resolved_percent: Option<f64>,
}

impl Calls {
    /// From what a program has counted.
    pub fn counted(count: impl Fn(Counter) -> u64) -> Calls {
        let made = count(Counter::AppCalls).saturating_add(count(Counter::AppOtherCalls));
        Calls::new(made, count(Counter::AppAsked))
    }

    /// Those of several programs.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Calls>) -> Calls {
        let (made, to_syscall) = all.fold((0u64, 0u64), |(made, asked), calls| {
            let made = made.saturating_add(calls.made);
            (made, asked.saturating_add(calls.to_syscall))
        });
        Calls::new(made, to_syscall)
    }

    fn new(made: u64, to_syscall: u64) -> Calls {
        // A call may need more than one message.
        let resolved = made.saturating_sub(to_syscall) as f64;
        Calls {
            made,
            to_syscall,
            resolved_percent: (made > 0).then(|| (resolved / made as f64 * 1e4).round() / 100.0),
        }
    }

    /// Those since `before`.
    pub fn since(&self, before: &Calls) -> Calls {
        let made = self.made.saturating_sub(before.made);
        Calls::new(made, self.to_syscall.saturating_sub(before.to_syscall))
    }

    /// A sentence; None if there were none.
    pub fn describe(&self) -> Option<String> {
        let (made, asked) = (self.made, self.to_syscall);
        let resolved = self.resolved_percent?;
        Some(format!(
            "of the programs' {made} calls about sockets, {resolved:.2}% were resolved in the program; \
             for the others {asked} messages went to syscall"
        ))
    }
}
