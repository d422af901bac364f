//! `link`, `ip` and `filter` are killed again and again while connections go on.

mod machine;

use machine::programs::{World, udp_bind, udp_receive, udp_send};
use machine::{Filtering, Shown, Who};
use skink_filter::RuleSet;
use skink_messages::{Full, NicOutput, RxFrame, TxPacket};
use skink_nic::{Budget, MemoryConfig, Nic, Receiver, Room, Sender};
use skink_time::Instant;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Components that are dead, and when their successors start.
#[derive(Default)]
struct Dead(Vec<(usize, Who, u64)>);

impl Dead {
    fn has(&self, machine: usize, who: Who) -> bool {
        self.0
            .iter()
            .any(|(at, dead, _)| (*at, *dead) == (machine, who))
    }

    /// Now and then somebody dies; some rounds later it has a successor.
    fn strike(&mut self, world: &mut World, round: u64, one_in: u64) -> u64 {
        let (due, rest) = self.0.drain(..).partition(|(_, _, until)| *until <= round);
        self.0 = rest;
        let due: Vec<_> = due;
        for (machine, who, _) in due {
            let now = world.now;
            world.machines[machine].restart(who, now);
        }
        if world.random.below(one_in) > 0 {
            return 0;
        }
        let machine = world.random.below(2) as usize;
        let who = [Who::Link, Who::Ip, Who::Filter][world.random.below(3) as usize];
        let exists = world.machines[machine].host(who).is_some();
        if !exists || self.has(machine, who) {
            return 0;
        }
        match world.random.below(3) {
            0 => world.machines[machine].kill(who),
            _ => {
                let now = world.now;
                let shown = [
                    Shown::All,
                    Shown::Nothing,
                    Shown::Taken,
                    Shown::Answers,
                    Shown::AllBy(2),
                ][world.random.below(5) as usize];
                world.machines[machine].kill_in_poll(who, now, shown);
            }
        }
        self.0.push((machine, who, round + world.random.below(30)));
        1
    }

    fn raise_all(&mut self, world: &mut World) {
        for (machine, who, _) in self.0.drain(..) {
            let now = world.now;
            world.machines[machine].restart(who, now);
        }
    }
}

fn nic(seed: u64) -> MemoryConfig {
    match seed % 2 {
        0 => MemoryConfig::default(),
        _ => MemoryConfig {
            cut_bytes: 65_535,
            checksum: true,
            ..MemoryConfig::default()
        },
    }
}

fn filtering(seed: u64) -> [Filtering; 2] {
    let rules = RuleSet::parse("block all\npass in proto tcp to any port 80\npass proto udp all\n");
    match seed / 2 % 2 {
        0 => [Filtering::None, Filtering::None],
        _ => [Filtering::None, Filtering::Apart(rules.expect("rules"))],
    }
}

#[test]
fn no_byte_of_a_connection_is_lost_when_components_die() {
    let mut deaths = 0;
    for seed in 0..32 {
        let mut world = World::new(seed, nic(seed), filtering(seed));
        let mut talkers = world.connect(0);
        let mut dead = Dead::default();
        world.exchange(&mut talkers, 1_000_000, |world, round| {
            deaths += dead.strike(world, round, 10);
        });
        dead.raise_all(&mut world);
        world.assert_no_leak();
    }
    assert!(deaths > 300, "{deaths} deaths");
}

#[test]
fn datagrams_may_be_lost_but_are_whole_and_leave_nothing_behind() {
    for seed in 0..12 {
        let mut world = World::new(seed, nic(seed), filtering(seed));
        let (from, to) = (world.end(0, 0, 1000), world.end(1, 0, 2000));
        let sender = udp_bind(world.machines[0].udp(), from);
        let receiver = udp_bind(world.machines[1].udp(), to);
        let mut dead = Dead::default();
        let mut received = 0;
        for round in 0..1000 {
            dead.strike(&mut world, round, 20);
            let data = vec![round as u8; 1 + world.random.below(4000) as usize];
            let now = world.now;
            if round % 3 == 0 {
                udp_send(world.machines[0].udp(), now, sender, to, &data);
            }
            if !world.round() {
                world.skip();
            }
            while let Some((source, data)) = udp_receive(world.machines[1].udp(), receiver) {
                assert_eq!(source, from);
                assert!(data.iter().all(|byte| *byte == data[0]), "seed {seed}");
                received += 1;
            }
        }
        dead.raise_all(&mut world);
        world.assert_no_leak();
        assert!(received > 100, "seed {seed}: {received}");
    }
}

const ANY_TURN: [Shown; 5] = [
    Shown::All,
    Shown::Nothing,
    Shown::Taken,
    Shown::Answers,
    Shown::AllBy(1),
];

/// What has arrived reaches the program soon, in whichever turn a component dies, and whatever its neighbours see of that turn: the sender's
/// timer would take 0.2 s.
#[test]
fn a_segment_that_has_arrived_is_not_sent_again_by_its_peer() {
    let deaths = [Who::Ip, Who::Tcp]
        .into_iter()
        .flat_map(|who| ANY_TURN.map(|shown| (who, shown)));
    // What it has taken from the NIC is nowhere else until it has told of it.
    let deaths = deaths.chain([(Who::Link, Shown::All)]);
    for (who, shown) in deaths {
        for turns in 0..8 {
            let mut world = World::new(turns, nic(turns), filtering(turns));
            let mut talkers = world.connect(0);
            world.settle();
            let now = world.now;
            talkers[0].talk(world.machines[0].tcp(), now, 100);
            for _ in 0..turns {
                world.round();
            }
            let now = world.now;
            world.machines[1].kill_in_poll(who, now, shown);
            for _ in 0..10 {
                world.round();
            }
            let now = world.now;
            world.machines[1].restart(who, now);
            world.pass(skink_time::Duration::from_millis(50));
            let now = world.now;
            talkers[1].talk(world.machines[1].tcp(), now, 0);
            assert_eq!(talkers[1].read, 100, "{who:?} {shown:?} after {turns}");
            world.assert_no_leak();
        }
    }
}

