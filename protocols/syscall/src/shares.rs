//! Sockets that several programs hold: inherited after `fork` or `exec`, or handed on. As with the
//! kernel's, a socket is closed when the last of its holders lets go of it or dies.
use crate::SyscallOutput;
use crate::ports::key_range;
use crate::stored::{Item, forget, keep};
use crate::syscall::forget_last;
use skink_memory::SocketId;
use skink_messages::Protocol;
use std::collections::{BTreeMap, BTreeSet};

/// Programs that may hold one socket, besides its owner.
pub(crate) const HOLDERS: usize = 1024;
/// Sockets of others that one program may hold at a time.
pub(crate) const SHARES: usize = 4096;
/// Shares at a time, all programs' together: `store` has room for them.
const SHARES_IN_ALL: usize = 1 << 18;

/// A socket of one of the two transports.
pub(crate) type Key = (Protocol, SocketId);

/// Who holds a shared socket.
#[derive(Debug)]
struct Holding {
    /// The program in whose region it is.
    owner: u32,
    /// That program still holds it.
    owner_holds: bool,
    /// The others; and whether the transport has said that there is such a socket. Who waits for that
    /// holds it already, or another holder could close it meanwhile.
    others: BTreeMap<u32, bool>,
}

/// What letting go of a socket came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Released {
    /// It isn't shared: close it.
    NotShared,
    /// Others still hold it.
    Held,
    /// That was the last holder: close it.
    Last,
}

/// All sockets that are shared.
#[derive(Default, Debug)]
pub(crate) struct Shares {
    sockets: BTreeMap<Key, Holding>,
    /// What each program holds of others.
    held: BTreeMap<u32, BTreeSet<Key>>,
    /// How many those are.
    total: usize,
}

impl Shares {
    /// `holder` holds a socket of `owner` from now on; unconfirmed, until [`Shares::confirm`]. Answers
    /// whether that changes anything, or has yet to be confirmed. `None` if there are too many.
    pub fn add(
        &mut self,
        key: Key,
        owner: u32,
        holder: u32,
        out: &mut impl SyscallOutput,
    ) -> Option<bool> {
        if let Some(confirmed) = self.confirmed(key, holder) {
            return Some(!confirmed);
        }
        if !self.insert(key, owner, holder, false) {
            return None;
        }
        keep(out, &Item::Share(key.0, key.1, holder, false));
        Some(true)
    }

    /// Adds a holder; `false` if there are too many.
    fn insert(&mut self, key: Key, owner: u32, holder: u32, confirmed: bool) -> bool {
        let holding = self.sockets.get(&key);
        let full = holding.is_some_and(|holding| holding.others.len() >= HOLDERS)
            || self.held.get(&holder).is_some_and(|it| it.len() >= SHARES)
            || self.total >= SHARES_IN_ALL;
        if full {
            return false;
        }
        let holding = self.sockets.entry(key).or_insert(Holding {
            owner,
            owner_holds: true,
            others: BTreeMap::new(),
        });
        if holding.others.insert(holder, confirmed).is_none() {
            self.held.entry(holder).or_default().insert(key);
            self.total += 1;
        }
        true
    }

    fn confirmed(&self, key: Key, holder: u32) -> Option<bool> {
        self.sockets.get(&key)?.others.get(&holder).copied()
    }

    /// There is such a socket, and it can be shared.
    pub fn confirm(&mut self, key: Key, holder: u32, out: &mut impl SyscallOutput) {
        let holding = self.sockets.get_mut(&key);
        let confirmed = holding.and_then(|holding| holding.others.get_mut(&holder));
        if let Some(confirmed) = confirmed.filter(|confirmed| !**confirmed) {
            *confirmed = true;
            keep(out, &Item::Share(key.0, key.1, holder, true));
        }
    }

    /// The owner holds its socket again: another holder has handed it back. Answers whether it hadn't, as far as is
    /// known here: what nobody else holds is the owner's, or closed.
    pub fn regain(&mut self, key: Key, out: &mut impl SyscallOutput) -> bool {
        let holding = self.sockets.get_mut(&key);
        let Some(holding) = holding.filter(|holding| !holding.owner_holds) else {
            return false;
        };
        holding.owner_holds = true;
        forget(out, &Item::OwnerGone(key.0, key.1));
        true
    }

