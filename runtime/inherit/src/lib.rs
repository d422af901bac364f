//! What a process keeps when it becomes another program by `exec`: its state as text, and descriptors.
//!
//! **Purpose.** A supervisor that executes another build of itself stays the same process: its id, its children,
//! its place at a terminal and with a service manager. Its descriptors keep their numbers. So the
//! state of the old program, with a number where it has a descriptor, is all that the new one needs.
//! [`lend`] turns a value into that, [`Lent::execute`] becomes the other program, and [`inherited`] answers the
//! value there. Types take part by `derive`, with `#[serde(with = "skink_inherit::descriptors")]` at descriptors and
//! `#[serde(with = "skink_inherit::moments")]` at times.
//!
//! **Place on the data path.** None.
//!
//! **What survives a restart.** This is one way to survive one: whatever was lent.
//!
//! **What it leaves out.** What to do if the other program is no good: whoever executes it has made sure that
//! somebody else goes on then.

mod shapes;

pub use shapes::{Inherit, Moments, descriptors, lend_borrowed, moments};

use rustix::fs::{MemfdFlags, SeekFrom, fcntl_get_seals, memfd_create, seek};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the new program finds the descriptor of the memory with what it inherits.
const VARIABLE: &str = "SKINK_INHERITED";

/// The first line of the memory.
#[derive(Serialize, Deserialize)]
struct Header {
    /// Of what comes after it, as the caller counts.
    version: u32,
    descriptors: BTreeSet<RawFd>,
}

/// What passes while a value is turned into text, or back.
enum Bag {
    Closed,
    Lending(BTreeSet<RawFd>),
    Taking(BTreeMap<RawFd, OwnedFd>),
}

thread_local! {
    static BAG: RefCell<Bag> = const { RefCell::new(Bag::Closed) };
}

/// A value as text, and the descriptors that it names.
pub struct Lent {
    version: u32,
    text: Vec<u8>,
    descriptors: BTreeSet<RawFd>,
}

/// Turns a value into text, of this version. Its descriptors must stay open until [`Lent::execute`].
///
/// # Errors
/// If it has no text form.
pub fn lend<T: Serialize>(version: u32, value: &T) -> io::Result<Lent> {
    BAG.set(Bag::Lending(BTreeSet::new()));
    let text = serde_json::to_vec(value);
    let Bag::Lending(descriptors) = BAG.replace(Bag::Closed) else {
        return Err(io::Error::other("values were lent one inside the other"));
    };
    Ok(Lent {
        version,
        text: text?,
        descriptors,
    })
}

