use super::*;
use skink_wire::{Endpoint, FourTuple};

fn config() -> TableConfig {
    TableConfig {
        sockets: 8,
        send_bytes: 4096,
        receive_bytes: 4096,
    }
}

#[test]
fn another_mapping_of_the_table_sees_records_and_rings() {
    let table = SocketTable::create("test", config()).expect("a table");
    let id = table.open_slot(5, SocketKind::Tcp);
    let tuple = FourTuple {
        local: Endpoint {
            addr: "fe80::1:2".parse().expect("an address"),
            port: 80,
        },
        remote: Endpoint {
            addr: "2001:db8::9".parse().expect("an address"),
            port: 50_000,
        },
    };
    table.record(5).set_four_tuple(&tuple);
    table.receive_ring(5).write(b"hello");

    let fd = table.fd().try_clone_to_owned().expect("a descriptor");
    let other = SocketTable::open(fd).expect("the same table");
    assert_eq!(other.used(), 6);
    let record = other.find(id).expect("the record");
    assert_eq!(record.four_tuple(), tuple);
    let mut bytes = [0; 8];
    assert_eq!(other.receive_ring(5).read(&mut bytes), 5);
    assert_eq!(&bytes[..5], b"hello");
    assert!(table.receive_ring(5).is_empty());
}

#[test]
fn an_id_that_outlived_its_socket_finds_nothing() {
    let table = SocketTable::create("test", config()).expect("a table");
    let first = table.open_slot(0, SocketKind::Tcp);
    table.send_ring(0).write(b"left over");
    table.close_slot(0);
    assert!(table.find(first).is_none());
    let second = table.open_slot(0, SocketKind::Udp);
    assert!(table.find(first).is_none());
    assert!(table.find(second).is_some());
    assert!(table.send_ring(0).is_empty());
    let beyond = SocketId {
        slot: 8,
        generation: 1,
    };
    assert!(table.find(beyond).is_none());
}

#[test]
fn memory_that_is_no_table_of_this_version_is_refused() {
    let mapping = Mapping::create("test", 8192).expect("memory");
    let fd = mapping.fd().try_clone_to_owned().expect("a descriptor");
    assert!(matches!(SocketTable::open(fd), Err(TableError::NotATable)));

    let table = SocketTable::create("test", config()).expect("a table");
    table
        .header()
        .version
        .store(LAYOUT_VERSION + 1, Ordering::Relaxed);
    let fd = table.fd().try_clone_to_owned().expect("a descriptor");
    assert!(matches!(SocketTable::open(fd), Err(TableError::NotATable)));

    let odd = TableConfig {
        send_bytes: 5000,
        ..config()
    };
    assert!(matches!(
        SocketTable::create("test", odd),
        Err(TableError::BadRingSize)
    ));
}
