use super::*;
use crate::records::StateRecord;
use crate::test_support::{PEER, Random, US, at, filter, tcp, udp};
use crate::verdict::Direction::{In, Out};
use crate::verdict::Verdict;

const RULES: &str = "block all\npass in proto tcp to port 80\npass in proto udp to port 80\n";

/// A filter in one process, and who asks it in another.
struct Apart {
    filter: Filter,
    known: FlowTable,
    asked: u64,
}

impl Apart {
    fn new() -> Apart {
        Apart {
            filter: filter(RULES),
            known: FlowTable::new(5),
            asked: 0,
        }
    }

    fn check(&mut self, now: Instant, direction: Direction, packet: &Summary) -> Verdict {
        while let Some(account) = self.known.expire(now) {
            self.filter.settle(now, &account);
        }
        if let Some(flow) = self.known.find(direction, packet) {
            flow.pass(now, direction, packet);
            return Verdict::Pass;
        }
        if let Some(account) = self.known.remove(direction, packet) {
            self.filter.settle(now, &account);
        }
        self.asked += 1;
        let verdict = self.filter.check(now, direction, packet);
        if verdict == Verdict::Pass
            && let Some(offload) = self.filter.offload(direction, packet)
        {
            self.known.insert(now, direction, packet, offload, 0);
        }
        verdict
    }
}

/// All that is remembered of flows, in an order that doesn't depend on anything.
fn states(filter: &Filter) -> Vec<StateRecord> {
    let mut all: Vec<StateRecord> = filter.export_states().collect();
    all.sort_by_key(|state| (state.protocol, state.remote.port));
    all
}

/// A packet of one of some flows; most carry data on, some end a connection or lie.
fn draw(random: &mut Random, seqs: &mut [[u32; 2]; 4]) -> (Direction, Summary) {
    let flow = random.below(4);
    let peer = format!("192.0.2.9:{}", 4000 + flow);
    let direction = random.pick(&[In, Out]);
    let (source, destination) = match direction {
        In => (peer.as_str(), US),
        Out => (US, peer.as_str()),
    };
    if flow == 3 {
        return (direction, udp(source, destination));
    }
    let letters = match random.below(100) {
        0..3 => random.pick(&["FA", "RA", "R", "S", "SA", "FA"]),
        _ => "A",
    };
    let [theirs, ours] = &mut seqs[flow];
    let (own, other) = match direction {
        In => (theirs, *ours),
        Out => (ours, *theirs),
    };
    let mut packet = tcp(source, destination, letters);
    packet.payload_length = random.pick(&[0, 0, 1, 1400]);
    packet.length += packet.payload_length;
    let wrong = random.below(12) == 0;
    if !letters.contains('S') {
        packet.seq = own.wrapping_add(u32::from(wrong) * 5000);
        packet.ack = other;
    }
    if !wrong && letters == "A" {
        *own = own.wrapping_add(packet.payload_length);
    }
    (direction, packet)
}

#[test]
fn who_hears_of_packets_afterwards_knows_as_much_as_who_judged_each() {
    let mut asked = 0;
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut seqs = [[1001; 2]; 4];
        let mut all = filter(RULES);
        let mut apart = Apart::new();
        let mut now = at(0);
        for flow in 0..3 {
            let peer = format!("192.0.2.9:{}", 4000 + flow);
            let opening = [(In, "S"), (Out, "SA"), (In, "A")];
            for (direction, letters) in opening {
                let packet = match direction {
                    In => tcp(&peer, US, letters),
                    Out => tcp(US, &peer, letters),
                };
                let verdicts = [
                    all.check(now, direction, &packet),
                    apart.check(now, direction, &packet),
                ];
                assert_eq!(verdicts, [Verdict::Pass; 2]);
            }
        }
        for step in 0..400 {
            now += Duration::from_millis(random.below(60) as u64);
            let (direction, packet) = draw(&mut random, &mut seqs);
            let expected = all.check(now, direction, &packet);
            let verdict = apart.check(now, direction, &packet);
            assert_eq!(verdict, expected, "seed {seed}, step {step}: {packet:?}");
        }
        asked += apart.asked;
        let end = now + TIME;
        while let Some(account) = apart.known.expire(end) {
            apart.filter.settle(now, &account);
        }
        let [expected, known] = [&all, &apart.filter].map(states);
        assert_eq!(known.len(), expected.len());
        for (known, expected) in known.iter().zip(&expected) {
            assert_eq!(known, expected, "seed {seed}");
        }
        assert_eq!(*apart.filter.totals(), *all.totals(), "seed {seed}");
        let counted = |filter: &Filter| -> Vec<(u64, u64)> {
            let rules = filter.rules();
            rules.map(|(_, it)| (it.packets, it.bytes)).collect()
        };
        assert_eq!(counted(&apart.filter), counted(&all), "seed {seed}");
    }
    assert!(asked < 200 * 200, "{asked} were asked about, about half");
}

