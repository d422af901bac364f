//! Flows of datagrams in memory that outlives the filter: nobody else could tell its successor of them.
//!
//! TCP's aren't kept: `tcp` knows them better. A flow is stored when it comes and when it is answered, and again when
//! what is stored of its time has become too short by an eighth of the whole. So its time there is never longer
//! than it really was: what has expired doesn't come back.

use crate::states::Entry;
use crate::summary::Family;
use crate::track::{Key, Track};
use crate::verdict::Side;
use skink_memory::{StoredKey, StoredPlace, StoredTable, StoredValue, StoredWriter};
use skink_time::{Duration, Instant};
use skink_wire::protocol;

/// Of everything in the table.
const CLIENT: u8 = 1;
const KIND: u8 = 1;
/// The stored time may be shorter than the real one by this part of the timeout.
const SLACK: u32 = 8;

/// Where a flow is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeptFlow {
    place: StoredPlace,
    id: u128,
    expires: Instant,
    answered: bool,
}

/// A flow that a predecessor kept.
pub(crate) struct Found {
    pub key: Key,
    pub track: Track,
    pub kept: KeptFlow,
    pub expires: Instant,
}

/// The table, and who writes it.
pub(crate) struct Kept {
    writer: StoredWriter,
    next: u128,
}

impl Kept {
    /// What makes no sense in it is freed.
    pub fn open(table: StoredTable) -> (Kept, Vec<Found>) {
        let (writer, stored) = StoredWriter::new(table);
        let mut kept = Kept { writer, next: 0 };
        let mut found = Vec::new();
        for (key, place) in stored {
            match kept.read(key, place) {
                Some(flow) => {
                    kept.next = kept.next.max(key.id.wrapping_add(1));
                    found.push(flow);
                }
                None => kept.writer.remove(place),
            }
        }
        (kept, found)
    }

    fn read(&self, key: StoredKey, place: StoredPlace) -> Option<Found> {
        if (key.client, key.kind) != (CLIENT, KIND) {
            return None;
        }
        let (flow, track, expires) = decode(&self.writer.value(place))?;
        let Track::Datagram { answered, .. } = track else {
            return None;
        };
        Some(Found {
            key: flow,
            track,
            kept: KeptFlow {
                place,
                id: key.id,
                expires,
                answered,
            },
            expires,
        })
    }

    /// Stores what a flow has become, if it must be.
    #[inline]
    pub fn update(&mut self, entry: &mut Entry, timeout: Duration) {
        let Track::Datagram { answered, .. } = entry.track else {
            return;
        };
        if let Some(kept) = &entry.kept
            && kept.answered == answered
            && entry.expires.since(kept.expires) < timeout / SLACK
        {
            return;
        }
        self.store(entry, answered);
    }

    #[cold]
    fn store(&mut self, entry: &mut Entry, answered: bool) {
        let id = match entry.kept {
            Some(kept) => kept.id,
            None => {
                self.next = self.next.wrapping_add(1);
                self.next
            }
        };
        let key = StoredKey {
            client: CLIENT,
            kind: KIND,
            id,
        };
        let old = entry.kept.map(|kept| kept.place);
        let value = encode(&entry.key, entry.track, entry.expires);
        // Without room a flow is forgotten by a restart, no more.
        if let Some(place) = self.writer.put(key, &value, old) {
            entry.kept = Some(KeptFlow {
                place,
                id,
                expires: entry.expires,
                answered,
            });
        }
    }

    /// The flow is over.
    pub fn remove(&mut self, kept: KeptFlow) {
        self.writer.remove(kept.place);
    }
}

fn encode(key: &Key, track: Track, expires: Instant) -> StoredValue {
    let (opener, answered) = match track {
        Track::Datagram { opener, answered } => (opener as u8, u8::from(answered)),
        Track::Tcp(_) => (0, 0),
    };
    let [local_port, remote_port] = [key.local_port(), key.remote_port()].map(u16::to_ne_bytes);
    let mut value = [0; 48];
    value[..16].copy_from_slice(&key.local.to_ne_bytes());
    value[16..32].copy_from_slice(&key.remote.to_ne_bytes());
    value[32..34].copy_from_slice(&local_port);
    value[34..36].copy_from_slice(&remote_port);
    value[36..40].copy_from_slice(&[key.protocol(), key.family() as u8, opener, answered]);
    value[40..].copy_from_slice(&expires.as_nanos().to_ne_bytes());
    value
}

fn decode(value: &StoredValue) -> Option<(Key, Track, Instant)> {
    let (local, rest) = value.split_first_chunk()?;
    let (remote, rest) = rest.split_first_chunk()?;
    let (local_port, rest) = rest.split_first_chunk()?;
    let (remote_port, rest) = rest.split_first_chunk()?;
    let ([number, family, opener, answered], rest) = rest.split_first_chunk()?;
    let family = match family {
        4 => Family::V4,
        6 => Family::V6,
        _ => return None,
    };
    let opener = match opener {
        1 => Side::Local,
        2 => Side::Remote,
        _ => return None,
    };
    if *number == protocol::TCP || *answered > 1 {
        return None;
    }
    let track = Track::Datagram {
        opener,
        answered: *answered == 1,
    };
    let end = |address: &[u8; 16], port: &[u8; 2]| {
        (u128::from_ne_bytes(*address), u16::from_ne_bytes(*port))
    };
    let (local, remote) = (end(local, local_port), end(remote, remote_port));
    let expires = Instant::from_nanos(u64::from_ne_bytes(rest.try_into().ok()?));
    Some((Key::new(family, *number, local, remote), track, expires))
}

#[cfg(test)]
mod tests;
