//! Telling which groups we are in.

use super::*;
use crate::addresses::ALL_NODES;
use skink_wire::ChecksumPolicy;

const QUERIER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
const OTHER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 5, 5);
const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// A host in two groups: those of its first address and of its link-local one are the same.
fn host(seed: u64, answers: bool) -> Host {
    let mut host = Host::with(|config| {
        let other = IpCidr::new(OTHER6.into(), 64);
        config.addresses.push(other.expect("a prefix"));
        (config.seed, config.answers) = (seed, answers);
    });
    // Router solicitations.
    for ms in [0, 4000, 8000] {
        host.poll(ms);
    }
    host.wire.frames.clear();
    host
}

/// Lets time pass; answers when reports left, to where, their types, and what is behind their checksums.
fn reports(host: &mut Host, from_ms: u64, to_ms: u64) -> Vec<(u64, Ipv6Addr, u8, Vec<u8>)> {
    let mut reports = Vec::new();
    for ms in from_ms..to_ms {
        host.poll(ms);
        for frame in core::mem::take(&mut host.wire.frames) {
            let (link, packet) = ethernet::Header::parse(&frame).expect("Ethernet");
            if link.ethertype != ethernet::IPV6 {
                continue;
            }
            let (header, payload) = ipv6::Header::parse(packet).expect("IPv6");
            if header.next_header != protocol::HOP_BY_HOP {
                continue;
            }
            let to = header.destination;
            assert_eq!(link.destination, MacAddr::multicast_for_ipv6(to));
            assert_eq!((header.source, header.hop_limit), (LINK_LOCAL, 1));
            // A router alert with the value 0 (RFC 2711).
            let (options, message) = payload.split_at(8);
            assert_eq!(options, [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0]);
            let verify = ChecksumPolicy::Verify;
            let parsed = icmpv6::Message::parse(LINK_LOCAL, to, message, verify);
            assert!(matches!(
                parsed,
                Ok(icmpv6::Message::Unknown { code: 0, .. })
            ));
            reports.push((ms, to, message[0], message[4..].to_vec()));
        }
    }
    reports
}

/// A report of all groups with records of this kind.
fn records(kind: u8) -> Vec<u8> {
    let record = |address| {
        let group = solicited_node(address).octets();
        [&[kind, 0, 0, 0], &group[..]].concat()
    };
    let records = [US6, OTHER6, LINK_LOCAL].map(record).concat();
    [&[0, 0, 0, 3], &*records].concat()
}

/// A query for `group`, or for all; with `more` it is one of version 2.
fn query(source: Ipv6Addr, hop_limit: u8, code: u16, group: Ipv6Addr, more: &[u8]) -> Vec<u8> {
    let [high, low] = code.to_be_bytes();
    let to = match group.is_unspecified() {
        true => ALL_NODES,
        false => group,
    };
    let message = icmpv6::Message::Unknown {
        kind: 130,
        code: 0,
        rest: [high, low, 0, 0],
        body: &[&group.octets(), more].concat(),
    };
    let mut bytes = [0; 64];
    let length = message.emit(source, to, &mut bytes);
    let alert = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
    let header = ipv6::Header {
        hop_limit,
        source,
        destination: to,
        ..v6_header(protocol::HOP_BY_HOP, 8 + length)
    };
    v6_frame(&header, &[&alert, &bytes[..length]].concat())
}

const ALL: Ipv6Addr = Ipv6Addr::UNSPECIFIED;
/// Robustness 2, an interval of 125 s, no sources.
const V2: &[u8] = &[2, 125, 0, 0];

