//! Programs on a stack in another thread, through their socket channels.

mod common;

use common::{Grouping, OURS, PEERS, World, connect, end, exchange};
use skink_control::{Order, Part, Report};
use skink_memory::{DatagramHeader, DatagramRing, SocketId};
use skink_messages::{Counter, SocketError, TcpRequest, UdpRequest};
use skink_process::Ended;
use skink_sockets::{ClientError, PortOptions, Protocol, RequestBody, SocketCall};

on_all_groupings!(
    a_program_accepts_echoes_and_closes,
    a_program_connects,
    datagrams_come_and_go,
    ports_are_shared_by_users_and_tickets,
    connections_reach_all_who_share_a_port,
    offers_stop_at_the_backlog_and_go_on,
    a_shared_socket_lives_as_long_as_one_holder,
    a_program_that_ends_leaves_nothing,
    the_filter_is_loaded_and_shown,
    programs_are_served_on_when_the_supervisor_is_gone,
);

fn a_program_accepts_echoes_and_closes(grouping: Grouping) {
    let mut world = World::new(grouping);
    let mut program = world.attach(3, 1000);
    let listener = program.listen(8080);
    let (theirs, ours) = connect(&mut world, &mut program, listener, 8080);
    assert_eq!(
        program.tcp.region_of(ours.slot),
        3,
        "slots are numbered by program"
    );
    exchange(&mut world, &mut program, theirs, ours, 200_000);
    program.close(ours);
    world.until("the end", |peer| peer.is_closed(theirs));
    // A stack that is stopped says goodbye, unless `link` stops with the transports.
    if world.split.place(Part::Link) == world.split.place(Part::Tcp) && !world.split.is_whole() {
        return world.stop();
    }
    let (theirs, _) = connect(&mut world, &mut program, listener, 8080);
    for place in world.split.front() {
        assert_eq!(world.split.stop(place), Ended::Stopped);
    }
    world.until("the end of all", |peer| peer.is_closed(theirs));
    world.stop();
}

fn a_program_connects(grouping: Grouping) {
    let mut world = World::new(grouping);
    let mut program = world.attach(0, 1000);
    let listener = world.peer.stack.tcp_open().expect("a socket");
    let now = skink_time::Instant::ZERO;
    let local = end("0.0.0.0", 80);
    let bound = world
        .peer
        .stack
        .tcp_bind(listener, local, Default::default());
    bound.expect("free");
    world
        .peer
        .stack
        .tcp_listen(now, listener, 4)
        .expect("listens");
    let socket = program.open(Protocol::Tcp);
    let remote = Some(end(PEERS, 80));
    let body = SocketCall::Connect(Protocol::Tcp, socket, remote);
    let answer = program.ask(body).expect("a route");
    assert_eq!(
        answer.local.map(|local| local.addr.to_string()).as_deref(),
        Some(OURS)
    );
    let mut accepted = None;
    world.until("the connection", |peer| {
        accepted = accepted.or_else(|| peer.stack.tcp_accept(listener));
        accepted.is_some()
    });
    program.write(socket, b"hello");
    let theirs = accepted.expect("accepted");
    let mut got = Vec::new();
    world.until("the data", |peer| {
        got.extend(peer.read(theirs));
        got == b"hello"
    });
    world.until("the event", |_| {
        program.client.poll().expect("a good channel");
        program.client.take_event().is_some()
    });
    let unreachable = Some(end("192.0.2.1", 80));
    let other = program.open(Protocol::Tcp);
    let answer = program.ask(SocketCall::Connect(Protocol::Tcp, other, unreachable));
    let expected = ClientError::Socket(SocketError::NetworkUnreachable);
    assert_eq!(answer, Err(expected));
    world.stop();
}

