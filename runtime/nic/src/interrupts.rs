//! Putting an interface's interrupts off.
//!
//! The kernel can keep polling a queue by a timer instead of letting each frame interrupt a processor, or wake
//! NAPI's thread: `napi_defer_hard_irqs` and `gro_flush_timeout`
//! (<https://docs.kernel.org/networking/napi.html>, "Software IRQ coalescing"). A frame waits for the timer then:
//! right for stacks that are busy anyway, and wrong for any other.

use crate::interface::{self, Interface};
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Polls that find nothing, after which frames interrupt again until something comes.
const POLLS: &str = "1";
/// The timer, in nanoseconds. Short ones cost more than they save. It isn't a round number, so that a setting which
/// a process that was killed has left behind is known for what it is.
const TIMER: &str = "200003";

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// The interrupts of one interface. Dropping it puts none off any more.
#[derive(Debug)]
pub struct Interrupts {
    polls: Setting,
    timer: Setting,
    put_off: bool,
}

/// A file of sysfs.
#[derive(Debug)]
struct Setting {
    file: File,
    before: String,
}

impl Setting {
    fn open(directory: BorrowedFd<'_>, name: &str) -> io::Result<Setting> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let mut file = File::from(openat(directory, name, flags, Mode::empty())?);
        let mut before = String::new();
        file.read_to_string(&mut before)?;
        Ok(Setting {
            file,
            before: before.trim().to_owned(),
        })
    }

    fn set(&self, value: &str) -> io::Result<()> {
        self.file.write_all_at(value.as_bytes(), 0)
    }
}

impl Interrupts {
    /// Those of the interface called `name`; nothing changes yet.
    ///
    /// # Errors
    /// If they can't be put off: sysfs can't be written (in a container it mostly can't), `/sys` shows another network
    /// namespace and we may not mount one for our own, or the kernel is older than 5.8.
    pub fn of(name: &str) -> io::Result<Interrupts> {
        let interface = interface::find(name)?;
        let interface = interface.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let directory = match own_sysfs() {
            Ok(sysfs) => openat(sysfs, format!("class/net/{name}"), DIRECTORY, Mode::empty())?,
            // Without CAP_SYS_ADMIN it has to be the one that is there.
            Err(_) => shown_in_sys(&interface)?,
        };
        Interrupts::in_directory(directory.as_fd())
    }

    fn in_directory(directory: BorrowedFd<'_>) -> io::Result<Interrupts> {
        let mut polls = Setting::open(directory, "napi_defer_hard_irqs")?;
        let mut timer = Setting::open(directory, "gro_flush_timeout")?;
        if timer.before == TIMER {
            for setting in [&mut polls, &mut timer] {
                "0".clone_into(&mut setting.before);
                setting.set("0")?;
            }
        }
        Ok(Interrupts {
            polls,
            timer,
            put_off: false,
        })
    }

    /// Puts interrupts off, or lets them come again.
    ///
    /// # Errors
    /// What the system says; there are interrupts then, if it lets us.
    pub fn put_off(&mut self, wanted: bool) -> io::Result<()> {
        if wanted == self.put_off {
            return Ok(());
        }
        if wanted {
            self.put_off = true;
            let done = self.timer.set(TIMER).and_then(|()| self.polls.set(POLLS));
            return done.inspect_err(|_| {
                let _ = self.put_off(false);
            });
        }
        self.put_off = false;
        let polls = self.polls.set(&self.polls.before);
        self.timer.set(&self.timer.before).and(polls)
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

impl Drop for Interrupts {
    fn drop(&mut self) {
        // The interface may be gone.
        let _ = self.put_off(false);
    }
}

#[cfg(test)]
mod tests;
