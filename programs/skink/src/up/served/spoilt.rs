//! Processes of the stack that say that a program spoilt its channel.
use super::{Errand, Served, Stack, Stage, find};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the next program of a user isn't trusted against the word of a process, after one was. A process of the
/// stack can be back a thousand times in that, so nobody keeps it from its work by spoiling channels and mending
/// them at once.
const INTERVAL: Duration = Duration::from_secs(10);

/// Users whose programs were trusted, and when last.
#[derive(Default, Debug)]
pub struct Trusted {
    users: BTreeMap<u32, Instant>,
}

impl Trusted {
    /// Whether a program of this user may be trusted now; notes that it is.
    fn may(&mut self, now: Instant, uid: u32) -> bool {
        let recent = |at: &Instant| now.saturating_duration_since(*at) < INTERVAL;
        self.users.retain(|_, at| recent(at));
        if self.users.contains_key(&uid) {
            return false;
        }
        self.users.insert(uid, now);
        true
    }
}

impl Served {
    /// A process that is out of its mind may say so of any program: the channel tells. If the program wrote nothing
    /// there that it may not, it is the process that ends, which nobody notices.
    pub(super) fn on_spoilt(&mut self, place: usize, program: u32) {
        let Stack { plant, processes } = &mut self.stack;
        let Some((number, entry)) = find(&mut self.programs, program) else {
            return;
        };
        if !matches!(entry.stage, Stage::Served) {
            return;
        }
        let process = processes
            .get_mut(place)
            .filter(|process| !process.is_condemned());
        let Some(process) = process else {
            // It has said such a thing before, and doesn't live to hear the answer.
            return;
        };
        let uid = entry.uid;
        if entry.uses_well(&plant.layout, place) && self.trusted.may(Instant::now(), uid) {
            return process.condemn(&format!(
                "it said that program {number} had spoilt its channel, which is in order"
            ));
        }
        entry.stage = Stage::Ending;
        let why = "it spoilt its channel to the stack, and lost its sockets".to_owned();
        self.errands.push(Errand::Dismiss(number, why));
        self.advance(number);
    }
}

#[cfg(test)]
mod tests;
