//! The kernel's decisions, packet by packet, through BPF_PROG_TEST_RUN.

mod frames;

use frames::{Frame, LOCAL4, LOCAL6, OTHER4, REMOTE4, REMOTE6, tcp, udp};
use skink_messages::Ports;
use skink_steering::{
    BUCKETS, FlowRings, Owner, PortTable, QueueOwners, RINGS, Steering, SteeringError,
};
use skink_wire::{Endpoint, FourTuple};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// Runs `program` on `frame`, and answers what it returned.
fn run(program: BorrowedFd<'_>, frame: &[u8]) -> u32 {
    /// The members of `union bpf_attr` for BPF_PROG_TEST_RUN.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        program: u32,
        answer: u32,
        input_bytes: u32,
        output_bytes: u32,
        input: u64,
        output: u64,
        rest: [u64; 6],
    }
    const BPF_PROG_TEST_RUN: libc::c_int = 10;
    let mut attributes = Attributes {
        program: program.as_raw_fd() as u32,
        input_bytes: frame.len() as u32,
        input: frame.as_ptr() as u64,
        ..Attributes::default()
    };
    // SAFETY: the attributes and the frame outlive the call; the kernel writes the answer only.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_TEST_RUN,
            &raw mut attributes,
            size_of::<Attributes>(),
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    attributes.answer
}

fn owner(number: u8) -> Owner {
    Owner::new(number).expect("less than 64")
}

struct Bench {
    steering: Steering,
}

