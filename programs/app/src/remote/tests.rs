use super::*;
use skink_channel::SleeperDescriptors;
use skink_memory::{Region, SocketKind, TableConfig};
use skink_sockets::{ChannelParts, Notice, Routes, Server};

const PROGRAM: u32 = 3;

struct Pair {
    remote: Remote,
    /// `syscall`'s, `tcp`'s and `udp`'s.
    servers: [Server; 3],
    /// As the stack sees them.
    tcp: Region,
    udp: Region,
}

fn region(receive_bytes: u32) -> (Region, Region) {
    let config = TableConfig {
        sockets: 8,
        send_bytes: 4096,
        receive_bytes,
    };
    let owner = Region::create("test", config).expect("memory");
    let files = owner.program_files().expect("descriptors");
    let program = Region::open_for_program(files).expect("a region");
    (owner, program)
}

fn pair() -> Pair {
    pair_with(8192)
}

fn pair_with(receive_bytes: u32) -> Pair {
    let routes = Routes::new([0, 1, 2]).expect("routes");
    let stack = SleeperDescriptors::create("stack").expect("memory");
    let parts = ChannelParts::create(routes.channels()).expect("memory");
    let channel = parts.for_program(&[&stack; 3]).expect("descriptors");
    let client = Client::attach(channel, routes).expect("channels");
    let servers = [0, 1, 2].map(|channel| {
        let descriptors = parts.for_stack(channel).expect("descriptors");
        Server::attach(descriptors).expect("a channel")
    });
    let ((tcp, own_tcp), (udp, own_udp)) = (region(receive_bytes), region(receive_bytes));
    let mut holdings = Holdings::none();
    (holdings.tcp, holdings.udp) = (SocketTable::new(8), SocketTable::new(8));
    holdings.tcp.insert(PROGRAM, own_tcp).expect("room");
    holdings.udp.insert(PROGRAM, own_udp).expect("room");
    holdings.secrets = vec![(PROGRAM, 77), (9, 99)];
    holdings.addresses = vec!["10.0.0.2/24".parse().expect("an address")];
    let attachment = Attachment {
        program: PROGRAM,
        tcp_stride: 8,
        udp_stride: 8,
        secret: 77,
        routes,
    };
    let counters = Counters::create().expect("memory");
    let remote = Remote::new(
        client,
        attachment,
        vec![-1; 20],
        holdings,
        counters,
        u64::MAX,
    );
    Pair {
        remote,
        servers,
        tcp,
        udp,
    }
}

impl Pair {
    /// The stack offers connections on a listening socket.
    fn offer(&mut self, listener: SocketId, connections: &[SocketId]) {
        for connection in connections.iter().copied() {
            if self.remote.holdings.tcp.find(connection).is_some() {
                let slot = connection.slot - PROGRAM * 8;
                self.tcp.offer(SocketId { slot, ..connection });
            }
            let notice = Notice::Offered {
                listener,
                connection,
            };
            self.servers[1].tell(&notice).expect("room");
        }
        self.servers[1].flush().expect("a good queue");
        self.remote.poll();
    }

    /// A socket, as the program knows it.
    fn open(&self, slot: u32) -> SocketId {
        let SocketId { generation, .. } = self.tcp.open_slot(slot, SocketKind::Tcp);
        SocketId {
            slot: PROGRAM * 8 + slot,
            generation,
        }
    }

    /// What the stack was told, in short.
    fn heard(&mut self) -> Vec<String> {
        self.remote.flush();
        let mut heard = Vec::new();
        for server in &mut self.servers {
            let each = |request: sockets::Request| heard.push(format!("{:?}", request.body));
            server.receive(100, each).expect("a good queue");
        }
        heard
    }
}

