use crate::Incarnation;
use crate::codec::Few;
use crate::exchange::{EndCounters, Exchange};
use crate::judge::{FromFilter, ToFilter};
use crate::lane::AttachParts;
use skink_channel::AttachError;
use std::collections::VecDeque;

/// Answers that may wait for room; no more questions are taken then.
const WAITING: usize = 64;

/// What is answered to a question.
#[derive(Clone, Copy)]
enum Waiting {
    Verdict(u8),
    Offload(Option<[u32; 2]>),
}

/// `filter`'s side towards `ip`.
pub struct FilterEnd {
    exchange: Exchange<ToFilter, FromFilter>,
    answers: VecDeque<(u64, Waiting)>,
    /// Whether `ip` is to ask,
    asked: bool,
    /// and what it was told of that.
    told: Option<bool>,
}

impl FilterEnd {
    /// As [`Exchange::attach`].
    ///
    /// # Errors
    /// As [`Exchange::attach`].
    pub fn attach(parts: AttachParts) -> Result<FilterEnd, AttachError> {
        Ok(FilterEnd {
            exchange: Exchange::attach(parts)?,
            answers: VecDeque::with_capacity(WAITING + 1),
            asked: true,
            told: None,
        })
    }

    /// The next message. Each question is to be answered by [`FilterEnd::answer`] or [`FilterEnd::offload`].
    pub fn take(&mut self) -> Option<ToFilter> {
        if self.answers.len() >= WAITING {
            self.tell();
        }
        match self.answers.len() < WAITING {
            true => self.exchange.take(),
            false => None,
        }
    }

    /// Answers a question.
    pub fn answer(&mut self, id: u64, verdict: u8) {
        self.answers.push_back((id, Waiting::Verdict(verdict)));
    }

    /// Answers a question with leave to pass, for more of the flow too: see [`FromFilter::Offload`].
    pub fn offload(&mut self, id: u64, expected: Option<[u32; 2]>) {
        self.answers.push_back((id, Waiting::Offload(expected)));
    }

    /// Whether `ip` is to ask about packets. It is told by the next [`FilterEnd::flush`], and until the first one
    /// it asks.
    pub fn set_asked(&mut self, asked: bool) {
        self.asked = asked;
        self.told = None;
    }

    fn tell(&mut self) {
        while let Some((id, answer)) = self.answers.front().copied()
            && self.exchange.reserve(1).is_ok()
        {
            let message = match answer {
                Waiting::Verdict(_) => FromFilter::Verdicts(self.take_verdicts()),
                Waiting::Offload(expected) => {
                    self.answers.pop_front();
                    FromFilter::Offload { id, expected }
                }
            };
            let _ = self.exchange.send(&message);
        }
        if self.told != Some(self.asked)
            && self.exchange.send(&FromFilter::Asked(self.asked)).is_ok()
        {
            self.told = Some(self.asked);
        }
    }

    /// As many verdicts as follow each other and fit into a message.
    fn take_verdicts(&mut self) -> Few<(u64, u8), 5> {
        let mut verdicts = Few {
            all: [(0, 0); 5],
            count: 0,
        };
        for place in &mut verdicts.all {
            let Some((id, Waiting::Verdict(verdict))) = self.answers.front().copied() else {
                break;
            };
            *place = (id, verdict);
            verdicts.count += 1;
            self.answers.pop_front();
        }
        verdicts
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
        self.answers.clear();
        self.told = None;
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
