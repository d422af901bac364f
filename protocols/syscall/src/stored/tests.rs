use super::*;

/// One item of each kind, with as much in it as there can be.
fn items() -> Vec<Item> {
    let socket = SocketId {
        slot: u32::MAX,
        generation: u32::MAX - 1,
    };
    let ends = ["1.2.3.4", "::ffff:1.2.3.4", "fe80::1234:5678:9abc:def0"];
    let ends = ends.map(|addr| Endpoint::new(addr.parse().expect("an address"), 0xfedc));
    let mut items = vec![
        Item::Retired(
            u64::MAX,
            Retired {
                protocol: Protocol::Udp,
                port: 65535,
                uid: u32::MAX,
                ticket: u64::MAX,
            },
        ),
        Item::Share(Protocol::Tcp, socket, u32::MAX, true),
        Item::Share(Protocol::Tcp, socket, 1, false),
        Item::OwnerGone(Protocol::Udp, socket),
    ];
    for (departed, reuse_port) in [(true, false), (false, true)] {
        let known = Known {
            uid: 0x1234_5678,
            secret: 0x1234_5678_9abc_def0,
            departed,
        };
        items.push(Item::Program(u32::MAX, known));
        for asked in ends {
            let bound = Bound {
                socket,
                local: asked,
                uid: 7,
                reuse_port,
                ticket: u64::MAX - 3,
            };
            items.push(Item::Port(Protocol::Tcp, bound));
            let intent = Intent::Bind {
                asked,
                sharing: BindOptions {
                    reuse_address: departed,
                    shared: reuse_port,
                },
                reuse_port,
                ticket: reuse_port.then_some(u64::MAX - 5),
            };
            items.push(Item::Turn(Protocol::Udp, turn(socket, intent)));
        }
    }
    let listen = Intent::Listen { backlog: u32::MAX };
    items.push(Item::Turn(Protocol::Tcp, turn(socket, listen)));
    items
}

fn turn(socket: SocketId, intent: Intent) -> Turn {
    Turn {
        program: 0xa1b2_c3d4,
        serial: 0xb1b2_c3d4,
        socket,
        uid: 0xc1b2_c3d4,
        intent,
    }
}

#[test]
fn what_is_stored_is_read_back() {
    for item in items() {
        assert_eq!(Item::decode(item.key(), &item.value()), Some(item));
    }
}

#[test]
fn nonsense_is_not_taken_for_anything() {
    for item in items() {
        let (key, value) = (item.key(), item.value());
        // Each byte in turn: either it means something else, or nothing.
        for at in 0..STORED_BYTES {
            let mut spoilt = value;
            spoilt[at] ^= 0x50;
            assert_ne!(Item::decode(key, &spoilt), Some(item), "{item:?} {at}");
        }
        for kind in [0, 7, 255] {
            assert_eq!(Item::decode(StoreKey { kind, ..key }, &value), None);
        }
        let id = key.id | 1 << 127;
        assert_eq!(Item::decode(StoreKey { id, ..key }, &value), None);
    }
    let key = StoreKey {
        client: StoreClient::Syscall,
        kind: kind::TURN,
        id: 6,
    };
    assert_eq!(Item::decode(key, &[0xff; STORED_BYTES]), None);
}