    /// `program` lets go of a socket.
    pub fn release(&mut self, key: Key, program: u32, out: &mut impl SyscallOutput) -> Released {
        let Some(holding) = self.sockets.get_mut(&key) else {
            return Released::NotShared;
        };
        if holding.owner == program {
            if holding.owner_holds && !holding.others.is_empty() {
                keep(out, &Item::OwnerGone(key.0, key.1));
            }
            holding.owner_holds = false;
        } else if let Some(confirmed) = holding.others.remove(&program) {
            forget_last(out, &Item::Share(key.0, key.1, program, confirmed));
            drop_held(&mut self.held, key, program);
            self.total = self.total.saturating_sub(1);
        }
        if !holding.others.is_empty() {
            return Released::Held;
        }
        let owner_holds = holding.owner_holds;
        self.sockets.remove(&key);
        if owner_holds {
            // The owner's alone: as if it had never been shared.
            return Released::Held;
        }
        forget_last(out, &Item::OwnerGone(key.0, key.1));
        Released::Last
    }

    /// There is no such socket: nobody holds it.
    pub fn remove(&mut self, key: Key, out: &mut impl SyscallOutput) {
        let Some(holding) = self.sockets.remove(&key) else {
            return;
        };
        if !holding.owner_holds {
            forget(out, &Item::OwnerGone(key.0, key.1));
        }
        for (holder, confirmed) in holding.others {
            forget(out, &Item::Share(key.0, key.1, holder, confirmed));
            drop_held(&mut self.held, key, holder);
            self.total = self.total.saturating_sub(1);
        }
    }

    /// Whether a program holds this socket of another's, and the transport knows.
    pub fn holds(&self, key: Key, program: u32) -> bool {
        self.confirmed(key, program) == Some(true)
    }

    /// Whether a socket is shared.
    pub fn is_shared(&self, key: Key) -> bool {
        self.sockets.contains_key(&key)
    }

    /// The shared sockets in these slots, both included.
    pub fn in_slots(&self, protocol: Protocol, first: u32, last: u32) -> impl Iterator<Item = Key> {
        let sockets = self.sockets.range(key_range(protocol, first, last));
        sockets.map(|(key, _)| *key)
    }

    /// What a program holds of others.
    pub fn held_by(&self, program: u32) -> Vec<Key> {
        let held = self.held.get(&program).into_iter().flatten();
        held.copied().collect()
    }

    /// All shared sockets of one transport: owner, whether it holds it, and the other holders.
    pub fn of(
        &self,
        protocol: Protocol,
    ) -> impl Iterator<Item = (SocketId, u32, bool, impl Iterator<Item = u32>)> {
        let sockets = self.sockets.range(key_range(protocol, 0, u32::MAX));
        sockets.map(|((_, socket), holding)| {
            let others = holding.others.keys().copied();
            (*socket, holding.owner, holding.owner_holds, others)
        })
    }

    /// Sockets that nobody holds: who wrote down that the last holder let go got no further.
    pub fn unheld(&self) -> Vec<(Key, u32)> {
        let sockets = self.sockets.iter();
        let unheld = sockets.filter(|(_, holding)| holding.others.is_empty());
        unheld.map(|(key, holding)| (*key, holding.owner)).collect()
    }

    /// Takes back what was stored of a share. `false` if there are too many.
    pub fn restore_share(&mut self, key: Key, owner: u32, holder: u32, confirmed: bool) -> bool {
        holder != owner && self.insert(key, owner, holder, confirmed)
    }

    /// Takes back that an owner let go.
    pub fn restore_owner_gone(&mut self, key: Key, owner: u32) {
        let holding = self.sockets.entry(key).or_insert(Holding {
            owner,
            owner_holds: false,
            others: BTreeMap::new(),
        });
        holding.owner_holds = false;
    }

    /// All that is stored of it.
    pub fn items(&self) -> impl Iterator<Item = Item> {
        self.sockets
            .iter()
            .flat_map(|((protocol, socket), holding)| {
                let (protocol, socket) = (*protocol, *socket);
                let others = holding.others.iter();
                let others =
                    others.map(move |(holder, sure)| Item::Share(protocol, socket, *holder, *sure));
                let gone = (!holding.owner_holds).then_some(Item::OwnerGone(protocol, socket));
                others.chain(gone)
            })
    }
}

fn drop_held(held: &mut BTreeMap<u32, BTreeSet<Key>>, key: Key, program: u32) {
    if let Some(keys) = held.get_mut(&program) {
        keys.remove(&key);
        if keys.is_empty() {
            held.remove(&program);
        }
    }
}

#[cfg(test)]
mod tests;
