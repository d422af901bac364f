//! Having an end of a virtual cable segment, or not.
//!
//! A veth never cuts a large segment that its driver is handed; the end is said to segment (TSO) all the same, so that
//! it is handed them. But what leaves by such an end is received at the other one without NAPI, packet by packet
//! (`veth_skb_is_eligible_for_gro` in drivers/net/veth.c), and each small one may interrupt the other processor. If the
//! end is said not to segment, packets come to the other one's NAPI, which takes in many in a turn; large ones the
//! kernel cuts first. So the former is right for large packets and the latter for small ones.

use crate::sysfs::{self, Setting};
use crate::xdp::driver;
use std::io;
use std::os::fd::AsFd;

/// What the interface's alias says meanwhile: for people who look (`ip link`), and for whoever comes after a process that
/// was killed.
const NOTE: &str = "skink: TSO off while packets are small";

/// sysfs takes a line, and isn't told of an empty string.
const NO_NOTE: &str = "\n";

/// How one end of a virtual cable segments. Dropping it leaves it as it was.
#[derive(Debug)]
pub struct Segmentation {
    name: String,
    alias: Setting,
    put_off: bool,
}

impl Segmentation {
    /// That of the interface called `name`. Nothing changes yet, but what a process that was killed left behind is
    /// undone.
    ///
    /// # Errors
    /// It is not to be changed: the interface is no veth, doesn't segment, or has an alias already, where this would be
    /// noted. Or it can't be: see [`sysfs::directory_of`].
    pub fn of(name: &str) -> io::Result<Segmentation> {
        let refused = |why| Err(io::Error::new(io::ErrorKind::Unsupported, why));
        if !driver::is_veth(name)? {
            return refused("only on a veth it matters to small packets");
        }
        let segmentation = Segmentation {
            name: name.to_owned(),
            alias: Setting::open(sysfs::directory_of(name)?.as_fd(), "ifalias")?,
            put_off: false,
        };
        match segmentation.alias.before.as_str() {
            "" => {}
            NOTE => segmentation.resume()?,
            _ => return refused("the interface has an alias, so that it can't be noted there"),
        }
        match driver::segments(name)? {
            true => Ok(segmentation),
            false => refused("the interface doesn't anyway"),
        }
    }

    /// Has the interface not segment, or as it did before.
    ///
    /// # Errors
    /// What the system says; it segments then, if the system lets us.
    pub fn put_off(&mut self, wanted: bool) -> io::Result<()> {
        if wanted == self.put_off {
            return Ok(());
        }
        self.put_off = wanted;
        if !wanted {
            return self.resume();
        }
        let noted = self.alias.set(NOTE);
        let done = noted.and_then(|()| driver::set_segments(&self.name, false));
        done.inspect_err(|_| {
            let _ = self.put_off(false);
        })
    }

    /// Has the interface segment as before, also if another process with a copy of this has put it off since.
    ///
    /// # Errors
    /// As [`Segmentation::put_off`].
    pub fn undo(&mut self) -> io::Result<()> {
        self.put_off |= self.alias.read()? == NOTE;
        self.put_off(false)
    }

    fn resume(&self) -> io::Result<()> {
        driver::set_segments(&self.name, true)?;
        self.alias.set(NO_NOTE)
    }
}

/// Whether the interface segments, or would if a process of Skink hadn't put it off.
pub(crate) fn segments(name: &str) -> io::Result<bool> {
    let noted = || -> io::Result<bool> {
        let directory = sysfs::directory_of(name)?;
        Ok(Setting::open(directory.as_fd(), "ifalias")?.before == NOTE)
    };
    Ok(driver::segments(name)? || noted().unwrap_or_default())
}

impl Drop for Segmentation {
    fn drop(&mut self) {
        // The interface may be gone.
        let _ = self.put_off(false);
    }
}

#[cfg(test)]
mod tests;
