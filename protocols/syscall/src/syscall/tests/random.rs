//! Random sequences of everything that can happen, of which most is nonsense.
use super::world::{PROGRAMS, World};
use super::*;
use std::collections::BTreeMap;

const SEEDS: u64 = 300;
const STEPS: usize = 600;

/// One thing happens.
fn step(world: &mut World) {
    let program = world.dice.roll(PROGRAMS);
    let protocol = Protocol::ALL[world.dice.roll(2) as usize];
    match world.dice.roll(200) {
        0..90 => world.ask(program),
        90..130 => _ = world.move_on(protocol, true),
        130..170 => _ = world.move_on(protocol, false),
        170..173 => world.detach(program),
        173..188 => world.attach(program),
        // An outcome that nobody waits for.
        188..192 => {
            let serial = world.dice.roll(4);
            let socket = id(world.dice.roll(8), world.dice.roll(16));
            let program = 100 + program;
            let result = Ok((socket, Some(end(5000))));
            let outcome = CallOutcome {
                program,
                serial,
                result,
            };
            world.hand_in(protocol, outcome);
        }
        // One that comes twice, the second time later.
        192..194 => {
            let outcomes = &mut world.transports[protocol.index()].outcomes;
            if world.hostile
                && let Some(outcome) = outcomes.front().copied()
            {
                outcomes.push_back(outcome);
            }
        }
        194..197 => {
            world.syscall.transport_restarted(protocol, &mut world.out);
            world.take_answers();
        }
        197 => {
            let before = std::mem::take(&mut world.out.stored);
            world.syscall.store_restarted(&mut world.out);
            assert_eq!(world.out.stored, before);
        }
        _ => world.restart(),
    }
}

/// What is stored is what there is, and a successor has the same.
fn check_stored(world: &World) {
    let items = |syscall: &Syscall| -> BTreeMap<_, _> {
        let items = syscall.items();
        items.map(|item| (item.key(), item.value())).collect()
    };
    assert_eq!(items(&world.syscall), world.out.stored);
    let successor = world.successor();
    assert_eq!(items(&successor), world.out.stored);
    let both = [&world.syscall, &successor];
    let [ours, theirs] = both.map(|it| format!("{:?} {:?}", it.ports, it.shares));
    assert_eq!(ours, theirs);
}

/// When nothing is under way, the transports know the same holders.
fn check_holders(world: &World) {
    for protocol in Protocol::ALL {
        let shares = world.syscall.shares.of(protocol);
        let ours: BTreeMap<_, (bool, Vec<u32>)> = shares
            .map(|(socket, _, owner_holds, others)| (socket, (!owner_holds, others.collect())))
            .collect();
        assert_eq!(ours, world.transports[protocol.index()].shared());
    }
}

fn run(seed: u64, hostile: bool) -> World {
    let mut world = World::new(seed, hostile);
    for count in 0..STEPS {
        step(&mut world);
        if count.is_multiple_of(20) {
            check_stored(&world);
        }
    }
    world.settle();
    assert!(world.asked.is_empty(), "{seed}: {:?}", world.asked);
    assert_eq!(world.syscall.unfinished(), 0);
    check_stored(&world);
    world
}

/// Nothing is left when all programs have ended.
fn end_all(mut world: World) {
    for program in 0..PROGRAMS {
        world.detach(program);
    }
    world.settle();
    assert!(world.transports.iter().all(|it| it.is_empty()));
    // But retired tickets.
    let left = world.syscall.items();
    let left: Vec<_> = left.filter(|it| !matches!(it, Item::Retired(..))).collect();
    assert_eq!(left, []);
    assert!(world.syscall.programs.is_empty());
}

#[test]
fn everything_is_answered_kept_and_ended() {
    let mut bound = 0;
    let mut shared = 0;
    for seed in 0..SEEDS {
        let world = run(seed, true);
        bound += world.syscall.ports.items().count();
        shared += world.syscall.shares.items().count();
        end_all(world);
    }
    // It wasn't all refused.
    assert!(
        bound > SEEDS as usize && shared > SEEDS as usize,
        "{bound} {shared}"
    );
}

#[test]
fn transports_know_the_same_holders() {
    for seed in 1000..1000 + SEEDS {
        let world = run(seed, false);
        check_holders(&world);
    }
}
