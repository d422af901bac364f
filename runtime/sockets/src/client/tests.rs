use super::*;
use crate::{ChannelParts, NOTICES, REQUESTS, Server};
use skink_channel::{Sleeper, SleeperDescriptors, SpinBudget};
use skink_messages::{Events, TcpRequest};

fn id(slot: u32) -> SocketId {
    SocketId {
        slot,
        generation: 1,
    }
}

fn channel() -> (Client, Server, Sleeper) {
    let stack = SleeperDescriptors::create("stack").expect("memory");
    let parts = ChannelParts::create().expect("memory");
    let program = parts.for_program(&stack).expect("descriptors");
    let client = Client::attach(program).expect("a channel");
    let server = Server::attach(parts.for_stack().expect("descriptors")).expect("a channel");
    let sleeper = Sleeper::attach(stack.sleeper().expect("descriptors"), SpinBudget::new(0));
    (client, server, sleeper.expect("a sleeper"))
}

/// Answers every `bind` with its port as the ticket, until the program is done.
fn serve(server: &mut Server, sleeper: &mut Sleeper, requests: usize) {
    let mut served = 0;
    while served < requests {
        sleeper.announce();
        if !server.is_ready() {
            let mut descriptors = [rustix::event::PollFd::from_borrowed_fd(
                server.bell(),
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut descriptors, None).expect("a ring");
        }
        sleeper.retract();
        server.hush();
        let mut answers = Vec::new();
        let each = |request: Request| {
            if let RequestBody::Bind(_, _, local, _) = request.body {
                let answer = Answer {
                    value: local.port.into(),
                    ..Answer::default()
                };
                answers.push(Notice::Answer(request.serial, Ok(answer)));
            }
        };
        served += server.receive(64, each).expect("a good queue");
        for answer in &answers {
            server.tell(answer).expect("room");
        }
        server.flush().expect("a good queue");
    }
}

#[test]
fn questions_are_answered_while_both_sleep() {
    let (mut client, mut server, mut sleeper) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&mut server, &mut sleeper, 200));
        for port in 1..=200 {
            let local = skink_wire::Endpoint::new(core::net::Ipv4Addr::LOCALHOST.into(), port);
            let body = RequestBody::Bind(Protocol::Tcp, id(1), local, Default::default());
            let answer = client.ask(body).expect("an answer");
            assert_eq!(answer.value, port.into());
        }
    });
}

#[test]
fn a_full_queue_of_requests_waits_for_the_stack() {
    let (mut client, mut server, mut sleeper) = channel();
    let count = REQUESTS as usize * 3;
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&mut server, &mut sleeper, count));
        for slot in 0..count {
            let body = RequestBody::Tcp(TcpRequest::Sent(id(slot as u32)));
            client.tell(body).expect("room in the end");
        }
        client.flush();
    });
}

#[test]
fn a_program_that_does_not_listen_gets_the_rest_later() {
    let (mut client, mut server, _) = channel();
    let event = |slot| SocketEvent {
        socket: id(slot),
        events: Events::READABLE,
    };
    let told = (0..)
        .take_while(|slot| {
            server
                .tell(&Notice::Event(Protocol::Tcp, event(*slot)))
                .is_ok()
        })
        .count();
    assert_eq!(told, NOTICES as usize);
    server.flush().expect("a good queue");
    client.poll().expect("a good queue");
    assert!(server.tell(&Notice::Event(Protocol::Udp, event(9))).is_ok());
    server.flush().expect("a good queue");
    client.poll().expect("a good queue");
    let taken: Vec<_> = std::iter::from_fn(|| client.take_event()).collect();
    assert_eq!(taken.len(), told + 1);
    assert_eq!(taken.last(), Some(&(Protocol::Udp, event(9))));
}

#[test]
fn offered_connections_are_accepted_in_order_and_reported() {
    let (mut client, mut server, _) = channel();
    for (listener, connection) in [(1, 10), (2, 20), (1, 11)] {
        let notice = Notice::Offered {
            listener: id(listener),
            connection: id(connection),
        };
        server.tell(&notice).expect("room");
    }
    server.flush().expect("a good queue");
    client.poll().expect("a good queue");
    assert_eq!([1, 2, 3].map(|at| client.acceptable(id(at))), [2, 1, 0]);
    let mut accept = |listener| client.accept(id(listener)).expect("room");
    assert_eq!(
        [accept(1), accept(1), accept(1)],
        [Some(id(10)), Some(id(11)), None]
    );
    assert_eq!(client.refuse_offers(id(2)), [id(20)]);
    assert_eq!(client.accept(id(2)), Ok(None));
    client.flush();
    let mut accepted = Vec::new();
    let each = |request: Request| {
        if let RequestBody::Accepted(listener) = request.body {
            accepted.push(listener);
        }
    };
    server.receive(64, each).expect("a good queue");
    assert_eq!(accepted, [id(1), id(1)]);
}

#[test]
fn a_program_whose_stack_has_ended_for_good_does_not_wait() {
    let stack = SleeperDescriptors::create("stack").expect("memory");
    let parts = ChannelParts::create().expect("memory");
    let program = parts.for_program(&stack).expect("descriptors");
    let mut client = Client::attach(program).expect("a channel");
    let mut server = Server::attach(parts.for_stack().expect("descriptors")).expect("a channel");
    let notice = Notice::Event(
        Protocol::Tcp,
        SocketEvent {
            socket: id(1),
            events: Events::CLOSED,
        },
    );
    server.tell(&notice).expect("room");
    server.flush().expect("a good queue");
    drop(server);
    assert!(!client.is_alone(), "the stack may have a successor");
    drop(parts);
    assert!(client.is_alone());
    let answer = client.ask(RequestBody::Open(Protocol::Tcp));
    assert_eq!(answer, Err(ClientError::Gone));
    assert!(
        client.take_event().is_some(),
        "what it said last isn't lost"
    );
}
