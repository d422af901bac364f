use skink_time::{Duration, Instant};
use skink_wire::{FourTuple, SeqNum};
use std::collections::VecDeque;

/// Twice the maximum segment lifetime: a minute, as in Linux and the BSDs; RFC 9293 3.4.2 has four.
const DURATION: Duration = Duration::from_secs(60);
/// It begins anew no sooner than after that: so a peer that sends its FIN without end takes no more of the memory.
const PAUSE: Duration = Duration::from_secs(1);
/// The oldest are given up beyond this number.
const LIMIT: usize = 65_536;

/// What remains of a connection in TIME-WAIT, once its socket is gone: enough to acknowledge a FIN
/// sent again, and to tell a new connection from an old segment.
#[derive(Clone, Copy, Debug)]
pub struct TimeWait {
    pub tuple: FourTuple,
    pub snd_nxt: SeqNum,
    pub rcv_nxt: SeqNum,
    /// The peer's last timestamp and what to add to the clock for ours, if they are in use.
    pub timestamps: Option<(u32, u32)>,
    pub window: u16,
    /// The peer has sent a connection request, which was acknowledged: it knows nothing of this connection if it answers by a reset.
    pub asked: bool,
    expires: Instant,
    /// Tells this life of the entry from earlier ones.
    life: u32,
}

impl TimeWait {
    /// Whether the next connection between these ends may be another stack's: both sides tell what is left of this one by its
    /// timestamps (RFC 7323 section 5), which go on from there in all stacks on the NIC. The initial sequence number alone may be
    /// behind what was sent.
    pub fn is_told_by_stamps(&self) -> bool {
        self.timestamps.is_some()
    }
}

/// All connections in TIME-WAIT, in constant time each: since all wait equally long, a queue does.
#[derive(Default)]
pub struct TimeWaits {
    entries: Vec<Option<TimeWait>>,
    free: Vec<u32>,
    order: VecDeque<(u32, u32)>,
    lives: u32,
}

impl TimeWaits {
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether the oldest must go before one more comes in.
    pub fn is_full(&self) -> bool {
        self.len() >= LIMIT
    }

    pub fn entries(&self) -> impl Iterator<Item = &TimeWait> {
        self.entries.iter().flatten()
    }

    pub fn insert(&mut self, now: Instant, mut entry: TimeWait) -> u32 {
        self.lives = self.lives.wrapping_add(1);
        entry.life = self.lives;
        entry.expires = now + DURATION;
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        if let Some(place) = self.entries.get_mut(index as usize) {
            *place = Some(entry);
        }
        self.order.push_back((index, entry.life));
        index
    }

    /// An entry for [`TimeWaits::insert`].
    pub fn entry(
        tuple: FourTuple,
        snd_nxt: SeqNum,
        rcv_nxt: SeqNum,
        timestamps: Option<(u32, u32)>,
        window: u16,
    ) -> TimeWait {
        TimeWait {
            tuple,
            snd_nxt,
            rcv_nxt,
            timestamps,
            window,
            asked: false,
            expires: Instant::ZERO,
            life: 0,
        }
    }

    pub fn get(&self, index: u32) -> Option<&TimeWait> {
        self.entries.get(index as usize)?.as_ref()
    }

    pub fn note_asked(&mut self, index: u32) {
        if let Some(Some(entry)) = self.entries.get_mut(index as usize) {
            entry.asked = true;
        }
    }

    pub fn remove(&mut self, index: u32) -> Option<TimeWait> {
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        self.drop_gone();
        Some(entry)
    }

    /// The entry's time begins anew.
    pub fn renew(&mut self, now: Instant, index: u32) {
        let Some(Some(entry)) = self.entries.get_mut(index as usize) else {
            return;
        };
        if entry.expires + PAUSE > now + DURATION {
            return;
        }
        self.lives = self.lives.wrapping_add(1);
        entry.life = self.lives;
        entry.expires = now + DURATION;
        self.order.push_back((index, entry.life));
        self.drop_gone();
    }

    /// Keeps the front of the queue alive, so that the next deadline is found at once.
    fn drop_gone(&mut self) {
        while let Some((index, life)) = self.order.front().copied()
            && self.get(index).is_none_or(|entry| entry.life != life)
        {
            self.order.pop_front();
        }
    }

    /// Takes an entry whose time is over.
    pub fn pop_expired(&mut self, now: Instant) -> Option<(u32, TimeWait)> {
        self.next_deadline().filter(|deadline| *deadline <= now)?;
        self.pop_oldest()
    }

    pub fn pop_oldest(&mut self) -> Option<(u32, TimeWait)> {
        while let Some((index, life)) = self.order.pop_front() {
            if self.get(index).is_some_and(|entry| entry.life == life) {
                return self.remove(index).map(|entry| (index, entry));
            }
        }
        None
    }

    /// When the oldest entry's time is over.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (index, _) = self.order.front()?;
        self.get(*index).map(|entry| entry.expires)
    }
}

#[cfg(test)]
mod tests;
