//! The load: connections that go on from run to run, each of which says how far it has come.
mod streams;

use super::lab::Lab;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
pub use streams::unreachable;

/// How often progress is looked at.
const INTERVAL: Duration = Duration::from_millis(10);
/// How much of each must be done to say that it goes on: more than can have been under way.
const ENOUGH: u64 = 4;

/// How a connection fares.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// It goes on.
    Alive,
    /// It ended; why.
    Broken(String),
    /// Bytes were wrong; which.
    Wrong(String),
    /// Nothing happens on it.
    Stalled,
}

/// What the threads of a load tell.
#[derive(Clone, Default)]
pub struct Told {
    done: Arc<AtomicU64>,
    failed: Arc<Mutex<Option<Fate>>>,
    stop: Arc<AtomicBool>,
}

impl Told {
    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    pub fn done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    fn fail(&self, fate: Fate) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert(fate);
    }

    fn fate(&self) -> Option<Fate> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.clone()
    }
}

/// Why a load ended.
pub enum Trouble {
    Broken(io::Error),
    Wrong(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Broken(error)
    }
}

/// One connection, or one user of a service.
pub struct Load {
    told: Told,
    threads: Vec<JoinHandle<io::Result<()>>>,
    child: Option<Child>,
}

impl Load {
    /// Does `work` on the client until it fails or is to stop.
    pub fn spawn(
        lab: &Lab,
        work: impl FnOnce(&Told) -> Result<(), Trouble> + Send + 'static,
    ) -> io::Result<Load> {
        let told = Told::default();
        let thread = Load::thread(lab, &told, work)?;
        Ok(Load {
            told,
            threads: vec![thread],
            child: None,
        })
    }

    fn thread(
        lab: &Lab,
        told: &Told,
        work: impl FnOnce(&Told) -> Result<(), Trouble> + Send + 'static,
    ) -> io::Result<JoinHandle<io::Result<()>>> {
        let told = told.clone();
        lab.client.thread(move || match work(&told) {
            Ok(()) => {}
            Err(Trouble::Broken(error)) => told.fail(Fate::Broken(error.to_string())),
            Err(Trouble::Wrong(what)) => told.fail(Fate::Wrong(what)),
        })
    }

    fn stop(mut self) {
        self.told.stop.store(true, Ordering::Relaxed);
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

type Start = fn(&Lab) -> io::Result<Load>;

/// Name, whether it is TCP, and how to start it.
const KINDS: [(&str, bool, Start); 8] = [
    ("web-1", true, streams::web),
    ("web-2", true, streams::web),
    ("fresh", true, streams::fresh),
    ("down", true, streams::down),
    ("up", true, streams::up),
    ("ssh", true, streams::ssh),
    ("datagrams", false, streams::datagrams),
    ("names", false, streams::names),
];

/// Whether a load is a connection of TCP's.
pub fn is_tcp(name: &str) -> bool {
    KINDS.iter().any(|(kind, tcp, _)| *kind == name && *tcp)
}

/// All of the load.
pub struct Loads {
    all: BTreeMap<&'static str, Load>,
}

impl Loads {
    pub fn start(lab: &Lab) -> io::Result<Loads> {
        let mut loads = Loads {
            all: BTreeMap::new(),
        };
        loads.renew(lab)?;
        let fates = loads.look(Duration::from_secs(20));
        match fates.values().all(|fate| *fate == Fate::Alive) {
            true => Ok(loads),
            false => Err(io::Error::other(format!(
                "the load doesn't run before there is a fault: {fates:?}"
            ))),
        }
    }

    /// Starts those that aren't there.
    pub fn renew(&mut self, lab: &Lab) -> io::Result<()> {
        for (name, _, start) in KINDS {
            if !self.all.contains_key(name) {
                self.all.insert(name, start(lab)?);
            }
        }
        Ok(())
    }

    /// Whether all have done something.
    pub fn look(&self, limit: Duration) -> BTreeMap<String, Fate> {
        let count = |load: &Load| load.told.done.load(Ordering::Relaxed);
        let before: Vec<u64> = self.all.values().map(count).collect();
        let end = Instant::now() + limit;
        loop {
            let fates = self.all.iter().zip(&before).map(|((name, load), before)| {
                let fate = load.told.fate().unwrap_or(match count(load) - before {
                    ENOUGH.. => Fate::Alive,
                    _ => Fate::Stalled,
                });
                ((*name).to_owned(), fate)
            });
            let fates: BTreeMap<String, Fate> = fates.collect();
            let waits = fates.values().any(|fate| *fate == Fate::Stalled);
            if !waits || Instant::now() > end {
                return fates;
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Ends those that don't go on.
    pub fn bury(&mut self, fates: &BTreeMap<String, Fate>) {
        for (name, _) in fates.iter().filter(|(_, fate)| **fate != Fate::Alive) {
            if let Some(load) = self.all.remove(name.as_str()) {
                load.stop();
            }
        }
    }

    /// Ends all.
    pub fn stop(&mut self) {
        for load in std::mem::take(&mut self.all).into_values() {
            load.stop();
        }
    }
}
