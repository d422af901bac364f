//! Whether a socket of the kernel's listens (sock_diag(7)).
//!
//! **Purpose.** Behind the descriptors of a socket that listens on Skink is one of the kernel's, which holds the port and listens too
//! (docs/decisions/0001). Where each process of a program has a stack of its own, the kernel alone knows whether any of them still has
//! that socket.
//!
//! **Place on the data path.** None: it is asked some times a second while a listening socket has no process that accepts.
//!
//! **What survives a restart.** Nothing is kept.
//!
//! **What it leaves out.** Of sockets that share an end by `SO_REUSEPORT` the kernel finds one, not all: another one isn't there, as far as
//! this can tell.
#![forbid(unsafe_code)]

use core::net::IpAddr;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use skink_wire::{Endpoint, protocol};
use std::io;
use std::os::fd::OwnedFd;

/// Bytes of a netlink message's header (`nlmsghdr`), and of a request for one socket with it (`inet_diag_req_v2`).
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;
/// `SOCK_DIAG_BY_FAMILY`, `NLM_F_REQUEST` and `TCP_LISTEN`.
const BY_FAMILY: u16 = 20;
const IS_REQUEST: u16 = 1;
const LISTEN: u8 = 10;
/// Where the answer has the socket's cookie (`inet_diag_msg`), and the one of any.
const COOKIE: usize = HEADER + 44;
const ANY: u64 = u64::MAX;
/// Room for the answer, of which nothing but the beginning is of interest.
const ANSWER: usize = 512;
/// Answers to earlier requests that weren't waited for.
const MOST_STALE: usize = 16;

/// Asks the kernel, in the network namespace in which it was made.
#[derive(Debug)]
pub struct SocketDiag {
    socket: OwnedFd,
    /// Tells answers apart.
    number: u32,
}

impl SocketDiag {
    /// Opens a netlink socket.
    ///
    /// # Errors
    /// If there is none to be had, as in a program that has confined itself.
    pub fn open() -> io::Result<SocketDiag> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let protocol = Some(netlink::SOCK_DIAG);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
        Ok(SocketDiag { socket, number: 0 })
    }

    /// The cookie (`SO_COOKIE`) of a TCP socket that is bound to this end, all addresses included, and listens, in whatever process.
    /// None if that can't be told.
    pub fn find(&mut self, local: Endpoint) -> Option<u64> {
        self.ask(local, ANY).ok().flatten()
    }

    /// Whether the one with that cookie listens there still.
    pub fn listens(&mut self, local: Endpoint, cookie: u64) -> bool {
        self.ask(local, cookie).is_ok_and(|found| found.is_some())
    }

    fn ask(&mut self, local: Endpoint, cookie: u64) -> Result<Option<u64>, Errno> {
        self.number = self.number.wrapping_add(1);
        let request = request(self.number, local, cookie);
        send(&self.socket, &request, SendFlags::empty())?;
        // The kernel has answered before `send` returns.
        for _ in 0..MOST_STALE {
            let mut answer = [0; ANSWER];
            let (length, _) = recv(&self.socket, &mut answer, RecvFlags::DONTWAIT)?;
            if answer[8..12] == self.number.to_ne_bytes() {
                // It is an `inet_diag_msg`, which begins with the family and the state, or an error.
                let is_one = length >= COOKIE + 8 && answer[4..6] == BY_FAMILY.to_ne_bytes();
                let word = |at: usize| answer[at..].first_chunk().map(|it| u32::from_ne_bytes(*it));
                let cookie = word(COOKIE).zip(word(COOKIE + 4));
                let cookie = cookie.map(|(low, high)| u64::from(high) << 32 | u64::from(low));
                return Ok(cookie.filter(|_| is_one && answer[HEADER + 1] == LISTEN));
            }
        }
        Ok(None)
    }
}

impl From<OwnedFd> for SocketDiag {
    /// With the socket of another one.
    fn from(socket: OwnedFd) -> SocketDiag {
        SocketDiag { socket, number: 0 }
    }
}

impl From<SocketDiag> for OwnedFd {
    fn from(diag: SocketDiag) -> OwnedFd {
        diag.socket
    }
}

fn request(number: u32, local: Endpoint, cookie: u64) -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    // `nlmsghdr`: length, type, flags, number.
    put(0, &(REQUEST as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &IS_REQUEST.to_ne_bytes());
    put(8, &number.to_ne_bytes());
    // `inet_diag_req_v2`: family, protocol; all states; our port, theirs, our address, theirs, interface, cookie.
    let family = match local.addr {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    put(HEADER, &[family.as_raw() as u8, protocol::TCP]);
    put(HEADER + 4, &u32::MAX.to_ne_bytes());
    put(HEADER + 8, &local.port.to_be_bytes());
    match local.addr {
        IpAddr::V4(addr) => put(HEADER + 12, &addr.octets()),
        IpAddr::V6(addr) => {
            put(HEADER + 12, &addr.octets());
            if addr.to_ipv4_mapped().is_some() {
                // The kernel takes it for IPv4 if both ends are.
                put(HEADER + 38, &[0xff; 2]);
            }
        }
    }
    put(HEADER + 48, &(cookie as u32).to_ne_bytes());
    put(HEADER + 52, &((cookie >> 32) as u32).to_ne_bytes());
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::socket_cookie;
    use std::net::TcpListener;

    #[test]
    fn a_socket_listens_until_its_last_descriptor_is_closed() {
        let mut diag = SocketDiag::open().expect("a netlink socket");
        for address in [
            "127.0.0.1:0",
            "0.0.0.0:0",
            "[::1]:0",
            "[::]:0",
            "[::ffff:127.0.0.1]:0",
        ] {
            let listener = TcpListener::bind(address).expect("a port");
            let local = listener.local_addr().expect("an address");
            let local = Endpoint::new(local.ip(), local.port());
            let cookie = socket_cookie(&listener).expect("a cookie");
            let copy = listener.try_clone().expect("a descriptor");
            drop(listener);
            assert_eq!(diag.find(local), Some(cookie), "{address}");
            assert!(diag.listens(local, cookie), "{address}");
            assert!(!diag.listens(local, cookie ^ 1), "{address}: another one");
            drop(copy);
            assert_eq!(diag.find(local), None, "{address}: it is closed");
            assert!(!diag.listens(local, cookie), "{address}: it is closed");
        }
    }

    #[test]
    fn a_socket_that_listens_on_all_addresses_is_found_by_each_family() {
        let mut diag = SocketDiag::open().expect("a netlink socket");
        // (Rust's own binds to both families.)
        let listener = TcpListener::bind("[::]:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        for address in ["0.0.0.0", "::"] {
            let local = Endpoint::new(address.parse().expect("an address"), port);
            assert!(diag.find(local).is_some(), "{address}");
        }
    }

    #[test]
    fn a_connection_is_no_socket_that_listens() {
        let mut diag = SocketDiag::open().expect("a netlink socket");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let call = std::net::TcpStream::connect(address).expect("a connection");
        let (accepted, _) = listener.accept().expect("a connection");
        drop(listener);
        let local = Endpoint::new(address.ip(), address.port());
        assert_eq!(diag.find(local), None);
        drop((call, accepted));
    }
}
