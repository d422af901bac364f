//! `syscall` or `store` dies in the middle of what programs ask for, and has a successor.

use super::*;
use crate::common::{APART, PEERS, end};
use skink_control::Order;
use skink_messages::TcpRequest;
use skink_sockets::{Notice, PortOptions, RequestBody};

/// Rounds of single processes after a call was made, before the death.
const POINTS: usize = 8;
/// Who has these rounds, in turn.
const TURNS: [Part; 4] = [Part::Syscall, Part::Store, Part::Tcp, Part::Udp];

/// What the programs have got so far.
#[derive(Default)]
struct Got {
    listener: Option<SocketId>,
    ticket: u64,
    connection: Option<SocketId>,
    datagrams: Option<SocketId>,
    inherited: Option<SocketId>,
    reopened: Option<SocketId>,
}

/// The calls in their order: who makes each, which, and what is kept of its answer.
const CALLS: usize = 16;

fn call(at: usize, got: &Got, secret: u64) -> (usize, SocketCall) {
    let at_8080 = end("0.0.0.0", 8080);
    let plain = PortOptions::default();
    let shown = PortOptions {
        ticket: got.ticket,
        ..plain
    };
    let socket = |id: Option<SocketId>| id.expect("opened before");
    let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
    match at {
        0 => (0, SocketCall::Open(tcp)),
        1 => (
            0,
            SocketCall::Bind(tcp, socket(got.listener), at_8080, plain),
        ),
        2 => (0, SocketCall::Listen(socket(got.listener), 8)),
        3 => (0, SocketCall::Open(tcp)),
        4 => {
            let remote = Some(end(PEERS, 90));
            (0, SocketCall::Connect(tcp, socket(got.connection), remote))
        }
        5 => (0, SocketCall::Open(udp)),
        6 => {
            let any = end("0.0.0.0", 0);
            (0, SocketCall::Bind(udp, socket(got.datagrams), any, plain))
        }
        7 => (1, SocketCall::Share(tcp, socket(got.connection), secret)),
        8 => (1, SocketCall::Open(tcp)),
        9 => (
            1,
            SocketCall::Bind(tcp, socket(got.inherited), at_8080, shown),
        ),
        10 => (0, SocketCall::Close(tcp, socket(got.connection))),
        11 => (1, SocketCall::Close(tcp, socket(got.inherited))),
        12 => (0, SocketCall::Close(tcp, socket(got.listener))),
        13 => (1, SocketCall::Close(tcp, socket(got.connection))),
        14 => (2, SocketCall::Open(tcp)),
        _ => (
            2,
            SocketCall::Bind(tcp, socket(got.reopened), at_8080, plain),
        ),
    }
}

fn keep(at: usize, got: &mut Got, answer: Answer) {
    match at {
        0 => got.listener = answer.socket,
        1 => got.ticket = answer.value,
        3 => got.connection = answer.socket,
        5 => got.datagrams = answer.socket,
        8 => got.inherited = answer.socket,
        9 => assert_eq!(answer.value, got.ticket),
        14 => got.reopened = answer.socket,
        _ => {}
    }
}

struct Scene {
    world: World,
    programs: [Raw; 3],
    got: Got,
    secret: u64,
    /// The peer's end of the connection.
    theirs: Option<SocketId>,
    listening: SocketId,
}

impl Scene {
    fn new() -> Scene {
        let mut world = World::of(APART);
        let listening = world.peer.listen(90);
        let programs = [(0, 1000), (1, 1000), (2, 1001)].map(|(at, uid)| world.raw(at, uid));
        Scene {
            secret: programs[0].secret,
            world,
            programs,
            got: Got::default(),
            theirs: None,
            listening,
        }
    }

    /// Makes a call; `meanwhile` may do harm before all is driven on. Each is answered once, or again
    /// alike after a death.
    fn make(&mut self, at: usize, meanwhile: impl FnOnce(&mut World)) {
        let (who, call) = call(at, &self.got, self.secret);
        let program = &mut self.programs[who];
        let serial = program.call(call);
        meanwhile(&mut self.world);
        if call.is_answered() {
            let answer = self.world.answer(program, serial);
            let answer = answer.unwrap_or_else(|error| panic!("call {at}: {error:?}"));
            self.world.calm();
            for again in program.answers(serial) {
                assert_eq!(again, Ok(answer), "call {at}");
            }
            keep(at, &mut self.got, answer);
        }
        self.world.calm();
        if at == 4 {
            let listening = self.listening;
            let mut accepted = None;
            self.world.until("the connection", |peer| {
                accepted = accepted.or_else(|| peer.stack.tcp_accept(listening));
                accepted.is_some()
            });
            self.theirs = accepted;
        }
        if at == 13 {
            let theirs = self.theirs.expect("connected");
            self.world.until("the end", |peer| peer.is_closed(theirs));
            self.world.peer.close(theirs);
            self.world.calm();
        }
        self.check(at);
    }