#[test]
fn a_reset_counts_as_if_each_segment_before_it_had_been_seen() {
    for unasked in [false, true] {
        let mut apart = Apart::new();
        for (direction, packet) in [
            (In, tcp(PEER, US, "S")),
            (Out, tcp(US, PEER, "SA")),
            (In, tcp(PEER, US, "A")),
        ] {
            assert_eq!(apart.check(at(0), direction, &packet), Verdict::Pass);
        }
        let asked = apart.asked;
        // Not acknowledged yet when the reset comes that ends it.
        let data = Summary {
            payload_length: 100,
            ..tcp(PEER, US, "A")
        };
        assert_eq!(apart.check(at(0), In, &data), Verdict::Pass);
        assert_eq!(apart.asked, asked, "the flow was entered");
        if !unasked {
            apart.known = FlowTable::new(5);
        }
        let reset = Summary {
            seq: 1101,
            ..tcp(PEER, US, "R")
        };
        assert_eq!(apart.check(at(0), In, &reset), Verdict::Pass);
        let life = states(&apart.filter)[0].life;
        let expected = match unasked {
            true => Life::ResetByRemote,
            // Nobody told the filter of the data.
            false => Life::ResetInDoubt,
        };
        assert_eq!(life, expected as u8);
    }
}

#[test]
fn what_is_told_late_shortens_no_flows_time() {
    let mut filter = filter(RULES);
    for (direction, packet) in [(In, udp(PEER, US)), (Out, udp(US, PEER))] {
        assert_eq!(filter.check(at(0), direction, &packet), Verdict::Pass);
    }
    let tuple = Key::of(In, &udp(PEER, US)).expect("a flow").tuple();
    let phase = crate::records::FlowPhase::Datagrams;
    let known = filter.confirm(at(100), [crate::records::Flow { tuple, phase }]);
    assert_eq!(known, 1);
    let expires = |filter: &Filter| states(filter)[0].expires;
    let before = expires(&filter);
    let account = FlowAccount {
        protocol: protocol::UDP,
        tuple,
        packets: [1, 0],
        bytes: [28, 0],
        expected: None,
        last: at(99),
    };
    filter.settle(at(100), &account);
    assert_eq!(expires(&filter), before);
    // Nor does a time that is still to come lengthen it.
    let account = FlowAccount {
        last: at(100_000),
        ..account
    };
    filter.settle(at(100), &account);
    assert_eq!(expires(&filter), before);
}