/// The peer isn't offered all of a large ring before the program has read much: small requests are still nobody's business.
#[test]
fn the_stack_hears_nothing_of_small_reads_on_a_young_connection() {
    const RING: u32 = 1 << 20;
    let mut pair = pair_with(RING);
    let id = pair.open(2);
    // Bytes read before, bytes in the ring before some were taken, the window that the peer knows, whether to tell.
    for (read, held, window, tells) in [
        (0, 100, 65_000, false),
        (0, 40_000, 65_000, true),
        (0, 100, 20_000, true),
        (2_000, 100, 40_000, false),
        (RING, 100, 65_000, true),
        (RING, 100, 600_000, false),
    ] {
        let record = pair.tcp.record(2);
        record.rcv_nxt.store(7, Ordering::Relaxed);
        record.rcv_adv.store(7 + window, Ordering::Relaxed);
        let ring = pair.remote.holdings.tcp.receive_ring(id.slot);
        while ring.head() < u64::from(read) {
            let more = u64::from(read) - ring.head();
            let owners = pair.tcp.receive_ring(2);
            let count = owners.write(&vec![0; more as usize]);
            assert_eq!(ring.read(&mut vec![0; count]), count);
        }
        pair.remote.received(id, held);
        let count = usize::from(tells);
        assert_eq!(pair.heard().len(), count, "{read} {held} {window}");
    }
}

#[test]
fn the_stack_hears_of_room_only_if_the_peer_may_wait_for_it() {
    let mut pair = pair();
    let id = pair.open(2);
    // Bytes in the ring before they were taken, the window that the peer knows, whether to tell. The
    // ring has 8192 bytes.
    for (held, window, tells) in [
        (1, 8000, false),
        (4096, 4096, false),
        (4097, 8000, true),
        (1, 4095, true),
        (1, 0, true),
    ] {
        let record = pair.tcp.record(2);
        let next = 0xffff_ff00u32;
        record.rcv_nxt.store(next, Ordering::Relaxed);
        let edge = next.wrapping_add(window);
        record.rcv_adv.store(edge, Ordering::Relaxed);
        pair.remote.received(id, held);
        let count = usize::from(tells);
        assert_eq!(pair.heard().len(), count, "{held} bytes, window {window}");
    }
    let _ = pair.tcp.close_slot(2);
    pair.remote.received(id, 8192);
    assert_eq!(pair.heard().len(), 0, "the socket is gone");
}

/// Programs have the kernel's link-local address, unless one of Skink's was given.
#[test]
fn what_is_for_the_link_goes_by_no_gateway() {
    let mut remote = pair().remote;
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let [far, near] = ["2001:db8::9", "fe80::9"].map(address);
    for gateway in ["fe80::1", "2001:db8:1::1"] {
        remote.holdings.gateways = vec![address(gateway)];
        assert!(remote.has_route(far) && !remote.has_route(near));
        assert!(!remote.has_route(address("192.0.2.1")));
    }
    let own = "fe80::2/64".parse().expect("an address");
    remote.holdings.addresses.push(own);
    assert!(remote.has_route(near));
}

/// Of the program's own memory, which each send ring here touches a page of.
#[test]
fn send_rings_that_take_too_much_memory_take_less_from_then_on() {
    let mut pair = pair();
    pair.remote.memory = Budget::new(8 * 4096);
    let ids = [0, 1, 2, 3, 4].map(|slot| pair.open(slot));
    let mut limits = Vec::new();
    for id in ids {
        let own = pair.remote.holdings.tcp.send_ring(id.slot);
        assert_eq!(own.write(&[1; 4096]), 4096);
        pair.remote.put(id, 4096);
        limits.push(pair.remote.send_limit());
    }
    let little = 64 * 1024;
    assert_eq!(limits, [usize::MAX, usize::MAX, usize::MAX, little, little]);
    for id in [ids[0], ids[1]] {
        pair.remote.reaches.forget(id, &mut pair.remote.memory);
    }
    // Not now one and now the other.
    assert_eq!(pair.remote.send_limit(), little);
    pair.remote.reaches.forget(ids[2], &mut pair.remote.memory);
    assert_eq!(pair.remote.send_limit(), usize::MAX);
}

#[test]
fn what_was_sent_is_said_once_in_a_batch() {
    let mut pair = pair();
    let (a, b) = (pair.open(0), pair.open(1));
    for id in [a, a, b, b] {
        pair.remote.tcp_request(TcpRequest::Sent(id));
    }
    assert_eq!(pair.heard().len(), 2);
    pair.remote.tcp_request(TcpRequest::Sent(b));
    assert_eq!(pair.heard().len(), 1, "another batch");
}

