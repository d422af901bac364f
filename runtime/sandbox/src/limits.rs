use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Sets the limits of a process that starts nothing: no child and no thread, no core file, a bounded
/// number of descriptors. It can't raise them again.
///
/// The size of files is left alone: it would also end a process whose standard error is a long log.
pub(crate) fn set(descriptors: u64) -> io::Result<()> {
    let most = |value: u64| Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    setrlimit(Resource::Nofile, most(descriptors.min(hard)))?;
    setrlimit(Resource::Nproc, most(0))?;
    setrlimit(Resource::Core, most(0))?;
    Ok(())
}
