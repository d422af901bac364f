//! What a campaign keeps, so that it can be interrupted.
use super::load::{Fate, is_tcp};
use crate::failure::Failure;
use crate::fault::strike::{Effect, Strike};
use serde::{Deserialize, Serialize};
use skink_injector::Class;
use std::collections::BTreeMap;
use std::path::Path;

/// What must be the same for runs to be counted together.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    pub seed: u64,
    pub class: Class,
    pub topology: String,
    pub recovery: Option<String>,
    pub patience: u64,
}

/// Faults in one component, and what of the load was left.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Run {
    pub number: usize,
    pub strike: Strike,
    pub fates: BTreeMap<String, Fate>,
    /// Services that somebody new couldn't reach.
    pub unreachable: Vec<String>,
    /// The component that had to be killed by hand until they were reached.
    pub by_hand: Option<String>,
    /// The whole stack and its programs had to be started anew.
    pub restarted: bool,
    /// Other components that died of it.
    pub others: Vec<String>,
    /// Programs that ended, by the last thing they said.
    pub ended: Vec<String>,
    /// Records that a successor didn't take, by reason.
    pub given_up: BTreeMap<String, u64>,
}

impl Run {
    /// Whether the component crashed or hung: only such runs count.
    pub fn counts(&self) -> bool {
        self.strike.effect != Effect::Survived
    }

    /// Connections of TCP's that were lost, or on which bytes were wrong.
    pub fn lost(&self) -> Vec<&str> {
        let lost = self.fates.iter();
        let lost = lost.filter(|(name, fate)| is_tcp(name) && **fate != Fate::Alive);
        lost.map(|(name, _)| name.as_str()).collect()
    }

    /// Whether datagrams went on by the same sockets.
    pub fn is_transparent_to_udp(&self) -> bool {
        let mut udp = self.fates.iter().filter(|(name, _)| !is_tcp(name));
        udp.all(|(_, fate)| *fate == Fate::Alive)
    }

    /// Whether bytes were wrong somewhere.
    pub fn is_corrupt(&self) -> bool {
        let mut fates = self.fates.values();
        fates.any(|fate| matches!(fate, Fate::Wrong(_)))
    }

    /// Whether all services were reached by themselves.
    pub fn is_reachable(&self) -> bool {
        self.unreachable.is_empty() && self.ended.is_empty() && self.by_hand.is_none()
    }

    /// Whether nobody noticed.
    pub fn is_transparent(&self) -> bool {
        self.lost().is_empty()
            && self.is_transparent_to_udp()
            && self.is_reachable()
            && !self.restarted
    }

    /// A line that says it.
    pub fn in_words(&self) -> String {
        let mut words = vec![self.strike.in_words()];
        let troubled = self.fates.iter().filter(|(_, fate)| **fate != Fate::Alive);
        words.extend(troubled.map(|(name, fate)| format!("{name}: {fate:?}")));
        words.extend(
            self.unreachable
                .iter()
                .map(|it| format!("{it} isn't reached")),
        );
        words.extend(self.others.iter().map(|it| format!("{it} died too")));
        words.extend(self.ended.iter().map(|it| format!("a program ended: {it}")));
        words.extend(
            self.by_hand
                .iter()
                .map(|it| format!("{it} was killed by hand")),
        );
        if self.restarted {
            words.push("all was started anew".to_owned());
        }
        let component = &self.strike.component;
        format!("{component}: {}", words.join("; "))
    }
}

/// All runs so far.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Campaign {
    pub settings: Settings,
    pub runs: Vec<Run>,
}

const FILE: &str = "campaign.json";

impl Campaign {
    /// What a directory has, or nothing yet.
    pub fn load(directory: &Path, settings: Settings) -> Result<Campaign, Failure> {
        let path = directory.join(FILE);
        let Ok(text) = std::fs::read_to_string(&path) else {
            return Ok(Campaign {
                settings,
                runs: Vec::new(),
            });
        };
        let campaign: Campaign = serde_json::from_str(&text).map_err(|error| {
            Failure::tool(format!("{} can't be understood: {error}", path.display()))
        })?;
        match campaign.settings == settings {
            true => Ok(campaign),
            false => Err(Failure::tool(format!(
                "{} is of a campaign with other options: choose another directory, or give the same \
                 options",
                path.display()
            ))),
        }
    }

    /// Keeps it.
    pub fn store(&self, directory: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self);
        let text = text.map_err(|error| Failure::tool(error.to_string()))?;
        replace(&directory.join(FILE), &text)
    }

    /// Runs that count.
    pub fn crashes(&self) -> usize {
        self.runs.iter().filter(|run| run.counts()).count()
    }
}

/// Writes a file so that it is either as before or whole.
pub fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let new = path.with_extension("new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
    written.map_err(|error| Failure::tool(format!("can't write {}: {error}", path.display())))
}
