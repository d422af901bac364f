//! One side of a pair of neighbours: what it receives, what it sends, and how it wakes the other.

use crate::Incarnation;
use crate::codec::{Coded, Envelope};
use crate::lane::AttachParts;
use skink_channel::{AttachError, Consumer, Doorbell, Fenced, Producer, QueueError};
use skink_memory::FairQueue;
use skink_messages::Full;
use std::collections::VecDeque;

/// What an end has dropped, and why. Plain numbers, for the component's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EndCounters {
    /// Messages that made no sense.
    pub malformed: u64,
    /// Answers of a neighbour that was restarted since, or to our predecessor, and requests that were for that only.
    pub foreign: u64,
    /// Answers to nothing that was asked.
    pub unasked: u64,
    /// Pointers that led nowhere, or to what had been overwritten.
    pub stale: u64,
    /// Packets dropped for want of room: in the queue, in a pool, or in an account.
    pub full: u64,
}

impl EndCounters {
    /// Those of this end and another one together.
    pub fn plus(self, other: EndCounters) -> EndCounters {
        EndCounters {
            malformed: self.malformed.wrapping_add(other.malformed),
            foreign: self.foreign.wrapping_add(other.foreign),
            unasked: self.unasked.wrapping_add(other.unasked),
            stale: self.stale.wrapping_add(other.stale),
            full: self.full.wrapping_add(other.full),
        }
    }
}

/// So many things at the most are held back that a neighbour lent, and that aren't needed any more: nobody is woken for
/// them, and they go with the next message that says something else. An owner must have more than this for each
/// neighbour that it lends to, or it might wait for its own for ever; the smallest pool is `ip`'s, of 64 chunks, lent to
/// three.
pub const HELD_BACK: usize = 15;

/// Bytes of payload in messages that the neighbour hasn't taken yet, after which it is given no more: a queue's slots are enough
/// for 30 MiB, and whoever has little to say would wait behind that, for much longer than the neighbour needs to go on
/// without a pause. As Linux's byte queue limits. Each packet counts as [`FairQueue::PACKET`] more, as in turns.
const AHEAD: u64 = 512 * 1024;
/// From here on one who sleeps is woken when the neighbour has got through them.
const PRESSING: u64 = AHEAD / 2;

/// Whether the message of this number was sent before the other one.
pub(crate) fn is_before(number: u64, other: u64) -> bool {
    other.wrapping_sub(number) as i64 > 0
}

/// What was sent, and not taken yet as far as is known.
#[derive(Default)]
struct Ahead {
    /// The numbers of messages with payload, with what each counts.
    messages: VecDeque<(u64, u64)>,
    bytes: u64,
    /// The last message that presses.
    pressing: Option<u64>,
}

impl Ahead {
    /// Messages before this one were taken.
    fn settle(&mut self, first: u64) {
        let is_taken = |number: u64| is_before(number, first);
        while let Some((number, bytes)) = self.messages.front()
            && is_taken(*number)
        {
            self.bytes = self.bytes.saturating_sub(*bytes);
            self.messages.pop_front();
        }
        self.pressing.take_if(|number| is_taken(*number));
    }
}

/// Both directions between two neighbours.
///
/// Messages are taken and given one by one; [`Exchange::flush`], once for each batch, shows them to the
/// neighbour, gives slots back, and rings its doorbell if it sleeps.
pub struct Exchange<In: Coded, Out: Coded> {
    incoming: Consumer<In::Wire>,
    outgoing: Producer<Out::Wire>,
    doorbell: Doorbell,
    own: Incarnation,
    neighbour: Incarnation,
    /// There was no room for something that was kept: so many slots weren't free (0: they were),
    full: u32,
    /// or too much was ahead of it.
    behind: bool,
    ahead: Ahead,
    /// The neighbour is to be woken once what was taken is given back.
    pressed: bool,
    broken: bool,
    released: bool,
    /// Something was sent in this batch.
    speaks: bool,
    /// What was dropped here.
    pub counters: EndCounters,
}

