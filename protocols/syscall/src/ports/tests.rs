use super::*;
use crate::test_support::Recorder;

fn end(address: &str, port: u16) -> Endpoint {
    Endpoint::new(address.parse().expect("an address"), port)
}

fn id(slot: u32) -> SocketId {
    let generation = 1;
    SocketId { slot, generation }
}

const PLAIN: PortOptions = PortOptions {
    reuse_address: false,
    reuse_port: false,
    ticket: 0,
};
const REUSE: PortOptions = PortOptions {
    reuse_port: true,
    ..PLAIN
};

struct Register {
    ports: PortRegister,
    out: Recorder,
}

impl Register {
    fn new() -> Register {
        Register {
            ports: PortRegister::new(1024),
            out: Recorder::default(),
        }
    }

    /// What a socket that isn't bound may do.
    fn ask(
        &self,
        protocol: Protocol,
        local: Endpoint,
        uid: u32,
        options: PortOptions,
    ) -> Result<Permission, SocketError> {
        let other = id(u32::MAX);
        self.ports.permission(protocol, other, local, uid, options)
    }

    /// Binds a socket and answers its ticket and whether it might have shared the port.
    fn bind(
        &mut self,
        protocol: Protocol,
        socket: SocketId,
        local: Endpoint,
        uid: u32,
        options: PortOptions,
    ) -> (u64, bool) {
        let permission = self.ports.permission(protocol, socket, local, uid, options);
        let permission = permission.expect("permitted");
        let bound = Bound {
            socket,
            local,
            uid: permission.uid,
            reuse_port: options.reuse_port,
            ticket: permission.ticket.unwrap_or_else(|| self.out.random()),
        };
        let ticket = self.ports.bound(protocol, bound, &mut self.out);
        (ticket, permission.shared)
    }

    fn release(&mut self, protocol: Protocol, socket: SocketId) {
        self.ports.release(protocol, socket, &mut self.out);
    }
}

