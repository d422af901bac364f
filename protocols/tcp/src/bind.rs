//! Local ends: which are free, and who has which.

use crate::demux::unspecified_like;
use crate::instance::{Socket, Tcp};
use skink_memory::SocketId;
use skink_messages::{Network, Ports, SocketError};
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
        reuse_address: bool,
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
            if self.is_taken(local, reuse_address) {
                return Err(SocketError::AddressInUse);
            }
            out.use_port(protocol::TCP, local.port, false);
        }
        self.bound
            .entry(local.port)
            .or_default()
            .push((local.addr, id.slot));
        let record = self.table.record(id.slot);
        let remote = Endpoint::new(unspecified_like(local.addr), 0);
        record.set_four_tuple(&FourTuple::new(local, remote));
        if let Some(Socket::Fresh(fresh)) = self.socket_mut(id) {
            fresh.local = Some(local);
            fresh.reuse_address = reuse_address;
        }
        Ok(local)
    }

    /// Whether a bound socket stands in the way of `local`. As in Linux, sockets that all said
    /// `SO_REUSEADDR` may share an end while none listens, and `SO_REUSEPORT` even then.
    fn is_taken(&self, local: Endpoint, reuse_address: bool) -> bool {
        let others = self.bound.get(&local.port).map_or(&[][..], Vec::as_slice);
        others.iter().any(|(addr, slot)| {
            let same_family = addr.is_ipv4() == local.addr.is_ipv4();
            let overlap =
                *addr == local.addr || addr.is_unspecified() || local.addr.is_unspecified();
            let yields = match self.sockets.get(*slot as usize) {
                Some(Socket::Fresh(other)) => other.reuse_address && reuse_address,
                Some(Socket::Listener(other)) => other.settings.reuse_port,
                Some(Socket::Connection(_)) => reuse_address,
                Some(Socket::Free) | None => true,
            };
            same_family && overlap && !yields
        })
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
