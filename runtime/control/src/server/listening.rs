//! The sockets on which a broker listens.
use super::{Access, ServerConfig};
use crate::error::ControlError;
use crate::instance;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Listening sockets, and what is to be said of them.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Listening {
    /// For processes of programs: an abstract name.
    #[serde(with = "skink_inherit::descriptors")]
    pub control: OwnedFd,
    /// The same, with its leading `@`.
    pub control_name: String,
    /// For processes of programs in other network namespaces: a path.
    #[serde(with = "skink_inherit::descriptors")]
    pub by_path: Option<OwnedFd>,
    #[serde(with = "skink_inherit::descriptors")]
    pub tools: OwnedFd,
    /// The files to be removed at the end; that for tools first.
    pub paths: Vec<PathBuf>,
    /// It isn't this program's yet.
    #[serde(skip, default = "lent")]
    pub is_lent: bool,
}

fn lent() -> bool {
    true
}

impl Listening {
    pub fn new(config: &ServerConfig, directory: &Path) -> io::Result<Listening> {
        let pid = std::process::id();
        let (control, control_name, by_path, mut paths) = match config.access {
            Access::Token => {
                let name = format!("skink-{pid}-{:016x}", super::random()? as u64);
                let control = listen(&SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
                (control, format!("@{name}"), None, Vec::new())
            }
            Access::Named => {
                let uid = rustix::process::geteuid().as_raw();
                let name = instance::control_name(&config.name, uid);
                let abstract_name = name.trim_start_matches('@').as_bytes();
                let taken = |error: io::Error| match error.kind() {
                    io::ErrorKind::AddrInUse => runs_already(&config.name),
                    _ => error,
                };
                let control = listen(&SocketAddrUnix::new_abstract_name(abstract_name)?);
                let control = control.map_err(taken)?;
                let path = directory.join(format!("{}.sock", config.name));
                let by_path = named(&path, &config.name)?;
                (control, name, Some(by_path), vec![path])
            }
        };
        let path = directory.join(format!("{pid}.sock"));
        match crate::client::connect(&SocketAddrUnix::new(&path)?) {
            // Left behind by one that was killed.
            Err(ControlError::Unreachable(error)) if error.kind() != io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => return Err(taken_elsewhere(&path)),
        }
        let _ = std::fs::remove_file(&path);
        let tools = listen_at(&path)?;
        paths.insert(0, path);
        Ok(Listening {
            control,
            control_name,
            by_path,
            tools,
            paths,
            is_lent: false,
        })
    }

    /// Gives the file for tools the name of this process, which goes on in the place of another one: tools look there which
    /// process that is, and a later one that gets the other's id would remove it.
    pub fn rename(&mut self) {
        if let Some(path) = self.paths.first_mut() {
            let own = path.with_file_name(format!("{}.sock", std::process::id()));
            if std::fs::rename(&*path, &own).is_ok() {
                *path = own;
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        for path in self.paths.iter().filter(|_| !self.is_lent) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Listens at a path that a predecessor may have left behind.
fn named(path: &Path, name: &str) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    if crate::client::connect(&address).is_ok() {
        return Err(runs_already(name));
    }
    let _ = std::fs::remove_file(path);
    listen_at(path)
}

fn runs_already(name: &str) -> io::Error {
    let text = format!(
        "one called {name} runs already: end it, or give this one another name with --name"
    );
    io::Error::new(io::ErrorKind::AddrInUse, text)
}

fn taken_elsewhere(path: &Path) -> io::Error {
    let text = format!(
        "one in another PID namespace, with the same process id, listens at {} already: mount another directory there for one of the two",
        path.display()
    );
    io::Error::new(io::ErrorKind::AddrInUse, text)
}

/// Who may ask is decided by the peer's user id, so that a refusal can say why.
fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let socket = listen(&SocketAddrUnix::new(path)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(socket)
}

fn listen(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::net::bind(&socket, address)?;
    rustix::net::listen(&socket, 1024)?;
    Ok(socket)
}
