use crate::Incarnation;
use crate::exchange::{EndCounters, Exchange};
use crate::judge::{Question, Verdicts};
use crate::lane::AttachParts;
use skink_channel::{AttachError, NeighbourId, RequestDatabase, RequestId};
use std::collections::VecDeque;

const FILTER: NeighbourId = NeighbourId(0);
/// Packets that may wait for their verdict: a third of what `link` can lend.
const PARKED: u32 = 256;

/// `ip`'s side towards `filter`. A packet, `T`, waits here until its verdict comes.
pub struct IpFilterEnd<T> {
    exchange: Exchange<Verdicts, Question>,
    parked: RequestDatabase<(Question, T)>,
    judged: VecDeque<(T, u8)>,
    /// Those of a filter that died are to be asked about again.
    aborted: bool,
}

impl<T> IpFilterEnd<T> {
    /// Packets that may wait for their verdict.
    pub const MOST: u32 = PARKED;

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
            aborted: false,
        })
    }

    /// Whether one more packet can be asked about now. If not, take no packet that would have to be.
    pub fn has_room(&mut self) -> bool {
        !self.aborted && self.parked.awaited() < PARKED && self.exchange.reserve(1).is_ok()
    }

    /// Asks about a packet. The question's id is filled in here.
    ///
    /// # Errors
    /// The packet, if there is no room.
    pub fn ask(&mut self, question: Question, packet: T) -> Result<(), T> {
        match self.has_room() {
            true => self.issue(question, packet),
            false => Err(packet),
        }
    }

    fn issue(&mut self, question: Question, packet: T) -> Result<(), T> {
        let id = match self.parked.issue(FILTER, (question, packet)) {
            Ok(id) => id.to_wire(),
            Err(unsent) => return Err(unsent.0.1),
        };
        // There is room: the caller has made sure.
        let _ = self.exchange.send(&Question { id, ..question });
        Ok(())
    }

    /// A packet and the number that its verdict has.
    pub fn take_verdict(&mut self) -> Option<(T, u8)> {
        while self.judged.is_empty() {
            let verdicts = self.exchange.take()?;
            for (id, verdict) in verdicts.as_slice() {
                match self.parked.complete(RequestId::from_wire(*id), FILTER) {
                    Some((_, packet)) => self.judged.push_back((packet, *verdict)),
                    None => {
                        let unasked = &mut self.exchange.counters.unasked;
                        *unasked = unasked.wrapping_add(1);
                    }
                }
            }
        }
        self.judged.pop_front()
    }

    /// Packets that wait for their verdict.
    pub fn parked(&self) -> u32 {
        self.parked.awaited()
    }

    /// The filter was restarted: it is asked about all packets again that still wait, the oldest first.
    pub fn filter_restarted(&mut self, incarnation: Incarnation) {
        self.exchange.restarted(incarnation);
        self.aborted = self.parked.abort_all(FILTER) > 0 || self.aborted;
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
        self.exchange.is_ready() || !self.judged.is_empty()
    }

    /// Whether there was no room for something since the batch began.
    pub fn was_full(&self) -> bool {
        self.exchange.was_full()
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