#[test]
fn who_may_share() {
    // Bound already (address, user, options), then who asks, and whether it may share.
    type Row = (
        (&'static str, u32, PortOptions),
        (&'static str, u32, PortOptions),
        Result<bool, SocketError>,
    );
    const ANOTHERS: PortOptions = PortOptions {
        reuse_address: true,
        ..PLAIN
    };
    let taken = Err(SocketError::AddressInUse);
    let table: [Row; 10] = [
        (("0.0.0.0", 1, PLAIN), ("0.0.0.0", 1, PLAIN), Ok(false)),
        (("0.0.0.0", 1, REUSE), ("0.0.0.0", 1, PLAIN), Ok(false)),
        (("0.0.0.0", 1, PLAIN), ("0.0.0.0", 1, REUSE), Ok(false)),
        (("0.0.0.0", 1, REUSE), ("0.0.0.0", 1, REUSE), Ok(true)),
        (("0.0.0.0", 1, REUSE), ("0.0.0.0", 2, REUSE), taken),
        (("0.0.0.0", 1, ANOTHERS), ("10.0.0.1", 2, ANOTHERS), taken),
        (("0.0.0.0", 1, ANOTHERS), ("0.0.0.0", 0, ANOTHERS), taken),
        (("0.0.0.0", 1, REUSE), ("10.0.0.1", 1, REUSE), Ok(true)),
        (("10.0.0.2", 1, PLAIN), ("10.0.0.1", 2, PLAIN), Ok(true)),
        (("::", 1, PLAIN), ("10.0.0.1", 2, PLAIN), Ok(true)),
    ];
    for (first, second, expected) in table {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let mut register = Register::new();
            let (_, shared) = register.bind(protocol, id(1), end(first.0, 5000), first.1, first.2);
            assert!(shared, "nobody is there");
            let asked = register.ask(protocol, end(second.0, 5000), second.1, second.2);
            // With UDP several users may hear one group.
            let expected = match protocol {
                Protocol::Tcp => expected,
                Protocol::Udp => Ok(expected.unwrap_or(false)),
            };
            let asked = asked.map(|it| it.shared);
            assert_eq!(asked, expected, "{protocol:?} {first:?} {second:?}");
        }
    }
}

#[test]
fn sockets_of_one_port_are_bounded() {
    let mut register = Register::new();
    let (udp, local) = (Protocol::Udp, end("0.0.0.0", 5000));
    for slot in 0..BOUND_TO_A_PORT as u32 {
        register.bind(udp, id(slot), local, 1, REUSE);
    }
    let one_more = register.ask(udp, local, 1, REUSE);
    assert_eq!(one_more, Err(SocketError::NoBuffers));
    assert!(register.ask(udp, end("0.0.0.0", 5001), 1, REUSE).is_ok());
    register.release(udp, id(7));
    assert!(register.ask(udp, local, 1, REUSE).is_ok());
}

#[test]
fn tickets_are_of_one_port_and_outlive_its_sockets() {
    let mut register = Register::new();
    let (tcp, local) = (Protocol::Tcp, end("0.0.0.0", 80));
    let refused = Err(SocketError::Prohibited);
    assert_eq!(register.ask(tcp, local, 1, PLAIN), refused);
    let (ticket, _) = register.bind(tcp, id(1), local, 0, PLAIN);
    let shown = PortOptions { ticket, ..PLAIN };
    let inherited = register.bind(tcp, id(2), local, 1, shown);
    assert_eq!(inherited, (ticket, true));
    let elsewhere = [(tcp, 81), (Protocol::Udp, 80)];
    for (protocol, port) in elsewhere {
        let asked = register.ask(protocol, end("0.0.0.0", port), 1, shown);
        assert_eq!(asked, refused, "{protocol:?} {port}");
    }
    let shares = |register: &Register| register.ask(tcp, local, 5, shown).map(|it| it.shared);
    register.release(tcp, id(1));
    assert_eq!(shares(&register), Ok(true), "one is left");
    let Register { ports, out } = &mut register;
    ports.release_slots(tcp, 0, 10, |socket| socket == id(2), out);
    assert_eq!(shares(&register), Ok(true), "retired");
    assert!(!register.ports.is_bound(tcp, id(2)));
    // The port is another's now: the old ticket shares nothing of it.
    assert_ne!(register.bind(tcp, id(3), local, 0, PLAIN).0, ticket);
    assert_eq!(shares(&register), Ok(false), "another's");
}

#[test]
fn a_socket_is_not_in_its_own_way() {
    let mut register = Register::new();
    let (udp, local) = (Protocol::Udp, end("10.0.0.1", 80));
    let (ticket, _) = register.bind(udp, id(1), local, 0, PLAIN);
    // The same once more, even by one who inherited it and may not bind to the port otherwise.
    assert_eq!(register.bind(udp, id(1), local, 7, PLAIN), (ticket, true));
    assert_eq!(register.ports.items().count(), 1);
    // Elsewhere it is like any other.
    let asked = |port| {
        let local = end("10.0.0.1", port);
        register.ports.permission(udp, id(1), local, 7, PLAIN)
    };
    assert_eq!(asked(81), Err(SocketError::Prohibited));
    assert_eq!(asked(5000).map(|it| (it.uid, it.ticket)), Ok((7, None)));
}

#[test]
fn a_slot_that_was_given_out_anew_has_one_port() {
    let mut register = Register::new();
    let (tcp, local) = (Protocol::Tcp, end("0.0.0.0", 5000));
    register.bind(tcp, id(1), local, 1, PLAIN);
    let newer = SocketId {
        slot: 1,
        generation: 2,
    };
    register.bind(tcp, newer, end("0.0.0.0", 5001), 1, PLAIN);
    assert!(!register.ports.is_bound(tcp, id(1)));
    assert_eq!(
        register.ask(tcp, local, 2, PLAIN).map(|it| it.shared),
        Ok(true)
    );
}

/// A child may show the ticket of a parent that is gone, whatever other users do meanwhile.
#[test]
fn nobody_ends_the_tickets_of_others() {
    let mut register = Register::new();
    let local = end("0.0.0.0", 80);
    let (ticket, _) = register.bind(Protocol::Tcp, id(0), local, 0, PLAIN);
    register.release(Protocol::Tcp, id(0));
    for slot in 0..3 * RETIRED as u32 {
        register.bind(Protocol::Udp, id(slot), end("0.0.0.0", 5000), 1, PLAIN);
        register.release(Protocol::Udp, id(slot));
    }
    let shown = PortOptions { ticket, ..PLAIN };
    let asked = register.ask(Protocol::Tcp, local, 5, shown);
    assert_eq!(asked.map(|it| it.uid), Ok(0));
}

#[test]
fn retired_tickets_are_bounded() {
    let mut register = Register::new();
    for slot in 0..3 * RETIRED as u32 {
        register.bind(Protocol::Udp, id(slot), end("0.0.0.0", 5000), 1, PLAIN);
        register.release(Protocol::Udp, id(slot));
    }
    let ports = &register.ports;
    assert_eq!(ports.retired.len(), RETIRED);
    assert!(ports.ports.is_empty() && ports.by_socket.is_empty());
    assert_eq!(register.out.stored.len(), RETIRED, "what is stored too");
}