fn datagrams_come_and_go(grouping: Grouping) {
    let mut world = World::new(grouping);
    let mut program = world.attach(1, 0);
    let local = end("0.0.0.0", 53);
    let bound = program.bind(Protocol::Udp, local, PortOptions::default());
    let (socket, _) = bound.expect("root may have port 53");
    let theirs = world.peer.stack.udp_open().expect("a socket");
    let connected = world.peer.stack.udp_connect(theirs, Some(end(OURS, 53)));
    let back = connected.expect("a route");
    let push = |table: &skink_memory::SocketTable, id: SocketId, to, from: &str, text: &[u8]| {
        let ring = DatagramRing::new(table.send_ring(id.slot));
        let header = DatagramHeader::new(to, from.parse().expect("an address"));
        ring.push_with(&header, &[text]).expect("room");
    };
    push(
        world.peer.stack.udp_table(),
        theirs,
        end(OURS, 53),
        PEERS,
        b"question",
    );
    let sent = UdpRequest::Sent(theirs);
    world
        .peer
        .stack
        .udp_request(skink_time::Instant::ZERO, sent);
    let pop = |table: &skink_memory::SocketTable, id: SocketId| {
        let ring = DatagramRing::new(table.receive_ring(id.slot));
        let datagram = ring.peek()?;
        let mut text = vec![0; datagram.len()];
        datagram.copy_to(&mut text);
        ring.pop(&datagram);
        Some(text)
    };
    let mut question = None;
    world.until("the question", |_| {
        question = pop(&program.udp, socket);
        question.is_some()
    });
    assert_eq!(question.as_deref(), Some(&b"question"[..]));
    push(&program.udp, socket, back, OURS, b"answer");
    program.tell(RequestBody::Udp(UdpRequest::Sent(socket)));
    let mut answer = None;
    world.until("the answer", |peer| {
        answer = pop(peer.stack.udp_table(), theirs);
        answer.is_some()
    });
    assert_eq!(answer.as_deref(), Some(&b"answer"[..]));
    world.stop();
}

fn ports_are_shared_by_users_and_tickets(grouping: Grouping) {
    let mut world = World::new(grouping);
    let reuse = PortOptions {
        reuse_port: true,
        ..PortOptions::default()
    };
    let plain = PortOptions::default();
    let mut root = world.attach(0, 0);
    let mut alice = world.attach(1, 1000);
    let mut bob = world.attach(2, 1001);
    let mut alice_too = world.attach(3, 1000);
    let refused = |error| Err(ClientError::Socket(error));
    let tcp = Protocol::Tcp;
    let at = |port| end("0.0.0.0", port);
    // Privileged ports are root's, or whose who inherited them.
    assert_eq!(
        alice.bind(tcp, at(80), plain),
        refused(SocketError::Prohibited)
    );
    let (web, ticket) = root.bind(tcp, at(80), plain).expect("root may");
    let forged = PortOptions {
        ticket: ticket ^ 1,
        ..plain
    };
    assert_eq!(
        alice.bind(tcp, at(80), forged),
        refused(SocketError::Prohibited)
    );
    let shown = PortOptions { ticket, ..plain };
    let elsewhere = alice.bind(tcp, at(81), shown);
    assert_eq!(
        elsewhere,
        refused(SocketError::Prohibited),
        "a ticket is for one port"
    );
    let (inherited, same) = alice.bind(tcp, at(80), shown).expect("inherited");
    assert_eq!(same, ticket);
    root.ask(SocketCall::Listen(web, 8)).expect("listens");
    alice
        .ask(SocketCall::Listen(inherited, 8))
        .expect("listens too");
    // What isn't shared is nobody else's.
    alice.bind(tcp, at(8080), plain).expect("free");
    for program in [&mut alice_too, &mut bob, &mut root] {
        assert_eq!(
            program.bind(tcp, at(8080), plain),
            refused(SocketError::AddressInUse)
        );
        assert_eq!(
            program.bind(tcp, at(8080), reuse),
            refused(SocketError::AddressInUse)
        );
    }
    // Those of one user share if all say so.
    let (first, group) = alice.bind(tcp, at(9000), reuse).expect("free");
    let (second, too) = alice_too.bind(tcp, at(9000), reuse).expect("shared");
    assert_eq!(group, too, "a child of either may share with both");
    assert_eq!(
        alice_too.bind(tcp, at(9000), plain),
        refused(SocketError::AddressInUse)
    );
    assert_eq!(
        bob.bind(tcp, at(9000), reuse),
        refused(SocketError::AddressInUse)
    );
    alice.ask(SocketCall::Listen(first, 8)).expect("listens");
    alice_too
        .ask(SocketCall::Listen(second, 8))
        .expect("listens too");
    // A parent may be gone before its child binds.
    world.detach(0);
    world.finished(0);
    bob.bind(tcp, at(80), shown)
        .expect("the ticket outlives the parent");
    world.stop();
}

