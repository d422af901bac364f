//! Interfaces as a program sees them (`getifaddrs`, `ioctl`): the one that Skink uses has Skink's addresses as well.
use core::ffi::c_char;
use core::net::IpAddr;
use libc::{ifaddrs, sockaddr};
use skink_wire::{Endpoint, IpCidr};

pub mod requests;

/// An address of Skink's in the list. `name` stands at one place behind `entry`, and `entry` leads there: so it is known again.
#[repr(C)]
struct Own {
    entry: ifaddrs,
    name: [u8; libc::IF_NAMESIZE],
    address: libc::sockaddr_storage,
    mask: libc::sockaddr_storage,
    broadcast: libc::sockaddr_storage,
}

/// Puts `addresses` of the interface `name` behind all others in a list.
///
/// # Safety
/// `list` must be a list of libc's.
pub unsafe fn append(mut list: *mut *mut ifaddrs, name: &str, addresses: &[IpCidr]) {
    let mut flags = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
    flags |= (libc::IFF_BROADCAST | libc::IFF_MULTICAST) as u32;
    // SAFETY: the caller's promise: it ends with null.
    while let Some(entry) = unsafe { (*list).as_mut() } {
        // SAFETY: a name is a C string.
        let other = unsafe { core::ffi::CStr::from_ptr(entry.ifa_name) };
        if other.to_bytes() == name.as_bytes() {
            flags = entry.ifa_flags;
        }
        list = &raw mut entry.ifa_next;
    }
    for address in addresses {
        let own = Box::leak(Box::new(own(name, *address)));
        own.entry.ifa_flags = flags;
        own.entry.ifa_name = own.name.as_mut_ptr().cast::<c_char>();
        own.entry.ifa_addr = (&raw mut own.address).cast();
        own.entry.ifa_netmask = (&raw mut own.mask).cast();
        if address.addr.is_ipv4() {
            own.entry.ifa_ifu = (&raw mut own.broadcast).cast();
        }
        // SAFETY: the end of the list, which is writable; what is there lives until it is freed.
        unsafe { *list = &raw mut own.entry };
        list = &raw mut own.entry.ifa_next;
    }
}

fn own(name: &str, address: IpCidr) -> Own {
    // SAFETY: numbers and pointers, for which zero is a value.
    let mut own: Own = unsafe { core::mem::zeroed() };
    let room = own.name.len() - 1;
    let name = &name.as_bytes()[..name.len().min(room)];
    own.name[..name.len()].copy_from_slice(name);
    let host = match address.addr {
        IpAddr::V4(_) => u32::MAX.checked_shr(address.prefix.into()).unwrap_or(0),
        IpAddr::V6(_) => 0,
    };
    let mask: IpAddr = match address.addr {
        IpAddr::V4(_) => core::net::Ipv4Addr::from(!host).into(),
        IpAddr::V6(_) => {
            let host = u128::MAX.checked_shr(address.prefix.into()).unwrap_or(0);
            core::net::Ipv6Addr::from(!host).into()
        }
    };
    let broadcast = match address.addr {
        IpAddr::V4(v4) => core::net::Ipv4Addr::from(u32::from(v4) | host).into(),
        v6 => v6,
    };
    for (at, address) in [
        (&mut own.address, address.addr),
        (&mut own.mask, mask),
        (&mut own.broadcast, broadcast),
    ] {
        let family = match address {
            IpAddr::V4(_) => libc::AF_INET,
            IpAddr::V6(_) => libc::AF_INET6,
        };
        let mut length = size_of::<libc::sockaddr_storage>() as u32;
        // SAFETY: both are ours, and as large as is said.
        unsafe {
            let at = (&raw mut *at).cast::<sockaddr>();
            crate::sockaddr::write(Endpoint::new(address, 0), family, at, &raw mut length);
        }
    }
    own
}

/// Frees what [`append`] has put at the end of a list; answers the rest, which is libc's.
///
/// # Safety
/// `list` must come from [`append`], or from libc.
pub unsafe fn remove(mut list: *mut ifaddrs) -> *mut ifaddrs {
    let mut at = &raw mut list;
    // SAFETY: the list ends with null; an entry whose name lies there is one of ours, which was leaked and isn't used any more.
    unsafe {
        while let Some(entry) = (*at).as_mut() {
            let own = (&raw mut *entry).cast::<Own>();
            let name = own.byte_add(core::mem::offset_of!(Own, name));
            if entry.ifa_name.cast::<Own>() == name {
                *at = entry.ifa_next;
                drop(Box::from_raw(own));
            } else {
                at = &raw mut entry.ifa_next;
            }
        }
    }
    list
}

#[cfg(test)]
mod tests;
