//! Local ends: which are free, and who has which.

use crate::binding;
use crate::demux::unspecified_like;
use crate::instance::{Socket, Tcp};
use core::sync::atomic::Ordering::Relaxed;
use skink_memory::SocketId;
use skink_messages::{BindOptions, Network, Ports, SocketError};
use skink_wire::{Endpoint, FourTuple, protocol};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Ports that are given out by themselves: Linux's default range.
pub(crate) const FIRST_EPHEMERAL: u16 = 32_768;
const EPHEMERAL: u16 = 28_232;

impl Tcp {
    /// `bind`: takes a local end; port 0 takes any free one. The unspecified address stands for all.
    pub fn bind<O: Network + Ports>(
        &mut self,
        id: SocketId,
        mut local: Endpoint,
        sharing: BindOptions,
        out: &mut O,
    ) -> Result<Endpoint, SocketError> {
        if !local.addr.is_unspecified() && !out.is_local(local.addr) {
            return Err(SocketError::AddressNotAvailable);
        }
        match self.socket(id) {
            Some(Socket::Fresh(fresh)) if fresh.local.is_none() => {}
            _ => return Err(SocketError::Invalid),
        }
        if local.port == 0 {
            local.port = self.ephemeral_port(local, None, out)?;
        } else {
            if self.is_taken(local, sharing) {
                return Err(SocketError::AddressInUse);
            }
            out.use_port(protocol::TCP, local.port, false);
        }
        self.bound
            .entry(local.port)
            .or_default()
            .push((local.addr, id.slot));
        let record = self.table.record(id.slot);
        let bits = binding::bits(local, sharing, false);
        record.binding.store(bits, Relaxed);
        let remote = Endpoint::new(unspecified_like(local.addr), 0);
        record.set_four_tuple(&FourTuple::new(local, remote));
        if let Some(Socket::Fresh(fresh)) = self.socket_mut(id) {
            fresh.local = Some(local);
            fresh.sharing = sharing;
        }
        Ok(local)
    }

    /// Whether a bound socket stands in the way of `local`. As in Linux, sockets that all said
    /// `SO_REUSEADDR` may share an end while none listens, and those that may share it even then.
    fn is_taken(&self, local: Endpoint, sharing: BindOptions) -> bool {
        self.overlapping(local).any(|(_, socket)| {
            let yields = match socket {
                Socket::Fresh(other) => {
                    other.sharing.reuse_address && sharing.reuse_address
                        || other.sharing.shared && sharing.shared
                }
                Socket::Listener(other) => other.left || other.shared && sharing.shared,
                Socket::Connection(_) => sharing.reuse_address || sharing.shared,
                Socket::Free => true,
            };
            !yields
        })
    }

    /// Whether a listener stands in the way of a bound socket that wants to listen too.
    pub(crate) fn is_listened_on(&self, local: Endpoint, slot: u32, shared: bool) -> bool {
        self.overlapping(local).any(|(other, socket)| match socket {
            Socket::Listener(listener) => {
                other != slot && !listener.left && !(listener.shared && shared)
            }
            Socket::Fresh(_) | Socket::Connection(_) | Socket::Free => false,
        })
    }

    /// The sockets bound to an end that has something in common with `local`.
    fn overlapping(&self, local: Endpoint) -> impl Iterator<Item = (u32, &Socket)> {
        let others = self.bound.get(&local.port).map_or(&[][..], Vec::as_slice);
        others.iter().filter_map(move |(addr, slot)| {
            let same_family = addr.is_ipv4() == local.addr.is_ipv4();
            let overlap =
                *addr == local.addr || addr.is_unspecified() || local.addr.is_unspecified();
            let socket = self.sockets.get(*slot as usize)?;
            (same_family && overlap).then_some((*slot, socket))
        })
    }

    /// A bound socket rests, or doesn't any more: its program's next worker is about to listen on the
    /// same end. While nobody listens there, connection requests are then left unanswered instead
    /// of refused, and the peer asks again. To listen, to connect and to close ends the rest.
    ///
    /// # Errors
    /// [`SocketError::Invalid`] unless the socket is bound, and neither listens nor is connected.
    pub fn rest(&mut self, id: SocketId, resting: bool) -> Result<(), SocketError> {
        let Some(Socket::Fresh(fresh)) = self.socket_mut(id) else {
            return Err(SocketError::Invalid);
        };
        let local = fresh.local.ok_or(SocketError::Invalid)?;
        let sharing = fresh.sharing;
        if core::mem::replace(&mut fresh.resting, resting) != resting {
            self.demux.rest(local, resting);
            let bits = binding::bits(local, sharing, resting);
            self.table.record(id.slot).binding.store(bits, Relaxed);
        }
        Ok(())
    }

    /// As [`Tcp::rest`], where somebody has listened until now.
    ///
    /// # Errors
    /// As there.
    pub fn rest_where_heard(&mut self, id: SocketId) -> Result<(), SocketError> {
        self.rest(id, true)?;
        if let Some(Socket::Fresh(fresh)) = self.socket(id)
            && let Some(local) = fresh.local
        {
            self.demux.note_heard(local);
        }
        Ok(())
    }

    /// A free local port (RFC 6056, algorithm 3): begins at a place that depends on the peer.
    pub(crate) fn ephemeral_port<O: Ports>(
        &mut self,
        local: Endpoint,
        remote: Option<Endpoint>,
        out: &mut O,
    ) -> Result<u16, SocketError> {
        let mut hasher = DefaultHasher::new();
        (self.secret, local.addr, remote).hash(&mut hasher);
        let start = (hasher.finish() as u16).wrapping_add(self.ephemeral_counter) % EPHEMERAL;
        for step in 0..EPHEMERAL {
            let port = FIRST_EPHEMERAL + (start + step) % EPHEMERAL;
            let local = Endpoint::new(local.addr, port);
            let free = match remote {
                Some(remote) => self.demux.flow(&FourTuple::new(local, remote)).is_none(),
                None => true,
            };
            if free && !self.bound.contains_key(&port) && out.use_port(protocol::TCP, port, true) {
                self.ephemeral_counter = self.ephemeral_counter.wrapping_add(step + 1);
                return Ok(port);
            }
        }
        Err(SocketError::AddressInUse)
    }
}
