use crate::Incarnation;
use crate::exchange::{EndCounters, Exchange};
use crate::judge::{FlowAccount, FromFilter, Question, ToFilter};
use crate::lane::AttachParts;
use skink_channel::{AttachError, NeighbourId, RequestDatabase, RequestId};
use skink_messages::Full;
use std::collections::VecDeque;

const FILTER: NeighbourId = NeighbourId(0);
/// Packets that may wait for their verdict: a third of what `link` can lend.
const PARKED: u32 = 256;
/// Messages for which there is room whenever there is room for a question: it, and what must be said before.
const MESSAGES: u32 = 2;

/// What becomes of a packet that has waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The filter has judged it: the number that its verdict has.
    Verdict(u8),
    /// It passes, and more of its flow may: see [`FromFilter::Offload`].
    Offload(Option<[u32; 2]>),
    /// It passes unasked, and has waited for its turn only.
    Passed,
}

/// `ip`'s side towards `filter`. A packet, `T`, waits here until its verdict comes.
///
/// Packets that pass unasked mustn't overtake those of their flow that wait for a verdict. So questions are
/// counted, and whoever learns that a flow may pass notes how many there were ([`IpFilterEnd::asked`]): its packets
/// pass once that many are answered, and wait behind them until then ([`IpFilterEnd::hold`]).
pub struct IpFilterEnd<T> {
    exchange: Exchange<FromFilter, ToFilter>,
    parked: RequestDatabase<(Question, T)>,
    judged: VecDeque<(Question, T, Answer)>,
    /// What passes unasked, after so many answers.
    held: VecDeque<(u64, Question, T)>,
    /// Packets that were asked about, and that were judged and taken.
    asked: u64,
    answered: u64,
    /// After how many answers all packets pass unasked; `None` if they don't.
    passes_from: Option<u64>,
    /// Those of a filter that died are to be asked about again.
    aborted: bool,
}

impl<T> IpFilterEnd<T> {
    /// As [`Exchange::attach`].
    ///
    /// # Errors
    /// As [`Exchange::attach`].
    pub fn attach(parts: AttachParts) -> Result<IpFilterEnd<T>, AttachError> {
        let exchange = Exchange::attach(parts)?;
        Ok(IpFilterEnd {
            parked: RequestDatabase::new(PARKED, 1, exchange.request_incarnation()),
            exchange,
            judged: VecDeque::with_capacity(PARKED as usize),
            held: VecDeque::new(),
            asked: 0,
            answered: 0,
            passes_from: None,
            aborted: false,
        })
    }

    /// Whether one more packet can be asked about now. If not, take no packet that would have to be.
    pub fn has_room(&mut self) -> bool {
        !self.aborted && self.waiting() < PARKED && self.exchange.reserve(MESSAGES).is_ok()
    }

    /// As [`IpFilterEnd::has_room`], as far as that can be told without looking at the queue.
    pub fn takes(&self) -> bool {
        !self.exchange.was_full() && self.waiting() < PARKED
    }

    /// Asks about a packet. The question's id is filled in here.
    ///
    /// # Errors
    /// The packet, if there is no room.
    pub fn ask(&mut self, question: Question, packet: T) -> Result<(), T> {
        if !self.has_room() {
            return Err(packet);
        }
        self.issue(question, packet)?;
        self.asked += 1;
        Ok(())
    }

    fn issue(&mut self, question: Question, packet: T) -> Result<(), T> {
        let id = match self.parked.issue(FILTER, (question, packet)) {
            Ok(id) => id.to_wire(),
            Err(unsent) => return Err(unsent.0.1),
        };
        // There is room: the caller has made sure.
        let question = ToFilter::Question(Question { id, ..question });
        let _ = self.exchange.send(&question);
        Ok(())
    }

    /// Tells of packets that passed unasked.
    ///
    /// # Errors
    /// [`Full`], and nothing is told.
    pub fn tell(&mut self, account: FlowAccount) -> Result<(), Full> {
        self.exchange.send(&ToFilter::Account(account))
    }

    /// How many packets were asked about.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// After how many answers all packets pass unasked, if they do.
    pub fn passes_from(&self) -> Option<u64> {
        self.passes_from
    }

    /// Whether what passes unasked after so many answers passes now.
    pub fn is_open(&self, from: u64) -> bool {
        self.answered >= from && self.held.is_empty()
    }

    /// Lets a packet that passes unasked wait for its turn; `question` comes back with it.
    ///
    /// # Errors
    /// The packet, if too many wait.
    pub fn hold(&mut self, from: u64, question: Question, packet: T) -> Result<(), T> {
        if self.waiting() >= PARKED {
            return Err(packet);
        }
        self.held.push_back((from, question, packet));
        Ok(())
    }

    /// A packet that has waited, with what becomes of it.
    pub fn take_answered(&mut self) -> Option<(Question, T, Answer)> {
        let next = self.held.front();
        if next.is_some_and(|(from, ..)| *from <= self.answered) {
            let (_, question, packet) = self.held.pop_front()?;
            return Some((question, packet, Answer::Passed));
        }
        while self.judged.is_empty() {
            match self.exchange.take()? {
                FromFilter::Verdicts(verdicts) => {
                    for (id, verdict) in verdicts.as_slice() {
                        self.complete(*id, Answer::Verdict(*verdict));
                    }
                }
                FromFilter::Offload { id, expected } => {
                    self.complete(id, Answer::Offload(expected));
                }
                FromFilter::Asked(asked) => {
                    self.passes_from = (!asked).then_some(self.asked);
                }
            }
        }
        self.answered += 1;
        self.judged.pop_front()
    }

    fn complete(&mut self, id: u64, answer: Answer) {
        match self.parked.complete(RequestId::from_wire(id), FILTER) {
            Some((question, packet)) => self.judged.push_back((question, packet, answer)),
            None => {
                let unasked = &mut self.exchange.counters.unasked;
                *unasked = unasked.wrapping_add(1);
            }
        }
    }

    /// Packets that wait, for their verdict or their turn.
    pub fn waiting(&self) -> u32 {
        // No more than `PARKED`.
        self.parked.awaited() + self.held.len() as u32
    }

    /// The filter was restarted: it is asked about all packets again that still wait, the oldest first, and about
    /// all others until it says otherwise.
    pub fn filter_restarted(&mut self, incarnation: Incarnation) {
        self.exchange.restarted(incarnation);
        self.aborted = self.parked.abort_all(FILTER) > 0 || self.aborted;
        self.passes_from = None;
    }

    /// Begins a batch.
    pub fn begin(&mut self) {
        self.exchange.begin();
        while self.aborted && self.exchange.reserve(1).is_ok() {
            match self.parked.poll_aborted() {
                // There is a free place: its own.
                Some(aborted) => {
                    let (question, packet) = aborted.abort;
                    let _ = self.issue(question, packet);
                }
                None => self.aborted = false,
            }
        }
    }

    /// Ends a batch.
    pub fn flush(&mut self) {
        self.exchange.flush();
    }

    /// Whether there is something to do.
    pub fn is_ready(&self) -> bool {
        let held = self.held.front();
        let is_due = held.is_some_and(|(from, ..)| *from <= self.answered);
        self.exchange.is_ready() || !self.judged.is_empty() || is_due
    }

    /// As [`Exchange::is_broken`].
    pub fn is_broken(&self) -> bool {
        self.exchange.is_broken()
    }

    /// What was dropped here.
    pub fn counters(&mut self) -> &mut EndCounters {
        &mut self.exchange.counters
    }
}

#[cfg(test)]
mod tests;
