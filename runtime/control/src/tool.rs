use crate::client::{receive_reply, send, unexpected};
use crate::error::ControlError;
use crate::message::{InstanceInfo, RegionKind, Reply, Request};
use crate::peer;
use crate::server::Peer;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Whether that is another user, and not root.
pub(crate) fn is_stranger(uid: u32) -> bool {
    uid != 0 && uid != rustix::process::geteuid().as_raw()
}

/// A tool's connection to a broker.
#[derive(Debug)]
pub struct Tool {
    socket: OwnedFd,
    /// Who listened there.
    peer: Peer,
}

impl Tool {
    pub(crate) fn new(socket: OwnedFd) -> Result<Tool, ControlError> {
        let peer = peer::of(socket.as_fd()).map_err(ControlError::Connection)?;
        Ok(Tool { socket, peer })
    }

    /// Whether it is another user's, and not root's: what it answers, and when, is for that one to choose.
    pub fn is_of_stranger(&self) -> bool {
        is_stranger(self.peer.uid)
    }

    /// Process id of who began to listen there; 0 if it isn't in a PID namespace that this process sees.
    pub fn listener(&self) -> u32 {
        self.peer.pid
    }

    /// What is running there.
    pub fn list(&self) -> Result<InstanceInfo, ControlError> {
        let mut whole = self.part(None)?;
        // Bounded, whatever the other end answers.
        let parts = if self.is_of_stranger() { 4 } else { 256 };
        for _ in 0..parts {
            let Some(last) = whole.processes.last().map(|process| process.owner) else {
                break;
            };
            let part = self.part(Some(last))?;
            if part.processes.is_empty() {
                break;
            }
            whole.processes.extend(part.processes);
        }
        Ok(whole)
    }

    fn part(&self, after: Option<u16>) -> Result<InstanceInfo, ControlError> {
        match self.call(&Request::List { after }, &[])? {
            (Reply::Instance(info), _) => Ok(*info),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Loads the rules in `file` into the packet filter; answers what was done, in a sentence.
    pub fn load_filter(&self, file: BorrowedFd<'_>) -> Result<String, ControlError> {
        self.ask(&Request::LoadFilter {}, &[file])
    }

    /// What the packet filter does, as JSON: the stack's, or that of one process where each has a stack of its own.
    pub fn show_filter(&self, owner: Option<u16>) -> Result<String, ControlError> {
        self.ask(&Request::ShowFilter { owner }, &[])
    }

    /// Puts the executable in `file` in the place of what runs in the processes that host `component`,
    /// or in all. Answers what became of each, as JSON, when that is known.
    pub fn upgrade(
        &self,
        component: Option<&str>,
        file: BorrowedFd<'_>,
    ) -> Result<String, ControlError> {
        let component = component.map(str::to_owned);
        self.ask(&Request::Upgrade { component }, &[file])
    }

    fn ask(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<String, ControlError> {
        match self.call(request, descriptors)? {
            (Reply::Told { text }, _) => Ok(text),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// The memory of one process: read-only, except for [`RegionKind::Capture`]. Each call opens
    /// the memory file anew, so a lock on it belongs to this descriptor alone.
    pub fn open(&self, owner: u16, kind: RegionKind) -> Result<OwnedFd, ControlError> {
        match self.call(&Request::Open { owner, kind }, &[])? {
            (Reply::Region {}, mut descriptors) if descriptors.len() == 1 => descriptors
                .pop()
                .ok_or_else(|| ControlError::Malformed("no descriptor".to_owned())),
            (other, _) => Err(unexpected(&other)),
        }
    }

    fn call(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
        send(self.socket.as_fd(), request, descriptors)?;
        receive_reply(self.socket.as_fd())
    }
}
