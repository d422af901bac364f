//! What `ip` passes without asking a filter in another process (docs/decisions/0028).

mod machine;

use machine::programs::{World, udp_bind, udp_receive, udp_send};
use machine::{Filtering, Who};
use skink_filter::{Phase, RuleSet};
use skink_memory::SocketId;
use skink_messages::{Component, Counter, TcpInput, TcpRequest};
use skink_nic::MemoryConfig;
use skink_time::Duration;
use skink_wire::Endpoint;

/// The first machine asks from any port, the second one answers from 2000.
const RULES: &str = "block all\npass in proto udp to any port 2000\n";

fn rules(text: &str) -> RuleSet {
    RuleSet::parse(text).expect("rules")
}

fn world(seed: u64, text: &str) -> World {
    let filtering = Filtering::Apart(rules(text));
    World::new(seed, MemoryConfig::default(), [Filtering::None, filtering])
}

/// A socket on each machine.
struct Sockets {
    sockets: [SocketId; 2],
    ends: [Endpoint; 2],
}

impl Sockets {
    fn new(world: &mut World, ports: [u16; 2]) -> Sockets {
        let ends = [world.end(0, 0, ports[0]), world.end(1, 0, ports[1])];
        let sockets = [0, 1].map(|side| udp_bind(world.machines[side].udp(), ends[side]));
        Sockets { sockets, ends }
    }

    fn send(&self, world: &mut World, side: usize, number: u32) {
        let (now, to) = (world.now, self.ends[1 - side]);
        let data = number.to_be_bytes();
        udp_send(
            world.machines[side].udp(),
            now,
            self.sockets[side],
            to,
            &data,
        );
    }

    fn receive(&self, world: &mut World, side: usize) -> Option<u32> {
        let udp = world.machines[side].udp();
        let (_, data) = udp_receive(udp, self.sockets[side])?;
        Some(u32::from_be_bytes(data.try_into().expect("a number")))
    }

    /// A datagram each way.
    fn talk(&self, world: &mut World) {
        for side in [0, 1] {
            self.send(world, side, 7);
            world.settle();
            assert_eq!(self.receive(world, 1 - side), Some(7));
        }
    }
}

#[test]
fn flows_go_on_while_the_filter_is_dead_and_others_wait_for_it() {
    let mut world = world(1, RULES);
    let known = Sockets::new(&mut world, [1000, 2000]);
    known.talk(&mut world);
    world.machines[1].kill(Who::Filter);
    for _ in 0..100 {
        known.talk(&mut world);
    }
    let third = world.end(0, 0, 1001);
    let other = udp_bind(world.machines[0].udp(), third);
    let now = world.now;
    udp_send(world.machines[0].udp(), now, other, known.ends[1], &[0; 4]);
    world.settle();
    assert_eq!(known.receive(&mut world, 1), None);
    world.machines[1].restart(Who::Filter, now);
    world.settle();
    assert_eq!(known.receive(&mut world, 1), Some(0));
    known.talk(&mut world);
    world.assert_no_leak();
}

/// However many there are: some room is kept for what is sent.
#[test]
fn flows_go_on_beside_packets_that_wait() {
    let mut world = world(5, RULES);
    let known = Sockets::new(&mut world, [1000, 2000]);
    known.talk(&mut world);
    world.machines[1].kill(Who::Filter);
    let stranger = world.end(0, 0, 3000);
    let stranger = udp_bind(world.machines[0].udp(), stranger);
    for port in 3000..3300 {
        let (now, to) = (world.now, world.end(1, 0, port));
        udp_send(world.machines[0].udp(), now, stranger, to, &[0; 4]);
        world.settle();
    }
    let (waiting, _) = world.machines[1].ip.as_ref().expect("ip").outstanding();
    assert!((100..256).contains(&waiting), "{waiting}");
    known.talk(&mut world);
    let now = world.now;
    world.machines[1].restart(Who::Filter, now);
    known.talk(&mut world);
    world.assert_no_leak();
}

#[test]
fn all_packets_are_counted_once_their_flow_is_asked_about_again() {
    let mut world = world(2, RULES);
    let flow = Sockets::new(&mut world, [1000, 2000]);
    (0..50).for_each(|_| flow.talk(&mut world));
    let counted = |world: &World| world.machines[1].counters.get(Counter::FilterPassed);
    assert!(counted(&world) < 10, "{} were asked about", counted(&world));
    world.pass(Duration::from_secs(2));
    assert_eq!(counted(&world), 100);
    let filter = world.machines[1]
        .filter
        .as_ref()
        .expect("a filter")
        .filter();
    assert_eq!(filter.totals().passed_by_state, 99);
    let (_, rule) = filter.rules().nth(1).expect("the second rule");
    assert_eq!((rule.packets, rule.bytes), (100, 3200));
}