impl<In: Coded, Out: Coded> Exchange<In, Out> {
    /// Takes one side, or goes on for one that died.
    ///
    /// # Errors
    /// If what was handed over isn't a pair of queues for these messages.
    pub fn attach(parts: AttachParts) -> Result<Exchange<In, Out>, AttachError> {
        Ok(Exchange {
            incoming: Consumer::attach(parts.incoming, parts.incoming_geometry)?,
            outgoing: Producer::attach(parts.outgoing, parts.outgoing_geometry)?,
            doorbell: Doorbell::attach(parts.doorbell)?,
            own: parts.own,
            neighbour: parts.neighbour,
            full: 0,
            behind: false,
            ahead: Ahead::default(),
            pressed: false,
            broken: false,
            released: false,
            speaks: false,
            counters: EndCounters::default(),
        })
    }

    /// The next message that makes sense.
    pub fn take(&mut self) -> Option<In> {
        // At most a queue of nonsense, so that a neighbour can't hold us here.
        for _ in 0..self.incoming.capacity() {
            let wire = self.peek()?;
            self.pressed |= In::is_pressing(&wire);
            match In::decode(&wire) {
                Some(message)
                    if !In::is_for(&wire, self.own)
                        || (message.is_between() && wire.incarnation() != self.neighbour) =>
                {
                    self.counters.foreign = self.counters.foreign.wrapping_add(1);
                }
                Some(message) => return Some(message),
                None => self.counters.malformed = self.counters.malformed.wrapping_add(1),
            }
        }
        None
    }

    fn peek(&mut self) -> Option<In::Wire> {
        match self.incoming.peek() {
            Ok(Some(wire)) => Some(wire),
            Ok(None) => {
                // All slots may be taken, by us.
                self.release();
                None
            }
            Err(QueueError::Full | QueueError::Corrupt) => {
                self.broken = true;
                None
            }
        }
    }

    /// Lets go of what was taken: a successor doesn't take it once more.
    pub fn release(&mut self) {
        self.released |= self.incoming.release() > 0;
    }

    /// Makes sure that `count` messages can be sent now.
    ///
    /// # Errors
    /// [`Full`] if not. The end is awake again once there is room: see [`Exchange::is_ready`].
    pub fn reserve(&mut self, count: u32) -> Result<(), Full> {
        let reserved = self.outgoing.reserve(count);
        self.note(reserved, count)
    }

    /// As [`Exchange::reserve`] of one message with payload, which is to be told of by [`Exchange::note_payload`].
    ///
    /// # Errors
    /// [`Full`] too if the neighbour has too many bytes before it.
    pub fn reserve_payload(&mut self) -> Result<(), Full> {
        self.reserve(1)?;
        if self.ahead.bytes >= PRESSING {
            self.settle();
        }
        self.behind |= self.ahead.bytes >= AHEAD;
        match self.ahead.bytes < AHEAD {
            true => Ok(()),
            false => Err(Full),
        }
    }

    /// The number of the next message.
    pub fn position(&self) -> u64 {
        self.outgoing.position()
    }

    /// The first message that the neighbour hasn't taken yet, as far as is known. A successor of one that died takes those
    /// from there on, some of which that one may have taken, too.
    pub fn first_untaken(&mut self) -> u64 {
        self.outgoing.first_unreleased().unwrap_or_else(|_| {
            self.broken = true;
            self.outgoing.position()
        })
    }

    fn settle(&mut self) {
        match self.outgoing.first_unreleased() {
            Ok(first) => self.ahead.settle(first),
            Err(_) => self.broken = true,
        }
    }

    /// The next message that is sent has so many bytes of payload, in so many packets. Answers whether it presses: the
    /// neighbour then wakes us once it has taken it, as what is ahead of the neighbour may be all that there is room for.
    pub fn note_payload(&mut self, bytes: u32, packets: u32) -> bool {
        if bytes == 0 {
            return false;
        }
        if self.ahead.messages.len() as u64 >= self.outgoing.capacity() {
            self.settle();
        }
        let number = self.outgoing.position();
        let counted = u64::from(bytes) + u64::from(packets) * FairQueue::PACKET;
        self.ahead.messages.push_back((number, counted));
        self.ahead.bytes += counted;
        // The last one for which there is room does always: only the sizes of those behind it are unknown.
        let is_last = self.ahead.bytes >= AHEAD;
        let presses = is_last || self.ahead.bytes >= PRESSING && self.ahead.pressing.is_none();
        if presses {
            self.ahead.pressing = Some(number);
        }
        presses
    }

