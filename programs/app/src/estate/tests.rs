use super::*;

#[test]
fn what_is_written_down_is_read_again() {
    let estate = Estate {
        version: VERSION.to_owned(),
        process: 7,
        stack: Some(StackEntry {
            broker: 3,
            attachment: Attachment {
                program: 2,
                tcp_stride: 16,
                udp_stride: 8,
                secret: u64::MAX,
                routes: skink_sockets::Routes::new([0, 1, 0]).expect("routes"),
            },
            channel: (1..=14).collect(),
            addresses: vec!["10.0.0.2/24".to_owned()],
            gateways: vec!["fe80::1".parse().expect("an address")],
            regions: vec![(2, u64::MAX, [[1, 2, 3], [4, 5, 6]])],
            offers: vec![((1, 1), (9, 3))],
            closed: [vec![(5, 5)], vec![]],
        }),
        sockets: vec![SocketEntry {
            fds: vec![0, 1],
            domain: libc::AF_INET6,
            datagram: false,
            own_kernel_socket: false,
            kernel_listens: false,
            nonblocking: true,
            tethered: false,
            role: RoleEntry::Stream((33, 4)),
            backlog: 5,
            lasting: Events::READ_CLOSED.bits(),
            bound: Some((core::net::Ipv6Addr::LOCALHOST.into(), 80)),
            resting: [None, Some((1, 2))],
            tickets: [0, u64::MAX],
            peer: None,
            error: 0,
            connecting: false,
            shut_read: false,
            shut_write: true,
            more: false,
            unsupported: None,
            options: Options {
                receive_timeout: Some(core::time::Duration::from_micros(1500)),
                ..Options::new()
            },
        }],
    };
    let memory = estate.write().expect("memory");
    let again = Estate::read(&memory).expect("an estate");
    let text = |estate: &Estate| serde_json::to_string(estate).expect("text");
    assert_eq!(text(&again), text(&estate));
    assert_eq!(again.sockets[0].options, estate.sockets[0].options);
}

/// What a stack that ends with the process had isn't claimed by the new program, but what listens or is bound it has.
#[test]
fn what_is_left_without_a_stack() {
    let id = SocketId {
        slot: 1,
        generation: 1,
    };
    let listener = Role::Listener([Some(id), None]);
    let datagram = Role::Datagram([Some(id), None]);
    // Role and who takes connections; a process that goes on in the program, and a child.
    for (role, taker, goes_on, child) in [
        (Role::Undecided, Taker::Unknown, "Undecided", "Undecided"),
        (Role::Dormant, Taker::Unknown, "Listening", "Dormant"),
        (Role::Dormant, Taker::Others, "Dormant", "Dormant"),
        (listener, Taker::Own, "Listening", "Dormant"),
        (datagram, Taker::Unknown, "Undecided", "Undecided"),
        (Role::Stream(id), Taker::Unknown, "Lost", "Lost"),
        (Role::Lost, Taker::Unknown, "Lost", "Lost"),
    ] {
        let mut sockets = crate::socket::Sockets::new();
        let index = sockets.add(libc::AF_INET, matches!(role, Role::Datagram(_)));
        let socket = &mut sockets[index];
        (socket.role, socket.taker) = (role, taker);
        (socket.own_kernel_socket, socket.backlog) = (true, 5);
        for (expected, becomes) in [(goes_on, true), (child, false)] {
            let entry = SocketEntry::without_stack(socket, vec![3], becomes);
            let text = serde_json::to_string(&entry.role).expect("text");
            assert_eq!(text, format!("\"{expected}\""), "{role:?} {taker:?}");
        }
        // Connected, it had its peer from that stack.
        socket.peer = Some(Endpoint::new(core::net::Ipv4Addr::LOCALHOST.into(), 53));
        let connected = SocketEntry::without_stack(socket, vec![3], true);
        let is_lost = matches!(connected.role, RoleEntry::Lost);
        assert_eq!(
            is_lost,
            matches!(role, Role::Datagram(_) | Role::Stream(_) | Role::Lost)
        );
    }
}

#[test]
fn what_another_version_left_is_refused() {
    let name = c"skink-estate";
    let memory = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    for text in ["", "{}", "[1, 2", "{\"version\": \"skink-estate-0\"}"] {
        rustix::fs::ftruncate(&memory, 0).expect("room");
        rustix::io::pwrite(&memory, text.as_bytes(), 0).expect("room");
        assert!(Estate::read(&memory).is_err(), "{text}");
    }
}