#[test]
fn the_end_of_a_connection_follows_what_was_written_unless_it_is_another_s_or_to_be_reset() {
    for (state, unread, ends) in [
        (TcpState::Established, 0, true),
        (TcpState::CloseWait, 0, true),
        (TcpState::Established, 1, false),
        (TcpState::FinWait1, 0, false),
        (TcpState::Closed, 0, false),
    ] {
        let mut pair = pair();
        let id = pair.open(2);
        pair.tcp
            .record(2)
            .state
            .store(state as u8, Ordering::Relaxed);
        pair.tcp.receive_ring(2).write(&vec![0; unread]);
        pair.remote.finish(id);
        let told = pair.heard().iter().any(|it| it.contains("Shutdown"));
        assert_eq!(told, ends, "{state:?} with {unread} unread");
    }
    // In the region of another program.
    let mut pair = pair();
    let (other, mapped) = region(8192);
    pair.remote.holdings.tcp.insert(9, mapped).expect("room");
    let SocketId { generation, .. } = other.open_slot(0, SocketKind::Tcp);
    other
        .record(0)
        .state
        .store(TcpState::Established as u8, Ordering::Relaxed);
    let slot = 9 * 8;
    pair.remote.finish(SocketId { slot, generation });
    assert_eq!(pair.heard(), [""; 0]);
}

#[test]
fn connections_that_nobody_took_are_left_to_the_stack() {
    let mut pair = pair();
    let [listener, first, second] = [0, 1, 2].map(|slot| pair.open(slot));
    let foreign = SocketId {
        slot: 5 * 8,
        generation: 1,
    };
    pair.offer(listener, &[foreign, first, second]);
    // One in a region that isn't there can't be used.
    assert_eq!(pair.remote.accept(listener), Some(first));
    assert_eq!(pair.heard().len(), 2, "two were taken from the list");
    pair.remote.tcp_request(TcpRequest::Close(listener));
    let close = RequestBody::Call(SocketCall::Close(Protocol::Tcp, listener));
    assert_eq!(pair.heard(), [format!("{close:?}")]);
    assert_eq!(pair.remote.accept(listener), None);
}

#[test]
fn what_the_stack_has_withdrawn_is_not_accepted() {
    let mut pair = pair();
    let [listener, first, second] = [0, 1, 2].map(|slot| pair.open(slot));
    pair.offer(listener, &[first, second]);
    assert!(pair.tcp.withdraw(SocketId { slot: 1, ..first }));
    assert_eq!(pair.remote.accept(listener), Some(second));
    assert_eq!(pair.heard().len(), 1, "nobody hears of the other one");
    assert_eq!(pair.remote.accept(listener), None);
    pair.offer(listener, &[first]);
    assert_eq!(pair.remote.accept(listener), Some(first));
}

#[test]
fn only_sockets_of_others_are_shared_with_the_secret_of_their_region() {
    let mut pair = pair();
    for (region, expected) in [(PROGRAM, None), (9, Some(99)), (10, None)] {
        let id = SocketId {
            slot: region * 8,
            generation: 1,
        };
        pair.remote.share(Protocol::Udp, id);
        let body = |secret| RequestBody::Call(SocketCall::Share(Protocol::Udp, id, secret));
        let expected: Vec<String> = expected
            .iter()
            .map(|it| format!("{:?}", body(*it)))
            .collect();
        assert_eq!(pair.heard(), expected, "region {region}");
    }
}

#[test]
fn a_stack_that_is_lost_is_told_nothing_more() {
    let mut pair = pair();
    let id = pair.open(0);
    assert!(
        pair.remote
            .has_route("10.0.0.9".parse().expect("an address"))
    );
    assert!(
        !pair
            .remote
            .has_route("10.0.1.9".parse().expect("an address"))
    );
    pair.remote.go_down(&ClientError::Gone);
    pair.remote.tcp_request(TcpRequest::Sent(id));
    assert_eq!(pair.remote.open(Protocol::Tcp), fail(libc::ENETDOWN));
    assert_eq!(pair.heard().len(), 0);
}

