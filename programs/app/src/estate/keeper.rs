//! Who holds connections while messages with them are under way.
//!
//! A *keeper* is a program of its own to the stack. Each ticket ([`super::packet`]) has a copy of the keeper's connection to the
//! broker, so the keeper ends with the last of them, whatever becomes of this process, and lets go of what nobody has received. To
//! make one takes milliseconds, so this process keeps a copy too, for the tickets that follow by the same Unix socket: what one receiver
//! leaves lying, or does with its copy, is nothing to others.
use crate::attach;
use crate::engine::Engine;
use crate::fd_table::{self, Entry};
use crate::provider::Provider;
use crate::raw;
use skink_memory::SocketId;
use skink_messages::{Holder, Protocol};
use skink_time::Instant;
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// So many sockets a keeper holds at most: `syscall` has a limit too.
const MOST: usize = 1024;
/// For so long this process uses one: what nobody received stays open until then.
const LONGEST: Duration = Duration::from_secs(1);
/// So many at a time, each of them with some twenty descriptors.
pub const KEEPERS: usize = 8;

/// What tells a Unix socket from others: device and inode.
pub type Way = (u64, u64);

/// See the module's documentation.
pub struct Keeper {
    engine: Engine,
    /// The Unix socket by which its tickets leave.
    pub way: Way,
    /// What receivers relieve.
    pub holder: Holder,
    kept: HashSet<(Protocol, SocketId)>,
    /// When this process is to let it go.
    pub ends: Instant,
}

impl Keeper {
    /// Asks the broker for one.
    pub fn start(way: Way) -> Result<Keeper, String> {
        let mut engine = attach::start_for_keeper()?;
        let remote = engine.stack.remote();
        let remote = remote.ok_or("the stack is in no other process")?;
        remote.set_aside();
        let holder = Holder {
            program: remote.attachment.program,
            secret: remote.attachment.secret,
        };
        attach::mark(&engine);
        Ok(Keeper {
            engine,
            way,
            holder,
            kept: HashSet::new(),
            ends: raw::now() + LONGEST,
        })
    }

    /// Whether it can hold these as well. A socket that is passed twice has two keepers, as each receiver relieves one.
    pub fn has_room(&self, sockets: &[(Protocol, SocketId)]) -> bool {
        raw::now() < self.ends
            && !self.engine.is_down()
            && self.kept.len() + sockets.len() <= MOST
            && !sockets.iter().any(|socket| self.kept.contains(socket))
    }

    /// Holds sockets that are in the region with this secret.
    pub fn keep(&mut self, sockets: &[(Protocol, SocketId)], secret: u64) -> Result<(), String> {
        let remote = self.engine.stack.remote();
        let remote = remote.ok_or("the stack is in no other process")?;
        for (protocol, id) in sockets {
            remote.share_by(*protocol, *id, secret);
        }
        self.kept.extend(sockets);
        let refused = remote.synchronize();
        // What happens to them is for the receiver.
        while remote.take_event().is_some() {}
        match refused {
            Ok(0) => Ok(()),
            Ok(_) => Err("the stack doesn't share it".to_owned()),
            Err(stop) => Err(format!("the stack doesn't answer ({stop:?})")),
        }
    }

    /// These haven't left after all.
    pub fn let_go(&mut self, sockets: &[(Protocol, SocketId)]) {
        if let Some(remote) = self.engine.stack.remote() {
            for (protocol, id) in sockets.iter().filter(|it| self.kept.remove(it)) {
                remote.close(*protocol, *id);
            }
            remote.flush();
        }
    }

    /// What a ticket has of it.
    pub fn broker(&self) -> BorrowedFd<'_> {
        self.engine.broker.as_fd()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let mut descriptors = self.engine.descriptors.clone();
        if let Provider::Served(remote) = &self.engine.stack {
            descriptors.extend(remote.holdings.descriptors());
        }
        for fd in descriptors {
            fd_table::set(fd, Entry::Ordinary);
        }
    }
}
