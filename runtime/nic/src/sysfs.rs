//! Settings of an interface in sysfs.

use crate::interface::{self, Interface};
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(crate) const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// A file of sysfs.
#[derive(Debug)]
pub(crate) struct Setting {
    file: File,
    /// What it had when it was opened.
    pub(crate) before: String,
}

impl Setting {
    pub(crate) fn open(directory: BorrowedFd<'_>, name: &str) -> io::Result<Setting> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let mut setting = Setting {
            file: File::from(openat(directory, name, flags, Mode::empty())?),
            before: String::new(),
        };
        setting.before = setting.read()?;
        Ok(setting)
    }

    /// What it has now.
    pub(crate) fn read(&self) -> io::Result<String> {
        // An alias has up to 255 bytes, and all else is shorter.
        let mut text = [0; 512];
        let length = self.file.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default());
        Ok(text.trim().to_owned())
    }

    pub(crate) fn set(&self, value: &str) -> io::Result<()> {
        self.file.write_all_at(value.as_bytes(), 0)
    }
}

/// The directory of the interface called `name`, in this thread's network namespace.
///
/// # Errors
/// There is no such interface, or sysfs can't be had: `/sys` shows another network namespace, and we may not mount one
/// for our own.
pub(crate) fn directory_of(name: &str) -> io::Result<OwnedFd> {
    let interface = interface::find(name)?;
    let interface = interface.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    match own_sysfs() {
        Ok(sysfs) => {
            let path = format!("class/net/{name}");
            Ok(openat(sysfs, path, DIRECTORY, Mode::empty())?)
        }
        // Without CAP_SYS_ADMIN it has to be the one that is there.
        Err(_) => shown_in_sys(&interface),
    }
}

/// A sysfs that is mounted nowhere, and shows the network namespace of this thread.
fn own_sysfs() -> rustix::io::Result<OwnedFd> {
    let sysfs = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(sysfs.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    fsmount(sysfs.as_fd(), flags, MountAttrFlags::empty())
}

/// The interface's directory below `/sys`, which shows the network namespace in which it was mounted: that need not be
/// ours, and may have another interface of that name.
fn shown_in_sys(interface: &Interface) -> io::Result<OwnedFd> {
    let directory = Path::new("/sys/class/net").join(&interface.name);
    let shown = |what| std::fs::read_to_string(directory.join(what));
    let (index, mac) = (shown("ifindex")?, shown("address")?);
    let address = interface.mac.map(|mac| mac.to_string());
    if interface.index.to_string() != index.trim() || address.as_deref() != Some(mac.trim()) {
        let other = "/sys shows the interfaces of another network namespace";
        return Err(io::Error::other(other));
    }
    Ok(openat(
        rustix::fs::CWD,
        &directory,
        DIRECTORY,
        Mode::empty(),
    )?)
}
