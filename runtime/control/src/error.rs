use std::fmt;
use std::io;

/// Why the broker couldn't be asked, or what it answered instead.
#[derive(Debug)]
pub enum ControlError {
    /// The environment names a broker in a way that can't be one.
    BadEnvironment(&'static str),
    /// Nobody listens there: `skink run` or `skink up` is gone, or this is another network namespace.
    Unreachable(io::Error),
    /// The connection failed or timed out.
    Connection(io::Error),
    /// The broker closed the connection.
    Closed,
    /// The broker's process is stopped.
    Stopped,
    /// The broker refused, and said why.
    Refused(String),
    /// What was handed over can't be put to use: a NIC or the port table can't be mapped.
    Nic(io::Error),
    /// The answer isn't one of this version's.
    Malformed(String),
}

impl ControlError {
    /// Whether the broker's process may have died before it answered: another one may go on in its place.
    pub fn is_lost(&self) -> bool {
        match self {
            ControlError::Closed => true,
            ControlError::Connection(error) => error.kind() == io::ErrorKind::BrokenPipe,
            _ => false,
        }
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::BadEnvironment(variable) => write!(
                f,
                "the environment variable {variable} is missing or spoilt: start the program with `skink run` again"
            ),
            ControlError::Unreachable(error) => write!(
                f,
                "`skink run` or `skink up` can't be reached ({error}): it has ended, or the process is in another network namespace"
            ),
            ControlError::Connection(error) => {
                write!(f, "the connection to Skink's supervisor failed: {error}")
            }
            ControlError::Closed => write!(f, "Skink's supervisor closed the connection"),
            ControlError::Stopped => {
                write!(
                    f,
                    "it is stopped (Ctrl-Z, SIGSTOP) and answers nobody until it goes on (`fg`, SIGCONT)"
                )
            }
            ControlError::Refused(reason) => f.write_str(reason),
            ControlError::Nic(error) => {
                write!(
                    f,
                    "the NIC that Skink's supervisor handed over can't be used: {error}"
                )
            }
            ControlError::Malformed(what) => write!(
                f,
                "Skink's supervisor answered something else than expected ({what}): is it of the same version?"
            ),
        }
    }
}

impl std::error::Error for ControlError {}