#[test]
fn who_begins_to_answer_joins_the_groups_of_its_addresses() {
    type Beginning = fn(&mut Host);
    let beginnings: [(bool, Beginning); 4] = [
        (true, |host| host.ip.announce(host.now)),
        (true, |host| host.ip.link_restarted()),
        (false, |host| host.ip.set_answers(true)),
        (false, |host| host.ip.announce(host.now)),
    ];
    for (index, (answers, begin)) in beginnings.into_iter().enumerate() {
        let mut host = host(7, answers);
        begin(&mut host);
        let sent = reports(&mut host, 10_000, 20_000);
        let expected = if index < 3 { 2 } else { 0 };
        assert_eq!(sent.len(), expected, "{index}");
        for (_, to, kind, message) in &sent {
            assert_eq!((*to, *kind), (ROUTERS, 143));
            assert_eq!(*message, records(4), "CHANGE_TO_EXCLUDE_MODE");
        }
        if let [first, second] = sent.as_slice() {
            assert!(first.0 == 10_000 && second.0 > 10_000 && second.0 <= 11_000);
        }
        assert_eq!(host.ip.next_deadline(), None);
    }
    let mut host = Host::with(|config| {
        config.addresses.truncate(1);
        config.link_local = false;
    });
    host.ip.link_restarted();
    assert_eq!(host.ip.next_deadline(), None, "no groups");
}

#[test]
fn queries_are_answered_within_their_time() {
    let ours = solicited_node(OTHER6);
    let theirs = solicited_node(PEER6);
    let one_source = [&[2, 125, 0, 1], &PEER6.octets()[..]].concat();
    let afar = PEER6;
    // Queries, and within which time they are answered.
    let table: [(Vec<u8>, Option<u64>); 10] = [
        (query(QUERIER, 1, 10_000, ALL, V2), Some(10_000)),
        (query(QUERIER, 1, 1000, ours, V2), Some(1000)),
        (query(QUERIER, 1, 1000, ours, &one_source), Some(1000)),
        (query(QUERIER, 1, 0, ALL, V2), Some(0)),
        // 0x1000 << (1 + 3) ms (RFC 3810 section 5.1.3).
        (query(QUERIER, 1, 0x9000, ALL, V2), Some(0x1_0000)),
        (query(QUERIER, 1, 1000, theirs, V2), None),
        (query(QUERIER, 1, 1000, ALL_NODES, V2), None),
        (query(afar, 1, 1000, ALL, V2), None),
        (query(QUERIER, 64, 1000, ALL, V2), None),
        (query(QUERIER, 1, 1000, ALL, &[2, 125]), None),
    ];
    for (index, (query, within)) in table.iter().enumerate() {
        let mut latest = 0;
        for seed in 0..10 {
            for answers in [true, false] {
                let mut host = host(seed, answers);
                host.receive(query);
                let Some(within) = within.filter(|_| answers) else {
                    assert_eq!(host.ip.next_deadline(), None, "{index}");
                    continue;
                };
                let due = host.ip.next_deadline().expect("an answer");
                let delay = due.since(host.now).as_millis() as u64;
                assert!(delay <= within, "{index}: {delay} ms");
                latest = latest.max(delay);
                // Asked again, it is the same answer.
                host.receive(query);
                let sent = reports(&mut host, 8000 + delay, 8001 + delay);
                let [(_, ROUTERS, 143, message)] = sent.as_slice() else {
                    panic!("{index}: {sent:?}");
                };
                assert_eq!(*message, records(2), "MODE_IS_EXCLUDE");
                assert_eq!(host.ip.next_deadline(), None, "{index}");
            }
        }
        assert!(
            latest >= within.unwrap_or_default() / 2,
            "{index}: {latest}"
        );
    }
}

#[test]
fn a_router_that_speaks_the_first_version_only_is_told_in_that() {
    let mut host = host(7, true);
    host.receive(&query(QUERIER, 1, 1000, ALL, &[]));
    let sent = reports(&mut host, 8000, 9001);
    let groups = [US6, OTHER6, LINK_LOCAL].map(solicited_node);
    assert_eq!(sent.len(), 3);
    for ((_, to, kind, message), group) in sent.iter().zip(groups) {
        assert_eq!((*to, *kind), (group, 131));
        assert_eq!(*message, [&[0; 4], &group.octets()[..]].concat());
    }
    // It isn't heard again for the Older Version Querier Present Timeout.
    for (ms, kind) in [(260_000, 131), (268_000, 143)] {
        host.poll(ms);
        host.receive(&query(QUERIER, 1, 0, ALL, V2));
        let sent = reports(&mut host, ms, ms + 1);
        assert!(
            !sent.is_empty() && sent.iter().all(|it| it.2 == kind),
            "{ms}"
        );
    }
}
