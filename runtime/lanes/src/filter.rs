use crate::Incarnation;
use crate::codec::Few;
use crate::exchange::{EndCounters, Exchange};
use crate::judge::{Question, Verdicts};
use crate::lane::AttachParts;
use skink_channel::AttachError;
use std::collections::VecDeque;

/// Verdicts that may wait for room; no more questions are taken then.
const WAITING: usize = 64;

/// `filter`'s side towards `ip`.
pub struct FilterEnd {
    exchange: Exchange<Question, Verdicts>,
    verdicts: VecDeque<(u64, u8)>,
}

impl FilterEnd {
    /// As [`Exchange::attach`].
    ///
    /// # Errors
    /// As [`Exchange::attach`].
    pub fn attach(parts: AttachParts) -> Result<FilterEnd, AttachError> {
        Ok(FilterEnd {
            exchange: Exchange::attach(parts)?,
            verdicts: VecDeque::with_capacity(WAITING + 1),
        })
    }

    /// The next question. Each is to be answered by [`FilterEnd::answer`].
    pub fn take_question(&mut self) -> Option<Question> {
        if self.verdicts.len() >= WAITING {
            self.tell();
        }
        match self.verdicts.len() < WAITING {
            true => self.exchange.take(),
            false => None,
        }
    }

    /// Answers a question.
    pub fn answer(&mut self, id: u64, verdict: u8) {
        self.verdicts.push_back((id, verdict));
    }

    fn tell(&mut self) {
        while !self.verdicts.is_empty() && self.exchange.reserve(1).is_ok() {
            let verdicts = Verdicts(Few::take(&mut self.verdicts, (0, 0)));
            let _ = self.exchange.send(&verdicts);
        }
    }

    /// Begins a batch.
    pub fn begin(&mut self) {
        self.exchange.begin();
    }

    /// Ends a batch.
    pub fn flush(&mut self) {
        self.tell();
        self.exchange.flush();
    }

    /// `ip` was restarted: nobody waits for what it had asked.
    pub fn ip_restarted(&mut self, incarnation: Incarnation) {
        self.exchange.restarted(incarnation);
        self.verdicts.clear();
    }

    /// Whether there is something to do.
    pub fn is_ready(&self) -> bool {
        self.exchange.is_ready()
    }

    /// As [`Exchange::is_broken`].
    pub fn is_broken(&self) -> bool {
        self.exchange.is_broken()
    }

    /// What was dropped here.
    pub fn counters(&self) -> EndCounters {
        self.exchange.counters
    }
}
