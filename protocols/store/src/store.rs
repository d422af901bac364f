use skink_memory::{StoredKey, StoredPlace, StoredTable, StoredWriter};
use skink_messages::{StoreClient, StoreKey, StoreReply, StoreRequest};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

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
pub struct Store {
    /// Where the values are, which outlives this process.
    table: StoredWriter,
    /// What each client has stored, in the order of keys: rebuilt from the table.
    stored: BTreeMap<StoreClient, BTreeMap<StoreKey, StoredPlace>>,
    /// What is being shown, to each client once at most; in the order in which they asked.
    listings: VecDeque<Listing>,
    dropped: u64,
}

/// The key in plain numbers.
fn plain(key: StoreKey) -> StoredKey {
    StoredKey {
        client: key.client.number(),
        kind: key.kind,
        id: key.id,
    }
}

impl Store {
    /// With what is in the table already. Nobody else may write there meanwhile.
    ///
    /// What makes no sense there is removed and counted as dropped.
    pub fn over(table: StoredTable) -> Store {
        let (mut table, found) = StoredWriter::new(table);
        let mut stored: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        let mut dropped = table.nonsense();
        for (StoredKey { client, kind, id }, place) in found {
            let Some(client) = StoreClient::from_number(client) else {
                table.remove(place);
                dropped += 1;
                continue;
            };
            let key = StoreKey { client, kind, id };
            stored.entry(client).or_default().insert(key, place);
        }
        Store {
            table,
            stored,
            listings: VecDeque::new(),
            dropped,
        }
    }

    /// Takes a request. It is carried out when this returns, and what it stored or removed is so for a
    /// successor too. What has no room in the table is dropped and counted; what is stored already can always
    /// be changed.
    pub fn request(&mut self, request: StoreRequest) {
        match request {
            StoreRequest::Put(key, value) => {
                let stored = self.stored.entry(key.client).or_default();
                let old = stored.get(&key).copied();
                match self.table.put(plain(key), &value, old) {
                    Some(place) => {
                        stored.insert(key, place);
                    }
                    None => self.dropped += 1,
                }
            }
            StoreRequest::Remove(key) => {
                let stored = self.stored.get_mut(&key.client);
                if let Some(place) = stored.and_then(|stored| stored.remove(&key)) {
                    self.table.remove(place);
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
        if let Some((key, place)) = next {
            listing.shown = Some(*key);
            listing.count = listing.count.saturating_add(1);
            return Some(StoreReply::Item(*key, self.table.value(*place)));
        }
        let end = StoreReply::End(listing.client, listing.count);
        self.listings.pop_front();
        Some(end)
    }

    /// Whether there are replies to take.
    pub fn has_replies(&self) -> bool {
        !self.listings.is_empty()
    }

    /// How much there was no room for, and how much made no sense when this one began.
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
