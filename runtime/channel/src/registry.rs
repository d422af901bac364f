//! The registry: who offers what under which name, and who has it (NewtOS, sections 2.4.3 and 2.4.4).
//!
//! A component announces itself, and what it has made for others, under its name. It is exported to each
//! of these, who attach to it by name and generation. When the component's process ends, all of it is
//! withdrawn, and the name's generation grows: who attached to a predecessor knows what isn't valid any
//! more, and what is still said of it isn't taken for a word about its successor.
//!
//! This is the state alone: the supervisor hosts it, knows by the socket that a word came by who said it,
//! and passes descriptors along (docs/decisions/0012 says why it does no more). It isn't on the data path.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Who says something, or is told it: the number of a process. Whoever hosts the registry vouches for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Credentials(pub usize);

/// Why something isn't done. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The name is another's, or nobody's.
    NotYours,
    /// The generation isn't the current one.
    Stale,
    /// It wasn't exported to who asks, or was attached before.
    NotExported,
}

/// All that is known of a name. It stays its creator's.
#[derive(Serialize, Deserialize)]
struct Entry<T> {
    creator: Credentials,
    generation: u32,
    /// One of this generation was begun.
    begun: bool,
    offer: Option<T>,
    /// Have still to attach.
    exported: BTreeSet<Credentials>,
}

/// Names, and what is offered under them.
#[derive(Serialize, Deserialize)]
pub struct Registry<T>(BTreeMap<String, Entry<T>>);

impl<T> Registry<T> {
    /// With these names and their creators; the first generation of each is 1.
    pub fn new(names: impl IntoIterator<Item = (&'static str, Credentials)>) -> Registry<T> {
        let entries = names.into_iter().map(|(name, creator)| {
            let entry = Entry {
                creator,
                generation: 1,
                begun: false,
                offer: None,
                exported: BTreeSet::new(),
            };
            (name.to_owned(), entry)
        });
        Registry(entries.collect())
    }

    /// The generation that runs, or will next; 0 if there is no such name.
    pub fn generation(&self, name: &str) -> u32 {
        self.0.get(name).map_or(0, |entry| entry.generation)
    }

    /// A process of the name's creator is started, which publishes anew.
    pub fn begin(&mut self, name: &str) {
        if let Some(entry) = self.0.get_mut(name) {
            entry.withdraw();
            entry.begun = true;
        }
    }

    /// Offers something under a name, instead of what was offered.
    ///
    /// # Errors
    /// [`Refusal::NotYours`]
    pub fn publish(&mut self, name: &str, by: Credentials, offer: T) -> Result<(), Refusal> {
        match self.0.get_mut(name) {
            Some(entry) if entry.creator == by => {
                entry.offer = Some(offer);
                Ok(())
            }
            Some(_) | None => Err(Refusal::NotYours),
        }
    }

    /// What is offered under a name.
    pub fn offer(&self, name: &str) -> Option<&T> {
        self.0.get(name)?.offer.as_ref()
    }

    /// A process is told of a name's present generation, and handed what is offered.
    pub fn export(&mut self, name: &str, to: Credentials) {
        if let Some(entry) = self.0.get_mut(name) {
            entry.exported.insert(to);
        }
    }

    /// A process has taken what it was told of.
    ///
    /// # Errors
    /// [`Refusal::Stale`], [`Refusal::NotExported`]
    pub fn attach(&mut self, name: &str, by: Credentials, generation: u32) -> Result<(), Refusal> {
        let entry = self.0.get_mut(name).ok_or(Refusal::NotExported)?;
        if entry.generation != generation {
            return Err(Refusal::Stale);
        }
        match entry.exported.remove(&by) {
            true => Ok(()),
            false => Err(Refusal::NotExported),
        }
    }

    /// Whether all to whom it was exported have attached, or ended.
    pub fn is_attached(&self, name: &str) -> bool {
        let entry = self.0.get(name);
        entry.is_some_and(|entry| entry.exported.is_empty())
    }

    /// A process has ended: what it offered is withdrawn, and nobody waits for it.
    pub fn on_end(&mut self, who: Credentials) {
        for entry in self.0.values_mut() {
            entry.exported.remove(&who);
            if entry.creator == who {
                entry.withdraw();
            }
        }
    }
}

impl<T> Entry<T> {
    /// Whoever comes next is of a higher generation, if there was one of this.
    fn withdraw(&mut self) {
        self.generation = self.generation.wrapping_add(u32::from(self.begun));
        self.begun = false;
        self.offer = None;
        self.exported.clear();
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NotYours => "the name is another process's",
            Refusal::Stale => "it was of another generation",
            Refusal::NotExported => "it wasn't told of it, or had it",
        })
    }
}

impl std::error::Error for Refusal {}

#[cfg(all(test, not(loom)))]
mod tests;
