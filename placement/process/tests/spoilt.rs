//! A program that spoils one of its channels is treated as one that ended, by all of the stack.

mod common;

use common::program::Writable;
use common::{APART, Grouping, World, connect, end, exchange};
use skink_control::{Part, Report};
use skink_memory::Mapping;
use skink_messages::Counter;
use skink_process::{Ended, StartError};
use skink_sockets::{PortOptions, Protocol, SocketCall};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

on_all_groupings!(
    a_program_that_spoils_one_channel_ends_everywhere,
    what_others_hold_of_one_that_spoilt_a_channel_stays,
);

/// Writes what no correct program would, and rings.
fn spoil(memory: &OwnedFd, channel: &Writable) {
    let clone = memory.try_clone().expect("a descriptor");
    for word in Mapping::from_fd(clone).expect("writable").words() {
        word.store(u64::MAX, Ordering::Relaxed);
    }
    rustix::io::write(&channel.bell, &1u64.to_ne_bytes()).expect("an eventfd");
}

/// The place to which each channel of a program leads.
fn places(world: &World) -> Vec<usize> {
    let mut all = Vec::new();
    for part in [Part::Syscall, Part::Tcp, Part::Udp] {
        let place = world.split.place(part);
        if !all.contains(&place) {
            all.push(place);
        }
    }
    all
}

fn a_program_that_spoils_one_channel_ends_everywhere(grouping: Grouping) {
    let mut world = World::new(grouping);
    let mut good = world.attach(0, 1000);
    let listener = good.listen(8080);
    let (theirs, ours) = connect(&mut world, &mut good, listener, 8080);
    for (channel, place) in places(&world).into_iter().enumerate() {
        let mut bad = world.attach(1, 1001);
        let doors = bad.listen(8081);
        let (victim, _) = connect(&mut world, &mut bad, doors, 8081);
        let bound = bad.bind(Protocol::Udp, end("0.0.0.0", 5353), PortOptions::default());
        bound.expect("free again");
        let before = world.count(Counter::SocketsSpoilt);
        let channel = &bad.writable[channel];
        spoil(&channel.requests, channel);
        world.await_report(Some(place), "a spoilt channel", |report| {
            *report == Report::Spoilt { program: 1 }
        });
        // Nothing has come of that yet: who said it may be out of its mind.
        exchange(&mut world, &mut good, theirs, ours, 20_000);
        assert!(!world.peer.is_closed(victim));
        // The supervisor tells `syscall`, whoever it was that found out.
        world.detach(1);
        world.until("its end", |peer| peer.is_closed(victim));
        world.peer.close(victim);
        world.until("the last word", |peer| peer.state(victim) != 9);
        world.finished(1);
        assert_eq!(world.count(Counter::SocketsSpoilt), before + 1);
        exchange(&mut world, &mut good, theirs, ours, 20_000);
    }
    good.close(ours);
    world.until("the end", |peer| peer.is_closed(theirs));
    world.stop();
}

fn what_others_hold_of_one_that_spoilt_a_channel_stays(grouping: Grouping) {
    for channel in 0.. {
        let mut world = World::new(grouping);
        let mut bad = world.attach(0, 1000);
        let mut good = world.attach(1, 1000);
        if channel == bad.writable.len() {
            return;
        }
        let doors = bad.listen(8080);
        let (theirs, ours) = connect(&mut world, &mut bad, doors, 8080);
        let share = SocketCall::Share(Protocol::Tcp, ours, bad.secret);
        good.ask(share).expect("it knows the secret");
        let (port, _) = bad
            .bind(Protocol::Udp, end("0.0.0.0", 5353), PortOptions::default())
            .expect("free");
        let share = SocketCall::Share(Protocol::Udp, port, bad.secret);
        good.ask(share).expect("it knows the secret");
        spoil(&bad.writable[channel].requests, &bad.writable[channel]);
        world.await_report(None, "a spoilt channel", |report| {
            *report == Report::Spoilt { program: 0 }
        });
        world.detach(0);
        // The memory is the other's as well: here it is written through the first one's mapping.
        assert_eq!(bad.tcp.send_ring(ours.slot).write(b"still here"), 10);
        good.tell(skink_sockets::RequestBody::Tcp(
            skink_messages::TcpRequest::Sent(ours),
        ));
        let mut got = Vec::new();
        world.until("data", |peer| {
            got.extend(peer.read(theirs));
            got == b"still here"
        });
        let again = good.bind(Protocol::Udp, end("0.0.0.0", 5353), PortOptions::default());
        again.expect_err("the port is still taken");
        world.detach(1);
        world.until("the end", |peer| peer.is_closed(theirs));
        world.peer.close(theirs);
        world.until("the last word", |peer| peer.state(theirs) != 9);
        world.finished(0);
        world.finished(1);
        world.stop();
    }
}

/// Its successors would fail alike: the supervisor must know that new queues are needed.
#[test]
fn who_finds_a_queue_spoilt_at_its_start_says_so() {
    // The index that it has to write itself, and what says that it is a queue.
    for (word, value) in [(16, 1000), (0, 7)] {
        let mut world = World::new(APART);
        let place = world.split.place(Part::Filter);
        assert_eq!(world.split.stop(place), Ended::Stopped);
        assert!(world.split.host(place, None).is_ok());
        let queue = &world.split.lane(Part::Filter, Part::Ip).down;
        let own = queue.consumer().expect("descriptors").own;
        let half = Mapping::from_fd(own).expect("writable");
        half.words()[word].store(value, Ordering::Relaxed);
        let refused = world.split.host(place, None).err();
        assert!(matches!(refused, Some(StartError::Spoilt(_))), "{word}");
        world.split.desert();
    }
}
