//! Link-layer addresses, endpoints and four-tuples.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A 48-bit Ethernet address, in transmission order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Every station on the link.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
    /// All zeroes: not known, as in the target of an ARP request.
    pub const UNSPECIFIED: MacAddr = MacAddr([0; 6]);

    /// Whether the group bit is set. The broadcast address is a multicast address too.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether this is the broadcast address.
    pub const fn is_broadcast(self) -> bool {
        matches!(self.0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }

    /// Whether one station may own this address: neither a group nor all zeroes.
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast() && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }

    /// The Ethernet group of an IPv4 multicast address: the low 23 bits (RFC 1112 section 6.4).
    pub const fn multicast_for_ipv4(group: Ipv4Addr) -> MacAddr {
        let [_, b, c, d] = group.octets();
        MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// The Ethernet group of an IPv6 multicast address: the low 32 bits (RFC 2464 section 7).
    pub const fn multicast_for_ipv6(group: Ipv6Addr) -> MacAddr {
        let [.., a, b, c, d] = group.octets();
        MacAddr([0x33, 0x33, a, b, c, d])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// An address and a port: one end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint {
    /// The IP address.
    pub addr: IpAddr,
    /// The TCP or UDP port, in host byte order.
    pub port: u16,
}

impl Endpoint {
    /// The endpoint `addr`:`port`.
    pub const fn new(addr: IpAddr, port: u16) -> Self {
        Endpoint { addr, port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&SocketAddr::from(*self), formatter)
    }
}

/// The IPv6 flow label and scope are dropped: they name no end of a connection.
impl From<SocketAddr> for Endpoint {
    fn from(socket: SocketAddr) -> Self {
        Endpoint::new(socket.ip(), socket.port())
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(endpoint: Endpoint) -> Self {
        SocketAddr::new(endpoint.addr, endpoint.port)
    }
}

/// What names a connection, as seen from this host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FourTuple {
    /// Our end: the destination of what arrives.
    pub local: Endpoint,
    /// The peer's end: the source of what arrives.
    pub remote: Endpoint,
}

impl FourTuple {
    /// The connection from `local` to `remote`.
    pub const fn new(local: Endpoint, remote: Endpoint) -> Self {
        FourTuple { local, remote }
    }
}

impl fmt::Display for FourTuple {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} <-> {}", self.local, self.remote)
    }
}

#[cfg(test)]
mod tests;
