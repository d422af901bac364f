//! Which frames may leave: those that say truthfully where they come from.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_wire::{MacAddr, ethernet};

/// Who we are.
pub(crate) struct Sources {
    mac: MacAddr,
    /// A few; `None` if addresses aren't checked.
    addresses: Option<Vec<IpAddr>>,
}

impl Sources {
    pub(crate) fn new(mac: MacAddr, addresses: Option<Vec<IpAddr>>) -> Sources {
        Sources { mac, addresses }
    }

    /// Whether a frame with these headers is from us: its Ethernet source, its IP source, and in
    /// ARP the sender that it claims. The unspecified address may always be a source: neighbours
    /// probe for duplicates with it (RFC 5227 1.1, RFC 4862 5.4.2).
    pub(crate) fn allow(&self, ethernet: &ethernet::Header, headers: &[u8]) -> bool {
        if ethernet.source != self.mac {
            return false;
        }
        match ethernet.ethertype {
            ethernet::IPV4 => self.allow_v4(headers, ethernet::LEN + 12),
            ethernet::IPV6 => {
                let at = ethernet::LEN + 8;
                let source = headers.get(at..).and_then(|rest| rest.first_chunk::<16>());
                source.is_some_and(|source| self.allow_address(Ipv6Addr::from(*source).into()))
            }
            ethernet::ARP => {
                let at = ethernet::LEN + 8;
                headers.get(at..at + 6) == Some(&self.mac.0) && self.allow_v4(headers, at + 6)
            }
            _ => self.addresses.is_none(),
        }
    }

    fn allow_v4(&self, headers: &[u8], at: usize) -> bool {
        let source = headers.get(at..).and_then(|rest| rest.first_chunk::<4>());
        source.is_some_and(|source| self.allow_address(Ipv4Addr::from(*source).into()))
    }

    fn allow_address(&self, address: IpAddr) -> bool {
        self.addresses
            .as_ref()
            .is_none_or(|addresses| addresses.contains(&address) || address.is_unspecified())
    }
}
