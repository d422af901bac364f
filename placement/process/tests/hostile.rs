//! Programs that mean harm, beside one that is served as if they weren't there.

mod common;

use common::{Grouping, PEERS, Program, World, connect, end, exchange};
use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::io::{ReadWriteFlags, preadv2, write};
use skink_memory::{Mapping, SocketId};
use skink_messages::{Counter, Holder, SocketError, TcpRequest, UdpRequest};
use skink_sockets::{ClientError, PortOptions, Protocol, RequestBody, SocketCall};
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};

on_all_groupings!(
    a_program_that_does_not_listen_holds_up_nobody,
    forged_ids_touch_nobody,
    random_bytes_in_all_memory_of_a_program_touch_nobody,
    bells_that_are_full_or_blocking_or_read_by_others_hold_up_nobody,
);

fn a_program_that_does_not_listen_holds_up_nobody(grouping: Grouping) {
    let mut world = World::new(grouping);
    let mut good = world.attach(0, 1000);
    let mut deaf = world.attach(1, 1000);
    let listener = good.listen(8080);
    let (theirs, ours) = connect(&mut world, &mut good, listener, 8080);
    let answered = world.count(Counter::SocketsAnswers);
    let requests = u64::from(skink_sockets::REQUESTS);
    for _ in 0..requests {
        let open = SocketCall::Open(Protocol::Tcp);
        deaf.client.ask_later(open).expect("room");
    }
    deaf.client.flush();
    exchange(&mut world, &mut good, theirs, ours, 100_000);
    world.until_counted(Counter::SocketsAnswers, answered + requests);
    // Now its queue of notices is full; what it asks for next waits until it listens.
    for _ in 0..500 {
        let open = SocketCall::Open(Protocol::Udp);
        deaf.client.ask_later(open).expect("room");
    }
    deaf.client.flush();
    exchange(&mut world, &mut good, theirs, ours, 100_000);
    assert!(world.count(Counter::SocketsAnswers) < answered + requests + 500);
    assert!(world.count(Counter::SocketsFull) > 0);
    let refused = deaf.client.settle_answers().expect("all answers");
    assert_eq!(
        refused as u64,
        requests + 500 - 2 * 64,
        "all slots are taken"
    );
    // It is served as before.
    let opened = deaf.ask(SocketCall::Open(Protocol::Tcp));
    assert_eq!(opened, Err(ClientError::Socket(SocketError::NoBuffers)));
    world.stop();
}

/// A deterministic generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}

fn forged(random: &mut Random, victim: u32) -> RequestBody {
    let id = SocketId {
        slot: victim * 64 + (random.next() % 64) as u32,
        generation: (random.next() % 4) as u32,
    };
    let local = end("0.0.0.0", random.next() as u16);
    let holder = Holder {
        program: victim,
        secret: random.next(),
    };
    let call = match random.next() % 10 {
        0 => SocketCall::Bind(Protocol::Tcp, id, local, PortOptions::default()),
        1 => SocketCall::Listen(id, u32::MAX),
        2 => SocketCall::Connect(Protocol::Tcp, id, Some(end(PEERS, 1))),
        3 => SocketCall::Share(Protocol::Tcp, id, random.next()),
        4 => SocketCall::Close(Protocol::Tcp, id),
        5 => SocketCall::Close(Protocol::Udp, id),
        6 => SocketCall::Rest(id),
        7 => SocketCall::Relieve(Protocol::Tcp, id, holder),
        8 => {
            return RequestBody::Accepted {
                listener: id,
                connection: SocketId {
                    slot: id.slot ^ 1,
                    ..id
                },
            };
        }
        _ => {
            return match random.next() % 4 {
                0 => RequestBody::Tcp(TcpRequest::Received(id)),
                1 => RequestBody::Udp(UdpRequest::Sent(id)),
                _ => RequestBody::Tcp(TcpRequest::Sent(id)),
            };
        }
    };
    RequestBody::Call(call)
}

fn forged_ids_touch_nobody(grouping: Grouping) {
    let mut world = World::new(grouping);
    let mut good = world.attach(0, 1000);
    let mut bad = world.attach(1, 1000);
    let listener = good.listen(8080);
    let (theirs, ours) = connect(&mut world, &mut good, listener, 8080);
    let mut random = Random(1);
    for round in 0..50 {
        for _ in 0..100 {
            // Its own region, the other's, and some that aren't there.
            let victim = [0, 1, 2, 1 << 20][(random.next() % 4) as usize];
            let body = forged(&mut random, victim);
            match body {
                RequestBody::Call(call) if call.is_answered() => bad.client.ask_later(call),
                body => bad.client.tell(body),
            }
            .expect("room");
        }
        bad.client.flush();
        bad.client.poll().expect("a good channel");
        exchange(&mut world, &mut good, theirs, ours, 1000 + round);
    }
    assert!(world.count(Counter::SocketsDropForeign) > 0);
    assert!(world.peer.is_established(theirs));
    assert!(
        bad.ask(SocketCall::Bind(
            Protocol::Tcp,
            ours,
            end("0.0.0.0", 1234),
            PortOptions::default()
        ))
        .is_err()
    );
    world.stop();
}

