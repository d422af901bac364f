//! Putting fragments together (RFC 791 section 3.2, RFC 815, RFC 8200 section 4.5).
//!
//! A datagram of which two fragments overlap is dropped with all that still comes of it (RFC 5722);
//! an exact repetition is harmless.

use core::net::IpAddr;
use skink_time::{Duration, Instant};

/// Most datagrams being put together, and most bytes set aside for them.
const DATAGRAMS: usize = 64;
const BYTES: usize = 1024 * 1024;
/// Most stretches of one datagram with gaps between them.
const STRETCHES: usize = 64;
/// How long to wait for the rest: RFC 1122 section 3.3.2 wants 60 to 120 s for IPv4, Linux waits for
/// 30 s as packets live for seconds now; RFC 8200 section 4.5 wants 60 s.
const TIMEOUT_V4: Duration = Duration::from_secs(30);
const TIMEOUT_V6: Duration = Duration::from_secs(60);
/// The largest payload of an IP packet.
const MAXIMUM: usize = 65_535;
/// Congestion experienced (RFC 3168 section 5).
const EXPERIENCED: u8 = 3;

/// Which datagram a fragment is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// For IPv6 this isn't part of what tells datagrams apart; 0 there.
    pub(crate) protocol: u8,
    pub(crate) identification: u32,
}

/// One fragment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment<'a> {
    pub(crate) key: Key,
    pub(crate) offset: usize,
    pub(crate) more: bool,
    /// What the whole payload begins with, as this fragment says.
    pub(crate) next_header: u8,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) data: &'a [u8],
}

/// A datagram, whole or as far as it came.
pub(crate) struct Datagram {
    pub(crate) key: Key,
    pub(crate) next_header: u8,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) payload: Vec<u8>,
    /// What has come, in order, neither overlapping nor touching.
    stretches: Vec<(usize, usize)>,
    /// The whole length, once the last fragment has come.
    total: Option<usize>,
    /// Fragments overlapped: what else comes is dropped, until time runs out.
    spoilt: bool,
    deadline: Instant,
}

impl Datagram {
    /// The bytes that came from the start on without a gap.
    pub(crate) fn beginning(&self) -> &[u8] {
        match self.stretches.first() {
            Some((0, end)) => self.payload.get(..*end).unwrap_or_default(),
            Some(_) | None => &[],
        }
    }

    pub(crate) fn is_spoilt(&self) -> bool {
        self.spoilt
    }

    /// Adds a fragment; `false` if it contradicts what has come.
    fn add(&mut self, fragment: &Fragment<'_>) -> bool {
        let (start, end) = (fragment.offset, fragment.offset + fragment.data.len());
        let seen = self.stretches.last().map_or(0, |(_, end)| *end);
        let fits = match (self.total, fragment.more) {
            (Some(total), true) => end <= total,
            (Some(total), false) => end == total,
            (None, true) => true,
            (None, false) => end >= seen,
        };
        if !fits {
            return false;
        }
        let at = self.stretches.partition_point(|(_, until)| *until <= start);
        if let Some(stretch) = self.stretches.get(at).filter(|stretch| stretch.0 < end) {
            let inside = stretch.0 <= start && end <= stretch.1;
            return inside && self.payload.get(start..end) == Some(fragment.data);
        }
        if self.payload.len() < end {
            self.payload.resize(end, 0);
        }
        if let Some(place) = self.payload.get_mut(start..end) {
            place.copy_from_slice(fragment.data);
        }
        if !fragment.more {
            self.total = Some(end);
        }
        self.note_header(fragment);
        self.insert_stretch(at, start, end);
        self.stretches.len() <= STRETCHES
    }

    /// The header is that of the first fragment, but congestion that any experienced remains noted
    /// (RFC 3168 section 5.3).
    fn note_header(&mut self, fragment: &Fragment<'_>) {
        let classes = [self.traffic_class, fragment.traffic_class];
        let experienced = classes
            .iter()
            .any(|class| class & EXPERIENCED == EXPERIENCED);
        if fragment.offset == 0 {
            self.next_header = fragment.next_header;
            self.hop_limit = fragment.hop_limit;
            self.traffic_class = fragment.traffic_class;
        }
        if experienced {
            self.traffic_class |= EXPERIENCED;
        }
    }

