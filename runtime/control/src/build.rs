//! Builds of the stack: which one an executable is, and whether it can take another's place.
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Descriptors below this one are put to use in a child before it executes.
const ABOVE: i32 = 16;

/// What a build says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Build {
    /// Its release, such as "0.1.0".
    pub release: String,
    /// Versions of what it shares with other processes, by name: layouts in memory, and messages.
    pub interfaces: BTreeMap<String, u32>,
}

impl Build {
    /// In what it differs from another one, if processes of the two can't work together: one sentence
    /// part for each interface.
    pub fn conflicts(&self, other: &Build) -> Vec<String> {
        let names = self.interfaces.keys().chain(other.interfaces.keys());
        let mut conflicts: Vec<String> = names
            .filter_map(|name| {
                let (own, others) = (self.interfaces.get(name), other.interfaces.get(name));
                let version = |version: Option<&u32>| {
                    version.map_or("none".to_owned(), |version| format!("version {version}"))
                };
                let text = format!("{name}: {} and {}", version(own), version(others));
                (own != others).then_some(text)
            })
            .collect();
        conflicts.sort();
        conflicts.dedup();
        conflicts
    }
}

/// An executable file: the same one also when another takes its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Executable {
    #[serde(
        serialize_with = "skink_inherit::descriptors::serialize",
        deserialize_with = "above"
    )]
    file: Arc<OwnedFd>,
    name: PathBuf,
}

/// Takes an inherited descriptor, which has any number, above those that are put to use in a child.
fn above<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<OwnedFd>, D::Error> {
    let file: Arc<OwnedFd> = skink_inherit::descriptors::deserialize(from)?;
    let file = rustix::io::fcntl_dupfd_cloexec(&*file, ABOVE);
    file.map(Arc::new).map_err(D::Error::custom)
}

impl Executable {
    /// The one that this process runs.
    ///
    /// # Errors
    /// What the system says.
    pub fn own() -> io::Result<Executable> {
        Executable::new(File::open("/proc/self/exe")?.into())
    }

    /// One that was opened for reading.
    ///
    /// # Errors
    /// If it isn't a file that may be executed, or what the system says.
    pub fn new(file: OwnedFd) -> io::Result<Executable> {
        let status = rustix::fs::fstat(&file)?;
        let kind = rustix::fs::FileType::from_raw_mode(status.st_mode);
        if kind != rustix::fs::FileType::RegularFile || status.st_mode & 0o111 == 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it isn't an executable file",
            ));
        }
        let file = rustix::io::fcntl_dupfd_cloexec(&file, ABOVE)?;
        let name = std::fs::read_link(path(&file))?;
        Ok(Executable {
            file: Arc::new(file),
            name,
        })
    }

    /// What it was called when it was opened.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// What to execute, in this process or a child of it.
    pub fn path(&self) -> PathBuf {
        path(&self.file)
    }
}

fn path(file: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[cfg(test)]
mod tests;