/// Answers the calls of a program, in their order, until it has made `count` of them: with a socket, unless
/// it `refuses`.
fn answer(
    syscall: &mut Server,
    count: usize,
    socket: SocketId,
    refuses: impl Fn(SocketCall) -> bool,
) -> Vec<String> {
    let mut heard = Vec::new();
    while heard.len() < count {
        let Some(request) = syscall.peek().expect("a good queue") else {
            std::thread::yield_now();
            continue;
        };
        if let RequestBody::Call(call) = request.body
            && call.is_answered()
        {
            let answer = match refuses(call) {
                true => Err(skink_messages::SocketError::Invalid),
                false => Ok(sockets::Answer {
                    socket: Some(socket),
                    ..Default::default()
                }),
            };
            let notice = Notice::Answer(request.serial, answer);
            syscall.tell(&notice).expect("room");
        }
        heard.push(format!("{:?}", request.body));
        syscall.advance();
        syscall.release();
        syscall.flush().expect("a good queue");
    }
    heard
}

#[test]
fn inherited_sockets_are_known_when_the_stack_has_answered() {
    let foreign = |slot: u32| SocketId {
        slot: 9 * 8 + slot,
        generation: 1,
    };
    // How many sockets are shared, whether one rests after that, and how many calls that makes.
    for (shares, rests, calls) in [(3, false, 3), (0, false, 0), (2, true, 3), (0, true, 1)] {
        let mut pair = pair();
        let listener = pair.open(0);
        let SocketId { generation, .. } = pair.udp.open_slot(1, SocketKind::Udp);
        let opened = SocketId {
            slot: PROGRAM * 8 + 1,
            generation,
        };
        let ([syscall, ..], remote) = (&mut pair.servers, &mut pair.remote);
        let refuses = |call| matches!(call, SocketCall::Share(_, id, _) if id == foreign(1));
        std::thread::scope(|scope| {
            let stack = scope.spawn(move || answer(syscall, calls, opened, refuses));
            for slot in 0..shares {
                remote.share(Protocol::Tcp, foreign(slot));
            }
            if rests {
                remote.rest(listener).expect("an answer");
            }
            assert_eq!(remote.synchronize(), Ok(usize::from(shares > 1u32)));
            remote.flush();
            assert_eq!(stack.join().expect("no panic").len(), calls);
        });
        assert_eq!(
            pair.remote.synchronize(),
            Ok(0),
            "nothing is left to wait for"
        );
    }
}

#[test]
fn what_was_sent_is_said_again_once_something_has_left() {
    let mut pair = pair();
    let id = pair.open(0);
    pair.remote.tcp_request(TcpRequest::Sent(id));
    pair.remote.udp_request(UdpRequest::Close(id));
    let ([syscall, ..], remote) = (&mut pair.servers, &mut pair.remote);
    std::thread::scope(|scope| {
        scope.spawn(move || answer(syscall, 2, id, |_| true));
        assert!(remote.connect(Protocol::Tcp, id, None).is_err());
    });
    // The question took the first with it.
    pair.remote.tcp_request(TcpRequest::Sent(id));
    assert_eq!(pair.heard().len(), 2);
}

#[test]
fn a_connection_that_a_restarted_stack_offers_again_is_accepted_once() {
    let mut pair = pair();
    let [listener, open, closed] = [0, 1, 2].map(|slot| pair.open(slot));
    pair.offer(listener, &[open, closed]);
    let taken = [(); 3].map(|()| pair.remote.accept(listener));
    assert_eq!(taken, [Some(open), Some(closed), None]);
    pair.remote.tcp_request(TcpRequest::Close(closed));
    assert_eq!(pair.heard().len(), 3);
    while pair.remote.take_event().is_some() {}
    UNSETTLED.store(false, Ordering::Relaxed);

    pair.offer(listener, &[open, closed]);
    assert_eq!(pair.remote.acceptable(listener), 0);
    assert!(pair.remote.take_event().is_none(), "nobody wakes for it");
    assert!(is_unsettled(), "it is told when the lock is released");
    let accepted = [open, closed].map(|connection| RequestBody::Accepted {
        listener,
        connection,
    });
    let close = RequestBody::Call(SocketCall::Close(Protocol::Tcp, closed));
    let [first, second] = accepted.map(|body| format!("{body:?}"));
    let expected = [format!("{close:?}"), first, second];
    assert_eq!(pair.heard(), expected);
    assert_eq!(pair.heard().len(), 0);
}