    /// What must hold after a call.
    fn check(&self, at: usize) {
        let after = |opened, closed| usize::from((opened..closed).contains(&at));
        let [first, second, third] = &self.programs;
        let tcp = [
            // The shared connection stays the first one's as long as somebody holds it.
            after(0, 12) + after(3, 13),
            after(8, 11),
            after(14, CALLS),
        ];
        let open = [first, second, third].map(|it| open_sockets(&it.tcp, it.number));
        assert_eq!(open, tcp, "TCP sockets after call {at}");
        assert_eq!(open_sockets(&first.udp, 0), after(5, CALLS));
        if (4..13).contains(&at) {
            let theirs = self.theirs.expect("connected");
            assert!(self.world.peer.is_established(theirs), "after call {at}");
        }
    }

    /// Every program ends, and nothing is left.
    fn end(mut self) {
        for program in 0..3 {
            self.world.detach(program);
            self.world.finished(program);
        }
    }
}

fn die(world: &mut World, part: Part, point: usize) {
    for turn in TURNS.iter().cycle().take(point) {
        world.step(*turn);
    }
    world.replace(part);
}

#[test]
fn syscall_dies_at_any_point() {
    for at in 0..CALLS {
        for point in 0..POINTS {
            let mut scene = Scene::new();
            for before in 0..at {
                scene.make(before, |_| {});
            }
            scene.make(at, |world| die(world, Part::Syscall, point));
            for after in at + 1..CALLS {
                scene.make(after, |_| {});
            }
            scene.end();
        }
    }
}

/// And what it was told again is all that a successor of `syscall` needs.
#[test]
fn store_dies_at_any_point_and_is_filled_again() {
    for at in 0..CALLS {
        for point in 0..POINTS / 2 {
            let mut scene = Scene::new();
            for before in 0..at {
                scene.make(before, |_| {});
            }
            scene.make(at, |world| die(world, Part::Store, point));
            scene.world.replace(Part::Syscall);
            for after in at + 1..CALLS {
                scene.make(after, |_| {});
            }
            scene.end();
        }
    }
}

/// All that die when queues are spoilt, but for `link`, which nobody asks what programs hold.
const ALL: [Part; 6] = [
    Part::Ip,
    Part::Filter,
    Part::Store,
    Part::Tcp,
    Part::Udp,
    Part::Syscall,
];

/// To and fro on the connection, which the second program holds, and which is in the first one's memory. Each
/// side speaks when all has been quiet: nothing but what it says, and what it is told, moves the other.
fn talk(scene: &mut Scene) {
    let theirs = scene.theirs.expect("connected");
    let ours = scene.got.connection.expect("connected");
    for _ in 0..2 {
        scene.world.calm();
        scene.programs[1].hear();
        scene.programs[1].heard.clear();
        assert_eq!(scene.world.peer.write(theirs, b"ls"), 2);
        let program = &mut scene.programs[1];
        scene.world.until("an event", |_| hears_of(program, ours));
        let mut got = [0; 8];
        let rings = &scene.programs[0].tcp;
        assert_eq!(rings.receive_ring(ours.slot).read(&mut got), 2);
        let received = TcpRequest::Received(ours);
        scene.programs[1].tell(RequestBody::Tcp(received));
        // Longer than an acknowledgement is delayed.
        scene.world.until("an acknowledgement", |peer| {
            peer.stack.tcp_table().send_ring(theirs.slot).is_empty()
        });
        scene.world.calm();
        let rings = &scene.programs[0].tcp;
        assert_eq!(rings.send_ring(ours.slot).write(b"a file"), 6);
        scene.programs[1].tell(RequestBody::Tcp(TcpRequest::Sent(ours)));
        hear(&mut scene.world, theirs, b"a file");
    }
}

fn hears_of(program: &mut Raw, socket: SocketId) -> bool {
    program.hear();
    let about = |notice: &Notice| match notice {
        Notice::Event(_, event) => event.socket == socket,
        Notice::Answer(..) | Notice::Offered { .. } => false,
    };
    program.heard.iter().any(|(_, notice)| about(notice))
}

fn hear(world: &mut World, theirs: SocketId, expected: &[u8]) {
    let mut heard = Vec::new();
    world.until("an answer", |peer| {
        heard.extend(peer.read(theirs));
        heard == expected
    });
}

