//! What a program notices of a part of the stack that dies and has a successor: it takes a little longer.
use super::*;

fn successor(parts: &ChannelParts, channel: usize) -> Server {
    let descriptors = parts.for_stack(channel).expect("descriptors");
    Server::attach(descriptors).expect("a channel")
}

fn told(server: &mut Server) -> Vec<String> {
    let mut told = Vec::new();
    let each = |request: Request| told.push(format!("{:?}", request.body));
    server.receive(2048, each).expect("a good queue");
    told
}

fn offer(server: &mut Server, listener: u32, connections: &[u32]) {
    for connection in connections {
        let notice = Notice::Offered {
            listener: id(listener),
            connection: id(*connection),
        };
        server.tell(&notice).expect("room");
    }
    server.flush().expect("a good queue");
}

#[test]
fn connections_that_are_offered_again_are_shown_once() {
    let Channels {
        parts,
        mut client,
        mut servers,
        ..
    } = channels(routes(SPLIT));
    let close = |slot| RequestBody::Call(SocketCall::Close(Protocol::Tcp, id(slot)));
    let accepted = |connection| {
        let body = RequestBody::Accepted {
            listener: id(1),
            connection: id(connection),
        };
        format!("{body:?}")
    };
    offer(&mut servers[1], 1, &[10, 11, 12, 13]);
    client.poll().expect("a good queue");
    let taken = [10, 11, 12].map(|_| client.accept(id(1), |_| true).expect("room"));
    assert_eq!(taken, [10, 11, 12].map(|slot| Some(id(slot))));
    client.tell(close(11)).expect("room");
    client.tell(close(12)).expect("room");
    client.flush();
    assert_eq!(told(&mut servers[1]), [10, 11, 12].map(accepted));
    assert_eq!(told(&mut servers[0]).len(), 2);
    while client.take_event().is_some() {}

    // The slot of one is another's since.
    client.restore_taken(SocketId {
        generation: 2,
        ..id(12)
    });
    servers[1] = successor(&parts, 1);
    offer(&mut servers[1], 1, &[10, 11, 12, 13, 14]);
    client.poll().expect("a good queue");
    let waiting = [
        client.accept(id(1), |_| true),
        client.accept(id(1), |_| true),
        client.accept(id(1), |_| true),
    ];
    assert_eq!(waiting, [Ok(Some(id(13))), Ok(Some(id(14))), Ok(None)]);
    let events: Vec<_> = std::iter::from_fn(|| client.take_event()).collect();
    assert_eq!(events, [(Protocol::Tcp, readable(1))], "only the new one");

    assert!(client.has_repeated_offers());
    client.settle_offers().expect("room");
    assert!(!client.has_repeated_offers());
    client.flush();
    assert_eq!(told(&mut servers[1]), [13, 14, 10, 11, 12].map(accepted));
    let closed = [11, 12].map(|slot| format!("{:?}", close(slot)));
    assert_eq!(told(&mut servers[0]), closed, "once more");
}

#[test]
fn what_was_not_taken_of_a_closed_socket_is_the_stacks_business() {
    let mut all = channels(routes(SPLIT));
    offer(&mut all.servers[1], 1, &[10, 11]);
    all.client.poll().expect("a good queue");
    all.client.forget_offers(id(1));
    all.servers[1] = successor(&all.parts, 1);
    offer(&mut all.servers[1], 1, &[10, 11]);
    all.client.poll().expect("a good queue");
    assert_eq!(all.client.acceptable(id(1)), 0);
    assert!(!all.client.has_repeated_offers());
}

#[test]
fn offers_repeated_while_an_answer_is_awaited_are_settled_afterwards() {
    let (mut client, mut server, _) = channel();
    offer(&mut server, 1, &[10]);
    client.poll().expect("a good queue");
    client.accept(id(1), |_| true).expect("room");
    offer(&mut server, 1, &[10]);
    server.tell(&ok(2, 5)).expect("room");
    server.flush().expect("a good queue");
    let answer = client.ask(SocketCall::Open(Protocol::Udp));
    assert_eq!(answer.expect("an answer").value, 5);
    assert!(client.has_repeated_offers());
    client.settle_offers().expect("room");
    client.flush();
    assert_eq!(told(&mut server).len(), 3);
}

#[test]
fn a_call_that_died_with_its_server_is_answered_by_the_next() {
    let Channels {
        parts,
        mut client,
        mut servers,
        sleepers: _,
    } = channels(Routes::SINGLE);
    std::thread::scope(|scope| {
        let program = scope.spawn(move || {
            let first = client.ask(SocketCall::Open(Protocol::Tcp));
            (first, client.is_alone())
        });
        let mut server = servers.pop().expect("one");
        for round in 0..3u64 {
            let serial = loop {
                match server.peek().expect("a good queue") {
                    Some(request) => break request.serial,
                    None => std::thread::yield_now(),
                }
            };
            server.tell(&ok(serial, round)).expect("room");
            if round < 2 {
                // It dies before anybody could see the answer.
                drop(server);
                server = successor(&parts, 0);
            }
        }
        server.advance();
        server.release();
        server.flush().expect("a good queue");
        let (answer, alone) = program.join().expect("no panic");
        assert_eq!(answer.expect("an answer").value, 2);
        assert!(!alone);
    });
}

#[test]
fn a_full_queue_waits_for_a_successor() {
    let Channels {
        parts,
        mut client,
        servers,
        sleepers: _,
    } = channels(routes(SPLIT));
    drop(servers);
    assert!(!client.is_alone(), "whoever keeps the channel lives");
    let sent = |slot| RequestBody::Tcp(TcpRequest::Sent(id(slot)));
    for slot in 0..REQUESTS {
        client.tell(sent(slot)).expect("room");
    }
    client.flush();
    std::thread::scope(|scope| {
        let program = scope.spawn(move || {
            for slot in REQUESTS..REQUESTS + 10 {
                client.tell(sent(slot)).expect("room in the end");
            }
            client.flush();
            client.poll()
        });
        let mut heard = Vec::new();
        while heard.len() < REQUESTS as usize + 10 {
            // Each takes a few and dies.
            let mut server = successor(&parts, 1);
            let each = |request: Request| heard.push(format!("{:?}", request.body));
            if server.receive(100, each).expect("a good queue") == 0 {
                std::thread::yield_now();
            }
        }
        assert_eq!(program.join().expect("no panic"), Ok(()));
        let all = (0..REQUESTS + 10).map(|slot| format!("{:?}", sent(slot)));
        assert!(heard.into_iter().eq(all), "each once and in order");
    });
}

#[test]
fn a_program_that_slept_meanwhile_can_be_woken_by_the_next() {
    let mut all = channels(routes(SPLIT));
    let mut next = successor(&all.parts, 1);
    next.ring();
    assert!(!rung(&all.client), "it is awake and looks by itself");
    for _ in 0..3 {
        assert!(all.client.announce(), "nothing to do");
        all.servers.clear();
        next = successor(&all.parts, 1);
        next.flush().expect("a good queue");
        assert!(!rung(&all.client), "it was told nothing");
        next.ring();
        assert!(rung(&all.client));
        all.client.retract();
        assert!(!rung(&all.client));
    }
}
