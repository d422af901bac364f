//! Which driver an interface has.

use crate::socket;
use std::io;
use std::os::fd::AsFd;

const ETHTOOL_GDRVINFO: u32 = 3;

/// Drivers whose link may end in this machine: frames may come without transport checksums.
const LOCAL: [&[u8]; 5] = [b"veth", b"virtio_net", b"tun", b"macvlan", b"bridge"];

/// `struct ethtool_drvinfo` of `<linux/ethtool.h>`.
#[repr(C)]
struct Information {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const _: () = assert!(size_of::<Information>() == 196);

/// Whether the other end of the interface's link may be in this machine.
pub(super) fn may_be_local(name: &str) -> io::Result<bool> {
    let socket = socket::packet_socket()?;
    let mut information = Information {
        command: ETHTOOL_GDRVINFO,
        driver: [0; 32],
        rest: [0; 160],
    };
    let mut request = socket::interface_request(name);
    request.ifr_ifru.ifru_data = (&raw mut information).cast();
    socket::interface_ioctl(socket.as_fd(), libc::SIOCETHTOOL, &mut request)?;
    let driver = information.driver.split(|byte| *byte == 0).next();
    Ok(driver.is_some_and(|driver| LOCAL.contains(&driver)))
}
