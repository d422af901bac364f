//! Who has nothing to do sleeps, whatever waits for others.

use super::*;
use crate::common::{APART, HALVES, MIXED, Split, WHOLE};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use skink_messages::{CallBody, TransportCall};
use skink_sockets::NOTICES;

/// All processes have nothing to do by themselves, and would sleep.
fn all_sleep(world: &mut World) {
    world.calm();
    for part in Part::ALL {
        if world.split.runs(part) {
            assert_eq!(world.step(part), Step::Idle, "{part:?}");
            assert!(world.would_sleep(part), "{part:?}");
        }
    }
}

#[test]
fn without_work() {
    for grouping in [WHOLE, APART, HALVES, MIXED] {
        let mut world = World::of(grouping);
        all_sleep(&mut world);
        let mut program = world.raw(0, 1000);
        world.open(&mut program, Protocol::Tcp);
        all_sleep(&mut world);
    }
}

#[test]
fn while_a_call_is_unfinished() {
    let mut world = World::of(APART);
    let mut program = world.raw(0, 1000);
    let mut other = world.raw(1, 1000);
    // Its outcome doesn't come.
    let place = world.split.place(Part::Tcp);
    world.split.kill(place);
    let serial = program.call(SocketCall::Open(Protocol::Tcp));
    let behind = program.call(SocketCall::Open(Protocol::Udp));
    all_sleep(&mut world);
    world.open(&mut other, Protocol::Udp);
    all_sleep(&mut world);
    assert_eq!(program.answers(serial), []);
    assert_eq!(program.answers(behind), []);
}

#[test]
fn while_syscall_waits_for_a_store_that_is_dead() {
    let mut world = World::of(APART);
    let mut program = world.raw(0, 1000);
    let serial = program.call(SocketCall::Open(Protocol::Tcp));
    world.step(Part::Syscall);
    world.step(Part::Tcp);
    // An outcome waits for the successor, which waits for what was stored.
    for part in [Part::Syscall, Part::Store] {
        let place = world.split.place(part);
        world.split.kill(place);
    }
    world.succeed(Part::Syscall);
    world.let_go(Part::Syscall);
    all_sleep(&mut world);
    assert_eq!(program.answers(serial), []);
    world.succeed(Part::Store);
    world.let_go(Part::Store);
    world.answer(&mut program, serial).expect("room");
    all_sleep(&mut world);
}

#[test]
fn while_a_part_may_not_begin() {
    for part in Part::ALL.into_iter().filter(|part| *part != Part::Link) {
        let mut world = World::of(APART);
        let place = world.split.place(part);
        world.split.kill(place);
        world.succeed(part);
        let mut program = world.raw(0, 1000);
        program.call(SocketCall::Open(Protocol::Tcp));
        program.call(SocketCall::Open(Protocol::Udp));
        all_sleep(&mut world);
    }
}

/// `syscall` is dead, and its predecessors' calls have more outcomes than the lane has room for.
#[test]
fn while_outcomes_find_no_room() {
    let mut world = World::of(APART);
    let place = world.split.place(Part::Syscall);
    world.split.kill(place);
    let mut lane = world.split.attach_to_lane(Part::Syscall, Part::Tcp);
    let mut sent = 0;
    for _ in 0..10 {
        while sent < 2000 {
            let call = TransportCall {
                program: 9,
                serial: sent + 1,
                body: CallBody::Open,
            };
            if lane.send(&call).is_err() {
                break;
            }
            sent += 1;
        }
        lane.flush();
        world.calm();
    }
    assert!(sent < 2000, "all lanes are full");
    all_sleep(&mut world);
    // They come when somebody takes them.
    let mut taken = 0;
    for _ in 0..10 {
        lane.begin();
        while lane.take().is_some() {
            taken += 1;
        }
        lane.flush();
        world.calm();
    }
    assert_eq!(taken, sent);
}

#[test]
fn while_a_program_does_not_listen() {
    for grouping in [WHOLE, APART, HALVES, MIXED] {
        let mut world = World::of(grouping);
        let mut deaf = world.raw(0, 1000);
        for _ in 0..2 {
            for _ in 0..NOTICES / 2 + 100 {
                deaf.call(SocketCall::Open(Protocol::Udp));
            }
            all_sleep(&mut world);
        }
        let last = deaf.call(SocketCall::Open(Protocol::Tcp));
        all_sleep(&mut world);
        assert!(world.count(Counter::SocketsFull) > 0);
        deaf.hear();
        world.answer(&mut deaf, last).expect("room");
    }
}

#[test]
fn when_nobody_is_left_who_could_ring() {
    let mut world = World::of(WHOLE);
    all_sleep(&mut world);
    world.split.lose_doorbells();
    assert!(world.is_woken(Part::Tcp), "once");
    all_sleep(&mut world);
    assert!(!world.is_woken(Part::Tcp), "and not again");
}

/// The processors that a process is pinned to aren't all that there are: whom it waits for has others.
#[test]
fn not_at_once_if_it_is_pinned_and_others_have_processors() {
    let all = sched_getaffinity(None).expect("a set");
    let first = (0..CpuSet::MAX_CPU)
        .find(|cpu| all.is_set(*cpu))
        .expect("one");
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).expect("an allowed processor");
    let (nic, _) = skink_nic::pair(skink_nic::MemoryConfig::default()).expect("a link");
    let host = Split::new(WHOLE, "", by_hand).host(0, Some(nic));
    assert!(host.expect("a stack").spin.budget_ns() > 0);
}
