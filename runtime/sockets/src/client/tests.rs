use super::*;
use crate::{ChannelParts, NOTICES, REQUESTS, Server};
use skink_channel::{Sleeper, SleeperDescriptors, SpinBudget};
use skink_messages::{Events, TcpRequest, UdpRequest};

mod hostile;
mod restarts;

fn id(slot: u32) -> SocketId {
    SocketId {
        slot,
        generation: 1,
    }
}

fn routes(channels: [u8; 3]) -> Routes {
    Routes::new(channels).expect("routes")
}

/// Syscall's, tcp's and udp's in this order.
const SPLIT: [u8; 3] = [0, 1, 2];

/// A program's half, and one stack for each channel.
struct Channels {
    parts: ChannelParts,
    client: Client,
    servers: Vec<Server>,
    sleepers: Vec<Sleeper>,
}

fn channels(routes: Routes) -> Channels {
    let count = routes.channels();
    let create = |_| SleeperDescriptors::create("stack").expect("memory");
    let stacks: Vec<_> = (0..count).map(create).collect();
    let parts = ChannelParts::create(count).expect("memory");
    let all: Vec<_> = stacks.iter().collect();
    let program = parts.for_program(&all).expect("descriptors");
    assert_eq!(program.len(), crate::program_descriptors(count));
    let serve = |channel| {
        let descriptors = parts.for_stack(channel).expect("descriptors");
        Server::attach(descriptors).expect("a channel")
    };
    let sleep = |stack: &SleeperDescriptors| {
        let descriptors = stack.sleeper().expect("descriptors");
        Sleeper::attach(descriptors, SpinBudget::new(0)).expect("a sleeper")
    };
    Channels {
        client: Client::attach(program, routes).expect("channels"),
        servers: (0..count).map(serve).collect(),
        sleepers: stacks.iter().map(sleep).collect(),
        parts,
    }
}

fn channel() -> (Client, Server, Sleeper) {
    let mut all = channels(Routes::SINGLE);
    let (server, sleeper) = (all.servers.pop(), all.sleepers.pop());
    (all.client, server.expect("one"), sleeper.expect("one"))
}

fn readable(slot: u32) -> SocketEvent {
    SocketEvent {
        socket: id(slot),
        events: Events::READABLE,
    }
}

fn share(slot: u32) -> SocketCall {
    SocketCall::Share(Protocol::Tcp, id(slot), 1)
}

