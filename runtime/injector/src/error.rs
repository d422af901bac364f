use crate::class::Class;
use std::io;

/// Why no fault can be injected.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The processor isn't one whose machine code is known.
    #[error("faults can be injected on x86-64 only, and this machine has another processor")]
    Unsupported,
    /// There is no such process, or not any more.
    #[error("process {0} has ended before a fault could be injected")]
    Gone(u32),
    /// The kernel doesn't let it be done.
    #[error(
        "process {1} can't {0}: {2}; injecting faults needs root, and that nobody debugs the process"
    )]
    Trace(&'static str, u32, #[source] io::Error),
    /// Nothing that fits was executed.
    #[error(
        "process {0} has executed nothing that a fault of class {1} fits: put load on the stack first"
    )]
    Idle(u32, Class),
}
