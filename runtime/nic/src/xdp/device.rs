//! What an interface's device and its driver can do: the facts by which somebody may choose a back end.
//! None of them needs privileges.

mod netlink;

use super::{Geometry, driver};
use crate::interface::Interface;
use crate::segmentation;

/// Largest IP packet in bytes whose frame fits into one of AF_XDP's chunks.
pub const XDP_MTU: u32 = Geometry::QUEUE.room() - skink_wire::ethernet::LEN as u32;

/// Facts about the device behind an interface, as they were when they were asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Its driver, such as `veth`; empty if it doesn't say.
    pub driver: String,
    /// It cuts large TCP packets by itself, or never needs to (`ETHTOOL_GTSO`).
    pub cuts: bool,
    /// Where an XDP program sits, whoever put it there.
    pub xdp_program: Option<XdpPlace>,
    /// What its driver does with XDP. The kernel says so since Linux 6.3.
    pub xdp: Option<XdpSupport>,
}

/// Where an XDP program sits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XdpPlace {
    /// In the driver, or the card.
    Driver,
    /// Behind the driver, which can't run it: each frame costs a socket buffer and a copy before.
    Generic,
}

/// What a driver does with XDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XdpSupport {
    /// It runs programs, and takes frames where they send them.
    pub native: bool,
    /// It exchanges frames with AF_XDP sockets without a copy.
    pub zero_copy: bool,
}

impl Device {
    /// Asks the kernel. What it doesn't tell counts as not there.
    pub fn of(interface: &Interface) -> Device {
        let name = &interface.name;
        Device {
            driver: driver::driver(name).unwrap_or_default(),
            cuts: segmentation::segments(name).unwrap_or(false),
            xdp_program: netlink::xdp_program(interface.index).unwrap_or_default(),
            xdp: netlink::xdp_support(interface.index).ok(),
        }
    }
}

#[cfg(test)]
mod tests;
