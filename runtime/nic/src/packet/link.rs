//! When an interface goes down and comes up: the kernel then puts its packet sockets together anew.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `RTMGRP_LINK`: what happens to interfaces. See rtnetlink(7) for this and the messages.
const LINKS: u32 = 1;
const NEW_LINK: u16 = 16;
const HEADER_BYTES: usize = 16;

/// Hears of changes of one interface.
pub(super) struct LinkWatch {
    socket: OwnedFd,
    index: u32,
    up: bool,
}

impl LinkWatch {
    /// Watches interface `index`, which is up.
    pub(super) fn new(index: u32) -> io::Result<LinkWatch> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // No protocol number stands for NETLINK_ROUTE.
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
        Ok(LinkWatch {
            socket,
            index,
            up: true,
        })
    }

    /// Polls readable when [`LinkWatch::has_changed`] has something to tell.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the interface went down or came up since the last call.
    pub(super) fn has_changed(&mut self) -> bool {
        let mut changed = false;
        let mut buffer = [0; 8192];
        loop {
            match rustix::net::recv(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((length, _)) => {
                    let mut messages = buffer.get(..length).unwrap_or_default();
                    while let Some((flags, rest)) = link_message(messages, self.index) {
                        messages = rest;
                        let up = flags.map_or(self.up, |flags| flags & libc::IFF_UP as u32 != 0);
                        changed |= up != self.up;
                        self.up = up;
                    }
                }
                // Where messages were lost, those that remain tell how it is now.
                Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(_) => return changed,
            }
        }
    }
}

/// The first message's flags, if it is about interface `index`, and the messages behind it.
fn link_message(messages: &[u8], index: u32) -> Option<(Option<u32>, &[u8])> {
    let word = |at: usize| Some(u32::from_ne_bytes(*messages.get(at..)?.first_chunk()?));
    let length = word(0)? as usize;
    let kind = u16::from_ne_bytes(*messages.get(4..)?.first_chunk()?);
    let rest = messages.get(length.max(HEADER_BYTES).next_multiple_of(4)..);
    let ours = kind == NEW_LINK && word(HEADER_BYTES + 4) == Some(index);
    let flags = word(HEADER_BYTES + 8).filter(|_| ours);
    Some((flags, rest.unwrap_or_default()))
}

#[cfg(test)]
mod tests;
