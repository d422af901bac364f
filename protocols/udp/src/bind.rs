//! Which socket has which address.

use crate::Udp;
use crate::socket::{Address, is_for_many, unspecified};
use core::net::{IpAddr, Ipv4Addr};
use core::ops::RangeInclusive;
use skink_memory::SocketId;
use skink_messages::{BindOptions, Network, Ports, SocketError};
use skink_wire::{Endpoint, protocol};

/// Ports given to sockets that don't ask for one, as in Linux.
const EPHEMERAL: RangeInclusive<u16> = 32_768..=60_999;

impl Udp {
    /// Binds a socket to `local` and answers what it got: port 0 asks for a free one, the
    /// unspecified address for all addresses of its family. Sockets that all say the same of
    /// `sharing` may have the same address; a flow then goes to one of them.
    ///
    /// # Errors
    /// [`SocketError::Invalid`] if the socket is closed or has an address already,
    /// [`SocketError::AddressNotAvailable`] if it isn't ours, [`SocketError::AddressInUse`].
    pub fn bind<Out>(
        &mut self,
        id: SocketId,
        local: Endpoint,
        sharing: BindOptions,
        out: &mut Out,
    ) -> Result<Endpoint, SocketError>
    where
        Out: Network + Ports + ?Sized,
    {
        let socket = self.find(id).ok_or(SocketError::Invalid)?;
        if socket.address != Address::Unbound {
            return Err(SocketError::Invalid);
        }
        self.bind_slot(id.slot, local, sharing, out)
    }

    /// As [`Udp::bind`], for a socket known to be unbound.
    pub(crate) fn bind_slot<Out>(
        &mut self,
        slot: u32,
        local: Endpoint,
        sharing: BindOptions,
        out: &mut Out,
    ) -> Result<Endpoint, SocketError>
    where
        Out: Network + Ports + ?Sized,
    {
        let may_have =
            local.addr.is_unspecified() || is_for_many(local.addr, out) || out.is_local(local.addr);
        if !may_have {
            return Err(SocketError::AddressNotAvailable);
        }
        let port = match local.port {
            0 => self.take_ephemeral_port(out)?,
            port => {
                let alone = sharing == BindOptions::default();
                if self.is_taken(local, sharing) || !out.use_port(protocol::UDP, port, alone) {
                    return Err(SocketError::AddressInUse);
                }
                port
            }
        };
        let local = Endpoint::new(local.addr, port);
        if let Some(socket) = self.socket(slot) {
            socket.sharing = sharing;
        }
        self.set_address(slot, Address::Bound(local));
        out.listen(protocol::UDP, port);
        Ok(local)
    }

    /// Connects a socket to `remote`, or with `None` dissolves its connection, and answers our end.
    /// Before, an unbound socket gets a port, and one bound to all addresses the one that leads to
    /// `remote`; one bound to a group stays so. A remote port of 0 finds out just that address.
    ///
    /// # Errors
    /// [`SocketError::Invalid`] if the socket is closed or its address of the other family,
    /// [`SocketError::NetworkUnreachable`] without a route, [`SocketError::AddressInUse`] if there
    /// is no free port.
    pub fn connect<Out>(
        &mut self,
        id: SocketId,
        remote: Option<Endpoint>,
        out: &mut Out,
    ) -> Result<Endpoint, SocketError>
    where
        Out: Network + Ports + ?Sized,
    {
        let address = self.find(id).ok_or(SocketError::Invalid)?.address;
        let Some(remote) = remote else {
            return Ok(self.disconnect(id.slot, address, out));
        };
        let bound = match address {
            Address::Unbound => None,
            Address::Bound(bound) => Some(bound),
            Address::Connected { bound, .. } => bound,
        };
        if bound.is_some_and(|bound| bound.addr.is_ipv4() != remote.addr.is_ipv4()) {
            return Err(SocketError::Invalid);
        }
        let source = bound
            .map(|bound| bound.addr)
            .filter(|addr| !addr.is_unspecified() && !is_for_many(*addr, out));
        let path = out
            .path(source, remote.addr)
            .filter(|_| !remote.addr.is_unspecified())
            .ok_or(SocketError::NetworkUnreachable)?;
        let port = match address.local() {
            Some(local) => local.port,
            None => self.take_ephemeral_port(out)?,
        };
        // What is bound to a group goes on hearing that, of the peer, as in Linux. `source` is none then, and
        // what it sends leaves from an address of ours.
        let group = bound
            .map(|bound| bound.addr)
            .filter(|addr| is_for_many(*addr, out));
        let local = Endpoint::new(group.unwrap_or(path.source), port);
        self.set_address(
            id.slot,
            Address::Connected {
                local,
                remote,
                bound,
            },
        );
        if matches!(address, Address::Bound(_)) {
            // Only the peer's datagrams are welcome from now on.
            out.unlisten(protocol::UDP, port);
        }
        Ok(local)
    }

    fn disconnect<Out>(&mut self, slot: u32, address: Address, out: &mut Out) -> Endpoint
    where
        Out: Ports + ?Sized,
    {
        let nothing = Endpoint::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let Address::Connected { local, bound, .. } = address else {
            return address.local().unwrap_or(nothing);
        };
        match bound {
            Some(bound) => {
                self.set_address(slot, Address::Bound(bound));
                out.listen(protocol::UDP, bound.port);
                bound
            }
            None => {
                self.set_address(slot, Address::Unbound);
                out.release_port(protocol::UDP, local.port);
                Endpoint::new(unspecified(local.addr), 0)
            }
        }
    }

    /// The one place where a socket's address changes: in the demultiplexer, in memory and in the
    /// record.
    fn set_address(&mut self, slot: u32, address: Address) {
        let Some(socket) = self.sockets.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        self.demux.remove(slot, &socket.address);
        socket.address = address;
        socket.save(self.table.record(slot));
        if !socket.closing {
            self.demux.insert(slot, &address);
        }
    }

    /// Whether another socket stands in the way of binding to `wanted`: one on the same port, with
    /// the same address or one of the two bound to all, unless both are willing to share.
    fn is_taken(&self, wanted: Endpoint, sharing: BindOptions) -> bool {
        self.demux.on_port(wanted.port).iter().any(|slot| {
            let other = self.sockets.get(*slot as usize).and_then(Option::as_ref);
            other.is_some_and(|other| {
                let overlaps = other.address.local().is_some_and(|local| {
                    local.addr.is_ipv4() == wanted.addr.is_ipv4()
                        && (local.addr == wanted.addr
                            || local.addr.is_unspecified()
                            || wanted.addr.is_unspecified())
                });
                let agreed = sharing.reuse_address && other.sharing.reuse_address
                    || sharing.shared && other.sharing.shared;
                overlaps && !agreed
            })
        })
    }

    /// A port that nobody has, from a random one on (RFC 6056 3.3.1), so that an attacker who can't
    /// see our datagrams can't guess where answers go.
    fn take_ephemeral_port(&mut self, out: &mut (impl Ports + ?Sized)) -> Result<u16, SocketError> {
        let count = EPHEMERAL.end() - EPHEMERAL.start() + 1;
        let first = (self.next_random() % u64::from(count)) as u16;
        for step in 0..count {
            // Both are below 28,232, so nothing overflows.
            let port = EPHEMERAL.start() + (first + step) % count;
            if self.demux.on_port(port).is_empty() && out.use_port(protocol::UDP, port, true) {
                return Ok(port);
            }
        }
        Err(SocketError::AddressInUse)
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
