use super::*;

fn endpoint(text: &str) -> Endpoint {
    text.parse::<core::net::SocketAddr>()
        .expect("an address")
        .into()
}

/// Reads back what `encode` makes of `endpoint` on a socket of `domain`.
fn there_and_back(endpoint: Endpoint, domain: c_int) -> (Answer<Name>, usize) {
    let (bytes, length) = encode(endpoint, domain);
    // SAFETY: `length` bytes are there.
    let name = unsafe { read(bytes.as_ptr().cast(), length as socklen_t) };
    (name, length)
}

#[test]
fn addresses_survive_the_way_through_a_sockaddr() {
    let table = [
        ("192.0.2.7:80", libc::AF_INET, "192.0.2.7:80", 16),
        ("[2001:db8::1]:443", libc::AF_INET6, "[2001:db8::1]:443", 28),
        // An IPv6 socket shows an IPv4 peer mapped.
        ("192.0.2.7:80", libc::AF_INET6, "[::ffff:192.0.2.7]:80", 28),
        // But no address stays no address.
        ("0.0.0.0:80", libc::AF_INET6, "[::]:80", 28),
    ];
    for (given, domain, expected, length) in table {
        let (name, written) = there_and_back(endpoint(given), domain);
        assert_eq!(
            name,
            Ok(Name::Inet(endpoint(expected))),
            "{given} in domain {domain}"
        );
        assert_eq!(written, length, "{given} in domain {domain}");
    }
}

#[test]
fn what_is_no_address_is_refused() {
    let (v4, _) = encode(endpoint("192.0.2.7:80"), libc::AF_INET);
    let (v6, _) = encode(endpoint("[2001:db8::1]:80"), libc::AF_INET6);
    let (unix, unspecified) = ([1u8, 0, 0, 0], [0u8; 4]);
    let table = [
        (v4.as_ptr(), 15, fail(libc::EINVAL)),
        (v4.as_ptr(), 1, fail(libc::EINVAL)),
        (v6.as_ptr(), 23, fail(libc::EINVAL)),
        (unix.as_ptr(), 4, fail(libc::EAFNOSUPPORT)),
        (unspecified.as_ptr(), 4, Ok(Name::Unspecified)),
        (core::ptr::null(), 16, fail(libc::EFAULT)),
    ];
    for (at, length, expected) in table {
        // SAFETY: as many bytes are there.
        let name = unsafe { read(at.cast(), length) };
        assert_eq!(name, expected, "length {length}");
    }
}

#[test]
fn an_address_is_cut_to_the_room_there_is() {
    let mut room = [0xaau8; 28];
    let mut length = 4;
    // SAFETY: four bytes are allowed, and there are more.
    unsafe {
        write(
            endpoint("192.0.2.7:80"),
            libc::AF_INET,
            room.as_mut_ptr().cast(),
            &mut length,
        )
    };
    assert_eq!((length, &room[2..6]), (16, &[0, 80, 0xaa, 0xaa][..]));
}
