use crate::lent::OnTheirWay;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_memory::{Record, SocketId};
use skink_messages::{BindOptions, Events, Network};
use skink_wire::{Endpoint, FourTuple};
use std::sync::atomic::Ordering;

/// Which datagrams are a socket's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    /// None.
    Unbound,
    /// All to this end; the unspecified address stands for all of ours.
    Bound(Endpoint),
    /// Those from one peer.
    Connected {
        /// Our end, with an address of ours, or of many if the socket is bound to that.
        local: Endpoint,
        /// The peer's end.
        remote: Endpoint,
        /// What the socket was bound to before, to return to when the connection is dissolved.
        bound: Option<Endpoint>,
    },
}

/// What `udp` itself remembers of a socket: what a program can write (the record) isn't believed.
pub(crate) struct Socket {
    pub(crate) generation: u32,
    pub(crate) address: Address,
    /// Others that say the same may have the same address.
    pub(crate) sharing: BindOptions,
    /// The program is gone; what is in the send ring still leaves.
    pub(crate) closing: bool,
    /// How many datagrams a closing socket may send at most, rounded up to the budget of one call:
    /// a hostile program that goes on filling the ring must not keep the socket alive.
    pub(crate) last_datagrams: usize,
    /// Datagrams at the front of the send ring that were handed on, and haven't left.
    pub(crate) on_their_way: OnTheirWay,
    /// Waits for output, in [`crate::Udp`]'s list.
    pub(crate) sending: bool,
    /// Events not yet delivered; if any, the socket is in the list of those.
    pub(crate) events: Events,
}

/// Bits of the record's `state`, where [`crate::Udp::adopt_region`] finds them.
pub(crate) const REUSE: u8 = 1;
/// Was bound before it was connected.
pub(crate) const WAS_BOUND: u8 = 2;
/// Was bound to all addresses before it was connected.
pub(crate) const WAS_WILDCARD: u8 = 4;
/// The program has closed it; it ends when what is in its send ring has left.
pub(crate) const CLOSING: u8 = 8;
/// May share its address with others that may.
pub(crate) const SHARED: u8 = 16;
/// The program hasn't been told of the error in its record.
pub(crate) const FAILED: u8 = 32;

impl Socket {
    pub(crate) fn new(id: SocketId) -> Socket {
        Socket {
            generation: id.generation,
            address: Address::Unbound,
            sharing: BindOptions::default(),
            closing: false,
            last_datagrams: 0,
            on_their_way: OnTheirWay::default(),
            sending: false,
            events: Events::empty(),
        }
    }

    /// Stores what must survive a restart.
    pub(crate) fn save(&self, record: &Record) {
        let mut state = 0;
        if self.sharing.reuse_address {
            state |= REUSE;
        }
        if self.sharing.shared {
            state |= SHARED;
        }
        if self.closing {
            state |= CLOSING;
        }
        if self.events.contains(Events::ERROR) {
            state |= FAILED;
        }
        let (local, remote) = match self.address {
            Address::Unbound => (Endpoint::new(Ipv4Addr::UNSPECIFIED.into(), 0), None),
            Address::Bound(local) => (local, None),
            Address::Connected {
                local,
                remote,
                bound,
            } => {
                if let Some(bound) = bound {
                    state |= WAS_BOUND;
                    if bound.addr.is_unspecified() {
                        state |= WAS_WILDCARD;
                    }
                }
                (local, Some(remote))
            }
        };
        let nobody = Endpoint::new(unspecified(local.addr), 0);
        let tuple = FourTuple::new(local, remote.unwrap_or(nobody));
        // A successor may find the ends stored in part: as long as they may be, it must know what the
        // socket was bound to before, and is bound to again.
        if state & WAS_BOUND != 0 {
            record.state.store(state, Ordering::Release);
            record.set_four_tuple(&tuple);
        } else {
            record.set_four_tuple(&tuple);
            record.state.store(state, Ordering::Release);
        }
    }
}

impl Address {
    /// Our end.
    pub(crate) fn local(&self) -> Option<Endpoint> {
        match *self {
            Address::Unbound => None,
            Address::Bound(local) | Address::Connected { local, .. } => Some(local),
        }
    }
}

/// All addresses of the family of `address`.
pub(crate) fn unspecified(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Whether datagrams to `address` go to everybody who listens, instead of one: it is a group's, or a
/// broadcast address.
#[inline]
pub(crate) fn is_for_many(address: IpAddr, out: &(impl Network + ?Sized)) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || out.is_broadcast(v4),
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}
