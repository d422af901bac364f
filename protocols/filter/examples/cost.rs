//! What a packet costs: with a state, and by rules, for growing numbers of rules.
//!
//! `cargo run --release -p skink-filter --example cost`
use skink_filter::{Direction, Filter, FilterConfig, RuleSet, Summary, Verdict};
use skink_messages::Counters;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const ROUNDS: u32 = 1_000_000;
const FLOWS: u32 = 1_000;

/// A TCP segment of 1,448 bytes of payload as `tcp` gets it.
fn segment(flow: u32, flags: u8, inbound: bool) -> Summary {
    let us = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let peer = IpAddr::V4(Ipv4Addr::from_bits(0xc000_0200 + flow % 250));
    let mut header = [0; 32];
    let mut ports = [(1_024 + flow / 250) as u16, 5_001];
    let mut ends = (peer, us);
    if !inbound {
        ports.reverse();
        ends = (us, peer);
    }
    header[0..2].copy_from_slice(&ports[0].to_be_bytes());
    header[2..4].copy_from_slice(&ports[1].to_be_bytes());
    header[12] = 0x80;
    header[13] = flags;
    header[11] = 1;
    let summary = Summary::of_transport(ends.0, ends.1, 6, black_box(&header), 1_480);
    summary.expect("a whole header")
}

fn measure(mut each: impl FnMut(u32)) -> f64 {
    let begin = std::time::Instant::now();
    (0..ROUNDS).for_each(&mut each);
    let took: Duration = begin.elapsed();
    took.as_nanos() as f64 / f64::from(ROUNDS)
}

/// `count` rules, none of which the measured packets match, then one that lets them in.
fn rules(kind: &str, count: u32) -> String {
    let mut text = String::from("block all\n");
    for n in 0..count {
        let from = format!("172.{}.{}.0/24", 16 + n / 250, n % 250);
        let line = match kind {
            "ports" => format!("block in proto tcp to port {}\n", 10_000 + n),
            "addresses" => format!("block in from 172.16.{}.{}\n", n / 250, n % 250),
            "networks" => format!("block in proto tcp from {from}\n"),
            _ => format!("block in proto tcp from ! {from} port {n}\n"),
        };
        text.push_str(&line);
    }
    match kind {
        // So that the last match is found last.
        "all tried" => text.replacen(
            "block all\n",
            "block all\npass in proto tcp to port 5001\n",
            1,
        ),
        _ => text + "pass in proto tcp to port 5001\n",
    }
}

fn main() {
    let now = skink_time::Instant::from_millis(1);
    let empty = measure(|round| {
        black_box(segment(round % FLOWS, 0x10, true));
    });
    println!("making the summary: {empty:.1} ns");
    println!("rules                        count  with a state   by the rules");
    for kind in ["ports", "addresses", "networks", "all tried"] {
        for count in [1, 16, 128, 1_024] {
            let counters = Counters::create().expect("a small mapping");
            let mut filter = Filter::new(FilterConfig::new("eth0", 1), counters);
            filter.load(RuleSet::parse(&rules(kind, count)).expect("good rules"));
            for flow in 0..FLOWS {
                for (flags, inbound) in [(0x02, true), (0x12, false), (0x10, true)] {
                    let direction = if inbound {
                        Direction::In
                    } else {
                        Direction::Out
                    };
                    let verdict = filter.check(now, direction, &segment(flow, flags, inbound));
                    assert_eq!(verdict, Verdict::Pass);
                }
            }
            let mut check = |packet: &Summary| {
                let _ = black_box(filter.check(now, Direction::In, packet));
            };
            let state = measure(|round| check(&segment(round % FLOWS, 0x10, true)));
            // Not a request, of a flow that isn't known: all rules speak, and no state is made.
            let rule = measure(|round| check(&segment(FLOWS + round % FLOWS, 0x10, true)));
            let (state, rule) = (state - empty, rule - empty);
            println!("{kind:28} {count:5}  {state:9.1} ns  {rule:10.1} ns");
        }
    }
}
