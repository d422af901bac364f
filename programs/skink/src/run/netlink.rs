//! What is asked of the kernel's routing socket: an address for a TAP interface, and to be told when interfaces change.
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use skink_wire::IpCidr;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const HEADER_BYTES: usize = 16;
const REQUEST_ACKNOWLEDGED: u16 = 1 | 4;
const CREATE_EXCLUSIVE: u16 = 0x400 | 0x200;
const NEW_ADDRESS: u16 = 20;
const ERROR: u16 = 2;
const NO_DUPLICATE_DETECTION: u8 = 2;
const LOCAL: u16 = 2;
const ADDRESS: u16 = 1;

/// `RTMGRP_LINK`
const LINKS: u32 = 1;

/// Readable when something has happened to an interface of this network namespace.
pub struct LinkEvents(OwnedFd);

impl LinkEvents {
    pub fn listen() -> io::Result<LinkEvents> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
        Ok(LinkEvents(socket))
    }

    /// Whether something has happened since the last call; what, is for the caller to look at.
    pub fn take(&self) -> bool {
        let mut has = false;
        // ENOBUFS says that more has happened than there was room for.
        while matches!(
            rustix::net::recv(&self.0, &mut [0; 64], RecvFlags::empty()),
            Ok(_) | Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR)
        ) {
            has = true;
        }
        has
    }
}

impl AsFd for LinkEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Gives `interface` an address. That it has it already is no error.
pub fn add_address(interface: &str, address: &IpCidr) -> io::Result<()> {
    let index = skink_nic::interface::find(interface)?
        .ok_or(io::ErrorKind::NotFound)?
        .index;
    let flags = SocketFlags::CLOEXEC;
    // No protocol number stands for NETLINK_ROUTE.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    rustix::net::send(&socket, &message(index, address), SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (length, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    match outcome(answer.get(..length).unwrap_or_default()) {
        Some(0) => Ok(()),
        Some(libc::EEXIST) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// `RTM_NEWADDR`, see rtnetlink(7).
fn message(index: u32, address: &IpCidr) -> Vec<u8> {
    let (family, bytes) = match address.addr {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let mut body = vec![family as u8, address.prefix, NO_DUPLICATE_DETECTION, 0];
    body.extend(index.to_ne_bytes());
    for kind in [LOCAL, ADDRESS] {
        body.extend((bytes.len() as u16 + 4).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(&bytes);
    }
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend((HEADER_BYTES as u32 + body.len() as u32).to_ne_bytes());
    message.extend(NEW_ADDRESS.to_ne_bytes());
    message.extend((REQUEST_ACKNOWLEDGED | CREATE_EXCLUSIVE).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// The error number of an acknowledgement, 0 for success.
fn outcome(answer: &[u8]) -> Option<i32> {
    let kind = answer.get(4..)?.first_chunk::<2>()?;
    let error = answer.get(HEADER_BYTES..)?.first_chunk::<4>()?;
    (u16::from_ne_bytes(*kind) == ERROR).then(|| i32::from_ne_bytes(*error).wrapping_neg())
}
