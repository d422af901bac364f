use crate::Incarnation;
use crate::exchange::{EndCounters, Exchange};
use crate::judge::{FromFilter, Question, ToFilter};
use crate::lane::AttachParts;
use skink_channel::{AttachError, NeighbourId, RequestDatabase, RequestId};
use skink_messages::{FlowAccount, Full};
use std::collections::{BTreeMap, VecDeque};

const FILTER: NeighbourId = NeighbourId(0);
/// Packets that may wait for their verdict: a third of what `link` can lend.
const PARKED: u32 = 256;
/// A question, and what must be said before it.
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

/// A packet that waits: the number of its question, that, and the packet.
type Waiting<T> = (u64, Question, T);

/// `ip`'s side towards `filter`. A packet, `T`, waits here until its verdict comes.
///
/// Packets that pass unasked mustn't overtake those of their flow that wait for a verdict. So questions are
/// numbered, and whoever learns that a flow may pass notes how many there were ([`IpFilterEnd::asked`]): its packets
/// pass once that one is answered, and wait behind it until then ([`IpFilterEnd::hold`]). Answers come in the order of
/// questions; one that never comes holds nobody up once a later one is there.
pub struct IpFilterEnd<T> {
    exchange: Exchange<FromFilter, ToFilter>,
    parked: RequestDatabase<Waiting<T>>,
    judged: VecDeque<(Waiting<T>, Answer)>,
    /// What passes unasked, by the question whose answer it waits for, and how many packets that is.
    held: BTreeMap<u64, VecDeque<(Question, T)>>,
    held_packets: u32,
    /// The numbers of the last question, and of the last one whose packet was judged and taken.
    asked: u64,
    answered: u64,
    /// After which answer all packets pass unasked; `None` if they don't.
    passes_from: Option<u64>,
    /// Packets about which a filter that died was asked, and which its successor is to be asked about.
    aborted: u32,
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
            held: BTreeMap::new(),
            held_packets: 0,
            asked: 0,
            answered: 0,
            passes_from: None,
            aborted: 0,
        })
    }

    /// Whether one more packet can be asked about now, and something be told before that. If not, take no packet that
    /// would have to be.
    pub fn has_room(&mut self) -> bool {
        self.takes_one() && self.exchange.reserve(MESSAGES).is_ok()
    }

    /// As [`IpFilterEnd::has_room`], as far as that can be told without looking at the queue.
    pub fn takes(&self) -> bool {
        !self.exchange.was_full() && self.takes_one()
    }

    fn takes_one(&self) -> bool {
        self.aborted == 0 && self.waiting() < PARKED
    }

    /// Asks about a packet. The question's id is filled in here.
    ///
    /// # Errors
    /// The packet, if there is no room.
    pub fn ask(&mut self, question: Question, packet: T) -> Result<(), T> {
        if !self.takes_one() || self.exchange.reserve(1).is_err() {
            return Err(packet);
        }
        let number = self.asked + 1;
        self.issue((number, question, packet))?;
        self.asked = number;
        Ok(())
    }

    fn issue(&mut self, (number, question, packet): Waiting<T>) -> Result<(), T> {
        let id = match self.parked.issue(FILTER, (number, question, packet)) {
            Ok(id) => id.to_wire(),
            Err(unsent) => return Err(unsent.0.2),
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

    /// The number of the last question.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// After which question's answer all packets pass unasked, if they do.
    pub fn passes_from(&self) -> Option<u64> {
        self.passes_from
    }

    /// Whether what passes unasked after this question's answer passes now.
    pub fn is_open(&self, from: u64) -> bool {
        let held = self.held.first_key_value();
        self.answered >= from && held.is_none_or(|(first, _)| *first > from)
    }

    /// Lets a packet that passes unasked after this question's answer wait for that; `question` comes back with it.
    ///
    /// # Errors
    /// The packet, if too many wait.
    pub fn hold(&mut self, from: u64, question: Question, packet: T) -> Result<(), T> {
        if self.waiting() >= PARKED {
            return Err(packet);
        }
        let held = self.held.entry(from).or_default();
        held.push_back((question, packet));
        self.held_packets += 1;
        Ok(())
    }

    /// A packet that has waited, with what becomes of it.
    pub fn take_answered(&mut self) -> Option<(Question, T, Answer)> {
        if let Some((question, packet)) = self.take_held() {
            return Some((question, packet, Answer::Passed));
        }
        let ((number, question, packet), answer) = self.judged.pop_front()?;
        self.answered = self.answered.max(number);
        Some((question, packet, answer))
    }

    fn take_held(&mut self) -> Option<(Question, T)> {
        let mut first = self.held.first_entry()?;
        if *first.key() > self.answered {
            return None;
        }
        let packet = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        self.held_packets -= u32::from(packet.is_some());
        packet
    }

    /// Whether one that is held may go.
    fn is_due(&self) -> bool {
        let held = self.held.first_key_value();
        held.is_some_and(|(first, _)| *first <= self.answered)
    }

    /// Takes all that the filter has said.
    fn hear(&mut self) {
        while let Some(message) = self.exchange.take() {
            match message {
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
    }

    fn complete(&mut self, id: u64, answer: Answer) {
        match self.parked.complete(RequestId::from_wire(id), FILTER) {
            Some(packet) => self.judged.push_back((packet, answer)),
            None => {
                let unasked = &mut self.exchange.counters.unasked;
                *unasked = unasked.wrapping_add(1);
            }
        }
    }

    /// Packets that wait, for their verdict or their turn.
    pub fn waiting(&self) -> u32 {
        self.parked.awaited() + self.aborted + self.held_packets
    }

    /// Packets are asked about, whatever the filter has said until now.
    pub fn ask_all(&mut self) {
        // Or what it has said would be heard after this.
        self.hear();
        self.passes_from = None;
    }

    /// The filter was restarted: it is asked about all packets again that still wait, the oldest first, and about
    /// all others until it says otherwise.
    pub fn filter_restarted(&mut self, incarnation: Incarnation) {
        self.exchange.restarted(incarnation);
        self.aborted += self.parked.abort_all(FILTER);
        self.passes_from = None;
    }

    /// Begins a batch: hears what the filter has said, and asks its successor what it wasn't asked yet.
    pub fn begin(&mut self) {
        self.exchange.begin();
        self.hear();
        while self.aborted > 0 && self.exchange.reserve(1).is_ok() {
            self.aborted -= 1;
            // There is a free place: its own.
            if let Some(aborted) = self.parked.poll_aborted() {
                let _ = self.issue(aborted.abort);
            }
        }
    }

    /// Ends a batch.
    pub fn flush(&mut self) {
        self.exchange.flush();
    }

    /// Whether there is something to do.
    pub fn is_ready(&self) -> bool {
        self.exchange.is_ready() || !self.judged.is_empty() || self.is_due()
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
