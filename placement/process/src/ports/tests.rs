use super::*;

fn end(address: &str, port: u16) -> Endpoint {
    Endpoint::new(address.parse().expect("an address"), port)
}

fn id(slot: u32) -> SocketId {
    let generation = 1;
    SocketId { slot, generation }
}

const PLAIN: BindOptions = BindOptions {
    reuse_address: false,
    reuse_port: false,
    ticket: 0,
};
const REUSE: BindOptions = BindOptions {
    reuse_port: true,
    ..PLAIN
};

#[test]
fn who_may_share() {
    // Bound already (address, user, options), then who asks, and whether it may share.
    type Row = (
        (&'static str, u32, BindOptions),
        (&'static str, u32, BindOptions),
        bool,
    );
    let table: [Row; 8] = [
        (("0.0.0.0", 1, PLAIN), ("0.0.0.0", 1, PLAIN), false),
        (("0.0.0.0", 1, REUSE), ("0.0.0.0", 1, PLAIN), false),
        (("0.0.0.0", 1, PLAIN), ("0.0.0.0", 1, REUSE), false),
        (("0.0.0.0", 1, REUSE), ("0.0.0.0", 1, REUSE), true),
        (("0.0.0.0", 1, REUSE), ("0.0.0.0", 2, REUSE), false),
        (("0.0.0.0", 1, REUSE), ("10.0.0.1", 1, REUSE), true),
        (("10.0.0.2", 1, PLAIN), ("10.0.0.1", 2, PLAIN), true),
        (("::", 1, PLAIN), ("10.0.0.1", 2, PLAIN), true),
    ];
    for (first, second, expected) in table {
        let mut ports = PortRegister::new(1024);
        let protocol = Protocol::Tcp;
        let local = end(first.0, 5000);
        let permission = ports.permission(protocol, local, first.1, first.2);
        let permission = permission.expect("not privileged");
        assert!(permission.shared, "nobody is there");
        ports.bound(protocol, id(1), local, first.2, permission);
        let asked = ports.permission(protocol, end(second.0, 5000), second.1, second.2);
        assert_eq!(
            asked.map(|it| it.shared),
            Ok(expected),
            "{first:?} {second:?}"
        );
    }
}

#[test]
fn tickets_are_of_one_port_and_outlive_its_sockets() {
    let mut ports = PortRegister::new(1024);
    let (tcp, local) = (Protocol::Tcp, end("0.0.0.0", 80));
    let refused = Err(SocketError::Prohibited);
    assert_eq!(ports.permission(tcp, local, 1, PLAIN), refused);
    let root = ports.permission(tcp, local, 0, PLAIN).expect("root");
    let ticket = ports.bound(tcp, id(1), local, PLAIN, root);
    let shown = BindOptions { ticket, ..PLAIN };
    let inherited = ports.permission(tcp, local, 1, shown).expect("a ticket");
    assert!(inherited.shared);
    assert_eq!(ports.bound(tcp, id(2), local, shown, inherited), ticket);
    let elsewhere = [(tcp, 81), (Protocol::Udp, 80)];
    for (protocol, port) in elsewhere {
        let asked = ports.permission(protocol, end("0.0.0.0", port), 1, shown);
        assert_eq!(asked, refused, "{protocol:?} {port}");
    }
    ports.release(tcp, id(1));
    assert!(
        ports
            .permission(tcp, local, 5, shown)
            .expect("still")
            .shared
    );
    ports.release_all(|_, socket| socket == id(2));
    assert!(
        ports
            .permission(tcp, local, 5, shown)
            .expect("retired")
            .shared
    );
    assert!(!ports.is_bound(tcp, id(2)));
    // The port is another's now: the old ticket shares nothing of it.
    let root = ports.permission(tcp, local, 0, PLAIN).expect("root");
    assert_ne!(ports.bound(tcp, id(3), local, PLAIN, root), ticket);
    assert!(
        !ports
            .permission(tcp, local, 5, shown)
            .expect("a ticket")
            .shared
    );
}

#[test]
fn retired_tickets_are_bounded() {
    let mut ports = PortRegister::new(1024);
    for slot in 0..3 * RETIRED as u32 {
        let local = end("0.0.0.0", 5000);
        let permission = ports
            .permission(Protocol::Udp, local, 1, PLAIN)
            .expect("free");
        ports.bound(Protocol::Udp, id(slot), local, PLAIN, permission);
        ports.release(Protocol::Udp, id(slot));
    }
    assert_eq!(ports.retired.len(), RETIRED);
    assert!(ports.ports.is_empty() && ports.by_socket.is_empty());
}
