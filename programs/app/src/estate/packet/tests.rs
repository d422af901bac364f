use super::*;
use std::os::fd::{AsFd, AsRawFd};

/// A message about a socket of that role.
fn message(role: RoleEntry, datagram: bool) -> Message {
    let options = crate::options::Options::new();
    Message {
        version: VERSION.to_owned(),
        place: Place::Bound {
            bound: vec![(2, 9)],
        },
        socket: SocketEntry {
            tethered: false,
            fds: Vec::new(),
            domain: libc::AF_INET,
            datagram,
            own_kernel_socket: true,
            kernel_listens: false,
            nonblocking: true,
            role,
            backlog: 0,
            lasting: 0,
            bound: Some((core::net::Ipv4Addr::LOCALHOST.into(), 80)),
            resting: [None; 2],
            tickets: [5, 0],
            peer: None,
            error: 0,
            connecting: false,
            shut_read: false,
            shut_write: false,
            more: false,
            unsupported: None,
            options,
        },
    }
}

/// All descriptors of a ticket: the first two, and the second again for the channel's.
fn ten<'a>(socket: &'a OwnedFd, holder: &'a OwnedFd) -> [BorrowedFd<'a>; DESCRIPTORS] {
    core::array::from_fn(|at| {
        if at == 0 {
            socket.as_fd()
        } else {
            holder.as_fd()
        }
    })
}

/// Device and inode, to tell files apart.
fn identity(fd: impl AsFd) -> (u64, u64) {
    let stat = rustix::fs::fstat(fd).expect("a file");
    (stat.st_dev, stat.st_ino)
}

#[test]
fn a_ticket_can_be_looked_at_twice_and_goes_with_its_last_descriptor() {
    let pipe = || rustix::pipe::pipe().expect("a pipe");
    let ((socket, _end), (holder, watch)) = (pipe(), pipe());
    let packed = message(RoleEntry::Stream((7, 2)), false);
    let (ticket, _end) = packed.pack(&ten(&socket, &holder)).expect("a ticket");
    for _ in 0..2 {
        let seen = look_at(ticket.as_raw_fd())
            .expect("a ticket")
            .expect("a good one");
        let Place::Bound { bound } = seen.message.place else {
            panic!("somebody has bound it");
        };
        assert_eq!(bound, [(2, 9)]);
        assert!(matches!(
            seen.message.socket.role,
            RoleEntry::Stream((7, 2))
        ));
        assert_eq!(identity(&seen.socket), identity(&socket));
        let channel = seen.channel.expect("somebody has bound it");
        for fd in channel.iter().chain(&seen.broker) {
            assert_eq!(identity(fd), identity(&holder));
        }
    }
    drop(holder);
    let held = rustix::io::write(&watch, b"x");
    assert_eq!(held, Ok(1), "somebody can still read it");
    drop(ticket);
    // Rust ignores SIGPIPE in tests.
    let gone = rustix::io::write(&watch, b"x");
    assert_eq!(
        gone,
        Err(rustix::io::Errno::PIPE),
        "nobody holds it any more"
    );
}

#[test]
fn what_is_no_ticket_is_left_alone() {
    let pair = |kind| {
        rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
            .expect("a pair")
    };
    let texts: [&[u8]; 5] = [
        b"",
        b"x",
        b"{\"version\":\"skink-ticket",
        b"{\"version\":\"skink-estate-1\"}",
        b"{}",
    ];
    for kind in [SocketType::SEQPACKET, SocketType::DGRAM, SocketType::STREAM] {
        for text in texts {
            let (socket, end) = pair(kind);
            if !text.is_empty() {
                rustix::net::send(&end, text, SendFlags::empty()).expect("room");
            }
            assert!(look_at(socket.as_raw_fd()).is_none(), "{kind:?} {text:?}");
            let mut bytes = [0; 64];
            if !text.is_empty() {
                let read = rustix::io::read(&socket, &mut bytes).expect("bytes");
                assert_eq!(&bytes[..read], text, "it is still there");
            }
        }
    }
    let (pipe, _end) = rustix::pipe::pipe().expect("a pipe");
    assert!(look_at(pipe.as_raw_fd()).is_none());
}