#[test]
fn only_what_changes_no_state_goes_unasked() {
    let mut apart = Apart::new();
    let mut asks = |direction, packet: Summary| {
        let before = apart.asked;
        let verdict = apart.check(at(0), direction, &packet);
        (apart.asked > before, verdict == Verdict::Pass)
    };
    let (asked, spared, blocked) = ((true, true), (false, true), (true, false));
    assert_eq!(asks(Out, udp(US, PEER)), blocked);
    assert_eq!(asks(In, udp(PEER, US)), asked);
    assert_eq!(asks(In, udp(PEER, US)), asked, "nobody has answered");
    assert_eq!(asks(Out, udp(US, PEER)), asked);
    assert_eq!(asks(In, udp(PEER, US)), spared);
    assert_eq!(asks(In, tcp(PEER, US, "S")), asked);
    assert_eq!(asks(In, tcp(PEER, US, "S")), asked);
    assert_eq!(asks(Out, tcp(US, PEER, "SA")), asked);
    assert_eq!(asks(In, tcp(PEER, US, "A")), asked);
    assert_eq!(asks(Out, tcp(US, PEER, "PA")), spared);
    assert_eq!(asks(In, tcp("192.0.2.9:4002", US, "A")), blocked);
    assert_eq!(asks(Out, tcp(US, PEER, "FA")), asked);
    assert_eq!(asks(In, tcp(PEER, US, "A")), asked, "it is half closed");
    // A FIN that is ahead of what was sent before it may have been one: the answer will tell.
    let other = "192.0.2.9:4001";
    assert_eq!(asks(In, tcp(other, US, "S")), asked);
    assert_eq!(asks(Out, tcp(US, other, "SA")), asked);
    assert_eq!(asks(In, tcp(other, US, "A")), asked);
    let early = Summary {
        seq: 2001,
        ..tcp(other, US, "FA")
    };
    assert_eq!(asks(In, early), asked);
    for _ in 0..2 {
        assert_eq!(asks(Out, tcp(US, other, "A")), asked);
    }
    assert_eq!(asks(In, crate::test_support::later(udp(PEER, US))), blocked);
}

#[test]
fn a_flow_that_the_filter_forgot_is_asked_about_after_a_while() {
    let mut apart = Apart::new();
    assert_eq!(apart.check(at(0), In, &udp(PEER, US)), Verdict::Pass);
    assert_eq!(apart.check(at(0), Out, &udp(US, PEER)), Verdict::Pass);
    apart.filter = filter("block all");
    assert_eq!(apart.check(at(0), In, &udp(PEER, US)), Verdict::Pass);
    assert_eq!(apart.check(at(1), In, &udp(PEER, US)), Verdict::Drop);
    let totals = apart.filter.totals();
    assert_eq!((totals.passed, totals.blocked), (1, 1));
}

#[test]
fn a_table_is_bounded_and_needs_nobody_once_it_is_empty() {
    let mut apart = Apart::new();
    let offload = Offload { expected: None };
    for port in 0..=u16::MAX {
        let packet = udp(&format!("192.0.2.9:{port}"), US);
        apart.known.insert(at(0), In, &packet, offload, 0);
        apart.known.insert(at(0), In, &packet, offload, 0);
    }
    assert!(apart.known.flows.len() <= CAPACITY && apart.known.ends.len() <= 2 * CAPACITY);
    assert_eq!(apart.known.next_deadline(), Some(at(1)));
    assert_eq!(apart.known.expire(at(1)), None, "nothing went by");
    assert_eq!(apart.known.next_deadline(), None);
    assert!(apart.known.flows.is_empty());
}

#[test]
fn a_flow_that_comes_back_has_its_time_from_then_on() {
    let (mut apart, packet) = (Apart::new(), udp(PEER, US));
    let half = at(0) + TIME / 2;
    let offload = Offload { expected: None };
    let enter = |known: &mut FlowTable, time| {
        known.insert(time, In, &packet, offload, 0);
        let flow = known.find(In, &packet).expect("it was entered");
        flow.pass(time, In, &packet);
    };
    enter(&mut apart.known, at(0));
    let account = apart.known.remove(In, &packet).expect("a packet passed");
    assert_eq!((account.packets, account.bytes), ([1, 0], [28, 0]));
    // Entered twice before it has passed for long enough: that counts from the first time on.
    enter(&mut apart.known, half);
    enter(&mut apart.known, at(1));
    assert_eq!(apart.known.expire(at(1)), None);
    assert!(apart.known.find(In, &packet).is_some());
    let account = apart.known.expire(half + TIME).expect("its time is over");
    assert_eq!((account.packets, account.bytes), ([2, 0], [56, 0]));
    assert!(apart.known.find(In, &packet).is_none());
}