#[test]
fn no_rules_ask_nobody_and_new_ones_are_asked_for_the_next_packet() {
    let mut world = world(3, "");
    let flow = Sockets::new(&mut world, [1000, 2000]);
    flow.talk(&mut world);
    // Nobody is there to be asked.
    world.machines[1].kill(Who::Filter);
    flow.talk(&mut world);
    let now = world.now;
    world.machines[1].restart(Who::Filter, now);
    flow.talk(&mut world);
    // From then on, though the filter has no turn before it was told what connections there are.
    let mut filter = world.machines[1].filter.take().expect("a filter");
    filter.load(rules("block all\n"));
    flow.send(&mut world, 0, 1);
    world.settle();
    assert_eq!(flow.receive(&mut world, 1), None);
    world.machines[1].filter = Some(filter);
    world.settle();
    assert_eq!(flow.receive(&mut world, 1), None);
    let filter = world.machines[1].filter.as_mut().expect("a filter");
    filter.load(rules(""));
    flow.talk(&mut world);
    // And though it is dead when there are rules.
    world.machines[1].kill(Who::Filter);
    flow.talk(&mut world);
    world.machines[1].set_rules(rules("block all\n"));
    world.machines[1].ip.as_mut().expect("ip").ask_filter();
    flow.send(&mut world, 0, 1);
    world.settle();
    assert_eq!(flow.receive(&mut world, 1), None);
    let now = world.now;
    world.machines[1].restart(Who::Filter, now);
    world.settle();
    assert_eq!(flow.receive(&mut world, 1), None);
    world.assert_no_leak();
}

#[test]
fn segments_are_counted_from_the_first_to_the_last() {
    let filtering = Filtering::Apart(rules("block all\npass in proto tcp to any port 80\n"));
    let nic = MemoryConfig::default();
    let mut world = World::new(4, nic, [Filtering::None, filtering]);
    let mut talkers = world.connect(0);
    world.exchange(&mut talkers, 300_000, |_, _| {});
    for (machine, talker) in talkers.iter().enumerate() {
        let (now, close) = (
            world.now,
            TcpInput::Request(TcpRequest::Close(talker.socket)),
        );
        world.machines[machine].tcp().call(|tcp, below| {
            let _ = tcp.handle(now, close, below);
        });
        world.pass(Duration::from_secs(2));
    }
    let counters = &world.machines[1].counters;
    let segments = counters.get(Counter::TcpSegmentsIn) + counters.get(Counter::TcpSegmentsOut);
    assert_eq!(counters.get(Counter::FilterPassed), segments);
    let filter = world.machines[1].filter.as_ref().expect("a filter");
    let state = filter.filter().export_states().next().expect("a state");
    assert_eq!(state.packets.iter().sum::<u64>(), segments);
    assert_eq!(state.phase, Phase::BothClosed as u8);
}

/// Whatever is asked about and whatever isn't, and though the filter dies now and then.
#[test]
fn datagrams_of_a_flow_stay_in_their_order() {
    for seed in 0..8 {
        let deadly = seed % 2 == 1;
        let mut world = world(seed, RULES);
        let flow = Sockets::new(&mut world, [1000, 2000]);
        flow.talk(&mut world);
        let mut next = [0; 2];
        for number in 0..4000 {
            // Several times in each second a flow is known for, and others that must be asked about.
            world.now += Duration::from_micros(world.random.below(1500));
            for side in [0, 1] {
                flow.send(&mut world, side, number);
            }
            if deadly && world.random.below(400) == 0 {
                world.machines[1].kill(Who::Filter);
            }
            if world.random.below(10) == 0 && world.machines[1].filter.is_none() {
                let now = world.now;
                world.machines[1].restart(Who::Filter, now);
            }
            world.round();
            for side in [0, 1] {
                while let Some(received) = flow.receive(&mut world, side) {
                    assert!(received >= next[side], "seed {seed}: {received} is late");
                    next[side] = received + 1;
                }
            }
        }
        assert!(next.iter().all(|next| *next > 3900), "{next:?}");
        world.pass(Duration::from_secs(2));
        let counted = world.machines[1].counters.get(Counter::FilterPassed);
        assert!(counted == 2 * 4001 || deadly, "{counted}");
    }
}
