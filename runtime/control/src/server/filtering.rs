//! The packet filters of owners that have a stack of their own each: they are told of new rules, and asked what their
//! filters do. The rules reach them in order, so that an answer is by the rules that were loaded before the question.
use super::requests::only_memory;
use super::tools::text_of;
use super::{Access, Owners, Question, Role, Server};
use crate::message::Reply;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long an owner may take to answer. One that isn't stopped looks ten times a second.
const PATIENCE: Duration = Duration::from_secs(3);
/// When to try again to tell an owner something.
const AGAIN: Duration = Duration::from_millis(100);
/// Most bytes of an answer.
const LONGEST_ANSWER: u64 = 64 * 1024;

/// What owners were asked and haven't answered, by a number that is given once.
#[derive(Default)]
pub(super) struct Questions {
    last: u64,
    open: BTreeMap<u64, Asked>,
}

struct Asked {
    tool: Question,
    owner: u16,
    /// When it is given up; none yet if it has just been asked.
    until: Option<Instant>,
}

impl<O: Owners> Server<O> {
    /// Checks rules, and puts them in force for all owners: those that have a stack of their own are told, and those
    /// that attach later are handed them.
    pub(super) fn load_filter(&mut self, rules: String) -> Result<String, String> {
        let done = self.owners.load_filter(&rules)?;
        if self.config.access == Access::Token {
            self.config.rules = rules;
            for connection in self.connections.values_mut() {
                connection.lacks_rules = matches!(connection.role, Role::Owner(_));
            }
            self.tell_rules();
        }
        Ok(done)
    }

    /// Tells owners of the rules that are in force now. Answers when to try again, if there is no room for that in the
    /// socket of one, as when it is stopped.
    pub(super) fn tell_rules(&mut self) -> Option<Duration> {
        let lacking = self.connections.iter().filter(|(_, it)| it.lacks_rules);
        let lacking: Vec<u64> = lacking.map(|(key, _)| *key).collect();
        if lacking.is_empty() {
            return None;
        }
        let rules = self.config.rules.clone();
        let reply = Reply::LoadFilter { rules };
        let mut again = None;
        for key in lacking {
            let is_told = self.reply(key, &reply, &[]).is_ok();
            if let Some(connection) = self.connections.get_mut(&key) {
                connection.lacks_rules = !is_told;
            }
            again = again.or((!is_told).then_some(AGAIN));
        }
        again
    }

    /// Asks an owner what its filter does, for the tool with this connection.
    pub(super) fn ask_owner(&mut self, tool: u64, owner: u16) -> Result<(), String> {
        if self.config.access != Access::Token {
            let why = "its programs share one packet filter".to_owned();
            return self.refuse(tool, why);
        }
        let Some(key) = self.key_of(Role::Owner(owner)) else {
            return self.refuse(tool, "it has ended".to_owned());
        };
        self.questions.last += 1;
        let question = self.questions.last;
        if self
            .reply(key, &Reply::ShowFilter { question }, &[])
            .is_err()
        {
            return self.refuse(tool, DOES_NOT_ANSWER.to_owned());
        }
        let asked = Asked {
            tool: Question(tool),
            owner,
            until: None,
        };
        self.questions.open.insert(question, asked);
        Ok(())
    }

    /// An owner says what its filter does. An answer that nobody waits for any more is passed over.
    pub(super) fn on_shown(
        &mut self,
        owner: u16,
        question: u64,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<(), String> {
        let asked = self.questions.open.get(&question);
        if asked.is_none_or(|asked| asked.owner != owner) {
            return Ok(());
        }
        let shown = only_memory(descriptors, "what its filter does")?;
        let shown = text_of(shown, LONGEST_ANSWER, "what its filter does")?;
        if let Some(asked) = self.questions.open.remove(&question) {
            self.answer(asked.tool, Ok(shown));
        }
        Ok(())
    }

    /// The owner has ended: it answers nothing any more.
    pub(super) fn dismiss_questions(&mut self, owner: u16) {
        self.give_up(|asked| asked.owner == owner, "it has ended");
    }

    /// Gives up what isn't answered. Answers when to look again.
    pub(super) fn give_up_waiting(&mut self, now: Instant) -> Option<Duration> {
        for asked in self.questions.open.values_mut() {
            asked.until.get_or_insert(now + PATIENCE);
        }
        let is_late = |asked: &Asked| asked.until.is_some_and(|until| until <= now);
        self.give_up(is_late, DOES_NOT_ANSWER);
        let next = self.questions.open.values().filter_map(|asked| asked.until);
        next.min().map(|until| until.saturating_duration_since(now))
    }

    fn give_up(&mut self, which: impl Fn(&Asked) -> bool, why: &str) {
        let (lost, open) = std::mem::take(&mut self.questions.open)
            .into_iter()
            .partition(|(_, asked)| which(asked));
        self.questions.open = open;
        for asked in BTreeMap::into_values(lost) {
            self.answer(asked.tool, Err(why.to_owned()));
        }
    }
}

const DOES_NOT_ANSWER: &str = "it doesn't answer, as when it is stopped";
