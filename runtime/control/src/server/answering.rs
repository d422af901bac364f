//! Which process answers for the addresses, of those that have a stack of their own.
use super::{Owners, Role, Server};
use crate::message::Reply;
use crate::peer::is_stopped;
use std::time::{Duration, Instant};

/// How often it is looked whether the process that answers for the addresses is stopped, while another one could.
const LOOK: Duration = Duration::from_secs(2);
/// It costs a file of the kernel's to read: not more often than this, however much there is to do.
const SELDOM: Duration = Duration::from_millis(100);

impl<O: Owners> Server<O> {
    /// Looks whether the process that answers for the addresses is stopped (by a signal, or a debugger): then another one
    /// does. Answers when to look again, if there is another.
    pub(super) fn replace_stopped(&mut self, now: Instant) -> Option<Duration> {
        let answering = self.answering?;
        if self.attached() < 2 {
            return None;
        }
        let since = self.looked.map(|at| now.saturating_duration_since(at));
        if let Some(since) = since.filter(|since| *since < SELDOM) {
            return Some(LOOK - since);
        }
        self.looked = Some(now);
        let key = self.key_of(Role::Owner(answering))?;
        if is_stopped(self.connections.get(&key)?.peer.pid) {
            self.hand_answering_over();
        }
        Some(LOOK)
    }

    /// The process that answered for the addresses is gone, or stopped: the next one that isn't does, and one that is if
    /// there is nobody else. (If one that was stopped goes on, it answers ARP and NDP as well, and says the same; echo
    /// requests are steered to the other.)
    pub(super) fn hand_answering_over(&mut self) {
        let others = self.connections.iter();
        let others = others.filter_map(|(key, connection)| match connection.role {
            Role::Owner(owner) if self.answering != Some(owner) => {
                Some((is_stopped(connection.peer.pid), *key, owner))
            }
            _ => None,
        });
        let mut others: Vec<(bool, u64, u16)> = others.collect();
        others.sort_unstable();
        for (stopped, key, owner) in others {
            if stopped && self.answering.is_some() {
                return;
            }
            if self.reply(key, &Reply::Answer {}, &[]).is_ok() {
                self.answering = Some(owner);
                self.owners.answering(owner);
                return;
            }
        }
    }
}
