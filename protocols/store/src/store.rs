use skink_messages::{StoreClient, StoreKey, StoreReply, StoreRequest, StoreValue};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// How many keys a client may have something under. `syscall` limits itself to less: 2^18 bound ports,
/// 2^18 shares and as many sockets that their owners let go of, 1024 tickets, 2 turns, and programs.
pub const CAPACITY: usize = 1 << 20;

/// How far a client has been shown what it stored.
#[derive(Debug)]
struct Listing {
    client: StoreClient,
    /// The last key that was shown.
    shown: Option<StoreKey>,
    /// How many were.
    count: u32,
}

/// The `store` component; see the crate's description.
///
/// [`Store::request`] takes a request; [`Store::take_reply`] gives replies one by one, as far as there is room
/// for them.
#[derive(Default)]
pub struct Store {
    /// What each client has stored, in the order of keys.
    stored: BTreeMap<StoreClient, BTreeMap<StoreKey, StoreValue>>,
    /// What is being shown, to each client once at most; in the order in which they asked.
    listings: VecDeque<Listing>,
    dropped: u64,
    /// In tests less than [`CAPACITY`].
    capacity: Option<usize>,
}

impl Store {
    /// Empty.
    pub fn new() -> Store {
        Store::default()
    }

    /// Takes a request. What has no room ([`CAPACITY`]) is dropped and counted; what is stored already can
    /// always be changed.
    pub fn request(&mut self, request: StoreRequest) {
        match request {
            StoreRequest::Put(key, value) => {
                let capacity = self.capacity.unwrap_or(CAPACITY);
                let stored = self.stored.entry(key.client).or_default();
                if stored.len() < capacity || stored.contains_key(&key) {
                    stored.insert(key, value);
                } else {
                    self.dropped += 1;
                }
            }
            StoreRequest::Remove(key) => {
                if let Some(stored) = self.stored.get_mut(&key.client) {
                    stored.remove(&key);
                }
            }
            // Who asks again has forgotten what it was shown, and begins at the beginning.
            StoreRequest::List(client) => {
                self.listings.retain(|listing| listing.client != client);
                self.listings.push_back(Listing {
                    client,
                    shown: None,
                    count: 0,
                });
            }
        }
    }

    /// The next reply, if there is any: to whom is in it. Ask only if there is room for one. A listing goes by
    /// keys: what is stored or removed meanwhile is shown or not, everything else is shown once.
    pub fn take_reply(&mut self) -> Option<StoreReply> {
        let listing = self.listings.front_mut()?;
        let after = match listing.shown {
            Some(key) => Bound::Excluded(key),
            None => Bound::Unbounded,
        };
        let stored = self.stored.get(&listing.client);
        let next = stored.and_then(|stored| stored.range((after, Bound::Unbounded)).next());
        if let Some((key, value)) = next {
            listing.shown = Some(*key);
            listing.count = listing.count.saturating_add(1);
            return Some(StoreReply::Item(*key, *value));
        }
        let end = StoreReply::End(listing.client, listing.count);
        self.listings.pop_front();
        Some(end)
    }

    /// Whether there are replies to take.
    pub fn has_replies(&self) -> bool {
        !self.listings.is_empty()
    }

    /// How much there was no room for.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How much is stored.
    pub fn len(&self) -> usize {
        self.stored.values().map(BTreeMap::len).sum()
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
