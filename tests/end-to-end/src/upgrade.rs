use crate::site::PATIENCE;
use crate::{Failure, Network};
use serde_json::Value;
use skink_testbed::{Process, Scratch};
use std::path::{Path, PathBuf};

/// What `skink upgrade --json` said, and its exit code.
pub struct Upgrade {
    /// None if a signal ended it.
    pub code: Option<i32>,
    /// All that it printed.
    pub said: String,
}

impl Upgrade {
    /// A failure that says what the command printed.
    pub fn wrong(&self, what: &str) -> Failure {
        Failure::Wrong(format!(
            "{what}: exit code {:?}; skink upgrade printed:\n{}",
            self.code, self.said
        ))
    }

    /// The processes that it tells of; the report comes before what is said on standard error.
    ///
    /// # Errors
    /// If there is no report.
    pub fn processes(&self) -> Result<Vec<Value>, Failure> {
        let mut values = serde_json::Deserializer::from_str(&self.said).into_iter::<Value>();
        let report = values.next().and_then(Result::ok);
        let processes = report.and_then(|report| report["processes"].as_array().cloned());
        processes.ok_or_else(|| self.wrong("there is no report"))
    }
}

impl Network {
    /// Runs `skink upgrade` with `words` to its end.
    ///
    /// # Errors
    /// If it can't be run, or doesn't end.
    pub fn upgrade(&self, words: &[&str], binary: &Path) -> Result<Upgrade, Failure> {
        let tool = Network::tool()?;
        let mut command = self.skink.command(&tool.to_string_lossy());
        command.args(["upgrade", "--json", "--binary"]).arg(binary);
        command.args(words);
        let (status, said) = Process::spawn(command, "skink upgrade")?.wait(PATIENCE)?;
        Ok(Upgrade {
            code: status.code(),
            said,
        })
    }
}

/// Another file with the same build.
///
/// # Errors
/// If it can't be written.
pub fn copy_of_build(scratch: &Scratch) -> Result<PathBuf, Failure> {
    let other = std::fs::canonicalize(scratch.path())?.join("skink-next");
    std::fs::copy(Network::tool()?, &other)?;
    Ok(other)
}