fn ok(serial: u32, value: u64) -> Notice {
    let answer = Answer {
        value,
        ..Answer::default()
    };
    Notice::Answer(serial, Ok(answer))
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
            if let RequestBody::Call(SocketCall::Bind(_, _, local, _)) = request.body {
                answers.push(ok(request.serial, local.port.into()));
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
            let call = SocketCall::Bind(Protocol::Tcp, id(1), local, Default::default());
            let answer = client.ask(call).expect("an answer");
            assert_eq!(answer.value, u64::from(port));
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
    let event = readable;
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
    let mut accept = |listener| client.accept(id(listener), |_| true).expect("room");
    assert_eq!(
        [accept(1), accept(1), accept(1)],
        [Some(id(10)), Some(id(11)), None]
    );
    client.forget_offers(id(2));
    assert_eq!(client.accept(id(2), |_| true), Ok(None));
    client.flush();
    let mut accepted = Vec::new();
    let each = |request: Request| {
        if let RequestBody::Accepted {
            listener,
            connection,
        } = request.body
        {
            accepted.push((listener, connection));
        }
    };
    server.receive(64, each).expect("a good queue");
    assert_eq!(accepted, [(id(1), id(10)), (id(1), id(11))]);
}

#[test]
fn what_was_offered_on_a_closed_socket_is_not_its_successors() {
    let (mut client, mut server, _) = channel();
    let (old, new) = (
        id(1),
        SocketId {
            slot: 1,
            generation: 2,
        },
    );
    for (listener, connection) in [(old, id(10)), (new, id(11))] {
        let notice = Notice::Offered {
            listener,
            connection,
        };
        server.tell(&notice).expect("room");
        server.flush().expect("a good queue");
        client.poll().expect("a good queue");
        if listener == old {
            assert_eq!(client.acceptable(new), 0);
            assert_eq!(client.accept(new, |_| true), Ok(None));
        }
    }
    client.forget_offers(old);
    assert_eq!(client.accept(new, |_| true), Ok(Some(id(11))));
}

#[test]
fn a_program_whose_stack_has_ended_for_good_does_not_wait() {
    let Channels {
        parts,
        mut client,
        servers,
        sleepers: _,
    } = channels(routes(SPLIT));
    let [_, mut server, _] = <[Server; 3]>::try_from(servers).ok().expect("three");
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
    let answer = client.ask(SocketCall::Open(Protocol::Tcp));
    assert_eq!(answer, Err(ClientError::Gone));
    assert!(
        client.take_event().is_some(),
        "what it said last isn't lost"
    );
}

#[test]
fn what_the_transports_are_told_is_published_before_the_calls() {
    let mut all = channels(routes(SPLIT));
    let [syscall, tcp, udp] = &mut all.servers[..] else {
        panic!("three");
    };
    let close = SocketCall::Close(Protocol::Tcp, id(1));
    all.client.tell(RequestBody::Call(close)).expect("room");
    for body in [
        RequestBody::Udp(UdpRequest::Sent(id(2))),
        RequestBody::Tcp(TcpRequest::Sent(id(1))),
    ] {
        all.client.tell(body).expect("room");
    }
    // The program stops where it rings for tcp: at an eventfd that is full and blocks.
    all.sleepers[1].announce();
    rustix::fs::fcntl_setfl(tcp.bell(), rustix::fs::OFlags::empty()).expect("flags");
    rustix::io::write(tcp.bell(), &(u64::MAX - 1).to_ne_bytes()).expect("a full eventfd");
    std::thread::scope(|scope| {
        let client = &mut all.client;
        scope.spawn(move || client.flush());
        while !tcp.is_ready() {
            std::thread::yield_now();
        }
        let early = syscall.is_ready();
        tcp.hush();
        assert!(!early, "the call was seen first");
    });
    assert!(syscall.is_ready() && udp.is_ready());
}

#[test]
fn each_part_is_told_its_own_whatever_the_parts_share() {
    for channels_of in [SPLIT, [2, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]] {
        let mut all = channels(routes(channels_of));
        let bodies = [
            RequestBody::Call(SocketCall::Rest(id(1))),
            RequestBody::Tcp(TcpRequest::Sent(id(2))),
            RequestBody::Accepted {
                listener: id(3),
                connection: id(6),
            },
            RequestBody::Udp(UdpRequest::Sent(id(4))),
            RequestBody::Tcp(TcpRequest::Close(id(5))),
        ];
        for body in bodies {
            all.client.tell(body).expect("room");
        }
        assert!(all.client.flush());
        assert!(!all.client.flush(), "nothing is left");
        let mut taken = 0;
        for (index, server) in all.servers.iter_mut().enumerate() {
            let each = |request: Request| {
                let part = request.body.server();
                assert_eq!(usize::from(channels_of[part.index()]), index);
                taken += 1;
            };
            server.receive(64, each).expect("a good queue");
        }
        assert_eq!(taken, bodies.len());
    }
}

#[test]
fn events_come_on_every_channel_and_wake_the_one_sleeper() {
    let mut all = channels(routes(SPLIT));
    for (index, protocol) in [(1, Protocol::Tcp), (2, Protocol::Udp)] {
        assert!(all.client.announce(), "nothing yet");
        let server = &mut all.servers[index];
        let told = server.tell(&Notice::Event(protocol, readable(7)));
        told.expect("room");
        server.flush().expect("a good queue");
        let mut bell = [rustix::event::PollFd::from_borrowed_fd(
            all.client.bell(),
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut bell, None).expect("a ring");
        all.client.retract();
        assert!(!all.client.announce(), "there is something to do");
        all.client.awake();
        all.client.poll().expect("good queues");
        assert_eq!(all.client.take_event(), Some((protocol, readable(7))));
    }
}

/// A thread that sleeps hears of it from who announces for it.
#[test]
fn an_event_that_came_before_an_answer_is_something_to_do() {
    let (mut client, mut server, _sleeper) = channel();
    for notice in [Notice::Event(Protocol::Tcp, readable(7)), ok(1, 0)] {
        server.tell(&notice).expect("room");
    }
    server.flush().expect("a good queue");
    client.ask(share(1)).expect("an answer");
    assert!(!client.announce());
    client.awake();
    assert_eq!(client.take_event(), Some((Protocol::Tcp, readable(7))));
    assert!(client.announce());
}

#[test]
fn a_spoilt_channel_is_told_and_the_others_are_heard() {
    let mut all = channels(routes(SPLIT));
    let handed = all.parts.for_stack(1).expect("descriptors");
    let notices = handed.into_iter().nth(2).expect("one of them");
    // The stamp of the first slot.
    let stamp = 77u64.to_ne_bytes();
    rustix::io::pwrite(&notices, &stamp, 128).expect("memory");
    let told = all.servers[2].tell(&Notice::Event(Protocol::Udp, readable(3)));
    told.expect("room");
    all.servers[2].flush().expect("a good queue");
    assert_eq!(all.client.poll(), Err(ClientError::Broken));
    assert_eq!(all.client.take_event(), Some((Protocol::Udp, readable(3))));
    let answer = all.client.ask(SocketCall::Open(Protocol::Udp));
    assert_eq!(answer, Err(ClientError::Broken));
}

#[test]
fn what_a_part_says_for_another_is_counted_and_dropped() {
    let mut all = channels(routes(SPLIT));
    let offered = Notice::Offered {
        listener: id(1),
        connection: id(2),
    };
    let wrong = [
        (0, Notice::Event(Protocol::Tcp, readable(1))),
        (0, offered),
        (1, ok(1, 1)),
        (1, Notice::Event(Protocol::Udp, readable(1))),
        (2, offered),
    ];
    for (index, notice) in wrong {
        all.servers[index].tell(&notice).expect("room");
        all.servers[index].flush().expect("a good queue");
    }
    all.client.poll().expect("good queues");
    assert_eq!(all.client.malformed(), wrong.len() as u64);
    assert_eq!(all.client.take_event(), None);
    assert_eq!(all.client.acceptable(id(1)), 0);
}

#[test]
fn several_shares_are_under_way_and_the_transports_wait_for_them() {
    let mut all = channels(routes(SPLIT));
    let [syscall, tcp, _] = &mut all.servers[..] else {
        panic!("three");
    };
    std::thread::scope(|scope| {
        let client = &mut all.client;
        let program = scope.spawn(move || {
            for slot in 0..5 {
                client.ask_later(share(slot)).expect("room");
            }
            let sent = RequestBody::Tcp(TcpRequest::Sent(id(0)));
            client.tell(sent).expect("room");
            client.flush();
            client.ask_later(share(5)).expect("room");
            let refused = client.settle_answers();
            (refused, client.settle_answers())
        });
        let mut early = false;
        for slot in 0..6 {
            let request = loop {
                match syscall.peek().expect("a good queue") {
                    Some(request) => break request,
                    None => std::thread::yield_now(),
                }
            };
            early |= slot < 5 && tcp.is_ready();
            let answer = match slot % 2 {
                0 => ok(request.serial, 0),
                _ => Notice::Answer(request.serial, Err(SocketError::Invalid)),
            };
            // Twice, as a successor may that doesn't know.
            syscall.tell(&answer).expect("room");
            syscall.tell(&answer).expect("room");
            syscall.advance();
            syscall.release();
            syscall.flush().expect("a good queue");
        }
        assert_eq!(program.join().expect("no panic"), (Ok(3), Ok(0)));
        assert!(!early, "a socket was used before it was the program's");
        assert!(tcp.is_ready());
    });
}

#[test]
fn an_answer_that_comes_once_more_hides_none() {
    let (mut client, mut server, _) = channel();
    for (call, answers) in [(1, &[1][..]), (2, &[2, 1]), (3, &[1, 2, 3, 3])] {
        for serial in answers {
            let answer = ok(*serial, u64::from(*serial) * 10);
            server.tell(&answer).expect("room");
        }
        server.flush().expect("a good queue");
        let answer = client.ask(SocketCall::Open(Protocol::Tcp));
        assert_eq!(answer.expect("an answer").value, call * 10);
    }
    assert_eq!(client.malformed(), 0);
}

#[test]
fn a_successor_sees_the_requests_that_were_not_released() {
    let mut all = channels(Routes::SINGLE);
    for slot in 1..=3 {
        let call = RequestBody::Call(SocketCall::Rest(id(slot)));
        all.client.tell(call).expect("room");
    }
    all.client.flush();
    let slot = |server: &mut Server| match server.peek().expect("a good queue") {
        Some(Request {
            body: RequestBody::Call(SocketCall::Rest(socket)),
            ..
        }) => Some(socket.slot),
        _ => None,
    };
    let attach = |parts: &ChannelParts| {
        let descriptors = parts.for_stack(0).expect("descriptors");
        Server::attach(descriptors).expect("a channel")
    };
    let server = &mut all.servers[0];
    assert!(server.is_ready());
    assert_eq!([slot(server), slot(server)], [Some(1), Some(1)]);
    assert!(!server.is_ready(), "what is under way keeps nobody awake");
    server.release();
    *server = attach(&all.parts);
    assert_eq!(slot(server), Some(1), "it wasn't dealt with");
    server.advance();
    assert!(server.is_ready());
    assert_eq!(slot(server), Some(2));
    server.release();
    *server = attach(&all.parts);
    assert_eq!(slot(server), Some(2), "the first was released");
    server.advance();
    server.advance();
    assert_eq!(slot(server), Some(3));
    *server = attach(&all.parts);
    assert_eq!(slot(server), Some(2), "it was dealt with and not released");
}

#[test]
fn channels_need_as_many_descriptors_and_stacks_as_there_are() {
    let parts = ChannelParts::create(2).expect("memory");
    let stack = SleeperDescriptors::create("stack").expect("memory");
    assert!(parts.for_program(&[&stack]).is_err());
    assert!(parts.for_stack(2).is_err());
    assert!(ChannelParts::create(0).is_err());
    assert!(ChannelParts::create(crate::MOST_CHANNELS + 1).is_err());
    for wrong in [Routes::SINGLE, routes(SPLIT)] {
        let program = parts.for_program(&[&stack, &stack]).expect("descriptors");
        assert!(Client::attach(program, wrong).is_err());
    }
}

#[test]
fn calls_alone_need_one_channel() {
    for channels_of in [SPLIT, [2, 0, 1], [0, 0, 0]] {
        let routes = routes(channels_of);
        let count = crate::program_descriptors(routes.channels());
        let numbers: Vec<usize> = (0..count).collect();
        let first = 2 + usize::from(channels_of[0]) * 6;
        let expected: Vec<usize> = [0, 1].into_iter().chain(first..first + 6).collect();
        let found = crate::for_calls(&numbers, routes);
        assert_eq!(found.map(Vec::from), Some(expected));
        let fewer = &numbers[..first + 5];
        assert_eq!(crate::for_calls(fewer, routes), None);
    }
}

#[test]
fn a_programs_successor_gives_no_number_twice() {
    let (parts, stack) = (
        ChannelParts::create(1).expect("memory"),
        SleeperDescriptors::create("stack").expect("memory"),
    );
    let mut server = Server::attach(parts.for_stack(0).expect("descriptors")).expect("a channel");
    let mut serials = Vec::new();
    for _ in 0..3 {
        let program = parts.for_program(&[&stack]).expect("descriptors");
        let mut client = Client::attach(program, Routes::SINGLE).expect("a channel");
        let before = client.batch();
        client.ask_later(share(1)).expect("room");
        client.ask_later(share(2)).expect("room");
        assert_eq!(client.batch(), before);
        client.flush();
        assert_ne!(client.batch(), before);
    }
    let each = |request: Request| serials.push(request.serial);
    server.receive(64, each).expect("a good queue");
    let distinct: std::collections::HashSet<u32> = serials.iter().copied().collect();
    assert_eq!((serials.len(), distinct.len()), (6, 6), "{serials:?}");
    assert!(!distinct.contains(&0));
}

fn tell(server: &mut Server, notices: &[Notice]) {
    for notice in notices {
        server.tell(notice).expect("room");
    }
    server.flush().expect("not spoilt");
}

fn rung(client: &Client) -> bool {
    is_readable(client.bell())
}

fn rung_beside(client: &Client, number: usize) -> bool {
    is_readable(client.side_bell(number).expect("a side bell"))
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut bell = [rustix::event::PollFd::from_borrowed_fd(
        fd,
        rustix::event::PollFlags::IN,
    )];
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut bell, Some(&now)) == Ok(1)
}

const FUTEX_FLAGS: rustix::thread::futex::Flags = rustix::thread::futex::Flags::empty();

/// Sleeps on a berth until it is woken, in a thread of its own, which ends then.
fn sleep_on(berth: &Berth) {
    let (word, asleep) = berth.futex();
    let wait = || rustix::thread::futex::wait(word, FUTEX_FLAGS, asleep, None);
    while berth.is_occupied() && wait().is_err() {}
}

/// A thread that is asleep on a berth.
fn asleep_on(berth: &Berth) -> std::thread::JoinHandle<()> {
    let berth = berth.clone();
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid())
            .expect("somebody listens");
        sleep_on(&berth);
    });
    let id = told.recv().expect("it has begun").as_raw_nonzero();
    let futex = match cfg!(target_arch = "x86_64") {
        true => "202 ",
        false => "98 ",
    };
    let call = || std::fs::read_to_string(format!("/proc/self/task/{id}/syscall"));
    while !call().expect("a thread").starts_with(futex) {
        std::thread::yield_now();
    }
    thread
}

