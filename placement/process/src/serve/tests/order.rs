//! What a program told a transport before it called isn't overtaken by the call.

use super::*;
use crate::common::{APART, MIXED, PEERS, end};
use skink_messages::{ConnectionOption, TcpRequest};
use skink_sockets::{Notice, PortOptions, RequestBody};
use std::sync::atomic::Ordering;

/// More than a process takes in of one program in one round.
const FILLERS: usize = 200;

struct Scene {
    world: World,
    program: Raw,
    listener: SocketId,
    /// What the program was offered on it, with the peer's ends.
    ours: Vec<SocketId>,
    theirs: Vec<SocketId>,
}

/// A program that was offered connections.
fn scene(grouping: Grouping, connections: usize) -> Scene {
    let mut world = World::of(grouping);
    let mut program = world.raw(2, 1000);
    let listener = world.open(&mut program, Protocol::Tcp);
    let local = end("0.0.0.0", 8080);
    let bind = SocketCall::Bind(Protocol::Tcp, listener, local, PortOptions::default());
    world.ask(&mut program, bind).expect("free");
    let listen = SocketCall::Listen(listener, 16);
    world.ask(&mut program, listen).expect("listens");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..connections {
        theirs.push(world.peer.connect(8080));
        world.until("an offer", |peer| {
            program.hear();
            ours = program
                .heard
                .iter()
                .filter_map(|(_, notice)| match notice {
                    Notice::Offered { connection, .. } => Some(*connection),
                    _ => None,
                })
                .collect();
            ours.len() == theirs.len() && theirs.iter().all(|it| peer.is_established(*it))
        });
    }
    Scene {
        world,
        program,
        listener,
        ours,
        theirs,
    }
}

impl Scene {
    fn tell(&mut self, request: TcpRequest) {
        self.program.tell(RequestBody::Tcp(request));
    }

    /// So much that `tcp` doesn't take it all in by itself.
    fn fill(&mut self, id: SocketId) {
        for _ in 0..FILLERS {
            self.tell(TcpRequest::Received(id));
        }
    }

    /// Calls, and lets `syscall` pass the call on before `tcp` has its next round.
    fn call(&mut self, call: SocketCall) -> u32 {
        let serial = self.program.call(call);
        self.world.step(Part::Syscall);
        self.world.step(Part::Tcp);
        serial
    }

    fn close(&mut self, id: SocketId) {
        self.call(SocketCall::Close(Protocol::Tcp, id));
    }
}

#[test]
fn what_was_accepted_outlives_its_listener() {
    for grouping in [APART, MIXED] {
        let mut scene = scene(grouping, 2);
        let ours = scene.ours[0];
        scene.fill(ours);
        scene.program.tell(RequestBody::Accepted {
            listener: scene.listener,
            connection: ours,
        });
        scene.close(scene.listener);
        scene.world.calm();
        let [first, second] = [0, 1].map(|at| scene.theirs[at]);
        assert!(scene.world.peer.is_established(first));
        assert!(scene.world.peer.is_closed(second), "nobody took it");
        assert_eq!(scene.program.tcp.send_ring(ours.slot).write(b"hello"), 5);
        scene.tell(TcpRequest::Sent(ours));
        let mut got = Vec::new();
        scene.world.until("the data", |peer| {
            got.extend(peer.read(first));
            got == b"hello"
        });
    }
}

#[test]
fn data_arrives_whole_before_the_end() {
    for grouping in [APART, MIXED] {
        let mut scene = scene(grouping, 1);
        let (ours, theirs) = (scene.ours[0], scene.theirs[0]);
        scene.fill(ours);
        let data: Vec<u8> = (0..10_000).map(|at| (at % 251) as u8).collect();
        let wrote = scene.program.tcp.send_ring(ours.slot).write(&data);
        scene.tell(TcpRequest::Sent(ours));
        scene.close(ours);
        let mut got = Vec::new();
        scene.world.until("the data and the end", |peer| {
            got.extend(peer.read(theirs));
            peer.state(theirs) == skink_library::State::CloseWait as u8
        });
        assert_eq!(got, data[..wrote]);
    }
}

#[test]
fn an_option_counts_for_the_close_that_follows() {
    for grouping in [APART, MIXED] {
        let mut scene = scene(grouping, 1);
        let (ours, theirs) = (scene.ours[0], scene.theirs[0]);
        scene.fill(ours);
        scene.tell(TcpRequest::SetOption(
            ours,
            ConnectionOption::ResetOnClose(true),
        ));
        scene.close(ours);
        scene.world.until("the end", |peer| peer.is_closed(theirs));
        let state = scene.world.peer.state(theirs);
        assert_eq!(state, skink_library::State::Closed as u8, "a reset");
    }
}

/// The peer sends segments no larger than the option says, which it learns from our SYN only.
#[test]
fn an_option_counts_for_the_connect_that_follows() {
    for grouping in [APART, MIXED] {
        let mut scene = scene(grouping, 0);
        let theirs = scene.world.peer.listen(90);
        let socket = scene.world.open(&mut scene.program, Protocol::Tcp);
        scene.fill(socket);
        scene.tell(TcpRequest::SetOption(
            socket,
            ConnectionOption::MaximumSegment(600),
        ));
        let connect = SocketCall::Connect(Protocol::Tcp, socket, Some(end(PEERS, 90)));
        let serial = scene.call(connect);
        scene
            .world
            .answer(&mut scene.program, serial)
            .expect("a route");
        let mut accepted = None;
        scene.world.until("the connection", |peer| {
            accepted = accepted.or_else(|| peer.stack.tcp_accept(theirs));
            accepted.is_some()
        });
        let accepted = accepted.expect("accepted");
        let record = scene.world.peer.stack.tcp_table().find(accepted);
        let mss = record.expect("open").mss.load(Ordering::Relaxed);
        assert!(mss <= 600, "{mss}");
    }
}
