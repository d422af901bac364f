//! Owners whose connection is closed.
use super::{Owners, Server};
use rustix::event::epoll;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;

/// An owner whose connection is closed, while its process may still hold the NIC's descriptors: the
/// kernel closes a dying process's descriptors one after the other, and a packet socket takes it
/// some 10 ms.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Departing {
    pub owner: u16,
    pub pid: u32,
    /// Polls readable when the process has ended, by when all its descriptors are closed.
    #[serde(with = "skink_inherit::descriptors")]
    pub process: OwnedFd,
}

impl<O: Owners> Server<O> {
    /// Waits for the end of an owner's process.
    pub(super) fn depart(&mut self, key: u64, owner: u16, pid: u32) {
        let watched = || -> rustix::io::Result<Option<OwnedFd>> {
            let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
                return Ok(None);
            };
            let process = match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(process) => process,
                // Ended already, and waited for.
                Err(rustix::io::Errno::SRCH) => return Ok(None),
                Err(error) => return Err(error),
            };
            let data = epoll::EventData::new_u64(key);
            epoll::add(&self.poll, &process, data, epoll::EventFlags::IN)?;
            Ok(Some(process))
        };
        match watched() {
            Ok(Some(process)) => {
                let departing = Departing {
                    owner,
                    pid,
                    process,
                };
                self.departing.insert(key, departing);
            }
            Ok(None) => self.owners.release(owner),
            Err(error) => {
                // Better a slot less than two processes on one queue.
                self.lost.insert(owner);
                tracing::warn!(pid, owner, %error, "can't tell when the process ends");
            }
        }
    }

    /// A departing owner's process has ended.
    pub(super) fn release(&mut self, key: u64) {
        if let Some(departing) = self.departing.remove(&key) {
            // Also where a standby still has it.
            let _ = epoll::delete(&self.poll, &departing.process);
            tracing::debug!(pid = departing.pid, owner = departing.owner, "ended");
            self.owners.release(departing.owner);
        }
    }

    /// A process that comes again has become another program by `exec`, which closed what it had: a program that
    /// inherits something goes on with its predecessor's connection.
    pub(super) fn release_predecessors(&mut self, key: u64) {
        let pid = self
            .connections
            .get(&key)
            .map(|connection| connection.peer.pid);
        let predecessors = self.departing.iter();
        let predecessors: Vec<u64> = predecessors
            .filter(|(_, departing)| Some(departing.pid) == pid)
            .map(|(key, _)| *key)
            .collect();
        for key in predecessors {
            self.release(key);
        }
    }
}
