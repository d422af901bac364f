//! A program that says things where they don't belong, and of what isn't its own.

use super::*;
use crate::common::{APART, HALVES, MIXED, end};
use skink_messages::{Shutdown, TcpRequest, UdpRequest};
use skink_sockets::{PortOptions, RequestBody, ServedBy};

fn accepted(listener: SocketId) -> RequestBody {
    RequestBody::Accepted {
        listener,
        connection: listener,
    }
}

#[test]
fn what_is_said_to_the_wrong_part_is_counted_and_does_nothing() {
    let mut world = World::of(APART);
    let mut good = world.raw(0, 1000);
    let mut bad = world.raw(1, 1000);
    let theirs = world.open(&mut good, Protocol::Tcp);
    let own = world.open(&mut bad, Protocol::Tcp);
    let port = world.open(&mut bad, Protocol::Udp);
    let local = end("0.0.0.0", 8080);
    let bind = SocketCall::Bind(Protocol::Tcp, own, local, PortOptions::default());
    let calls = [
        SocketCall::Open(Protocol::Tcp),
        SocketCall::Close(Protocol::Tcp, own),
        SocketCall::Close(Protocol::Tcp, theirs),
        bind,
        SocketCall::Listen(own, 5),
    ];
    let mut said = Vec::new();
    for part in [ServedBy::Tcp, ServedBy::Udp] {
        said.extend(calls.map(|call| (part, RequestBody::Call(call))));
    }
    for part in [ServedBy::Syscall, ServedBy::Udp] {
        said.push((part, accepted(own)));
        said.push((part, RequestBody::Tcp(TcpRequest::Sent(own))));
        said.push((
            part,
            RequestBody::Tcp(TcpRequest::Shutdown(own, Shutdown::Both)),
        ));
    }
    for part in [ServedBy::Syscall, ServedBy::Tcp] {
        said.push((part, RequestBody::Udp(UdpRequest::Sent(port))));
    }
    let before = world.count(Counter::SocketsDropForeign);
    for (serial, (part, body)) in (1000..).zip(&said) {
        bad.say(*part, serial, *body);
    }
    world.calm();
    let counted = world.count(Counter::SocketsDropForeign) - before;
    assert_eq!(counted, said.len() as u64);
    for serial in (1000..).take(said.len()) {
        assert_eq!(bad.answers(serial), [], "nothing was done");
    }
    assert_eq!(open_sockets(&bad.tcp, 1) + open_sockets(&bad.udp, 1), 2);
    assert_eq!(open_sockets(&good.tcp, 0), 1);
    world.ask(&mut bad, bind).expect("it wasn't bound");
}

#[test]
fn what_belongs_to_others_is_counted_and_stays() {
    for grouping in [APART, HALVES, MIXED] {
        let mut world = World::of(grouping);
        let mut good = world.raw(0, 1000);
        let mut bad = world.raw(1, 1000);
        let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
        let id = world.open(&mut good, tcp);
        let port = world.open(&mut good, udp);
        let local = end("0.0.0.0", 8080);
        let plain = PortOptions::default();
        let said = [
            accepted(id),
            RequestBody::Tcp(TcpRequest::Sent(id)),
            RequestBody::Tcp(TcpRequest::Received(id)),
            RequestBody::Udp(UdpRequest::Sent(port)),
            RequestBody::Call(SocketCall::Close(tcp, id)),
            RequestBody::Call(SocketCall::Close(udp, port)),
        ];
        let asked = [
            SocketCall::Bind(tcp, id, local, plain),
            SocketCall::Listen(id, 5),
            SocketCall::Rest(id),
            SocketCall::Connect(udp, port, None),
            SocketCall::Share(tcp, id, good.secret ^ 1),
            SocketCall::Share(udp, port, bad.secret),
        ];
        let before = world.count(Counter::SocketsDropForeign);
        said.into_iter().for_each(|body| bad.tell(body));
        world.calm();
        for call in asked {
            assert_eq!(
                world.ask(&mut bad, call),
                Err(SocketError::Invalid),
                "{call:?}"
            );
        }
        let counted = world.count(Counter::SocketsDropForeign) - before;
        assert_eq!(counted, (said.len() + asked.len()) as u64);
        assert_eq!(open_sockets(&good.tcp, 0), 1);
        assert_eq!(open_sockets(&good.udp, 0), 1);
        let bind = SocketCall::Bind(tcp, id, local, plain);
        world
            .ask(&mut good, bind)
            .expect("as if nobody had been there");
    }
}

/// What nobody took in before its program ended is taken in then.
#[test]
fn last_words_on_a_shared_socket_are_heard() {
    for grouping in [crate::common::WHOLE, APART, HALVES, MIXED] {
        let mut world = World::of(grouping);
        let listening = world.peer.listen(90);
        let mut parent = world.raw(0, 1000);
        let mut child = world.raw(1, 1000);
        let socket = world.open(&mut parent, Protocol::Tcp);
        let remote = Some(end(crate::common::PEERS, 90));
        let connect = SocketCall::Connect(Protocol::Tcp, socket, remote);
        world.ask(&mut parent, connect).expect("a route");
        let share = SocketCall::Share(Protocol::Tcp, socket, parent.secret);
        world.ask(&mut child, share).expect("it knows the secret");
        let mut theirs = None;
        world.until("the connection", |peer| {
            theirs = theirs.or_else(|| peer.stack.tcp_accept(listening));
            theirs.is_some()
        });
        world.calm();
        parent.tcp.send_ring(socket.slot).write(b"last words");
        parent.tell(RequestBody::Tcp(TcpRequest::Sent(socket)));
        let end = TcpRequest::Shutdown(socket, Shutdown::Write);
        parent.tell(RequestBody::Tcp(end));
        // The order comes first in the round.
        world.detach(0);
        let theirs = theirs.expect("accepted");
        let mut got = Vec::new();
        world.until("the last words", |peer| {
            got.extend(peer.read(theirs));
            got == b"last words"
        });
        world.until("the end", |peer| peer.is_closed(theirs));
        let state = world.peer.state(theirs);
        assert_eq!(state, skink_library::State::CloseWait as u8, "no reset");
    }
}