/// `order`: who has a round after the call, again and again, until all die.
fn all_die_together(at: usize, order: &[Part], point: usize, readable: bool) {
    let mut scene = Scene::new();
    for before in 0..at {
        scene.make(before, |_| {});
    }
    scene.make(at, |world| {
        for turn in order.iter().cycle().take(point) {
            world.step(*turn);
        }
        world.replace_together(&ALL, readable);
    });
    if (7..13).contains(&at) {
        talk(&mut scene);
    }
    for after in at + 1..CALLS {
        scene.make(after, |_| {});
    }
    scene.end();
}

/// Nobody is left who knows who shares what, but for what is stored, and what is on its way.
#[test]
fn all_die_together_at_any_point() {
    // `store` hasn't taken in yet what the others act on already.
    let late_store = [Part::Syscall, Part::Tcp, Part::Udp, Part::Syscall];
    for at in 0..CALLS {
        for point in 0..POINTS / 2 {
            all_die_together(at, &TURNS, point, true);
        }
        for point in 2..=late_store.len() {
            all_die_together(at, &late_store, point, true);
        }
    }
}

/// As when queues are spoilt. A call that nobody answers isn't waited with by its program: once `syscall` has
/// taken it, it is lost with the queue.
#[test]
fn all_die_together_at_any_point_with_their_queues() {
    for at in 0..CALLS {
        let points = match at {
            10..=13 => 1,
            _ => POINTS / 2,
        };
        for point in 0..points {
            all_die_together(at, &TURNS, point, false);
        }
    }
}

/// What a holder says before the new transport knows that it is one isn't lost, nor what it would have been told.
#[test]
fn a_holder_speaks_and_is_spoken_to_while_all_are_dead() {
    let mut scene = Scene::new();
    (0..11).for_each(|at| scene.make(at, |_| {}));
    let ours = scene.got.connection.expect("connected");
    let theirs = scene.theirs.expect("connected");
    scene.world.calm();
    scene.programs[1].hear();
    scene.programs[1].heard.clear();
    scene.world.replace_together(&ALL, false);
    // All is quiet, and the transport has taken in what its predecessor left.
    let rings = &scene.programs[0].tcp;
    assert_eq!(rings.send_ring(ours.slot).write(b"a file"), 6);
    scene.programs[1].tell(RequestBody::Tcp(TcpRequest::Sent(ours)));
    hear(&mut scene.world, theirs, b"a file");
    let program = &mut scene.programs[1];
    scene.world.until("an event", |_| hears_of(program, ours));
    (11..CALLS).for_each(|at| scene.make(at, |_| {}));
    scene.end();
}

#[test]
fn who_ends_while_syscall_is_dead_leaves_nothing() {
    let mut scene = Scene::new();
    for at in 0..10 {
        scene.make(at, |_| {});
    }
    let place = scene.world.split.place(Part::Syscall);
    scene.world.split.kill(place);
    scene.world.succeed(Part::Syscall);
    // Before it has what was stored.
    scene
        .world
        .order(Part::Syscall, &Order::Detach { program: 0 }, &[]);
    scene.world.calm();
    scene.world.let_go(Part::Syscall);
    scene.world.calm();
    // The connection is the second program's as well.
    let theirs = scene.theirs.expect("connected");
    assert!(scene.world.peer.is_established(theirs));
    assert_eq!(
        open_sockets(&scene.programs[0].tcp, 0),
        1,
        "only the shared one"
    );
    let connection = scene.got.connection.expect("connected");
    scene.programs[1].call(SocketCall::Close(Protocol::Tcp, connection));
    scene.world.until("the end", |peer| peer.is_closed(theirs));
    scene.world.peer.close(theirs);
    scene.world.calm();
    scene.world.finished(0);
}

/// Calls that come before it may begin are served once it does.
#[test]
fn calls_wait_until_syscall_knows_everything() {
    let mut scene = Scene::new();
    for at in 0..8 {
        scene.make(at, |_| {});
    }
    let place = scene.world.split.place(Part::Syscall);
    scene.world.split.kill(place);
    scene.world.succeed(Part::Syscall);
    let serial = scene.programs[1].call(SocketCall::Open(Protocol::Tcp));
    scene.world.calm();
    assert_eq!(scene.programs[1].answers(serial), []);
    scene.world.let_go(Part::Syscall);
    let answer = scene.world.answer(&mut scene.programs[1], serial);
    keep(8, &mut scene.got, answer.expect("room"));
    for at in 9..CALLS {
        scene.make(at, |_| {});
    }
    scene.end();
}
