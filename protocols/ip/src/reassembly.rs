//! Putting fragments together (RFC 791 section 3.2, RFC 815, RFC 8200 section 4.5).
//!
//! A datagram of which two fragments overlap is dropped with all that still comes of it (RFC 5722);
//! an exact repetition is harmless.

use core::net::IpAddr;
use skink_time::{Duration, Instant};
use std::collections::VecDeque;

/// Most datagrams being put together, and most bytes of them that have come.
const DATAGRAMS: usize = 512;
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

/// Bytes without a gap.
struct Stretch {
    start: usize,
    bytes: Vec<u8>,
}

impl Stretch {
    fn end(&self) -> usize {
        self.start + self.bytes.len()
    }
}

/// A datagram, whole or as far as it came.
pub(crate) struct Datagram {
    pub(crate) key: Key,
    pub(crate) next_header: u8,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    /// What has come, in order, neither overlapping nor touching. Nothing is set aside for what hasn't: where a fragment says it
    /// belongs is anybody's word.
    stretches: Vec<Stretch>,
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
            Some(Stretch { start: 0, bytes }) => bytes,
            Some(_) | None => &[],
        }
    }

    /// The payload of a whole one.
    pub(crate) fn into_payload(self) -> Vec<u8> {
        let first = self.stretches.into_iter().next();
        first.map_or_else(Vec::new, |stretch| stretch.bytes)
    }

    /// How many bytes have come.
    fn len(&self) -> usize {
        self.stretches.iter().map(|known| known.bytes.len()).sum()
    }

    pub(crate) fn is_spoilt(&self) -> bool {
        self.spoilt
    }

    /// Adds a fragment; `false` if it contradicts what has come.
    fn add(&mut self, fragment: &Fragment<'_>) -> bool {
        let (start, end) = (fragment.offset, fragment.offset + fragment.data.len());
        let seen = self.stretches.last().map_or(0, Stretch::end);
        let fits = match (self.total, fragment.more) {
            (Some(total), true) => end <= total,
            (Some(total), false) => end == total,
            (None, true) => true,
            (None, false) => end >= seen,
        };
        if !fits {
            return false;
        }
        let at = self.stretches.partition_point(|known| known.end() <= start);
        if let Some(known) = self.stretches.get(at).filter(|known| known.start < end) {
            let same = start.checked_sub(known.start);
            let same = same.and_then(|from| known.bytes.get(from..from + fragment.data.len()));
            return same == Some(fragment.data);
        }
        if !fragment.more {
            self.total = Some(end);
        }
        self.note_header(fragment);
        self.insert(at, start, fragment.data);
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

    /// Inserts bytes that overlap nothing in front of the stretch at index `at`, joined with those that they touch.
    fn insert(&mut self, at: usize, start: usize, bytes: &[u8]) {
        let previous = at.checked_sub(1).filter(|before| {
            let known = self.stretches.get(*before);
            known.is_some_and(|known| known.end() == start)
        });
        let at = previous.unwrap_or(at);
        if previous.is_none() {
            let bytes = Vec::new();
            self.stretches.insert(at, Stretch { start, bytes });
        }
        let touches = |next: &Stretch| next.start == start + bytes.len();
        let next = self.stretches.get(at + 1).is_some_and(touches);
        let mut next = match next {
            true => self.stretches.remove(at + 1).bytes,
            false => Vec::new(),
        };
        if let Some(stretch) = self.stretches.get_mut(at) {
            stretch.bytes.extend_from_slice(bytes);
            stretch.bytes.append(&mut next);
        }
    }

    fn is_whole(&self) -> bool {
        matches!(self.stretches.as_slice(), [all] if all.start == 0 && Some(all.end()) == self.total)
    }

    fn spoil(&mut self) {
        self.spoilt = true;
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
    datagrams: VecDeque<Datagram>,
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
        while !self.has_room(&fragment.key, len) {
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
        let before = datagram.len();
        let good = datagram.add(fragment);
        if !good {
            datagram.spoil();
        }
        self.bytes = self.bytes + datagram.len() - before;
        match (good, datagram.is_whole()) {
            (false, _) => Added::Refused,
            (true, false) => Added::Kept,
            (true, true) => self.take(index).map_or(Added::Kept, Added::Whole),
        }
    }

    /// Whether the datagram of `key` may have so many bytes more.
    fn has_room(&self, key: &Key, bytes: usize) -> bool {
        let known = self.position(key).and_then(|at| self.datagrams.get(at));
        match known {
            Some(known) if known.spoilt => true,
            None if self.datagrams.len() >= DATAGRAMS => false,
            Some(_) | None => self.bytes + bytes <= BYTES,
        }
    }

    fn position(&self, key: &Key) -> Option<usize> {
        self.datagrams.iter().position(|known| known.key == *key)
    }

    fn begin(&mut self, now: Instant, fragment: &Fragment<'_>) -> usize {
        let timeout = match fragment.key.source {
            IpAddr::V4(_) => TIMEOUT_V4,
            IpAddr::V6(_) => TIMEOUT_V6,
        };
        self.datagrams.push_back(Datagram {
            key: fragment.key,
            next_header: fragment.next_header,
            traffic_class: 0,
            hop_limit: fragment.hop_limit,
            stretches: Vec::new(),
            total: None,
            spoilt: false,
            deadline: now + timeout,
        });
        self.datagrams.len() - 1
    }

    fn take(&mut self, index: usize) -> Option<Datagram> {
        let datagram = self.datagrams.remove(index)?;
        self.bytes -= datagram.len();
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
