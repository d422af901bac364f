use super::*;
use crate::sockaddr::{Name, read};

fn shown(list: *mut ifaddrs) -> Vec<String> {
    let mut shown = Vec::new();
    let mut at = list;
    // SAFETY: the list of a test, which ends with null.
    while let Some(entry) = unsafe { at.as_ref() } {
        // SAFETY: as above.
        let name = unsafe { core::ffi::CStr::from_ptr(entry.ifa_name) };
        let address = |at: *mut sockaddr| {
            let length = size_of::<libc::sockaddr_in6>() as u32;
            // SAFETY: as above.
            match unsafe { read(at, length) } {
                Ok(Name::Inet(endpoint)) => endpoint.addr.to_string(),
                _ => "-".to_owned(),
            }
        };
        let parts = [entry.ifa_addr, entry.ifa_netmask, entry.ifa_ifu].map(address);
        shown.push(format!("{} {}", name.to_string_lossy(), parts.join(" ")));
        at = entry.ifa_next;
    }
    shown
}

#[test]
fn addresses_come_last_and_are_all_that_is_removed() {
    let addresses: Vec<IpCidr> = ["192.0.2.2/24", "192.0.2.9/32", "2001:db8::2/64"]
        .map(|text| text.parse().expect("an address"))
        .into();
    let mut list = core::ptr::null_mut();
    // SAFETY: libc fills in the pointer, and frees what is left of the list.
    unsafe {
        assert_eq!(libc::getifaddrs(&mut list), 0);
        let before = shown(list);
        append(&mut list, "an-interface-with-a-long-name", &addresses);
        let after = shown(list);
        assert_eq!(&after[..before.len()], before);
        assert_eq!(
            &after[before.len()..],
            [
                "an-interface-wi 192.0.2.2 255.255.255.0 192.0.2.255",
                "an-interface-wi 192.0.2.9 255.255.255.255 192.0.2.9",
                "an-interface-wi 2001:db8::2 ffff:ffff:ffff:ffff:: -",
            ]
        );
        list = remove(list);
        assert_eq!(shown(list), before);
        libc::freeifaddrs(list);
        let mut empty = core::ptr::null_mut();
        append(&mut empty, "eth0", &addresses);
        assert_eq!(shown(empty).len(), 3);
        assert!(remove(empty).is_null());
    }
}