fn connections_reach_all_who_share_a_port(grouping: Grouping) {
    let mut world = World::new(grouping);
    let reuse = PortOptions {
        reuse_port: true,
        ..PortOptions::default()
    };
    let mut programs = [world.attach(0, 1000), world.attach(1, 1000)];
    let listeners = programs.each_mut().map(|program| {
        let bound = program.bind(Protocol::Tcp, end("0.0.0.0", 8080), reuse);
        let (socket, _) = bound.expect("shared");
        program
            .ask(SocketCall::Listen(socket, 64))
            .expect("listens");
        socket
    });
    let connections: Vec<_> = (0..32).map(|_| world.peer.connect(8080)).collect();
    let mut accepted = [0, 0];
    world.until("all connections", |peer| {
        for (at, program) in programs.iter_mut().enumerate() {
            while program.accept(listeners[at]).is_some() {
                accepted[at] += 1;
            }
        }
        accepted[0] + accepted[1] == 32 && connections.iter().all(|it| peer.is_established(*it))
    });
    assert!(accepted[0] > 0 && accepted[1] > 0, "{accepted:?}");
    world.stop();
}

fn offers_stop_at_the_backlog_and_go_on(grouping: Grouping) {
    let mut world = World::new(grouping);
    let mut program = world.attach(0, 1000);
    let listener = program.listen(8080);
    program
        .ask(SocketCall::Listen(listener, 3))
        .expect("a smaller backlog");
    let connections: Vec<_> = (0..6).map(|_| world.peer.connect(8080)).collect();
    world.until("handshakes", |peer| {
        connections.iter().all(|it| peer.is_established(*it))
    });
    world.until("three offers", |_| {
        program.client.poll().expect("a good channel");
        program.client.acceptable(listener) >= 3
    });
    assert_eq!(program.client.acceptable(listener), 3);
    for _ in 0..6 {
        world.until("the next", |_| program.accept(listener).is_some());
    }
    // What was offered and not taken ends with the listener.
    let late = world.peer.connect(8080);
    world.until("one more", |_| {
        program.client.poll().expect("a good channel");
        program.client.acceptable(listener) == 1
    });
    program.close(listener);
    world.until("the reset", |peer| peer.is_closed(late));
    assert!(connections.iter().all(|it| world.peer.is_established(*it)));
    world.stop();
}

