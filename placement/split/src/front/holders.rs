//! Which programs hold sockets that aren't theirs alone, as `syscall` has told: who may use one, and who
//! hears of it.
use skink_memory::SocketId;
use skink_messages::Protocol;
use std::collections::HashMap;

type Key = (Protocol, SocketId);

/// Who holds a shared socket.
#[derive(Debug)]
struct Holding {
    /// The program in whose region it is.
    owner: u32,
    owner_holds: bool,
    others: Vec<u32>,
}

/// All sockets that are shared. Their number is bounded by `syscall`.
#[derive(Default, Debug)]
pub(crate) struct Holders {
    sockets: HashMap<Key, Holding>,
}

impl Holders {
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// `program` holds a socket of `owner` from now on, which may be itself.
    pub fn add(&mut self, key: Key, owner: u32, program: u32) {
        if program == owner {
            if let Some(holding) = self.sockets.get_mut(&key) {
                holding.owner_holds = true;
                if holding.others.is_empty() {
                    self.sockets.remove(&key);
                }
            }
            return;
        }
        let holding = self.sockets.entry(key).or_insert(Holding {
            owner,
            owner_holds: true,
            others: Vec::new(),
        });
        if !holding.others.contains(&program) {
            holding.others.push(program);
        }
    }

    /// `program` doesn't hold it any more; others do.
    pub fn remove(&mut self, key: Key, program: u32) {
        let Some(holding) = self.sockets.get_mut(&key) else {
            return;
        };
        if holding.owner == program {
            holding.owner_holds = false;
        } else {
            holding.others.retain(|other| *other != program);
        }
        if holding.owner_holds && holding.others.is_empty() {
            self.sockets.remove(&key);
        }
    }

    /// The socket is closed. Answers who held it besides its owner.
    pub fn forget(&mut self, key: Key) -> Vec<u32> {
        let holding = self.sockets.remove(&key);
        holding.map_or_else(Vec::new, |holding| holding.others)
    }

    /// A program has ended: it holds nothing of this protocol any more. Answers which of its own sockets
    /// others hold.
    pub fn end(&mut self, protocol: Protocol, program: u32) -> Vec<SocketId> {
        let mut held = Vec::new();
        self.sockets.retain(|(of, socket), holding| {
            if *of != protocol {
                return true;
            }
            if holding.owner == program {
                holding.owner_holds = false;
                held.push(*socket);
                return true;
            }
            holding.others.retain(|other| *other != program);
            !(holding.owner_holds && holding.others.is_empty())
        });
        held
    }

    /// Whether a program that isn't its owner may use the socket.
    pub fn holds(&self, key: Key, program: u32) -> bool {
        let holding = self.sockets.get(&key);
        holding.is_some_and(|holding| holding.others.contains(&program))
    }

    /// Whether the owner is to be told of a socket's events, and who else.
    pub fn of(&self, key: Key) -> Option<(bool, &[u32])> {
        let holding = self.sockets.get(&key)?;
        Some((holding.owner_holds, &holding.others))
    }
}

#[cfg(test)]
mod tests;
