//! What driver an interface has, and what that can do.

use crate::socket;
use std::io;
use std::os::fd::AsFd;

const ETHTOOL_GDRVINFO: u32 = 3;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// Drivers whose link may end in this machine: frames may come without transport checksums.
const LOCAL: [&str; 5] = ["veth", "virtio_net", "tun", "macvlan", "bridge"];

/// Frames that an end of a veth takes in before its NAPI comes (`VETH_RING_SIZE` of drivers/net/veth.c).
pub(super) const VETH_QUEUE: i32 = 256;

/// `struct ethtool_drvinfo` of `<linux/ethtool.h>`.
#[repr(C)]
struct Information {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const _: () = assert!(size_of::<Information>() == 196);

/// `struct ethtool_value` of `<linux/ethtool.h>`.
#[repr(C)]
pub(super) struct Value {
    pub(super) command: u32,
    pub(super) data: u32,
}

/// `struct ethtool_channels` of `<linux/ethtool.h>`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    send: u32,
    other: u32,
    combined: u32,
}

const _: () = assert!(size_of::<Channels>() == 36);

/// Asks the interface's driver.
///
/// # Safety
/// `question` must be the structure of `<linux/ethtool.h>` that goes with the command that it begins with: the
/// kernel writes as much as that has.
pub(super) unsafe fn ask<T>(name: &str, question: &mut T) -> io::Result<()> {
    let socket = crate::interface::any_socket()?;
    let mut request = socket::interface_request(name);
    request.ifr_ifru.ifru_data = std::ptr::from_mut(question).cast();
    socket::interface_ioctl(socket.as_fd(), libc::SIOCETHTOOL, &mut request)
}

/// Whether the device segments large TCP packets by itself, or never needs to.
pub(crate) fn segments(name: &str) -> io::Result<bool> {
    let mut value = Value {
        command: ETHTOOL_GTSO,
        data: 0,
    };
    // SAFETY: it is the command's structure.
    unsafe { ask(name, &mut value) }?;
    Ok(value.data != 0)
}

/// Has the device do so, or the kernel.
pub(crate) fn set_segments(name: &str, segments: bool) -> io::Result<()> {
    let mut value = Value {
        command: ETHTOOL_STSO,
        data: u32::from(segments),
    };
    // SAFETY: it is the command's structure.
    unsafe { ask(name, &mut value) }
}

/// How many receive queues the interface has, if its driver says so.
pub(super) fn queues(name: &str) -> Option<u32> {
    let mut channels = Channels {
        command: ETHTOOL_GCHANNELS,
        ..Channels::default()
    };
    // SAFETY: it is the command's structure.
    unsafe { ask(name, &mut channels) }.ok()?;
    let queues = channels.receive.saturating_add(channels.combined);
    (queues > 0).then_some(queues)
}

/// Whether the other end of the interface's link may be in this machine.
pub(super) fn may_be_local(name: &str) -> io::Result<bool> {
    Ok(LOCAL.contains(&driver(name)?.as_str()))
}

/// Whether the interface is an end of a virtual cable, whose other end drops what its queue ([`VETH_QUEUE`])
/// has no room for.
pub(crate) fn is_veth(name: &str) -> io::Result<bool> {
    Ok(driver(name)? == "veth")
}

/// The driver's name.
pub(super) fn driver(name: &str) -> io::Result<String> {
    let mut information = Information {
        command: ETHTOOL_GDRVINFO,
        driver: [0; 32],
        rest: [0; 160],
    };
    // SAFETY: it is the command's structure.
    unsafe { ask(name, &mut information) }?;
    let driver = information.driver.split(|byte| *byte == 0).next();
    Ok(String::from_utf8_lossy(driver.unwrap_or_default()).into_owned())
}