    /// How many messages can be sent now, at least one if there is any room, and `most` at the most.
    pub fn room(&mut self, most: u32) -> u32 {
        let mut count = most;
        while count > 0 && self.outgoing.reserve(count).is_err() {
            count /= 2;
        }
        if most > 0 && count == 0 {
            self.full = self.full.max(1);
        }
        count
    }

    /// Sends a message, which the neighbour sees after the next [`Exchange::flush`].
    ///
    /// # Errors
    /// [`Full`], and nothing is sent.
    pub fn send(&mut self, message: &Out) -> Result<(), Full> {
        let wire = message.encode_for(self.own, self.neighbour);
        let written = self.outgoing.write(&wire);
        self.speaks |= written.is_ok();
        self.note(written, 1)
    }

    /// Whether to tell the neighbour now that `count` things of its own aren't needed any more.
    pub fn gives_back(&self, count: usize) -> bool {
        count > HELD_BACK || (self.speaks && count > 0)
    }

    /// Whether something was sent in this batch, so that the neighbour is woken anyway.
    pub fn speaks(&self) -> bool {
        self.speaks
    }

    fn note(&mut self, done: Result<(), QueueError>, count: u32) -> Result<(), Full> {
        match done {
            Ok(()) => Ok(()),
            Err(QueueError::Full) => {
                self.full = self.full.max(count);
                Err(Full)
            }
            Err(QueueError::Corrupt) => {
                self.broken = true;
                Err(Full)
            }
        }
    }

    /// Begins a batch: from now on it counts whether there is room.
    pub fn begin(&mut self) {
        self.full = 0;
        self.behind = false;
    }

    /// Shows the neighbour what was sent so far.
    pub fn publish(&mut self) {
        if self.outgoing.publish() > 0 {
            self.doorbell.ring_after(&Fenced::now());
        }
    }

    /// Ends a batch. Who dies in between has a successor that takes once more what was answered, and not one that never
    /// sees what wasn't; and the neighbour needn't wait for its slots.
    pub fn flush(&mut self) {
        let published = self.outgoing.publish() > 0;
        self.release();
        let released = std::mem::take(&mut self.released);
        self.speaks = false;
        if published || released {
            let fenced = Fenced::now();
            let pressed = released && std::mem::take(&mut self.pressed);
            let made_room = released && self.incoming.made_room_after(&fenced) | pressed;
            if published || made_room {
                self.doorbell.ring_after(&fenced);
            }
        }
    }

    /// Whether there is something to take, or room for what there was none for.
    pub fn is_ready(&self) -> bool {
        self.incoming.is_ready()
            || (self.full > 0 && self.outgoing.has_room_for(self.full))
            || (self.behind && !self.is_held_up())
    }

    /// Whether something can be sent now, as far as can be seen without trying.
    pub fn has_room(&self) -> bool {
        self.outgoing.has_room()
    }

    /// Whether there was no room for something since the batch began.
    pub fn was_full(&self) -> bool {
        self.full > 0 || self.is_held_up()
    }

    /// Too much was ahead, and still is as far as can be seen without a look at all of it.
    fn is_held_up(&self) -> bool {
        self.behind && self.ahead.bytes >= AHEAD && !self.outgoing.has_moved()
    }

    /// The neighbour has spoilt its side. It must be restarted with a new lane.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// The neighbour died and has a successor.
    pub fn restarted(&mut self, neighbour: Incarnation) {
        self.neighbour = neighbour;
    }

    /// Which restart of the neighbour is spoken with.
    pub fn neighbour(&self) -> Incarnation {
        self.neighbour
    }

    /// How often the neighbour was woken.
    pub fn rung(&self) -> u64 {
        self.doorbell.rung()
    }

    /// Our own incarnation, for ids that a predecessor hasn't used.
    pub(crate) fn request_incarnation(&self) -> u16 {
        // Of 12 bits in ids: a predecessor 4,096 restarts ago has no request left.
        (self.own & 0xfff) as u16
    }
}

#[cfg(test)]
mod tests;
