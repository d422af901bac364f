use super::*;
use crate::options::Told;
use skink_wire::Endpoint;

/// The control messages that a program would read: level, type, data.
fn written(received: &Received, room: usize) -> (Vec<(c_int, c_int, Vec<u8>)>, c_int) {
    let mut control = [0u64; 32];
    // SAFETY: a header of zeros names nothing.
    let mut message: msghdr = unsafe { core::mem::zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = room;
    let mut found = Vec::new();
    // SAFETY: the buffer has 256 bytes, and the macros stay inside what is written.
    unsafe {
        write_control(&mut message, received);
        let mut next = libc::CMSG_FIRSTHDR(&message);
        while let Some(header) = next.as_ref() {
            let length = header.cmsg_len - libc::CMSG_LEN(0) as usize;
            let data = core::slice::from_raw_parts(libc::CMSG_DATA(next), length);
            found.push((header.cmsg_level, header.cmsg_type, data.to_vec()));
            next = libc::CMSG_NXTHDR(&message, next);
        }
    }
    (found, message.msg_flags)
}

const ALL: Told = Told {
    info_v4: true,
    info_v6: true,
    ttl: true,
    hop_limit: true,
    tos: true,
    traffic_class: true,
    time: Some(TimeUnit::Micros),
};

fn received(to: IpAddr) -> Received {
    Received {
        from: Some(Endpoint::new(to, 7)),
        to: Some(to),
        interface: Some(5),
        hop_limit: 33,
        traffic_class: 0x2a,
        time: Some(Duration::new(7, 8_000)),
        told: ALL,
        ..Received::default()
    }
}

fn time() -> (c_int, c_int, Vec<u8>) {
    let data = [7u64, 8].map(u64::to_ne_bytes).concat();
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP, data)
}

/// What a socket asks of IPv4 is told of IPv4's datagrams, and so with IPv6; but the address it was sent to is told as that of
/// IPv6 always, if that was asked for (ip(7), ipv6(7)).
#[test]
fn each_family_has_its_own() {
    let interface = 5u32.to_ne_bytes();
    let number = |number: c_int| number.to_ne_bytes().to_vec();
    let v4 = Ipv4Addr::new(10, 0, 0, 2);
    let mapped = v4.to_ipv6_mapped().octets();
    let expected = [
        time(),
        (
            libc::IPPROTO_IPV6,
            libc::IPV6_PKTINFO,
            [&mapped[..], &interface].concat(),
        ),
        (
            libc::IPPROTO_IP,
            libc::IP_PKTINFO,
            [interface, v4.octets(), v4.octets()].concat(),
        ),
        (libc::IPPROTO_IP, libc::IP_TTL, number(33)),
        (libc::IPPROTO_IP, libc::IP_TOS, vec![0x2a]),
    ];
    assert_eq!(written(&received(v4.into()), 256), (expected.to_vec(), 0));
    let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
    let expected = [
        time(),
        (
            libc::IPPROTO_IPV6,
            libc::IPV6_PKTINFO,
            [&v6.octets()[..], &interface].concat(),
        ),
        (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, number(33)),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, number(0x2a)),
    ];
    assert_eq!(written(&received(v6.into()), 256), (expected.to_vec(), 0));
}

#[test]
fn what_there_is_no_room_for_is_cut_off() {
    // SAFETY: only computes.
    let space = unsafe { libc::CMSG_SPACE(16) } as usize;
    let to = received(IpAddr::from([10, 0, 0, 2]));
    for room in [space, space + 16] {
        assert_eq!(written(&to, room), (vec![time()], libc::MSG_CTRUNC));
    }
    assert_eq!(written(&to, 3), (vec![], libc::MSG_CTRUNC));
}
