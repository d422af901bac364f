use std::io;

/// `skink` itself failed, before the program ran.
pub const OWN: u8 = 125;
/// The program was found but can't be run.
pub const CANNOT_RUN: u8 = 126;
/// The program wasn't found.
pub const NOT_FOUND: u8 = 127;

/// Why a verb ended without having done its work: a sentence for the user, and an exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    pub message: String,
    pub code: u8,
}

impl Failure {
    /// A tool's failure.
    pub fn tool(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            code: 1,
        }
    }

    /// A failure of `run` before the program was started.
    pub fn own(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            code: OWN,
        }
    }

    /// The program can't be run.
    pub fn cannot_run(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            code: CANNOT_RUN,
        }
    }

    /// Output failed. Whoever read it may simply have seen enough.
    pub fn output(error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure {
                message: String::new(),
                code: 0,
            },
            _ => Failure::tool(format!("can't write the output: {error}")),
        }
    }
}
