use crate::exchange::{EndCounters, Exchange, is_before};
use crate::lane::AttachParts;
use crate::packet_down::{FrameDown, ToLink};
use crate::packet_up::{FrameUp, FromLink, is_for};
use crate::returned::Returned;
use crate::{Incarnation, is_worth_repeating};
use skink_channel::{AttachError, HolderId, Pool, RichPointer};
use skink_messages::{Full, LinkLimits, RxFrame};
use skink_time::Instant;

/// The one whom frames are lent to.
const IP: HolderId = HolderId(0);
/// Ids that may wait for room; no more frames are taken then. `ip` never waits for so many.
const WAITING: usize = 256;

/// A frame that `ip` has.
#[derive(Clone, Copy)]
struct Loan {
    /// Of the message that told of it.
    number: u64,
    frame: FrameUp,
}

/// `link`'s side towards `ip`.
pub struct LinkEnd {
    exchange: Exchange<ToLink, FromLink>,
    /// What is received goes here. `link` alone frees.
    pool: Pool,
    /// What `ip` has of it, by chunks.
    lent: Vec<Option<Loan>>,
    /// To be told to `ip`.
    sent: Returned,
    limits: LinkLimits,
    /// `ip` doesn't know them yet.
    limits_due: bool,
}

impl LinkEnd {
    /// With a new pool of one holder at least, whose chunks hold a frame each.
    ///
    /// # Errors
    /// As [`Exchange::attach`].
    pub fn attach(
        parts: AttachParts,
        pool: Pool,
        limits: LinkLimits,
    ) -> Result<LinkEnd, AttachError> {
        Ok(LinkEnd {
            exchange: Exchange::attach(parts)?,
            lent: vec![None; pool.geometry().chunks() as usize],
            pool,
            sent: Returned::with_capacity(WAITING + 1),
            limits,
            limits_due: true,
        })
    }

    /// The pool of received frames, to be mapped by `ip`, `tcp` and `udp`.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// How many frames of up to `most` can be received now. Others had better wait in the NIC.
    pub fn room(&mut self, most: u32) -> u32 {
        let free = u32::try_from(self.pool.available()).unwrap_or(most);
        self.exchange.room(most.min(free))
    }

    /// Copies a frame to the pool and tells `ip`; `false` if it was dropped for want of room.
    pub fn frame(&mut self, frame: &RxFrame<'_>) -> bool {
        let told = self.lend(frame);
        if told.is_none() {
            let full = &mut self.exchange.counters.full;
            *full = full.wrapping_add(1);
        }
        told.is_some()
    }

    fn lend(&mut self, frame: &RxFrame<'_>) -> Option<()> {
        self.exchange.reserve(1).ok()?;
        let chunk = self.pool.allocate().ok()?;
        let length = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
        let written = self.pool.write(&chunk, 0, frame.bytes);
        let pointer = written.and_then(|()| self.pool.lend(&chunk, 0, length, IP));
        // The loan keeps it.
        self.pool.free(chunk);
        let frame = FrameUp {
            pointer: pointer.ok()?,
            arrived: frame.arrived,
            segment_bytes: frame.segment_bytes,
            checksum: frame.checksum,
            again: false,
            first: self.exchange.neighbour(),
        };
        self.tell(frame).ok()
    }

    fn tell(&mut self, frame: FrameUp) -> Result<(), Full> {
        let number = self.exchange.position();
        self.exchange.send(&FromLink::Frame(frame))?;
        if let Some(place) = self.place(frame.pointer) {
            *place = Some(Loan { number, frame });
        }
        Ok(())
    }

    /// Where it is noted who has the frame that this points into.
    fn place(&mut self, pointer: RichPointer) -> Option<&mut Option<Loan>> {
        let chunk = pointer.offset / self.pool.geometry().chunk_bytes();
        self.lent.get_mut(chunk as usize)
    }

    fn take_back(&mut self, pointer: RichPointer) {
        match self.pool.give_back(pointer, IP) {
            Ok(()) => {
                self.place(pointer).and_then(Option::take);
            }
            Err(_) => {
                let unasked = &mut self.exchange.counters.unasked;
                *unasked = unasked.wrapping_add(1);
            }
        }
    }

    /// The next frame to be sent. Its end is told by [`LinkEnd::sent`], whatever it is.
    pub fn take_frame(&mut self) -> Option<FrameDown> {
        while self.sent.len() < WAITING {
            match self.exchange.take()? {
                ToLink::Frame(frame) => return Some(frame),
                ToLink::Done(pointers) => {
                    let all = pointers.as_slice().iter();
                    all.for_each(|pointer| self.take_back(*pointer));
                }
            }
        }
        None
    }

    /// A frame's payload isn't needed any more.
    pub fn sent(&mut self, frame: &FrameDown) {
        self.sent.push(frame.id, frame.awaited);
    }

    /// Counts a frame whose payload was nowhere.
    pub fn count_stale(&mut self) {
        self.exchange.counters.stale = self.exchange.counters.stale.wrapping_add(1);
    }

    /// Begins a batch.
    pub fn begin(&mut self) {
        self.exchange.begin();
    }

    /// Frames that left of which the neighbour doesn't know yet that they aren't needed any more.
    pub fn held_back(&self) -> usize {
        self.sent.len()
    }

    /// `ip` sees the frames that have arrived: the NIC's queue hasn't got them any more, and who sends dies more often than others, as that
    /// takes long.
    pub fn publish(&mut self) {
        self.exchange.publish();
    }

    /// Ends a batch: `ip` sees all of it, and is woken if it sleeps.
    pub fn flush(&mut self, now: Instant) {
        // Before it is said that it has left: its lender may overwrite it then, and a successor would send that.
        self.exchange.release();
        if self.limits_due {
            let told = self.exchange.send(&FromLink::Limits(self.limits));
            self.limits_due = told.is_err();
        }
        while self.sent.is_due(now, self.exchange.speaks()) && self.exchange.reserve(1).is_ok() {
            let _ = self.exchange.send(&FromLink::Sent(self.sent.take()));
        }
        self.exchange.flush();
    }

    /// When it has something to tell that nothing else wakes `ip` for. None while there is no room for it: that wakes.
    pub fn next_deadline(&self) -> Option<Instant> {
        let due = self.sent.next_deadline();
        due.filter(|_| !self.exchange.was_full())
    }

    /// `ip` was restarted. What its predecessor hadn't taken is the successor's. What it had taken is handed up again: it isn't known how
    /// far that had got with it, and who sent it would notice a loss only after a while (NewtOS, section 2.5.3). What was there for two that
    /// died has come back, as they may have died of it; so has what is old, or finds no room.
    pub fn ip_restarted(&mut self, now: Instant, incarnation: Incarnation) {
        self.exchange.restarted(incarnation);
        self.sent.clear();
        self.limits_due = self.exchange.send(&FromLink::Limits(self.limits)).is_err();
        let untaken = self.exchange.first_untaken();
        let is_back =
            |it: &mut Loan| is_before(it.number, untaken) || !is_for(it.frame.first, incarnation);
        let lent = self.lent.iter_mut();
        let mut back: Vec<Loan> = lent.filter_map(|it| it.take_if(is_back)).collect();
        back.sort_unstable_by_key(|loan| loan.number);
        for Loan { frame, .. } in back {
            let repeated = FrameUp {
                again: true,
                ..frame
            };
            let wanted = is_for(frame.first, incarnation) && is_worth_repeating(now, frame.arrived);
            if !wanted || self.tell(repeated).is_err() {
                let _ = self.pool.give_back(frame.pointer, IP);
            }
        }
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