/// Hands `send` a value as text, the descriptors that it names, and their numbers there in the same order: for a copy of this process
/// that was made before, and has none of them. It has the value again by [`received`].
///
/// # Errors
/// If it has no text form, or what `send` answers.
pub fn lend_to<T: Serialize, R>(
    value: &T,
    send: impl FnOnce(&str, &[RawFd], &[BorrowedFd<'_>]) -> io::Result<R>,
) -> io::Result<R> {
    let lent = lend(0, value)?;
    let text = String::from_utf8(lent.text).map_err(io::Error::other)?;
    let numbers: Vec<RawFd> = lent.descriptors.into_iter().collect();
    let descriptors = numbers.iter().map(|number| {
        // SAFETY: `value` has it, and is borrowed for longer than this is used.
        unsafe { BorrowedFd::borrow_raw(*number) }
    });
    send(&text, &numbers, &descriptors.collect::<Vec<_>>())
}

/// A value that [`lend_to`] has handed over, by the numbers that its descriptors had there. What it doesn't take is closed.
///
/// # Errors
/// If the text isn't of such a value.
pub fn received<T: DeserializeOwned>(
    text: &str,
    descriptors: BTreeMap<RawFd, OwnedFd>,
) -> io::Result<T> {
    BAG.set(Bag::Taking(descriptors));
    let value = serde_json::from_str(text);
    BAG.set(Bag::Closed);
    Ok(value?)
}

impl Lent {
    /// Becomes the program of this command. Returns only if that fails; all is as before then.
    pub fn execute(self, command: &mut Command) -> io::Error {
        let memory = match self.write() {
            Ok(memory) => memory,
            Err(error) => return error,
        };
        command.env(VARIABLE, memory.as_raw_fd().to_string());
        let mut kept = self.descriptors;
        kept.insert(memory.as_raw_fd());
        let error = match mark(&kept, FdFlags::empty()) {
            Ok(()) => command.exec(),
            Err(error) => error,
        };
        let _ = mark(&kept, FdFlags::CLOEXEC);
        error
    }

    fn write(&self) -> io::Result<OwnedFd> {
        let memory = memfd_create(
            "skink-inherited",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        let mut file = File::from(memory);
        let header = Header {
            version: self.version,
            descriptors: self.descriptors.clone(),
        };
        serde_json::to_writer(&mut file, &header)?;
        file.write_all(b"\n")?;
        file.write_all(&self.text)?;
        seek(&file, SeekFrom::Start(0))?;
        Ok(file.into())
    }
}

/// Says whether they are closed on `exec`.
fn mark(descriptors: &BTreeSet<RawFd>, flags: FdFlags) -> io::Result<()> {
    for number in descriptors {
        // SAFETY: it is used for the length of the call; the kernel says so if it isn't open.
        let descriptor = unsafe { BorrowedFd::borrow_raw(*number) };
        fcntl_setfd(descriptor, flags)?;
    }
    Ok(())
}

/// The value that this program's predecessor in the process has lent, if one has. `version` is the caller's.
/// Works once, and before anybody could own one of the descriptors: at the start of `main`.
///
/// # Errors
/// A sentence that says why it can't be had.
pub fn inherited<T: DeserializeOwned>(version: u32) -> Option<Result<T, String>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = std::env::var_os(VARIABLE)?;
    if TAKEN.swap(true, Ordering::Relaxed) {
        return None;
    }
    let number = number.to_str().and_then(|text| text.parse().ok());
    Some(match number {
        Some(number) => take(version, number),
        None => Err(format!("{VARIABLE} is set, and isn't a number: unset it")),
    })
}

fn take<T: DeserializeOwned>(version: u32, number: RawFd) -> Result<T, String> {
    let stranger = || format!("{VARIABLE} is set, and nobody has lent anything: unset it");
    let memory = adopt(number).ok_or_else(stranger)?;
    // Other files have no seals.
    fcntl_get_seals(&memory).map_err(|_| stranger())?;
    let failed = |error: io::Error| format!("what was lent can't be read: {error}");
    let mut file = BufReader::new(File::from(memory));
    let mut first = String::new();
    file.read_line(&mut first).map_err(failed)?;
    let header: Header = serde_json::from_str(&first).map_err(|error| failed(error.into()))?;
    if header.version != version {
        return Err(format!(
            "what was lent has version {}, and this program knows version {version}",
            header.version
        ));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    let all = header.descriptors.into_iter();
    let all = all.filter(|lent| *lent != number);
    let all = all.filter_map(|lent| Some((lent, adopt(lent)?))).collect();
    received(&text, all).map_err(failed)
}

/// A descriptor that was open when this program began, from now on its own. Not the standard ones.
fn adopt(number: RawFd) -> Option<OwnedFd> {
    if number <= 2 {
        return None;
    }
    // SAFETY: it is used for the length of the call; the kernel says so if it isn't open.
    let open = fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }).is_ok();
    // SAFETY: it is open, was lent by this program's predecessor in the process, and nobody else owns it: this
    // is reached once for each number, since `inherited` works once and numbers are in a set.
    let own = open.then(|| unsafe { OwnedFd::from_raw_fd(number) })?;
    fcntl_setfd(&own, FdFlags::CLOEXEC).ok()?;
    Some(own)
}
