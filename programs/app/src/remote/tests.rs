use super::*;
use skink_channel::SleeperDescriptors;
use skink_memory::{Region, SocketKind, TableConfig};
use skink_sockets::{ChannelParts, Notice, Server};

const PROGRAM: u32 = 3;

struct Pair {
    remote: Remote,
    server: Server,
    /// As the stack sees it.
    tcp: Region,
}

fn region() -> (Region, Region) {
    let config = TableConfig {
        sockets: 8,
        send_bytes: 4096,
        receive_bytes: 8192,
    };
    let owner = Region::create("test", config).expect("memory");
    let [records, rings] = owner.program_descriptors().expect("descriptors");
    let program = Region::open_for_program(records, rings).expect("a region");
    (owner, program)
}

fn pair() -> Pair {
    let stack = SleeperDescriptors::create("stack").expect("memory");
    let parts = ChannelParts::create().expect("memory");
    let channel = parts.for_program(&stack).expect("descriptors");
    let client = Client::attach(channel).expect("a channel");
    let server = Server::attach(parts.for_stack().expect("descriptors")).expect("a channel");
    let ((tcp, own_tcp), (_, own_udp)) = (region(), region());
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
    };
    let remote = Remote::new(client, attachment, [-1; 8], holdings);
    Pair {
        remote,
        server,
        tcp,
    }
}

impl Pair {
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
        let each = |request: sockets::Request| heard.push(format!("{:?}", request.body));
        self.server.receive(100, each).expect("a good queue");
        heard
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
    pair.tcp.close_slot(2);
    pair.remote.received(id, 8192);
    assert_eq!(pair.heard().len(), 0, "the socket is gone");
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
fn connections_that_nobody_took_are_closed_with_their_listener() {
    let mut pair = pair();
    let [listener, first, second] = [0, 1, 2].map(|slot| pair.open(slot));
    let foreign = SocketId {
        slot: 5 * 8,
        generation: 1,
    };
    for connection in [foreign, first, second] {
        let notice = Notice::Offered {
            listener,
            connection,
        };
        pair.server.tell(&notice).expect("room");
    }
    pair.server.flush().expect("a good queue");
    pair.remote.poll();
    // One in a region that isn't there can't be used.
    assert_eq!(pair.remote.accept(listener), Some(first));
    assert_eq!(pair.heard().len(), 2, "two were taken from the list");
    pair.remote.tcp_request(TcpRequest::Close(listener));
    let closed =
        [second, listener].map(|id| format!("{:?}", RequestBody::Tcp(TcpRequest::Close(id))));
    assert_eq!(pair.heard(), closed);
    assert_eq!(pair.remote.accept(listener), None);
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
        let body = |secret| RequestBody::Share(sockets::Protocol::Udp, id, secret);
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