/// As the thread that sleeps on the bell: hears what was said, and sleeps there again.
fn hear(client: &mut Client) {
    client.retract();
    client.poll().expect("heard");
    while client.take_event().is_some() {}
    assert!(client.announce());
}

/// What a stack does for threads that wait for one socket each, while another one sleeps on the bell.
#[test]
fn a_thread_that_waits_for_a_socket_is_woken_alone() {
    let (mut client, mut server, _sleeper) = channel();
    let event = |slot| Notice::Event(Protocol::Tcp, readable(slot));
    assert!(client.announce());
    for _ in 0..100 {
        let berth = client.lie_down(id(5)).expect("a berth");
        let sleeps = berth.clone();
        let thread = std::thread::spawn(move || sleep_on(&sleeps));
        tell(&mut server, &[event(5)]);
        if rung(&client) {
            // It wasn't asleep yet: who sleeps on the bell sees to it.
            berth.rouse();
            let _ = rustix::thread::futex::wake(berth.futex().0, FUTEX_FLAGS, 1);
        } else {
            tell(&mut server, &[event(5)]);
            assert!(!rung(&client), "it is on its way");
        }
        thread.join().expect("woken");
        berth.rise();
        hear(&mut client);
    }
}

/// What a stack does for threads that wait for many sockets each.
#[test]
fn a_side_bell_is_rung_for_its_sockets_alone_and_once_for_a_sleep() {
    let (mut client, mut server, _sleeper) = channel();
    let event = |slot| Notice::Event(Protocol::Tcp, readable(slot));
    client.lead(id(5), 1);
    client.lead(id(6), 1);
    client.lead(id(7), 0);
    for slot in [5, 6] {
        client.announce_beside(1);
        assert!(client.announce());
        tell(&mut server, &[event(slot)]);
        tell(&mut server, &[event(11 - slot)]);
        assert!(rung_beside(&client, 1) && !rung_beside(&client, 0));
        assert!(!rung(&client), "nobody else");
        let mut bytes = [0; 64];
        let bell = client.side_bell(1).expect("a side bell");
        assert_eq!(rustix::io::read(bell, &mut bytes), Ok(8), "once");
        client.retract_beside(1);
        hear(&mut client);
    }
    // Nobody sleeps there any more, or on the side bell of socket 7; or several things are told, or nothing of a socket's.
    for notices in [
        &[event(5)][..],
        &[event(7)],
        &[event(5), event(6)],
        &[ok(1, 1)],
    ] {
        tell(&mut server, notices);
        assert!(rung(&client), "{notices:?}");
        assert!(!rung_beside(&client, 1) && !rung_beside(&client, 0));
        hear(&mut client);
    }
    client.announce_beside(1);
    tell(&mut server, &[event(5), event(6)]);
    assert!(rung(&client) && !rung_beside(&client, 1));
}

#[test]
fn who_sleeps_on_the_bell_hears_of_all_else() {
    let (mut client, mut server, _sleeper) = channel();
    let event = |slot| Notice::Event(Protocol::Tcp, readable(slot));
    assert!(client.announce());
    let berth = client.lie_down(id(5)).expect("a berth");
    let thread = asleep_on(&berth);
    // About another socket, about several, and what is no event.
    for notices in [
        &[event(6)][..],
        &[event(5), event(6)],
        &[event(6), event(5)],
        &[event(5), ok(1, 1)],
        &[ok(1, 1)],
    ] {
        tell(&mut server, notices);
        assert!(rung(&client), "{notices:?}");
        hear(&mut client);
    }
    assert!(!thread.is_finished());
    berth.rouse();
    let _ = rustix::thread::futex::wake(berth.futex().0, FUTEX_FLAGS, 1);
    thread.join().expect("woken");
    berth.rise();
    tell(&mut server, &[event(6)]);
    assert!(client.lie_down(id(5)).is_none(), "there is news");
}
