//! What the kernel says about its interfaces, in the calling thread's network namespace.

use crate::socket::{interface_ioctl, interface_request};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use skink_wire::{IpCidr, MacAddr};
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// Facts about one interface, as they were when they were asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// Its Ethernet address, if it is an Ethernet interface.
    pub mac: Option<MacAddr>,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether it is on and has a carrier, so that what is sent leaves.
    pub running: bool,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// The kernel's addresses on it.
    pub addresses: Vec<IpCidr>,
}

/// All interfaces, in the kernel's order.
pub fn list() -> io::Result<Vec<Interface>> {
    let mut found: Vec<Interface> = Vec::new();
    let entries = Entries::read()?;
    for entry in entries.iter() {
        let name = entry.name();
        let at = match found.iter().position(|known| known.name == name) {
            Some(at) => at,
            None => {
                found.push(Interface {
                    name,
                    index: 0,
                    mac: None,
                    mtu: 0,
                    up: entry.has(libc::IFF_UP),
                    running: entry.has(libc::IFF_RUNNING),
                    loopback: entry.has(libc::IFF_LOOPBACK),
                    addresses: Vec::new(),
                });
                found.len() - 1
            }
        };
        let Some(interface) = found.get_mut(at) else {
            continue;
        };
        match entry.address() {
            Address::Link { index, mac } => {
                interface.index = index;
                interface.mac = mac;
            }
            Address::Ip(address) => interface.addresses.push(address),
            Address::Other => {}
        }
    }
    // An address label such as `eth0:1` isn't an interface of its own.
    let (mut interfaces, labels): (Vec<_>, Vec<_>) = found.into_iter().partition(|i| i.index != 0);
    for label in labels {
        let base = label.name.split(':').next().unwrap_or_default();
        if let Some(interface) = interfaces.iter_mut().find(|i| i.name == base) {
            interface.addresses.extend(label.addresses);
        }
    }
    for interface in &mut interfaces {
        interface.mtu = mtu(&interface.name)?;
    }
    Ok(interfaces)
}

/// The interface of that name, if there is one.
pub fn find(name: &str) -> io::Result<Option<Interface>> {
    Ok(list()?.into_iter().find(|i| i.name == name))
}

/// Switches an interface on (needs `CAP_NET_ADMIN`).
pub fn set_up(name: &str) -> io::Result<()> {
    let socket = any_socket()?;
    let mut request = interface_request(name);
    interface_ioctl(socket.as_fd(), libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has just filled in the flags, and any bits make valid flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    if i32::from(flags) & libc::IFF_UP != 0 {
        return Ok(());
    }
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as i16;
    interface_ioctl(socket.as_fd(), libc::SIOCSIFFLAGS, &mut request)
}

/// Whether the kernel passes on what comes in by it and isn't its own.
pub(crate) fn forwards(name: &str) -> bool {
    ["ipv4", "ipv6"].iter().any(|family| {
        let path = format!("/proc/sys/net/{family}/conf/{name}/forwarding");
        std::fs::read_to_string(path).is_ok_and(|value| value.trim() != "0")
    })
}

fn mtu(name: &str) -> io::Result<u32> {
    let mut request = interface_request(name);
    interface_ioctl(any_socket()?.as_fd(), libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the kernel has just filled in the MTU, and any bits make a valid integer.
    Ok(u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

/// Interface ioctls work on a socket of any kind.
pub(crate) fn any_socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

enum Address {
    Link { index: u32, mac: Option<MacAddr> },
    Ip(IpCidr),
    Other,
}

/// The list that `getifaddrs` makes.
struct Entries(*mut libc::ifaddrs);

struct Entry<'a>(&'a libc::ifaddrs);

impl Entries {
    fn read() -> io::Result<Entries> {
        let mut first = std::ptr::null_mut();
        // SAFETY: the call stores a list, which `drop` frees.
        crate::socket::check(unsafe { libc::getifaddrs(&raw mut first) })?;
        Ok(Entries(first))
    }

    fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut next = self.0;
        std::iter::from_fn(move || {
            // SAFETY: null or an entry of the list, which lives and stays as it is until `drop`.
            let entry = unsafe { NonNull::new(next)?.as_ref() };
            next = entry.ifa_next;
            Some(Entry(entry))
        })
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        // SAFETY: getifaddrs made the list, and no entry is borrowed any more.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

impl Entry<'_> {
    fn name(&self) -> String {
        // SAFETY: a name is always there, ends in 0 and lives as long as the list.
        let name = unsafe { CStr::from_ptr(self.0.ifa_name) };
        name.to_string_lossy().into_owned()
    }

    fn has(&self, flag: libc::c_int) -> bool {
        self.0.ifa_flags & flag as u32 != 0
    }

    fn address(&self) -> Address {
        let Some(address) = NonNull::new(self.0.ifa_addr) else {
            return Address::Other;
        };
        // SAFETY: an address begins with its family.
        match i32::from(unsafe { address.as_ref().sa_family }) {
            libc::AF_PACKET => {
                // SAFETY: the family says that it is a sockaddr_ll.
                let link = unsafe { address.cast::<libc::sockaddr_ll>().as_ref() };
                let [a, b, c, d, e, f, ..] = link.sll_addr;
                Address::Link {
                    index: link.sll_ifindex as u32,
                    mac: (link.sll_hatype == libc::ARPHRD_ETHER)
                        .then_some(MacAddr([a, b, c, d, e, f])),
                }
            }
            libc::AF_INET => self.ip(address.as_ptr()),
            libc::AF_INET6 => self.ip(address.as_ptr()),
            _ => Address::Other,
        }
    }

    fn ip(&self, address: *const libc::sockaddr) -> Address {
        let Some(address) = ip_of(address) else {
            return Address::Other;
        };
        let prefix = match ip_of(self.0.ifa_netmask) {
            Some(IpAddr::V4(mask)) => mask.to_bits().leading_ones(),
            Some(IpAddr::V6(mask)) => mask.to_bits().leading_ones(),
            None => 128,
        };
        Address::Ip(IpCidr {
            addr: address,
            prefix: prefix as u8,
        })
    }
}

/// The IP address in a socket address of the list, if it is one.
fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    let address = NonNull::new(address.cast_mut())?;
    // SAFETY: an address in the list begins with its family, which says what the rest is.
    unsafe {
        match i32::from(address.as_ref().sa_family) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().as_ref();
                Some(Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().as_ref();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
