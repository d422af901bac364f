//! The packet filter of a stack in this process, for tools.
//!
//! The helper thread does what they want: it reads and arranges rules, and describes what they have counted, without the lock. With it
//! it does no more than exchange the rules and copy numbers, so that the program goes on.
use crate::errno::Answer;
use crate::lock::{Guard, lock};
use crate::log::log;
use crate::provider::Provider;
use crate::raw;
use rustix::fs::{MemfdFlags, SealFlags, SeekFrom};
use skink_filter::RuleSet;
use skink_library::{Stack, filter_shown};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What the broker wants of the packet filter.
pub enum Errand {
    /// These rules, as text, in the place of those that are in force.
    Load(String),
    /// The answer to the question with this number: what it does.
    Show(u64),
}

/// Does it. Without a stack there is nothing to do.
pub fn run(errand: Errand) {
    let _ = match errand {
        Errand::Load(rules) => load(&rules),
        Errand::Show(question) => show(question),
    };
}

fn load(text: &str) -> Answer<()> {
    let Ok(rules) = RuleSet::parse(text) else {
        // `skink` has read them before.
        log!(
            Error,
            "new rules of the packet filter can't be read, and the old ones stay: are `skink` and libskink.so of one version?"
        );
        return Ok(());
    };
    let count = rules.rules.len();
    let Some(config) = with_stack(|stack, interface| stack.filter_config(interface))? else {
        return Ok(());
    };
    let rules = config.prepare(rules);
    let now = raw::now();
    let before = with_stack(|stack, _| stack.put_in_force(now, &config.interface, rules))?;
    drop(before);
    log!(Info, "the packet filter has {count} rules now");
    Ok(())
}

fn show(question: u64) -> Answer<()> {
    let Some(snapshot) = with_stack(|stack, _| stack.filter().map(|filter| filter.snapshot()))?
    else {
        return Ok(());
    };
    match in_memory(&filter_shown(snapshot.as_ref())) {
        Ok(shown) => {
            if let Some(engine) = &lock()?.engine {
                engine.broker.tell_filter(question, shown.as_fd());
            }
        }
        Err(error) => log!(Warn, "tools aren't told of the packet filter: {error}"),
    }
    Ok(())
}

/// Takes the lock for a moment. `None` if the stack isn't in this process.
fn with_stack<T>(act: impl FnOnce(&mut Stack, &str) -> T) -> Answer<Option<T>> {
    let mut state: Guard = lock()?;
    let Some(engine) = state.engine.as_deref_mut() else {
        return Ok(None);
    };
    Ok(match &mut engine.stack {
        Provider::Library(stack) => Some(act(stack, &engine.interface)),
        Provider::Served(_) => None,
    })
}

/// A sealed file with this text, to be read from its beginning.
fn in_memory(text: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("skink-filter", flags)?;
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    rustix::fs::seek(&file, SeekFrom::Start(0))?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::WRITE)?;
    Ok(file)
}