impl Bench {
    /// Steering for our two addresses and the given owners; owner N has fan-out index N + 100.
    fn new(owners: &[u8]) -> Option<Bench> {
        let mut steering = match Steering::load_with(4096) {
            Ok(steering) => steering,
            Err(SteeringError::Privileges { what }) => {
                println!("SKIP: loading programs isn't permitted here: {what}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let addresses = ["10.1.0.1/24", "fd00::1/64"].map(|text| text.parse().expect("an address"));
        steering.set_addresses(&addresses).expect("addresses");
        for number in owners {
            steering.add_owner(owner(*number));
            steering.set_fanout_index(owner(*number), u32::from(*number) + 100);
        }
        Some(Bench { steering })
    }

    fn ports(&self, number: u8) -> PortTable {
        let maps = self.steering.port_maps().expect("the maps");
        PortTable::map(owner(number), Some(maps.tcp), Some(maps.udp)).expect("a mapping")
    }

    /// What the fan-out program answers, less 100: the owner. -100 where it answers 0: no owner.
    fn owner_of(&self, frame: &Frame) -> i64 {
        let program = self.steering.fanout_program();
        i64::from(run(program, frame.bytes())) - 100
    }

    /// Whether a member of the fan-out group takes it, and whether a control socket does.
    fn filters(&self, frame: &Frame) -> (bool, bool) {
        let steered = self.steering.steered_filter();
        let control = self.steering.control_filter();
        (
            run(steered, frame.bytes()) != 0,
            run(control, frame.bytes()) != 0,
        )
    }
}

/// A socket that isn't bound; where there are none, says so.
fn xdp_socket() -> Option<OwnedFd> {
    // SAFETY: makes a descriptor, or answers -1.
    let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        println!("SKIP: no AF_XDP here: {}", std::io::Error::last_os_error());
        return None;
    }
    // SAFETY: a descriptor that nobody else has.
    Some(unsafe { OwnedFd::from_raw_fd(socket) })
}

fn open(ports: &mut PortTable, protocol: u8, port: u16, listens: bool) {
    assert!(ports.use_port(protocol, port, false));
    if listens {
        ports.listen(protocol, port);
    }
}

#[test]
fn a_packet_is_steered_given_to_all_or_left_to_the_kernel() {
    let Some(bench) = Bench::new(&[3, 5]) else {
        return;
    };
    const STEERED: (bool, bool) = (true, false);
    const CONTROL: (bool, bool) = (false, true);
    const KERNEL: (bool, bool) = (false, false);
    let table: &[(&str, Frame, (bool, bool))] = &[
        ("TCP", tcp(1000, 80, SYN), STEERED),
        ("TCP over IPv6", tcp(1000, 80, SYN).v6(), STEERED),
        ("UDP", udp(1000, 53), STEERED),
        ("IPv4 options", tcp(1000, 80, SYN).options(10), STEERED),
        ("to another address", tcp(1000, 80, SYN).to(OTHER4), KERNEL),
        ("to another IPv6 address", udp(1, 2).v6().to6(9), KERNEL),
        ("VLAN tag", tcp(1000, 80, SYN).vlan(), KERNEL),
        ("ARP", Frame::arp(), CONTROL),
        ("echo request", Frame::icmp(8), STEERED),
        ("unreachable", Frame::icmp(3), CONTROL),
        ("time exceeded", Frame::icmp(11), CONTROL),
        ("unreachable, not ours", Frame::icmp(3).to(OTHER4), KERNEL),
        ("neighbour solicitation", Frame::icmp6(135), CONTROL),
        ("to a group", Frame::icmp6(135).to6(0x77), CONTROL),
        ("query for groups", Frame::icmp6(130).to6(0x77), CONTROL),
        ("redirect", Frame::icmp6(137), CONTROL),
        ("packet too big", Frame::icmp6(2), CONTROL),
        ("too big, not ours", Frame::icmp6(2).to6(0x77), KERNEL),
        ("IPv6 echo request", Frame::icmp6(128), STEERED),
        ("neither TCP nor UDP", udp(1, 2).protocol(132), STEERED),
        ("a fragment", udp(1, 2).fragment(7, 1480, false), STEERED),
        ("cut short in UDP", udp(1, 2).cut(36), STEERED),
        ("wrong IP version", udp(1, 2).version(5), KERNEL),
    ];
    for (what, frame, expected) in table {
        assert_eq!(bench.filters(frame), *expected, "{what}");
    }
}

#[test]
fn the_port_decides_among_owners() {
    let Some(bench) = Bench::new(&[3, 5, 40]) else {
        return;
    };
    let mut five = bench.ports(5);
    let mut forty = bench.ports(40);
    let mut dead = bench.ports(9);
    open(&mut five, TCP, 80, true);
    open(&mut forty, TCP, 5000, false);
    open(&mut forty, UDP, 80, false);
    open(&mut dead, TCP, 7000, true);
    open(&mut forty, TCP, 7000, true);
    let table: &[(&str, Frame, i64)] = &[
        ("the only user", tcp(1000, 80, SYN), 5),
        ("whatever the segment", tcp(1000, 80, ACK), 5),
        ("over IPv6", tcp(1000, 80, SYN).v6(), 5),
        (
            "behind extension headers",
            tcp(1000, 80, SYN).v6().extensions(),
            5,
        ),
        ("behind IPv4 options", tcp(1000, 80, SYN).options(10), 5),
        ("a connected socket", tcp(80, 5000, ACK), 40),
        ("UDP is apart from TCP", udp(1000, 80), 40),
        (
            "nobody's port: the first owner answers",
            tcp(1000, 81, SYN),
            3,
        ),
        (
            "an owner that doesn't live doesn't count",
            tcp(1000, 7000, SYN),
            40,
        ),
        ("echo requests: the first owner", Frame::icmp(8), 3),
        (
            "not TCP or UDP: the first owner",
            udp(1, 80).protocol(132),
            3,
        ),
    ];
    for (what, frame, expected) in table {
        assert_eq!(bench.owner_of(frame), *expected, "{what}");
    }
}

#[test]
fn new_flows_spread_over_listeners_and_stay() {
    let Some(mut bench) = Bench::new(&[3, 5, 40]) else {
        return;
    };
    let mut views = [3, 5, 40].map(|number| bench.ports(number));
    for ports in &mut views {
        open(ports, TCP, 80, true);
    }
    let first: Vec<i64> = (1..=600)
        .map(|port| bench.owner_of(&tcp(port, 80, SYN)))
        .collect();
    for number in [3, 5, 40] {
        let share = first.iter().filter(|owner| **owner == number).count();
        assert!((140..=260).contains(&share), "{number} got {share} of 600");
    }
    // Owner 3 doesn't listen any more, but has its connections still (a program that reloads).
    views[0].unlisten(TCP, 80);
    for (index, chosen) in first.iter().enumerate() {
        let port = index as u16 + 1;
        assert_eq!(bench.owner_of(&tcp(port, 80, ACK)), *chosen, "port {port}");
        let again = bench.owner_of(&tcp(port + 1000, 80, SYN));
        assert_ne!(again, 3, "no new flow for who doesn't listen");
    }
    // The remote port is used anew for a connection: to a listener, and it stays there.
    let port = 1 + first.iter().position(|owner| *owner == 3).expect("some") as u16;
    let chosen = bench.owner_of(&tcp(port, 80, SYN));
    assert_ne!(chosen, 3);
    assert_eq!(bench.owner_of(&tcp(port, 80, ACK)), chosen);

    // An owner is gone: whatever its flows were, they don't go there.
    bench.steering.remove_owner(owner(5));
    for port in 1..=600 {
        assert_ne!(bench.owner_of(&tcp(port, 80, ACK)), 5);
    }
    // A SYN with ACK opens no flow here: it answers ours.
    assert!(matches!(bench.owner_of(&tcp(9999, 80, SYN | ACK)), 3 | 40));
    views[0].listen(TCP, 80);
    assert_eq!(
        bench.owner_of(&tcp(9999, 80, ACK)),
        bench.owner_of(&tcp(9999, 80, SYN)),
        "without an entry, a flow goes where its SYN would go"
    );
}

/// Owners that listen on port 80, and say that they don't wait.
fn busy(bench: &Bench, owners: &[u8]) -> Vec<PortTable> {
    let views = owners.iter().map(|number| {
        let mut ports = bench.ports(*number);
        open(&mut ports, TCP, 80, true);
        for waits in [true, false] {
            ports.set_waiting(TCP, 80, waits, true);
        }
        ports
    });
    views.collect()
}

/// Who gets flows that open from these ports.
fn opened(bench: &Bench, ports: core::ops::Range<u16>) -> BTreeSet<i64> {
    ports
        .map(|port| bench.owner_of(&tcp(port, 80, SYN)))
        .collect()
}

#[test]
fn who_waits_for_a_flow_gets_one_before_who_says_that_it_does_not() {
    let Some(bench) = Bench::new(&[3, 5, 40]) else {
        return;
    };
    let mut views = busy(&bench, &[3, 5, 40]);
    let all = BTreeSet::from([3, 5, 40]);
    assert_eq!(opened(&bench, 1..60), all, "nobody waits: each its share");
    for round in 1..20 {
        let port = 100 * round;
        views[1].set_waiting(TCP, 80, true, true);
        views[2].set_waiting(TCP, 80, true, true);
        bench.owner_of(&tcp(port, 80, ACK));
        let each = BTreeSet::from([5, 40]);
        assert_eq!(opened(&bench, port..port + 2), each, "each one");
        let chosen = bench.owner_of(&tcp(port, 80, SYN));
        assert!(each.contains(&chosen), "its request is repeated");
        views[0].set_waiting(TCP, 80, true, true);
        assert_eq!(bench.owner_of(&tcp(port, 80, SYN)), chosen, "whoever waits");
        assert_eq!(bench.owner_of(&tcp(port, 80, ACK)), chosen);
        views[0].set_waiting(TCP, 80, false, true);
    }
    assert_eq!(opened(&bench, 5000..5060), all);
    // A flow that its owner has had before counts as well.
    let had = (5000..5060).find(|port| bench.owner_of(&tcp(*port, 80, SYN)) == 5);
    views[1].set_waiting(TCP, 80, true, true);
    assert_eq!(bench.owner_of(&tcp(had.expect("one"), 80, SYN)), 5);
    assert_eq!(opened(&bench, 6000..6060), all);
}

#[test]
fn who_never_says_whether_it_waits_has_its_share() {
    let Some(mut bench) = Bench::new(&[3, 5, 40]) else {
        return;
    };
    let mut views = busy(&bench, &[3, 5]);
    let mut silent = bench.ports(40);
    open(&mut silent, TCP, 80, true);
    assert_eq!(opened(&bench, 1..60), BTreeSet::from([40]));
    let mut given = BTreeSet::new();
    for port in 100..140 {
        views[1].set_waiting(TCP, 80, true, true);
        // Whatever it had is over.
        silent.flow_begins(&flow(1, false));
        silent.flow_ends(&flow(1, false));
        given.append(&mut opened(&bench, port..port + 1));
    }
    assert_eq!(given, BTreeSet::from([5, 40]), "beside one who waits");
    // What is said of who doesn't listen, or isn't there, means nothing.
    views[1].set_waiting(TCP, 80, true, true);
    views[1].unlisten(TCP, 80);
    views[1].set_waiting(TCP, 80, true, true);
    assert_eq!(opened(&bench, 7000..7060), BTreeSet::from([40]));
    views[1].listen(TCP, 80);
    assert_eq!(opened(&bench, 8000..8060), BTreeSet::from([5, 40]), "anew");
    views[0].set_waiting(TCP, 80, true, true);
    bench.steering.orphan_owner(owner(3));
    assert_eq!(opened(&bench, 9000..9060), BTreeSet::from([5, 40]));
    bench.steering.remove_owner(owner(5));
    bench.steering.add_owner(owner(5));
    bench.steering.set_fanout_index(owner(5), 105);
    open(&mut bench.ports(5), TCP, 80, true);
    assert_eq!(opened(&bench, 9100..9160), BTreeSet::from([5, 40]));
}

#[test]
fn who_accepts_at_other_times_too_has_its_share_though_another_one_waits() {
    let Some(bench) = Bench::new(&[3, 5]) else {
        return;
    };
    let mut views: Vec<PortTable> = [3, 5].map(|number| bench.ports(number)).into();
    for ports in &mut views {
        open(ports, TCP, 80, true);
    }
    let all = BTreeSet::from([3, 5]);
    views[1].set_waiting(TCP, 80, true, false);
    assert!(views[0].others_wait(TCP, 80));
    assert!(!views[1].others_wait(TCP, 80));
    assert_eq!(opened(&bench, 1..60), all);
    assert!(!views[0].others_wait(TCP, 80), "it was given one");
    views[1].set_waiting(TCP, 80, true, false);
    views[1].set_waiting(TCP, 80, false, false);
    assert!(!views[0].others_wait(TCP, 80));
    assert_eq!(opened(&bench, 100..160), all);
    // It accepted only while it waited, before.
    views[0].set_waiting(TCP, 80, true, true);
    views[0].set_waiting(TCP, 80, false, true);
    assert_eq!(opened(&bench, 200..260), BTreeSet::from([5]));
    views[0].set_waiting(TCP, 80, false, false);
    assert_eq!(opened(&bench, 300..360), all);
}

#[test]
fn of_few_connections_each_has_its_share() {
    let Some(bench) = Bench::new(&[3, 5, 40]) else {
        return;
    };
    let mut views = [3, 5, 40].map(|number| bench.ports(number));
    for ports in &mut views {
        open(ports, TCP, 80, true);
    }
    // Nobody waits.
    let all = BTreeSet::from([3, 5, 40]);
    let one = |port: u16| bench.owner_of(&tcp(port, 80, SYN));
    for first in [1, 4] {
        assert_eq!(opened(&bench, first..first + 3), all, "one each");
    }
    assert_eq!(opened(&bench, 10..70), all, "all have some");
    let flows = [1, 2].map(|port| flow(port, false));
    flows.iter().for_each(|flow| views[1].flow_begins(flow));
    for round in 1..20 {
        let port = 100 * round;
        views[1].flow_ends(&flows[0]);
        assert_eq!(one(port), 5, "it has one");
        views[1].flow_begins(&flows[0]);
        // That is its second.
        let others: Vec<i64> = (1..40).map(|more| one(port + more)).collect();
        assert!(others.iter().any(|it| *it != 5));
    }
    // A request that is repeated goes where it went, and counts once.
    flows.iter().for_each(|flow| views[1].flow_ends(flow));
    assert_eq!([4000; 3].map(one), [5; 3]);
    assert_eq!(one(4001), 5);
    // What one had that is gone isn't its successor's.
    views[1].unlisten(TCP, 80);
    views[1].listen(TCP, 80);
    assert_eq!([5000, 5001].map(one), [5; 2]);
    // However many it has, who waits comes first, once; who never tells has its share beside it.
    let mut given = BTreeSet::new();
    for port in 4100..4130 {
        views[0].set_waiting(TCP, 80, true, false);
        views[1].set_waiting(TCP, 80, true, false);
        views[1].set_waiting(TCP, 80, false, false);
        given.append(&mut opened(&bench, port..port + 1));
    }
    assert_eq!(given, BTreeSet::from([3, 40]));
    // Who had a flow once may be busy now.
    let had = (10..70).find(|port| one(*port) == 3);
    views[0].set_waiting(TCP, 80, false, false);
    views[1].set_waiting(TCP, 80, true, false);
    views[2].set_waiting(TCP, 80, true, false);
    views[2].set_waiting(TCP, 80, false, false);
    let anew = tcp(had.expect("one"), 80, SYN).numbered(9);
    assert_eq!(bench.owner_of(&anew), 5);
    // Whatever it has, who says that it accepts only while it waits comes last.
    for waits in [true, false] {
        views[1].set_waiting(TCP, 80, waits, true);
    }
    assert_eq!(opened(&bench, 6000..6060), BTreeSet::from([3, 40]));
}

#[test]
fn what_was_pushed_out_goes_to_who_has_such_a_connection() {
    let Some(bench) = Bench::new(&[3, 5, 40]) else {
        return;
    };
    let mut views = [3, 5, 40].map(|number| bench.ports(number));
    for ports in &mut views {
        open(ports, TCP, 80, true);
    }
    for (port, at) in (1..60).zip([0, 1, 2].into_iter().cycle()) {
        views[at].flow_begins(&flow(port, false));
    }
    for (port, number) in (1..60).zip([3, 5, 40].into_iter().cycle()) {
        assert_eq!(bench.owner_of(&tcp(port, 80, ACK)), number);
    }
}

#[test]
fn who_is_in_reserve_gets_a_flow_only_if_there_are_no_others() {
    let Some(bench) = Bench::new(&[3, 5, 40]) else {
        return;
    };
    let mut views = busy(&bench, &[3, 5]);
    views[0].keep_in_reserve(TCP, 80);
    assert_eq!(opened(&bench, 1..60), BTreeSet::from([5]), "though busy");
    let other = |than, choice| {
        let given = bench
            .steering
            .other_listener([owner(than)], 80, false, choice);
        given.map(Owner::number)
    };
    open(&mut bench.ports(40), TCP, 80, true);
    for choice in 0..6 {
        assert_eq!(other(5, choice), Some(40));
        assert_ne!(other(40, choice), Some(3));
    }
    bench.ports(40).unlisten(TCP, 80);
    let mut forty = bench.ports(40);
    open(&mut forty, TCP, 80, true);
    forty.unlisten(TCP, 80);
    views[1].unlisten(TCP, 80);
    assert_eq!(opened(&bench, 100..160), BTreeSet::from([3]), "it alone");
    assert_eq!(other(5, 0), Some(3));
    views[1].listen(TCP, 80);
    assert_eq!(opened(&bench, 200..260), BTreeSet::from([5]));
    views[0].set_waiting(TCP, 80, false, false);
    assert_eq!(opened(&bench, 300..360), BTreeSet::from([3, 5]), "no more");
}

#[test]
fn a_connection_is_brought_to_another_listener() {
    let Some(bench) = Bench::new(&[3, 5, 40]) else {
        return;
    };
    let first = |only_waiting, choice| {
        let steering = &bench.steering;
        let given = steering.other_listener([owner(3)], 80, only_waiting, choice);
        given.map(Owner::number)
    };
    let other = |choice| first(false, choice);
    assert_eq!(other(0), None);
    let mut three = bench.ports(3);
    open(&mut three, TCP, 80, true);
    assert_eq!(other(0), None, "nobody else");
    let mut views = busy(&bench, &[5]);
    views.push(bench.ports(40));
    open(&mut views[1], TCP, 80, true);
    open(&mut bench.ports(9), TCP, 80, true);
    for choice in 0..5 {
        assert_eq!(other(choice), Some(40), "who doesn't say that it is busy");
        views[0].set_waiting(TCP, 80, true, true);
        assert_eq!(other(choice), Some(5), "who waits, once");
        assert_eq!(first(true, choice), None, "nobody waits");
        // Who accepts at other times, too.
        views[1].set_waiting(TCP, 80, true, false);
        assert_eq!(first(true, choice), Some(40), "once");
        assert_eq!(first(true, choice), None);
    }
    let than = [owner(3), owner(40)];
    let rest = bench.steering.other_listener(than, 80, false, 0);
    assert_eq!(rest, Some(owner(5)), "rather than none");
}

fn flow(port: u16, v6: bool) -> FourTuple {
    FourTuple {
        remote: Endpoint::new(if v6 { REMOTE6.into() } else { REMOTE4.into() }, port),
        local: Endpoint::new(if v6 { LOCAL6.into() } else { LOCAL4.into() }, 80),
    }
}

#[test]
fn a_flow_that_is_opened_anew_goes_to_who_waits_unless_its_owner_has_it() {
    let Some(bench) = Bench::new(&[3, 5]) else {
        return;
    };
    let mut views = busy(&bench, &[3, 5]);
    for v6 in [false, true] {
        let frame = |port, flags, number| {
            let frame = tcp(port, 80, flags).numbered(number);
            if v6 { frame.v6() } else { frame }
        };
        let opened = |port, number| bench.owner_of(&frame(port, SYN, number));
        for port in 1..100 {
            views[0].set_waiting(TCP, 80, true, true);
            assert_eq!(opened(port, 7), 3);
            views[1].set_waiting(TCP, 80, true, true);
            assert_eq!(opened(port, 7), 3, "the request is repeated");
            views[0].flow_begins(&flow(port, v6));
            assert_eq!(opened(port, 8), 3, "another request, beside a connection");
            assert_eq!(opened(port, 7), 3, "whichever was the last");
            views[0].flow_ends(&flow(port, v6));
            assert_eq!(opened(port, 7), 3, "an old request");
            assert_eq!(bench.owner_of(&frame(port, ACK, 9)), 3);
            views[0].set_waiting(TCP, 80, true, true);
            assert_eq!(opened(port, 6), 3, "it waits itself");
            assert_eq!(opened(port, 8), 5, "another one, as it doesn't any more");
            assert_eq!(bench.owner_of(&frame(port, ACK, 9)), 5);
            assert_eq!(opened(port, 8), 5, "repeated");
            assert_eq!(opened(port, 9), 5, "nobody waits");
        }
    }
}

/// Owners that are gone leave nothing behind.
#[test]
fn flows_of_who_is_gone_are_nobodys() {
    let Some(mut bench) = Bench::new(&[3, 5]) else {
        return;
    };
    let mut views = busy(&bench, &[3, 5]);
    let request = |bench: &Bench, number| bench.owner_of(&tcp(1, 80, SYN).numbered(number));
    views[0].set_waiting(TCP, 80, true, true);
    assert_eq!(request(&bench, 7), 3);
    views[0].flow_begins(&flow(1, false));
    views[1].set_waiting(TCP, 80, true, true);
    assert_eq!(request(&bench, 8), 3, "it has it");
    bench.steering.remove_owner(owner(3));
    bench.steering.add_owner(owner(3));
    bench.steering.set_fanout_index(owner(3), 103);
    let _successor = busy(&bench, &[3]);
    assert_eq!(request(&bench, 9), 5);
}

#[test]
fn an_owner_whose_process_is_gone_keeps_its_flows_and_gets_no_others() {
    let Some(mut bench) = Bench::new(&[1, 2]) else {
        return;
    };
    let mut views = [1, 2].map(|number| bench.ports(number));
    for ports in &mut views {
        open(ports, TCP, 80, true);
    }
    open(&mut views[0], UDP, 53, true);
    let first: Vec<i64> = (1..=200)
        .map(|port| bench.owner_of(&tcp(port, 80, SYN)))
        .collect();
    assert!(first.contains(&1) && first.contains(&2));
    bench.steering.orphan_owner(owner(1));
    for (port, chosen) in (1..).zip(first) {
        assert_eq!(bench.owner_of(&tcp(port, 80, ACK)), chosen, "port {port}");
        assert_eq!(bench.owner_of(&tcp(port + 1000, 80, SYN)), 2);
    }
    assert!(
        views[1].use_port(UDP, 53, true),
        "another program's, if it wants it"
    );
    // The one alone that listened: who calls is told so.
    views[1].unlisten(TCP, 80);
    views[1].release_port(TCP, 80);
    assert_eq!(bench.owner_of(&tcp(5000, 80, SYN)), 1);
}

#[test]
fn an_owner_whose_process_is_gone_listens_on_for_others_until_one_does() {
    let Some(mut bench) = Bench::new(&[1, 2]) else {
        return;
    };
    let mut views = [1, 2].map(|number| bench.ports(number));
    for port in [80, 443] {
        open(&mut views[0], TCP, port, true);
    }
    // It waited when it died.
    views[0].set_waiting(TCP, 80, true, true);
    assert!(!bench.steering.others_listen(owner(1), 80));
    assert!(bench.steering.others_listen(owner(2), 80));
    bench.steering.orphan_owner(owner(1));
    bench.steering.listen_in_reserve(owner(1), &[80]);
    assert_eq!(opened(&bench, 1..60), BTreeSet::from([1]));
    for port in [80, 443] {
        assert!(!bench.steering.others_listen(owner(2), port));
    }
    assert!(!views[1].others_wait(TCP, 80));
    // Who binds the port anew may have it alone: the kernel lets nobody do that whose socket others have.
    assert!(views[1].use_port(TCP, 80, true));
    views[1].listen(TCP, 80);
    assert_eq!(opened(&bench, 100..160), BTreeSet::from([2]));
    assert!(!bench.ports(3).use_port(TCP, 80, true), "nobody else may");
    // Who is in reserve goes once somebody listens who isn't; of two in reserve none counts on the other.
    let mut heir = bench.ports(1);
    open(&mut heir, TCP, 80, true);
    heir.keep_in_reserve(TCP, 80);
    assert!(heir.is_relieved(TCP, 80));
    views[1].keep_in_reserve(TCP, 80);
    assert!(!heir.is_relieved(TCP, 80) && !views[1].is_relieved(TCP, 80));
    views[1].set_waiting(TCP, 80, false, false);
    bench.steering.orphan_owner(owner(2));
    assert!(!heir.is_relieved(TCP, 80), "it is gone");
}

#[test]
fn flows_that_began_with_one_owner_stay_when_others_join_it() {
    let Some(bench) = Bench::new(&[1, 2]) else {
        return;
    };
    let mut views = [1, 2].map(|number| bench.ports(number));
    open(&mut views[0], TCP, 80, true);
    for port in 1..=200 {
        assert_eq!(bench.owner_of(&tcp(port, 80, SYN)), 1);
    }
    open(&mut views[1], TCP, 80, true);
    let moved = (1..=200).filter(|port| bench.owner_of(&tcp(*port, 80, ACK)) != 1);
    assert_eq!(moved.count(), 0, "flows that reach an owner without them");
    let fresh = (201..=400).filter(|port| bench.owner_of(&tcp(*port, 80, SYN)) == 2);
    assert!(fresh.count() > 50, "new flows for the owner that joined");
}

#[test]
fn flows_that_began_before_anybody_listened_stay_with_who_got_them() {
    let Some(bench) = Bench::new(&[1, 2]) else {
        return;
    };
    let mut views = [1, 2].map(|number| bench.ports(number));
    // A worker that starts finds these in its ring, once it listens.
    let first: Vec<i64> = (1..=200)
        .map(|port| bench.owner_of(&tcp(port, 80, SYN)))
        .collect();
    assert_eq!(first, [1; 200]);
    for ports in &mut views {
        open(ports, TCP, 80, true);
    }
    let moved = (1..=200).filter(|port| bench.owner_of(&tcp(*port, 80, ACK)) != 1);
    assert_eq!(moved.count(), 0, "flows that reach an owner without them");
}

#[test]
fn datagrams_spread_over_listeners_by_flow() {
    let Some(bench) = Bench::new(&[0, 1, 2]) else {
        return;
    };
    let mut views = [0, 1, 2].map(|number| bench.ports(number));
    open(&mut views[0], UDP, 443, false);
    open(&mut views[1], UDP, 443, true);
    open(&mut views[2], UDP, 443, true);
    let chosen: BTreeSet<i64> = (1..=64)
        .map(|port| {
            let owner = bench.owner_of(&udp(port, 443));
            assert_eq!(bench.owner_of(&udp(port, 443)), owner, "the same again");
            owner
        })
        .collect();
    assert_eq!(chosen, BTreeSet::from([1, 2]));
}

#[test]
fn fragments_of_a_datagram_stay_together() {
    let Some(bench) = Bench::new(&[0, 1, 2]) else {
        return;
    };
    let mut two = bench.ports(2);
    open(&mut two, UDP, 53, true);
    for v6 in [false, true] {
        let piece = |id, offset, more| {
            let frame = udp(1000, 53).fragment(id, offset, more);
            if v6 { frame.v6() } else { frame }
        };
        assert_eq!(bench.owner_of(&piece(77, 0, true)), 2, "first: by port");
        assert_eq!(bench.owner_of(&piece(77, 1480, true)), 2, "later: after it");
        assert_eq!(bench.owner_of(&piece(77, 2960, false)), 2);
        // Without the first one all go the same way, whichever.
        let mut all = BTreeSet::new();
        for id in 100..140 {
            let owner = bench.owner_of(&piece(id, 1480, true));
            assert_eq!(bench.owner_of(&piece(id, 2960, false)), owner);
            all.insert(owner);
        }
        assert_eq!(all, BTreeSet::from([0, 1, 2]), "IPv6: {v6}");
    }
}

#[test]
fn nothing_is_steered_without_owners() {
    let Some(mut bench) = Bench::new(&[1]) else {
        return;
    };
    assert_eq!(bench.owner_of(&tcp(1000, 80, SYN)), 1);
    bench.steering.remove_owner(owner(1));
    assert_eq!(bench.owner_of(&tcp(1000, 80, SYN)), -100);
    let program = bench.steering.xdp_program();
    assert_eq!(run(program, tcp(1000, 80, SYN).bytes()), XDP_PASS);
    // Whoever comes next with that number starts without ports.
    open(&mut bench.ports(1), TCP, 80, true);
    bench.steering.add_owner(owner(0));
    bench.steering.add_owner(owner(1));
    bench.steering.set_fanout_index(owner(0), 100);
    assert_eq!(bench.owner_of(&tcp(1000, 80, SYN)), 0);
}

#[test]
fn addresses_can_be_changed() {
    let Some(mut bench) = Bench::new(&[1]) else {
        return;
    };
    let frames = [tcp(1, 80, SYN), tcp(1, 80, SYN).to(OTHER4)];
    let ours = |bench: &Bench| frames.each_ref().map(|frame| bench.filters(frame).0);
    assert_eq!(ours(&bench), [true, false]);
    let other = std::net::Ipv4Addr::from(OTHER4).into();
    let other = skink_wire::IpCidr::new(other, 24).expect("a prefix");
    bench.steering.set_addresses(&[other]).expect("changed");
    assert_eq!(ours(&bench), [false, true]);
    assert_ne!(LOCAL4, REMOTE4);
    assert_ne!(LOCAL6, [0; 16]);
}

#[test]
fn a_frame_is_redirected_only_to_the_queue_it_came_by() {
    let Some(mut bench) = Bench::new(&[1, 2, 3]) else {
        return;
    };
    let Some(socket) = xdp_socket() else {
        return;
    };
    let mut views = [1, 2, 3].map(|number| bench.ports(number));
    open(&mut views[0], TCP, 1, false);
    open(&mut views[1], TCP, 2, false);
    for ports in &mut views {
        open(ports, TCP, 80, true);
    }
    // A test run comes by queue 0.
    bench
        .steering
        .set_queue(owner(1), 0, socket.as_fd())
        .expect("queue 0");
    bench
        .steering
        .set_queue(owner(2), 7, socket.as_fd())
        .expect("queue 7");
    let xdp = |bench: &Bench, frame: Frame| run(bench.steering.xdp_program(), frame.bytes());
    assert_eq!(xdp(&bench, tcp(9, 1, ACK)), XDP_REDIRECT);
    assert_eq!(xdp(&bench, tcp(9, 2, ACK)), XDP_PASS, "its queue is 7");
    assert_eq!(xdp(&bench, tcp(9, 1, ACK).to(OTHER4)), XDP_PASS);
    assert_eq!(xdp(&bench, Frame::arp()), XDP_PASS);
    for bytes in 14..42 {
        // What has no ports goes to the first owner.
        let expected = if bytes < 34 { XDP_PASS } else { XDP_REDIRECT };
        assert_eq!(xdp(&bench, tcp(9, 81, SYN).cut(bytes)), expected, "{bytes}");
    }
    // While a listener has no queue of its own, all get their share.
    let redirected = |bench: &Bench| {
        let by_queue = |port: &u16| xdp(bench, tcp(*port, 80, SYN)) == XDP_REDIRECT;
        (100..=300).filter(by_queue).count()
    };
    assert!((20..150).contains(&redirected(&bench)));
    // Otherwise the one on the receiving queue is preferred, and the fan-out then agrees.
    bench
        .steering
        .set_queue(owner(3), 8, socket.as_fd())
        .expect("queue 8");
    for port in 1..=50 {
        assert_eq!(xdp(&bench, tcp(port, 80, SYN)), XDP_REDIRECT);
        assert_eq!(bench.owner_of(&tcp(port, 80, ACK)), 1);
    }
    bench.steering.clear_queue(0).expect("in range");
    assert_eq!(xdp(&bench, tcp(9, 1, ACK)), XDP_PASS);

    let too_high = bench.steering.set_queue(owner(1), 256, socket.as_fd());
    assert!(matches!(too_high, Err(SteeringError::Queue { queue: 256 })));
}

#[test]
fn a_flow_goes_to_the_socket_on_its_queue_that_its_owner_chose() {
    let Some(mut bench) = Bench::new(&[1, 2]) else {
        return;
    };
    let Some(socket) = xdp_socket() else {
        return;
    };
    let steering = &mut bench.steering;
    let queues = QueueOwners::map(steering.owner_map().expect("the map"), owner(1));
    let queues = queues.expect("mapped");
    queues.take(0).expect("queue 0");
    let view = |steering: &Steering, number| {
        let rings = steering.flow_ring_map().expect("the map");
        let owners = steering.owner_map().expect("the map");
        FlowRings::map(rings, owners, owner(number)).expect("mapped")
    };
    let [ours, others] = [1, 2].map(|number| view(steering, number));
    // There is no first socket: what goes to it is left to the kernel.
    steering.set_ring(0, 5, socket.as_fd()).expect("ring 5");
    let goes_by_ring = |steering: &Steering, frame: &Frame| {
        run(steering.xdp_program(), frame.bytes()) == XDP_REDIRECT
    };
    for v6 in [false, true] {
        let (local, remote): (IpAddr, IpAddr) = match v6 {
            false => (LOCAL4.into(), REMOTE4.into()),
            true => (LOCAL6.into(), REMOTE6.into()),
        };
        for port in [1, 255, 256, 1000, 54321] {
            let frame = tcp(port, 80, ACK);
            let frame = if v6 { frame.v6() } else { frame };
            let bucket = FlowRings::bucket(&FourTuple {
                local: Endpoint::new(local, 80),
                remote: Endpoint::new(remote, port),
            });
            ours.steer(bucket, 5);
            assert!(!goes_by_ring(steering, &frame), "the table doesn't count");
            ours.begin();
            assert!(goes_by_ring(steering, &frame), "IPv6 {v6}, port {port}");
            // Whatever others do with their tables.
            others.begin();
            others.steer(bucket, 0);
            assert!(goes_by_ring(steering, &frame));
            ours.steer(bucket, 0);
            assert!(!goes_by_ring(steering, &frame), "the flow's own bucket");
            // A table that starts anew has nothing of before.
            ours.steer(bucket, 5);
            steering.succeed_owner(owner(1));
            ours.begin();
            assert!(!goes_by_ring(steering, &frame));
            ours.steer(bucket, 5);
            drop(view(steering, 1));
        }
    }
    // What isn't one flow's, and what has no socket there, goes to the first.
    ours.begin();
    for bucket in 0..BUCKETS {
        ours.steer(bucket, 5);
    }
    assert!(goes_by_ring(steering, &tcp(1, 80, ACK)));
    for frame in [
        udp(1, 80),
        Frame::icmp(8),
        tcp(1, 80, ACK).fragment(7, 0, true),
        tcp(1, 80, ACK).cut(36),
    ] {
        assert!(!goes_by_ring(steering, &frame));
    }
    for bucket in 0..BUCKETS {
        ours.steer(bucket, 6);
    }
    assert!(!goes_by_ring(steering, &tcp(1, 80, ACK)));
    steering.set_socket(0, socket.as_fd()).expect("the first");
    assert!(goes_by_ring(steering, &tcp(1, 80, ACK)));

    let too_high = steering.set_ring(0, RINGS, socket.as_fd());
    assert!(matches!(too_high, Err(SteeringError::Queue { queue: 0 })));
}