    /// Inserts a stretch that overlaps none at index `at`, joined with those that it touches.
    fn insert_stretch(&mut self, at: usize, start: usize, end: usize) {
        let mut joined = (start, end);
        if let Some(next) = self.stretches.get(at).filter(|next| next.0 == end) {
            joined.1 = next.1;
            self.stretches.remove(at);
        }
        let previous = at.checked_sub(1).and_then(|at| self.stretches.get_mut(at));
        match previous.filter(|previous| previous.1 == start) {
            Some(previous) => previous.1 = joined.1,
            None => self.stretches.insert(at, joined),
        }
    }

    fn is_whole(&self) -> bool {
        matches!(self.stretches.as_slice(), [(0, end)] if Some(*end) == self.total)
    }

    fn spoil(&mut self) {
        self.spoilt = true;
        self.payload = Vec::new();
        self.stretches = Vec::new();
    }
}

/// What became of a fragment.
pub(crate) enum Added {
    /// It was kept, and others are still missing.
    Kept,
    /// It is wrong, or one of a datagram that is.
    Refused,
    /// It was the last one missing.
    Whole(Datagram),
}

/// Datagrams being put together, oldest first.
#[derive(Default)]
pub(crate) struct Reassembly {
    datagrams: Vec<Datagram>,
    bytes: usize,
}

impl Reassembly {
    /// Adds a fragment. `evicted` is called for each datagram that had to make room.
    pub(crate) fn add(
        &mut self,
        now: Instant,
        fragment: &Fragment<'_>,
        mut evicted: impl FnMut(),
    ) -> Added {
        let len = fragment.data.len();
        let end = fragment.offset.saturating_add(len);
        if len == 0 || (fragment.more && !len.is_multiple_of(8)) || end > MAXIMUM {
            return Added::Refused;
        }
        while !self.has_room(&fragment.key, end) {
            if self.take(0).is_none() {
                return Added::Refused;
            }
            evicted();
        }
        let index = match self.position(&fragment.key) {
            Some(index) => index,
            None => self.begin(now, fragment),
        };
        let Some(datagram) = self.datagrams.get_mut(index).filter(|known| !known.spoilt) else {
            return Added::Refused;
        };
        let before = datagram.payload.len();
        let good = datagram.add(fragment);
        if !good {
            datagram.spoil();
        }
        self.bytes = self.bytes + datagram.payload.len() - before;
        match (good, datagram.is_whole()) {
            (false, _) => Added::Refused,
            (true, false) => Added::Kept,
            (true, true) => self.take(index).map_or(Added::Kept, Added::Whole),
        }
    }

    /// Whether the datagram of `key` may reach up to `end`.
    fn has_room(&self, key: &Key, end: usize) -> bool {
        let known = self.position(key).and_then(|at| self.datagrams.get(at));
        let grown = match known {
            Some(known) if known.spoilt => 0,
            Some(known) => end.saturating_sub(known.payload.len()),
            None if self.datagrams.len() >= DATAGRAMS => return false,
            None => end,
        };
        self.bytes + grown <= BYTES
    }

    fn position(&self, key: &Key) -> Option<usize> {
        self.datagrams.iter().position(|known| known.key == *key)
    }

    fn begin(&mut self, now: Instant, fragment: &Fragment<'_>) -> usize {
        let timeout = match fragment.key.source {
            IpAddr::V4(_) => TIMEOUT_V4,
            IpAddr::V6(_) => TIMEOUT_V6,
        };
        self.datagrams.push(Datagram {
            key: fragment.key,
            next_header: fragment.next_header,
            traffic_class: 0,
            hop_limit: fragment.hop_limit,
            payload: Vec::new(),
            stretches: Vec::new(),
            total: None,
            spoilt: false,
            deadline: now + timeout,
        });
        self.datagrams.len() - 1
    }

    fn take(&mut self, index: usize) -> Option<Datagram> {
        if index >= self.datagrams.len() {
            return None;
        }
        let datagram = self.datagrams.remove(index);
        self.bytes -= datagram.payload.len();
        Some(datagram)
    }

    /// Takes a datagram whose time has run out.
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<Datagram> {
        let expired = |known: &Datagram| known.deadline <= now;
        let index = self.datagrams.iter().position(expired)?;
        self.take(index)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.datagrams.iter().map(|known| known.deadline).min()
    }

    #[cfg(test)]
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.datagrams.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests;
