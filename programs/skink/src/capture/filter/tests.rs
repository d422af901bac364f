use super::*;
use crate::capture::frame::tests::{ethernet, ip, tcp};

#[test]
fn filters_show_the_frames_that_they_name() {
    let frames = [
        ip("10.0.0.1", "10.0.0.2", 6, &tcp(80, 5000), 20),
        ip("10.0.0.2", "10.0.0.1", 6, &tcp(5000, 80), 20),
        ip("10.0.0.1", "10.0.0.9", 17, &[0, 53, 1, 0, 0, 8, 0, 0], 8),
        ip("fd77::1", "fd77::2", 6, &tcp(80, 6000), 20),
        ip("10.0.0.1", "10.0.0.2", 1, &[8, 0, 0, 0], 4),
        ip("fe80::1", "ff02::1", 58, &[136, 0], 2),
        ethernet(0x0806, &[]),
    ];
    let frames = frames.map(|bytes| Frame::read(&bytes));
    let cases: [(&str, &[usize]); 30] = [
        ("", &[0, 1, 2, 3, 4, 5, 6]),
        ("tcp", &[0, 1, 3]),
        ("udp", &[2]),
        ("icmp", &[4]),
        ("icmp6", &[5]),
        ("arp", &[6]),
        ("ip", &[0, 1, 2, 4]),
        ("ip6", &[3, 5]),
        ("host 10.0.0.2", &[0, 1, 4]),
        ("src host 10.0.0.2", &[1]),
        ("dst host 10.0.0.2", &[0, 4]),
        ("src 10.0.0.2", &[1]),
        ("10.0.0.9", &[2]),
        ("host fd77:0::1", &[3]),
        ("net 10.0.0.8/30", &[2]),
        ("dst net fd77::/64", &[3]),
        ("port 80", &[0, 1, 3]),
        ("src port 80", &[0, 3]),
        ("dst port 80", &[1]),
        ("tcp port 53", &[]),
        ("udp port 53", &[2]),
        ("ip6 and port 80", &[3]),
        ("not tcp", &[2, 4, 5, 6]),
        ("! tcp && ! arp", &[2, 4, 5]),
        ("not not udp", &[2]),
        // As with tcpdump, `and` binds more than `or`.
        ("arp or tcp and host fd77::1", &[3, 6]),
        ("tcp and host fd77::1 or arp", &[3, 6]),
        ("(arp or tcp) and host fd77::1", &[3]),
        ("not (tcp or udp) and not(arp)", &[4, 5]),
        ("TCP DST PORT 5000", &[0]),
    ];
    for (text, expected) in cases {
        let filter = Filter::parse(text).expect(text);
        let shown = (0..frames.len()).filter(|at| filter.matches(&frames[*at]));
        assert_eq!(shown.collect::<Vec<_>>(), expected, "{text}");
    }
}

#[test]
fn what_is_no_filter_is_refused_with_a_sentence() {
    let deep = "(".repeat(100_000);
    let cases = [
        ("sctp", "sctp"),
        ("tcp udp", "udp"),
        ("host", "ends after \"host\""),
        ("host example.com", "example.com"),
        ("port 65536", "65536"),
        ("port http", "http"),
        ("net 10.0.0.0/33", "33"),
        ("net 10.0.0.0", "'/'"),
        ("(tcp", "isn't closed"),
        ("tcp)", "\")\""),
        ("tcp and", "ends"),
        ("not", "ends"),
        ("and tcp", "and"),
        ("src", "ends"),
        (&deep, "too deeply"),
    ];
    for (text, expected) in cases {
        let error = Filter::parse(text).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}
