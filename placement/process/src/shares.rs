//! Sockets that several programs hold: inherited after `fork` or `exec`, or handed on. As with the
//! kernel's, a socket is closed when the last of its holders lets go of it or dies.
use skink_memory::SocketId;
use skink_sockets::Protocol;
use std::collections::HashMap;

/// Who holds a shared socket.
#[derive(Debug)]
struct Holding {
    /// The program in whose region it is.
    owner: u32,
    /// That program still holds it.
    owner_holds: bool,
    /// The others.
    others: Vec<u32>,
}

/// Programs that may hold one socket, besides its owner.
const HOLDERS: usize = 1024;

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
    sockets: HashMap<(Protocol, SocketId), Holding>,
}

impl Shares {
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// `holder` holds a socket of `owner` from now on. `false` if that has too many holders.
    pub fn add(&mut self, key: (Protocol, SocketId), owner: u32, holder: u32) -> bool {
        let holding = self.sockets.entry(key).or_insert(Holding {
            owner,
            owner_holds: true,
            others: Vec::new(),
        });
        let room = holding.others.len() < HOLDERS;
        if room && !holding.others.contains(&holder) {
            holding.others.push(holder);
        }
        room
    }

    /// The owner holds its socket again: another holder has handed it back. `false` if there is none.
    pub fn regain(&mut self, key: (Protocol, SocketId)) -> bool {
        let holding = self.sockets.get_mut(&key);
        holding.is_some_and(|holding| {
            holding.owner_holds = true;
            true
        })
    }

    /// `program` lets go of a socket.
    pub fn release(&mut self, key: (Protocol, SocketId), program: u32) -> Released {
        let Some(holding) = self.sockets.get_mut(&key) else {
            return Released::NotShared;
        };
        if holding.owner == program {
            holding.owner_holds = false;
        } else {
            holding.others.retain(|other| *other != program);
        }
        match (holding.owner_holds, holding.others.is_empty()) {
            (_, false) => Released::Held,
            // The owner's alone: as if it had never been shared.
            (true, true) => {
                self.sockets.remove(&key);
                Released::Held
            }
            (false, true) => {
                self.sockets.remove(&key);
                Released::Last
            }
        }
    }

    /// Whether the owner is to be told of a socket's events, and who else.
    pub fn holders(&self, key: &(Protocol, SocketId)) -> Option<(bool, &[u32])> {
        let holding = self.sockets.get(key)?;
        Some((holding.owner_holds, &holding.others))
    }

    /// The sockets of `owner` that are shared.
    pub fn of(&self, owner: u32) -> Vec<(Protocol, SocketId)> {
        let of = |(_, holding): &(_, &Holding)| holding.owner == owner;
        self.sockets
            .iter()
            .filter(of)
            .map(|(key, _)| *key)
            .collect()
    }
}

#[cfg(test)]
mod tests;