fn a_shared_socket_lives_as_long_as_one_holder(grouping: Grouping) {
    let mut world = World::new(grouping);
    let mut parent = world.attach(0, 1000);
    let mut child = world.attach(1, 1000);
    let listener = parent.listen(8080);
    let (theirs, ours) = connect(&mut world, &mut parent, listener, 8080);
    // A stranger doesn't know the secret.
    let wrong = SocketCall::Share(Protocol::Tcp, ours, parent.secret ^ 1);
    child.ask(wrong).expect_err("a wrong secret");
    child.close(ours);
    world.until_counted(Counter::SocketsDropForeign, 2);
    exchange(&mut world, &mut parent, theirs, ours, 1000);
    // The child does.
    let right = SocketCall::Share(Protocol::Tcp, ours, parent.secret);
    child.ask(right).expect("it knows the secret");
    world.peer.write(theirs, b"x");
    let mut heard = [false; 2];
    world.until("both to hear", |_| {
        for (heard, program) in heard.iter_mut().zip([&mut parent, &mut child]) {
            program.client.poll().expect("a good channel");
            while let Some((_, event)) = program.client.take_event() {
                *heard |= event.socket == ours;
            }
        }
        heard == [true; 2]
    });
    parent.close(ours);
    // The parent's memory is the child's as well: here it is written through the parent's mapping.
    assert_eq!(parent.tcp.send_ring(ours.slot).write(b"still here"), 10);
    child.tell(RequestBody::Tcp(TcpRequest::Sent(ours)));
    let mut got = Vec::new();
    world.until("the child's data", |peer| {
        got.extend(peer.read(theirs));
        got == b"still here"
    });
    // Nor does the parent's death end it.
    world.detach(0);
    assert_eq!(parent.tcp.send_ring(ours.slot).write(b", and here"), 10);
    child.tell(RequestBody::Tcp(TcpRequest::Sent(ours)));
    world.until("the child's data", |peer| {
        got.extend(peer.read(theirs));
        got == b"still here, and here"
    });
    assert!(world.peer.is_established(theirs));
    world.detach(1);
    world.until("the end", |peer| peer.is_closed(theirs));
    // What the peer had sent last was never read, so that was a reset: nothing is left of either.
    world.finished(0);
    world.finished(1);
    world.stop();
}

fn a_program_that_ends_leaves_nothing(grouping: Grouping) {
    let mut world = World::new(grouping);
    let mut program = world.attach(0, 1000);
    let listener = program.listen(8080);
    let (theirs, ours) = connect(&mut world, &mut program, listener, 8080);
    program.write(ours, b"last words");
    world.detach(0);
    let mut got = Vec::new();
    world.until("the last words and the end", |peer| {
        got.extend(peer.read(theirs));
        got == b"last words" && peer.is_closed(theirs)
    });
    world.peer.close(theirs);
    world.until("the last acknowledgement", |peer| peer.state(theirs) != 9);
    world.finished(0);
    // The number is free again; the port as well.
    let mut next = world.attach(0, 1001);
    next.listen(8080);
    let (refused, _) = world.try_attach(0, 1001);
    assert_eq!(refused, world.split.front().len());
    next.open(Protocol::Tcp);
    world.stop();
}

fn the_filter_is_loaded_and_shown(grouping: Grouping) {
    let mut world = World::with_rules(
        grouping,
        "block return in all\npass in proto tcp to port 8080\n",
    );
    let mut program = world.attach(0, 1000);
    let listener = program.listen(8080);
    program.listen(8081);
    connect(&mut world, &mut program, listener, 8080);
    let refused = world.peer.connect(8081);
    world.until("the reset", |peer| peer.state(refused) == 0);
    world.order(Part::Filter, &Order::ShowFilter {}, &[]);
    let shown = world.await_report(None, "the filter", |it| matches!(it, Report::Filter { .. }));
    let Report::Filter { shown } = shown else {
        panic!("another report");
    };
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["rules"].as_array().map(Vec::len), Some(2));
    assert_eq!(shown["totals"]["returned"], 1);
    world.load("pass all");
    let passed = world.peer.connect(8081);
    world.until("the connection", |peer| peer.is_established(passed));
    world.stop();
}

fn programs_are_served_on_when_the_supervisor_is_gone(grouping: Grouping) {
    let mut world = World::new(grouping);
    let mut program = world.attach(0, 1000);
    let listener = program.listen(8080);
    let threads = world.split.desert();
    let (theirs, ours) = connect(&mut world, &mut program, listener, 8080);
    exchange(&mut world, &mut program, theirs, ours, 10_000);
    // Until they end.
    drop(program);
    world.until("the end", |peer| peer.is_closed(theirs));
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), Ended::Deserted);
    }
}