/// Datagrams that wait while a component is replaced arrive, once, at the machine that they leave and at the one that they come to.
#[test]
fn datagrams_that_wait_for_a_successor_arrive_once() {
    for (machine, who) in [(0, Who::Link), (1, Who::Link), (1, Who::Ip), (1, Who::Udp)] {
        for turns in 0..8 {
            // What waits for a verdict when `ip` dies may have had it.
            let filters = filtering(if who == Who::Ip { 0 } else { turns });
            let mut world = World::new(turns, nic(turns), filters);
            let (from, to) = (world.end(0, 0, 1000), world.end(1, 0, 2000));
            let sender = udp_bind(world.machines[0].udp(), from);
            let receiver = udp_bind(world.machines[1].udp(), to);
            let mut sent = 0u8;
            let mut send = |world: &mut World| {
                let now = world.now;
                udp_send(world.machines[0].udp(), now, sender, to, &[sent; 100]);
                sent += 1;
                sent - 1
            };
            // Both know the other's address.
            send(&mut world);
            world.pass(skink_time::Duration::from_millis(10));
            for _ in 0..turns {
                send(&mut world);
                world.round();
            }
            world.machines[machine].kill(who);
            let mut last = 0;
            for _ in 0..10 {
                last = send(&mut world);
                world.round();
            }
            let now = world.now;
            world.machines[machine].restart(who, now);
            world.pass(skink_time::Duration::from_millis(100));
            let received = || udp_receive(world.machines[1].udp(), receiver).map(|it| it.1[0]);
            let mut all: Vec<u8> = std::iter::from_fn(received).collect();
            all.sort_unstable();
            let expected: Vec<u8> = (0..=last).collect();
            assert_eq!(all, expected, "{who:?} of {machine} after {turns}");
            world.assert_no_leak();
        }
    }
}

#[test]
fn a_connection_can_be_made_while_ip_is_replaced() {
    for delay in 0..10 {
        let mut world = World::new(delay, nic(1), [Filtering::None, Filtering::None]);
        let server = world.end(1, 0, 80);
        let listener = machine::programs::listen(world.machines[1].tcp(), server);
        let now = world.now;
        machine::programs::connect(world.machines[0].tcp(), now, server);
        for _ in 0..delay {
            world.round();
        }
        for machine in 0..2 {
            world.machines[machine].kill(Who::Ip);
        }
        world.round();
        let now: Instant = world.now;
        for machine in 0..2 {
            world.machines[machine].restart(Who::Ip, now);
        }
        world.pass(skink_time::Duration::from_secs(4));
        let accepted = world.machines[1].tcp().call(|tcp, _| tcp.accept(listener));
        assert!(accepted.is_some(), "after {delay} rounds");
        world.assert_no_leak();
    }
}

/// Dies, once so many frames have passed, in the middle of what `link` was doing: nothing of its batch is
/// published or released.
struct Fuse<T>(T, Arc<AtomicU64>);

fn burn(left: &AtomicU64) {
    if left.fetch_sub(1, Ordering::Relaxed) == 1 {
        // Without a word from the panic hook.
        std::panic::resume_unwind(Box::new(()));
    }
}

impl Receiver for Fuse<Box<dyn Receiver>> {
    fn receive(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        let left = &self.1;
        self.0.receive(now, budget, &mut |frame| {
            each(frame);
            burn(left);
        })
    }
    fn descriptors(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.0.descriptors(each);
    }
}

impl NicOutput for Fuse<Box<dyn Sender>> {
    fn room(&mut self) -> usize {
        self.0.room()
    }
    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        let sent = self.0.send(packet);
        burn(&self.1);
        sent
    }
}

impl Sender for Fuse<Box<dyn Sender>> {
    fn flush(&mut self) {
        self.0.flush();
    }
    fn blocked_on(&self) -> Option<Room<'_>> {
        self.0.blocked_on()
    }
}

#[test]
fn link_may_die_after_any_frame() {
    let mut all = 0;
    for seed in 0..16 {
        let fuses = [
            Arc::new(AtomicU64::new(u64::MAX)),
            Arc::new(AtomicU64::new(u64::MAX)),
        ];
        let mut world = World::with_nics(seed, nic(seed), filtering(0), |index, nic| Nic {
            capabilities: nic.capabilities,
            receiver: Box::new(Fuse(nic.receiver, fuses[index].clone())),
            sender: Box::new(Fuse(nic.sender, fuses[index].clone())),
        });
        let mut talkers = world.connect(0);
        let (mut deaths, mut left) = (0, [u64::MAX; 2]);
        world.exchange(&mut talkers, 1_000_000, |world, _| {
            for (index, fuse) in fuses.iter().enumerate() {
                if left[index] > u64::MAX / 2 {
                    left[index] = 1 + world.random.below(60);
                }
                fuse.store(left[index], Ordering::Relaxed);
                let machine = &mut world.machines[index];
                let now = world.now;
                let poll = || machine.poll(Who::Link, now);
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(poll)).is_err() {
                    machine.kill(Who::Link);
                    machine.restart(Who::Link, now);
                    deaths += 1;
                }
                // In the round that follows it burns no further.
                left[index] = fuse.swap(u64::MAX, Ordering::Relaxed);
            }
        });
        all += deaths;
        world.assert_no_leak();
    }
    assert!(all > 150, "{all} deaths");
}
