use crate::client::{receive_reply, unexpected};
use crate::error::ControlError;
use crate::message::{InstanceInfo, RegionKind, Reply, Request};
use crate::transport;
use rustix::net::SendFlags;
use std::os::fd::{AsFd, OwnedFd};

/// A tool's connection to a broker.
#[derive(Debug)]
pub struct Tool {
    socket: OwnedFd,
}

impl Tool {
    pub(crate) fn new(socket: OwnedFd) -> Tool {
        Tool { socket }
    }

    /// What is running there.
    pub fn list(&self) -> Result<InstanceInfo, ControlError> {
        match self.call(&Request::List {})? {
            (Reply::Instance(info), _) => Ok(*info),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// The memory of one process: read-only, except for [`RegionKind::Capture`]. Each call opens
    /// the memory file anew, so a lock on it belongs to this descriptor alone.
    pub fn open(&self, owner: u16, kind: RegionKind) -> Result<OwnedFd, ControlError> {
        match self.call(&Request::Open { owner, kind })? {
            (Reply::Region {}, mut descriptors) if descriptors.len() == 1 => descriptors
                .pop()
                .ok_or_else(|| ControlError::Malformed("no descriptor".to_owned())),
            (other, _) => Err(unexpected(&other)),
        }
    }

    fn call(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
        transport::send(self.socket.as_fd(), request, &[], SendFlags::empty())
            .map_err(ControlError::Connection)?;
        receive_reply(self.socket.as_fd())
    }
}