#[test]
fn spoilt_tickets_are_refused() {
    let texts = [
        "{\"version\":\"skink-ticket-",
        "{\"version\":\"skink-ticket-0\"}",
        "{\"version\":\"skink-ticket-1-x\",\"region\":null,\"socket\":{}}",
    ];
    for text in texts {
        let (socket, end) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair");
        rustix::net::send(&end, text.as_bytes(), SendFlags::empty()).expect("room");
        let seen = look_at(socket.as_raw_fd()).expect("it begins as one");
        assert!(seen.is_err(), "{text}");
    }
    let (pipe, _end) = rustix::pipe::pipe().expect("a pipe");
    let other = Message {
        version: "skink-ticket-0".to_owned(),
        ..message(RoleEntry::Lost, false)
    };
    let (ticket, _end) = other.pack(&ten(&pipe, &pipe)).expect("a ticket");
    assert!(
        look_at(ticket.as_raw_fd()).expect("one").is_err(),
        "another version's"
    );
}

#[test]
fn only_what_can_be_is_believed() {
    let one = [Some((1, 1)), None];
    // Role, whether it is one of UDP; whether it can be on a stack in another process, on none, and on its way from one.
    let table = [
        (RoleEntry::Stream((1, 1)), false, [true, false, true]),
        (RoleEntry::Stream((1, 1)), true, [false; 3]),
        (RoleEntry::Dormant, false, [true, true, false]),
        (RoleEntry::Dormant, true, [false; 3]),
        (RoleEntry::Datagram(one), true, [true, false, false]),
        (RoleEntry::Datagram(one), false, [false; 3]),
        (RoleEntry::Datagram([None; 2]), true, [false; 3]),
        (RoleEntry::Listener(one), false, [false; 3]),
        (RoleEntry::Listening, false, [false; 3]),
        (RoleEntry::Undecided, false, [false, true, false]),
        (RoleEntry::Undecided, true, [false, true, false]),
        (RoleEntry::Lost, false, [false; 3]),
    ];
    let broker = || "one".to_owned();
    let places = [
        Place::Bound { bound: Vec::new() },
        Place::Own { broker: broker() },
        Place::Passed {
            broker: broker(),
            from: 1,
            serial: 1,
            seal: 0,
        },
    ];
    for (number, (role, datagram, good)) in table.into_iter().enumerate() {
        let mut message = message(role, datagram);
        for (place, good) in places.iter().zip(good) {
            assert_eq!(message.socket.check(place).is_ok(), good, "row {number}");
        }
        message.socket.domain = libc::AF_UNIX;
        for place in &places {
            assert!(message.socket.check(place).is_err(), "row {number}");
        }
    }
}

#[test]
fn a_ticket_without_a_holder_has_the_socket_alone() {
    let (socket, _end) = rustix::pipe::pipe().expect("a pipe");
    let place = Place::Own {
        broker: "skink-5".to_owned(),
    };
    let packed = Message {
        place,
        ..message(RoleEntry::Dormant, false)
    };
    let (ticket, _end) = packed.pack(&[socket.as_fd()]).expect("a ticket");
    let seen = look_at(ticket.as_raw_fd()).expect("a ticket");
    let seen = seen.expect("a good one");
    assert_eq!(identity(&seen.socket), identity(&socket));
    assert!(seen.broker.is_none() && seen.channel.is_none());
    // Nor is one believed that says to have a holder, and hasn't.
    let packed = message(RoleEntry::Dormant, false);
    let (ticket, _end) = packed.pack(&[socket.as_fd()]).expect("a ticket");
    assert!(look_at(ticket.as_raw_fd()).expect("a ticket").is_err());
}

#[test]
fn who_holds_a_connection_has_a_broker_and_no_channel() {
    let (socket, holder) = rustix::pipe::pipe().expect("a pipe");
    let place = || Place::Shared {
        region: (3, 17),
        holder: (5, 19),
    };
    let packed = Message {
        place: place(),
        ..message(RoleEntry::Stream((7, 2)), false)
    };
    let descriptors = [socket.as_fd(), holder.as_fd()];
    let (ticket, _end) = packed.pack(&descriptors).expect("a ticket");
    let seen = look_at(ticket.as_raw_fd()).expect("a ticket");
    let seen = seen.expect("a good one");
    assert!(matches!(
        seen.message.place,
        Place::Shared {
            region: (3, 17),
            holder: (5, 19)
        }
    ));
    assert_eq!(identity(&seen.socket), identity(&socket));
    let broker = seen.broker.expect("somebody holds it");
    assert_eq!(identity(&broker), identity(&holder));
    assert!(seen.channel.is_none());
    // Nor is one believed that says to have a holder, and hasn't.
    let packed = Message {
        place: place(),
        ..message(RoleEntry::Stream((7, 2)), false)
    };
    let (ticket, _end) = packed.pack(&[socket.as_fd()]).expect("a ticket");
    assert!(look_at(ticket.as_raw_fd()).expect("a ticket").is_err());
}
