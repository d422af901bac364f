//! Names of hosts. libc looks them up itself; but of `AI_ADDRCONFIG`, by which it finds only addresses of families that the
//! machine has an address of, it asks the kernel, which doesn't know Skink's addresses. So that is decided here.
use crate::lock::lock;
use libc::addrinfo;

/// What `getaddrinfo` is to be asked in place of `asked`; `None` if it knows all that it needs.
pub fn hints(asked: Option<&addrinfo>) -> Option<addrinfo> {
    let mut hints = match asked {
        Some(asked) => *asked,
        None => {
            // SAFETY: numbers and pointers, for which zero is a value.
            let mut hints: addrinfo = unsafe { core::mem::zeroed() };
            hints.ai_flags = libc::AI_V4MAPPED | libc::AI_ADDRCONFIG;
            hints
        }
    };
    if hints.ai_flags & libc::AI_ADDRCONFIG == 0 {
        return None;
    }
    hints.ai_family = family(hints.ai_family, lock().ok()?.has_families()?)?;
    hints.ai_flags &= !libc::AI_ADDRCONFIG;
    Some(hints)
}

/// The family to look for, where addresses of IPv4 and of IPv6 are there or not; `None` if there is none to be found.
fn family(asked: i32, [v4, v6]: [bool; 2]) -> Option<i32> {
    match (asked, v4, v6) {
        (libc::AF_UNSPEC, true, true) => Some(libc::AF_UNSPEC),
        (libc::AF_UNSPEC | libc::AF_INET, true, _) => Some(libc::AF_INET),
        (libc::AF_UNSPEC | libc::AF_INET6, _, true) => Some(libc::AF_INET6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_families_of_which_there_is_an_address_are_looked_for() {
        for (asked, there, expected) in [
            (libc::AF_UNSPEC, [true, true], Some(libc::AF_UNSPEC)),
            (libc::AF_UNSPEC, [true, false], Some(libc::AF_INET)),
            (libc::AF_UNSPEC, [false, true], Some(libc::AF_INET6)),
            (libc::AF_UNSPEC, [false, false], None),
            (libc::AF_INET, [true, true], Some(libc::AF_INET)),
            (libc::AF_INET, [false, true], None),
            (libc::AF_INET6, [true, false], None),
            (libc::AF_INET6, [true, true], Some(libc::AF_INET6)),
        ] {
            assert_eq!(family(asked, there), expected, "{asked} {there:?}");
        }
    }
}
