//! A component that writes whatever it likes to all that it may write. Its neighbours don't panic, keep
//! within their memory, and go on with the others.

mod machine;

use machine::programs::{World, udp_bind, udp_receive, udp_send};
use machine::{Filtering, Random, Who};
use skink_channel::{Consumer, Producer, QueueDescriptors};
use skink_filter::RuleSet;
use skink_lanes::{Envelope, LargeMessage, MiddleMessage, SmallMessage};
use skink_memory::Mapping;
use skink_nic::MemoryConfig;
use std::sync::atomic::Ordering;

fn world(seed: u64) -> World {
    let rules = RuleSet::parse("pass all\n").expect("rules");
    let nic = MemoryConfig {
        cut_bytes: 65_535,
        checksum: true,
        ..MemoryConfig::default()
    };
    let seen = Filtering::Apart(rules);
    World::new(seed, nic, [seen, Filtering::None])
}

/// Numbers that are likely to be taken for something.
fn word(random: &mut Random) -> u8 {
    match random.below(8) {
        0 => random.next() as u8,
        1 => 0xff,
        2 => 1 << random.below(8),
        _ => random.below(8) as u8,
    }
}

fn body(random: &mut Random) -> [u8; 176] {
    let mut body = [0; 176];
    for byte in &mut body {
        *byte = word(random);
    }
    body
}

/// Goes on as the producer of a queue, with messages that have a kind and mean nothing.
fn speak(queue: &QueueDescriptors, random: &mut Random) {
    let parts = || queue.producer().expect("descriptors");
    let (kind, from) = (random.below(5) as u32, 1 + random.below(2) as u32);
    let body = body(random);
    match queue.geometry.slot_bytes() {
        64 => {
            let small = body.first_chunk::<48>().expect("that long");
            push(parts(), queue, SmallMessage::new(kind, from, small));
        }
        128 => {
            let middle = body.first_chunk::<112>().expect("that long");
            push(parts(), queue, MiddleMessage::new(kind, from, middle));
        }
        _ => push(parts(), queue, LargeMessage::new(kind, from, &body)),
    }
}

fn push<M: Envelope>(
    parts: skink_channel::ProducerDescriptors,
    queue: &QueueDescriptors,
    message: M,
) {
    if let Ok(mut producer) = Producer::attach(parts, queue.geometry) {
        let _ = producer.push(&message);
    }
}

/// Takes what came, without a word.
fn swallow(queue: &QueueDescriptors) {
    let parts = queue.consumer().expect("descriptors");
    if let Ok(mut consumer) = Consumer::<SmallMessage>::attach(parts, queue.geometry) {
        while let Ok(Some(_)) = consumer.pop() {}
    }
}

/// Stores anything anywhere in the half of a queue that its producer (or consumer) may write.
fn scribble(memory: std::os::fd::OwnedFd, random: &mut Random) {
    let memory = Mapping::from_fd(memory).expect("memory");
    // Behind the magic and the sizes, which are looked at when somebody attaches, and that fails then.
    let words = memory.words().len() as u64 - 3;
    for _ in 0..random.below(64) {
        let at = 3 + random.below(words) as usize;
        let value = match random.below(3) {
            0 => random.next(),
            1 => random.below(1024),
            _ => memory.words()[at]
                .load(Ordering::Relaxed)
                .wrapping_add(random.below(3)),
        };
        memory.words()[at].store(value, Ordering::Relaxed);
    }
}

/// Everybody but `who` of the first machine has a turn.
fn round_without(world: &mut World, who: Who) {
    world.now += skink_time::Duration::from_micros(10);
    for machine in 0..2 {
        for other in machine::ALL {
            if (machine, other) != (0, who) {
                let now = world.now;
                world.machines[machine].poll(other, now);
            }
        }
    }
}

/// Datagrams still go from the first machine to the second.
fn datagrams_go_on(world: &mut World, who: Who) {
    let (from, to) = (world.end(0, 0, 1000), world.end(1, 0, 2000));
    let sender = udp_bind(world.machines[0].udp(), from);
    let receiver = udp_bind(world.machines[1].udp(), to);
    for _ in 0..4 {
        let now = world.now;
        udp_send(world.machines[0].udp(), now, sender, to, b"still here");
        for _ in 0..200 {
            round_without(world, who);
        }
    }
    let received = udp_receive(world.machines[1].udp(), receiver);
    assert_eq!(
        received,
        Some((from, b"still here".to_vec())),
        "beside {who:?}"
    );
}

#[test]
fn messages_that_mean_nothing_harm_nobody() {
    for who in machine::ALL {
        for seed in 0..6 {
            let mut world = world(seed);
            let mut talkers = world.connect(0);
            world.exchange(&mut talkers, 50_000, |_, _| {});
            let mut random = Random::new(seed + 77);
            for _ in 0..400 {
                for (machine, talker) in world.machines.iter_mut().zip(&mut talkers) {
                    talker.talk_blindly(machine.tcp(), world.now);
                }
                for (sends, takes) in world.machines[0].queues(who) {
                    for _ in 0..random.below(40) {
                        speak(sends, &mut random);
                    }
                    swallow(takes);
                }
                round_without(&mut world, who);
            }
            if who == Who::Tcp {
                datagrams_go_on(&mut world, who);
            }
            let broken = world.machines[0].ip.as_ref().expect("alive");
            assert_eq!(
                skink_split::Host::broken(broken),
                None,
                "the queues are good"
            );
        }
    }
}

#[test]
fn spoilt_queues_are_noticed_and_harm_nobody() {
    for who in machine::ALL {
        let mut noticed = 0;
        for seed in 0..12 {
            let mut world = world(seed);
            let mut talkers = world.connect(0);
            world.exchange(&mut talkers, 50_000, |_, _| {});
            let mut random = Random::new(seed + 99);
            for _ in 0..100 {
                for (machine, talker) in world.machines.iter_mut().zip(&mut talkers) {
                    talker.talk_blindly(machine.tcp(), world.now);
                }
                for (sends, takes) in world.machines[0].queues(who) {
                    scribble(sends.producer().expect("parts").own, &mut random);
                    scribble(takes.consumer().expect("parts").own, &mut random);
                }
                if who == Who::Ip {
                    let board = world.machines[0].board.writer().expect("a board");
                    scribble(board, &mut random);
                }
                round_without(&mut world, who);
            }
            if who == Who::Tcp {
                datagrams_go_on(&mut world, who);
            }
            let others = machine::ALL.into_iter().filter(|other| *other != who);
            let tells = |other| world.machines[0].host(other)?.broken();
            noticed += usize::from(others.filter_map(tells).next().is_some());
        }
        assert!(noticed > 0, "{who:?}");
    }
}
