use std::fmt;
use std::io;

/// Why a process couldn't be confined. It must not go on then.
#[derive(Debug)]
pub enum SandboxError {
    /// The process has other threads, which would stay outside.
    Threads(usize),
    /// A step failed.
    Step {
        /// In the form of "closing descriptors".
        doing: &'static str,
        /// The kernel's reason.
        source: io::Error,
        /// What to do about it.
        advice: &'static str,
    },
    /// The list of system calls makes no filter.
    Filter(String),
}

impl SandboxError {
    /// For `map_err`: the error of a step.
    pub(crate) fn step<E: Into<io::Error>>(
        doing: &'static str,
        advice: &'static str,
    ) -> impl FnOnce(E) -> SandboxError {
        move |source| SandboxError::Step {
            doing,
            source: source.into(),
            advice,
        }
    }
}

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SandboxError::Threads(threads) => write!(
                f,
                "the process has {threads} threads, and only the one that enters the sandbox would \
                 be confined: enter it before the first thread is started"
            ),
            SandboxError::Step {
                doing,
                source,
                advice,
            } => write!(
                f,
                "entering the sandbox: {doing} failed: {source}; {advice}"
            ),
            SandboxError::Filter(reason) => write!(
                f,
                "entering the sandbox: the list of system calls makes no seccomp filter ({reason}); \
                 it needs at least one call, and short lists of rules"
            ),
        }
    }
}

impl std::error::Error for SandboxError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SandboxError::Step { source, .. } => Some(source),
            SandboxError::Threads(_) | SandboxError::Filter(_) => None,
        }
    }
}
