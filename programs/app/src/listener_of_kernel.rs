//! Whether a socket of the kernel's listens (sock_diag(7)).
use core::net::IpAddr;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use skink_wire::Endpoint;

/// Bytes of a netlink message's header (`nlmsghdr`), and of a request for one socket with it (`inet_diag_req_v2`).
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;
/// `SOCK_DIAG_BY_FAMILY`, `NLM_F_REQUEST` and `TCP_LISTEN`.
const BY_FAMILY: u16 = 20;
const IS_REQUEST: u16 = 1;
const LISTEN: u8 = 10;

/// Whether the socket with this cookie (`SO_COOKIE`) listens there, in whatever process. If it can't be told, it doesn't.
pub fn listens(local: Endpoint, cookie: u64) -> bool {
    // What comes is an `inet_diag_msg`, which begins with the family and the state, or an error.
    let answer = ask(&request(local, cookie)).unwrap_or_default();
    answer[4..6] == BY_FAMILY.to_ne_bytes() && answer[HEADER + 1] == LISTEN
}

/// The beginning of the answer, which the kernel has given once the request is sent.
fn ask(request: &[u8]) -> Result<[u8; HEADER + 2], Errno> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    send(&socket, request, SendFlags::empty())?;
    let mut answer = [0; HEADER + 2];
    recv(&socket, &mut answer, RecvFlags::DONTWAIT)?;
    Ok(answer)
}

fn request(local: Endpoint, cookie: u64) -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    // `nlmsghdr`: length, type, flags.
    put(0, &(REQUEST as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &IS_REQUEST.to_ne_bytes());
    // `inet_diag_req_v2`: family, protocol; all states; our port, theirs, our address, theirs, interface, cookie.
    let family = match local.addr {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    put(HEADER, &[family as u8, libc::IPPROTO_TCP as u8]);
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
            assert!(listens(local, cookie), "{address}");
            assert!(!listens(local, cookie ^ 1), "{address}: another one");
            let elsewhere = Endpoint::new(local.addr, local.port ^ 1);
            assert!(!listens(elsewhere, cookie), "{address}: another port");
            drop(copy);
            assert!(!listens(local, cookie), "{address}: it is closed");
        }
    }
}