fn random_bytes_in_all_memory_of_a_program_touch_nobody(grouping: Grouping) {
    for seed in 0..8 {
        let mut world = World::new(grouping);
        let mut good = world.attach(0, 1000);
        let mut bad = world.attach(1, 1000);
        let (listener, doors) = (good.listen(8080), bad.listen(8081));
        let (theirs, ours) = connect(&mut world, &mut good, listener, 8080);
        let (victim, _) = connect(&mut world, &mut bad, doors, 8081);
        let mut random = Random(seed);
        let rings = [&bad.tcp, &bad.udp].map(|table| {
            let [_, send_rings, _] = table.region(1).expect("its region").files();
            send_rings.try_clone_to_owned().expect("a descriptor")
        });
        let clone = |fd: &OwnedFd| fd.try_clone().expect("a descriptor");
        let channels = bad.writable.iter();
        let queues = channels.flat_map(|it| [clone(&it.requests), clone(&it.notices)]);
        let memory = queues.chain([clone(&bad.page)]).chain(rings);
        let memory: Vec<Mapping> = memory
            .map(|fd| Mapping::from_fd(fd).expect("writable"))
            .collect();
        for round in 0..20 {
            for mapping in &memory {
                let words = mapping.words();
                for _ in 0..64 {
                    // The front is where indices are.
                    let within = [words.len() as u64, 32][(random.next() % 2) as usize];
                    let at = (random.next() % within) as usize;
                    let value = [random.next(), random.next() % 4096][(random.next() % 2) as usize];
                    words[at].store(value, std::sync::atomic::Ordering::Relaxed);
                }
            }
            bad.ring(1);
            let _ = bad.client.tell(forged(&mut random, 1));
            bad.client.flush();
            world.peer.write(victim, &[0; 100]);
            exchange(&mut world, &mut good, theirs, ours, 500 + round);
        }
        drop(bad);
        world.detach(1);
        exchange(&mut world, &mut good, theirs, ours, 5000);
        good.close(ours);
        world.until("the end", |peer| peer.is_closed(theirs));
        world.stop();
    }
}

/// The most that an eventfd takes; whoever adds to it waits.
const FULL: u64 = u64::MAX - 1;

impl Program {
    /// Rings each process of the stack, so many times.
    fn ring(&self, count: u64) {
        for channel in &self.writable {
            let _ = write(&channel.bell, &count.to_ne_bytes());
        }
    }

    /// Takes back what it has rung, if nobody was there first.
    fn take_back(&self) {
        for channel in &self.writable {
            let mut count = [0; 8];
            let mut room = [IoSliceMut::new(&mut count)];
            let _ = preadv2(&channel.bell, &mut room, u64::MAX, ReadWriteFlags::NOWAIT);
        }
    }

    /// Has all that it was given block whoever uses it, as far as that is shared.
    fn make_blocking(&self) {
        let bells = self.writable.iter().map(|channel| &channel.bell);
        for bell in bells.chain([&self.pipe]) {
            fcntl_setfl(bell, OFlags::empty()).expect("shared flags");
        }
    }

    /// Fills the pipe by which it is rung, from behind. The writing end has to be kept for it to stay full.
    fn fill_pipe(&self) -> OwnedFd {
        let path = format!("/proc/self/fd/{}", self.pipe.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        let behind = open(path, flags, Mode::empty()).expect("the pipe");
        while write(&behind, &[1; 4096]).is_ok() {}
        behind
    }
}

/// What it is rung by is full, what it rings by blocks, and rings are gone before who is rung has looked; then nothing is open
/// any more by which it could be rung.
fn bells_that_are_full_or_blocking_or_read_by_others_hold_up_nobody(grouping: Grouping) {
    let mut world = World::new(grouping);
    let mut good = world.attach(0, 1000);
    let mut bad = world.attach(1, 1000);
    let (listener, doors) = (good.listen(8080), bad.listen(8081));
    let (theirs, ours) = connect(&mut world, &mut good, listener, 8080);
    let (victim, _) = connect(&mut world, &mut bad, doors, 8081);
    bad.make_blocking();
    let behind = bad.fill_pipe();
    for round in 0..100 {
        // A sleep that it wasn't rung for yet.
        bad.client.awake();
        bad.client.announce();
        world.peer.write(victim, &[0; 100]);
        bad.ring([1, FULL][round % 2]);
        bad.take_back();
        exchange(&mut world, &mut good, theirs, ours, 500 + round);
    }
    bad.ring(FULL);
    world.peer.write(victim, &[0; 100]);
    exchange(&mut world, &mut good, theirs, ours, 5000);
    drop((bad, behind));
    world.split.forget(1);
    world.peer.write(victim, &[0; 100]);
    exchange(&mut world, &mut good, theirs, ours, 5000);
    world.detach(1);
    good.close(ours);
    world.until("the end", |peer| peer.is_closed(theirs));
    world.stop();
}
