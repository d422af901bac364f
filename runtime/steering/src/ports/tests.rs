use super::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

/// Stand-ins for the kernel's maps, which map alike.
fn map() -> PortMaps {
    let map = || {
        let fd = memfd_create("ports", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&fd, (TABLE_ENTRIES * size_of::<Port>()) as u64).expect("room");
        fd
    };
    PortMaps {
        tcp: map(),
        udp: map(),
    }
}

fn view(maps: &PortMaps, number: u8) -> PortTable {
    let owner = Owner::new(number).expect("less than 64");
    let [tcp, udp] = [&maps.tcp, &maps.udp].map(|map| map.try_clone().ok());
    PortTable::map(owner, tcp, udp).expect("a mapping")
}

/// Users and listeners of a port.
fn entry(table: &PortTable, protocol: u8, port: u16) -> (u64, u64) {
    let table = if protocol == UDP {
        &table.udp
    } else {
        &table.tcp
    };
    let port = &table.as_ref().unwrap().shared.entries()[usize::from(port)];
    (port.users.load(Relaxed), port.listeners.load(Relaxed))
}

#[test]
fn two_owners_see_each_others_ports() {
    let map = map();
    let (mut first, mut last) = (view(&map, 0), view(&map, 63));
    assert!(first.use_port(TCP, 80, false));
    assert!(last.use_port(TCP, 80, false));
    last.listen(TCP, 80);
    assert_eq!(entry(&first, TCP, 80), (1 | 1 << 63, 1 << 63));
    assert_eq!(entry(&first, UDP, 80), (0, 0), "protocols are apart");
    assert!(first.moved(TCP, 80) && !last.moved(TCP, 80), "who listens");
    first.listen(TCP, 80);
    assert!(!first.moved(TCP, 80), "both listen");
    first.unlisten(TCP, 80);
    first.release_port(TCP, 80);
    last.unlisten(TCP, 80);
    assert!(!first.moved(TCP, 80), "nobody listens");
    assert_eq!(entry(&last, TCP, 80), (1 << 63, 0));
}

#[test]
fn uses_and_listeners_nest() {
    let map = map();
    let mut table = view(&map, 2);
    for _ in 0..3 {
        assert!(table.use_port(UDP, 65535, false));
        table.listen(UDP, 65535);
    }
    for left in [2, 1, 0] {
        table.unlisten(UDP, 65535);
        table.release_port(UDP, 65535);
        let bits = if left > 0 { 4 } else { 0 };
        assert_eq!(entry(&table, UDP, 65535), (bits, bits), "{left} left");
    }
    // One too many does no harm.
    table.release_port(UDP, 65535);
    assert!(table.use_port(UDP, 65535, true));
    assert_eq!(entry(&table, UDP, 65535), (4, 0));
}

#[test]
fn an_exclusive_port_leads_to_one_owner() {
    let map = map();
    let (mut mine, mut other) = (view(&map, 0), view(&map, 1));
    assert!(mine.use_port(TCP, 40000, true));
    assert!(!other.use_port(TCP, 40000, true));
    assert_eq!(
        entry(&other, TCP, 40000),
        (1, 0),
        "a refusal leaves no trace"
    );
    assert!(mine.use_port(TCP, 40000, true), "again by the same owner");
    mine.release_port(TCP, 40000);
    assert!(!other.use_port(TCP, 40000, true), "still used once");
    mine.release_port(TCP, 40000);
    assert!(other.use_port(TCP, 40000, true));

    assert!(mine.use_port(TCP, 80, false) && other.use_port(TCP, 80, false));
    assert!(!mine.use_port(TCP, 80, true), "others use it too");
    assert!(mine.use_port(1, 0, true), "ICMP has no ports");
}

#[test]
fn a_dead_owners_ports_are_free() {
    let map = map();
    let (mut dead, mut other) = (view(&map, 7), view(&map, 8));
    for port in [0, 80, 65535] {
        for protocol in [TCP, UDP] {
            assert!(dead.use_port(protocol, port, false));
            assert!(other.use_port(protocol, port, false));
            dead.listen(protocol, port);
            other.listen(protocol, port);
        }
    }
    drop(dead);
    assert_eq!(
        entry(&other, UDP, 80),
        (0x180, 0x180),
        "a drop changes nothing"
    );
    for table in [&other.tcp, &other.udp] {
        let owner = Owner::new(7).expect("less than 64");
        clear(&table.as_ref().unwrap().shared, owner);
    }
    for port in [0, 80, 65535] {
        assert_eq!(entry(&other, TCP, port), (0x100, 0x100));
        assert_eq!(entry(&other, UDP, port), (0x100, 0x100));
    }
}

#[test]
fn of_a_transport_that_is_elsewhere_every_port_is_free() {
    let maps = map();
    let tcp = maps.tcp.try_clone().ok();
    let mut table = PortTable::map(Owner::new(1).unwrap(), tcp, None).expect("a mapping");
    let mut other = view(&maps, 2);
    assert!(other.use_port(TCP, 80, true) && other.use_port(UDP, 80, true));
    assert!(!table.use_port(TCP, 80, true));
    assert!(table.use_port(UDP, 80, true));
    table.listen(UDP, 80);
    assert_eq!(entry(&other, UDP, 80), (1 << 2, 0));
}

/// Whatever an owner has been in, at whichever end of a block, and nobody else is.
#[test]
fn who_is_taken_out_is_in_no_entry_any_more() {
    let maps = map();
    let owners = [3, 5].map(|number| Owner::new(number).expect("less than 64"));
    let ports = [0, 1, 63, 64, 80, 16_383, 32_768, 65_535];
    for owner in owners {
        let mut table = view(&maps, owner.number());
        for port in ports {
            for protocol in [TCP, UDP] {
                assert!(table.use_port(protocol, port, false));
                table.listen(protocol, port);
                table.set_waiting(protocol, port, true, true);
            }
            let end = |address: [u8; 4], port| skink_wire::Endpoint::new(address.into(), port);
            let remote = end([10, 0, 0, 9], port);
            table.flow_begins(&FourTuple::new(end([10, 0, 0, 2], port), remote));
        }
    }
    let all = |owner: Owner| {
        let tables = [&maps.tcp, &maps.udp].map(|map| super::map(map).expect("a mapping"));
        let found = tables.iter().flat_map(MappedArray::entries).map(|port| {
            let single = [
                &port.users,
                &port.listeners,
                &port.shown,
                &port.waiting,
                &port.reserve,
                &port.tells,
                &port.flows,
            ];
            let words = single.into_iter().chain(&port.serving);
            words
                .filter(|owners| owners.load(Relaxed) & owner.bit() != 0)
                .count()
        });
        found.sum::<usize>()
    };
    let both = owners.map(all);
    for map in [&maps.tcp, &maps.udp] {
        clear(&super::map(map).expect("a mapping"), owners[0]);
    }
    assert_eq!(owners.map(all), [0, both[1]]);
    assert!(both[0] > 5 * 2 * ports.len(), "{both:?}");
}
