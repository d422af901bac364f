use crate::client::{self, Broker};
use crate::error::ControlError;
use crate::peer::is_stopped;
use crate::tool::{Tool, is_stranger};
use rustix::net::SocketAddrUnix;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const STRANGERS_PATIENCE: Duration = Duration::from_millis(500);

/// A `skink run` that a tool can ask: its socket is `PID.sock` in a directory for such sockets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Instance {
    /// Process id of `skink run`.
    pub pid: u32,
    /// Its socket for tools.
    pub socket: PathBuf,
}

impl Instance {
    /// Whether its socket is another user's, and not root's: any user may have sockets that look so, where nobody answers.
    pub fn is_of_stranger(&self) -> bool {
        let metadata = std::fs::symlink_metadata(&self.socket);
        metadata.is_ok_and(|metadata| is_stranger(metadata.uid()))
    }

    /// Connects to it, unless it is stopped. If nobody listens any more, the left-over file is removed. A stranger is waited for half
    /// a second at most, each time.
    pub fn connect(&self) -> Result<Tool, ControlError> {
        if is_stopped(self.pid) {
            return Err(ControlError::Stopped);
        }
        let address = SocketAddrUnix::new(&self.socket)
            .map_err(|error| ControlError::Connection(error.into()))?;
        let patience = match self.is_of_stranger() {
            true => STRANGERS_PATIENCE,
            false => client::PATIENCE,
        };
        match client::connect_within(&address, patience) {
            Ok(socket) => Tool::new(socket),
            Err(error) => {
                if let ControlError::Unreachable(cause) = &error
                    && cause.kind() == io::ErrorKind::ConnectionRefused
                {
                    let _ = std::fs::remove_file(&self.socket);
                }
                Err(error)
            }
        }
    }
}

/// What may be running: every socket in the directories that this user can see. Some may turn out to
/// be left over from a `skink run` that was killed, see [`Instance::connect`].
pub fn instances() -> Vec<Instance> {
    let mut found: Vec<Instance> = search_directories()
        .iter()
        .flat_map(|at| list(at))
        .collect();
    found.sort();
    found.dedup();
    found
}

pub(crate) fn list(directory: &Path) -> Vec<Instance> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let instance = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        let pid = name.strip_suffix(".sock")?.parse().ok()?;
        Some(Instance { pid, socket: path })
    };
    entries.filter_map(|entry| instance(entry.path())).collect()
}

/// The abstract name of a broker that is found by its name, with a leading `@`.
pub(crate) fn control_name(name: &str, uid: u32) -> String {
    format!("@skink-up-{name}-{uid}")
}

/// Finds fault with what can't be the name of an instance.
///
/// # Errors
/// A sentence that says what a name is.
pub fn check_name(name: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let number = name.chars().all(|c| c.is_ascii_digit());
    if (1..=48).contains(&name.len()) && name.chars().all(good) && !name.starts_with('.') && !number
    {
        return Ok(());
    }
    Err(format!(
        "\"{name}\" can't be a name: use 1 to 48 letters, digits, -, _ and ., of which not all are \
         digits and the first isn't a ."
    ))
}

/// Connects to the `skink up` called `name`, this user's or else root's, and answers what a program's
/// environment must say to find it. A path, which works across network namespaces, is tried last.
///
/// # Errors
/// [`ControlError::Unreachable`] if nobody listens there.
pub fn named(name: &str) -> Result<(Broker, String), ControlError> {
    let own = rustix::process::geteuid().as_raw();
    let by_name = [own, 0].map(|uid| (control_name(name, uid), Some(uid)));
    let directories = search_directories().into_iter();
    let by_path = directories.filter_map(|directory| {
        let path = directory.join(format!("{name}.sock"));
        Some((path.to_str()?.to_owned(), None))
    });
    let mut last = ControlError::Unreachable(io::ErrorKind::NotFound.into());
    for (place, claimed) in by_name.into_iter().chain(by_path) {
        match Broker::connect(&place, "") {
            // Anybody may take an abstract name.
            Ok(broker) if claimed.is_none_or(|uid| broker.uid().is_ok_and(|it| it == uid)) => {
                return Ok((broker, place));
            }
            Ok(_) | Err(ControlError::Unreachable(_)) => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Names of the `skink up`s that listen, as far as this user can see their sockets.
pub fn names() -> Vec<String> {
    let directories = search_directories();
    let mut names: Vec<String> = directories.iter().flat_map(|at| names_in(at)).collect();
    names.sort();
    names.dedup();
    names
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let name = |path: PathBuf| {
        let name = path
            .file_name()?
            .to_str()?
            .strip_suffix(".sock")?
            .to_owned();
        check_name(&name).ok()?;
        Broker::connect(path.to_str()?, "").ok()?;
        Some(name)
    };
    entries.filter_map(|entry| name(entry.path())).collect()
}

fn own_directories() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let mut directories = vec![PathBuf::from("/run/skink")];
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()) {
        directories.push(Path::new(&runtime).join("skink"));
    }
    directories.push(PathBuf::from(format!("/tmp/skink-{uid}")));
    directories
}

/// Where a tool looks: where we would write ourselves, and for root where any user would.
fn search_directories() -> Vec<PathBuf> {
    let mut directories = own_directories();
    if rustix::process::geteuid().is_root() {
        let children = |at: &str| {
            let entries = std::fs::read_dir(at).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        directories.extend(children("/run/user").iter().map(|user| user.join("skink")));
        let in_tmp = children("/tmp").into_iter();
        directories.extend(in_tmp.filter(|path| is_its_users(path)));
    }
    directories.sort();
    directories.dedup();
    directories
}

/// Whether a directory is called `skink-UID` and belongs to that user. Anybody may make others.
pub(crate) fn is_its_users(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let uid = name.and_then(|name| name.strip_prefix("skink-")?.parse().ok());
    let metadata = std::fs::symlink_metadata(path);
    metadata.is_ok_and(|it| it.is_dir() && Some(it.uid()) == uid)
}

/// The directory for this process's own socket: the first of `/run/skink`, `$XDG_RUNTIME_DIR/skink`
/// and `/tmp/skink-UID` that can be written.
pub(crate) fn writable_directory() -> io::Result<PathBuf> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for directory in own_directories() {
        match prepare(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Makes the directory, or checks that an existing one is ours: in `/tmp` anybody may have made it.
fn prepare(directory: &Path) -> io::Result<()> {
    let made = std::fs::DirBuilder::new().mode(0o755).create(directory);
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    let metadata = std::fs::symlink_metadata(directory)?;
    let uid = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() || metadata.uid() != uid || metadata.permissions().mode() & 0o022 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK)?;
    Ok(())
}
