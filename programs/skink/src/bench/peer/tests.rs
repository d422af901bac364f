use super::ask::ask;
use super::server::serve_on;
use super::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn server(connections: u32) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || serve_on(&Arc::new(listener), connections));
    address
}

#[test]
fn each_service_is_given_and_counted() {
    let address = server(3);
    let time = Duration::from_millis(20);
    for service in Service::ALL {
        let connections = if service == Service::Echo { 3 } else { 1 };
        let load = ask(service, address, connections, time).expect("served");
        assert!(load.units > 0.0 && load.seconds >= 0.02, "{load:?}");
        assert_eq!(load.latency.is_some(), service == Service::Echo);
    }
}

#[test]
fn services_are_told_apart_by_a_byte_and_a_word() {
    for service in Service::ALL {
        let same = |other: &Service| other.byte() == service.byte();
        assert_eq!(Service::ALL.iter().filter(|other| same(other)).count(), 1);
        let read = <Service as clap::ValueEnum>::from_str(service.word(), false);
        assert_eq!(read, Ok(service));
    }
}

#[test]
fn what_the_server_says_is_believed_only_if_it_is_all() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let _ = stream.read_to_end(&mut Vec::new());
        stream.write_all(&7_u64.to_be_bytes())
    });
    let result = ask(Service::Receive, address, 1, Duration::from_millis(1));
    let why = result.expect_err("a lie").to_string();
    assert!(why.ends_with("and 7 arrived"), "{why}");
}

#[test]
fn percentiles_are_times_that_were_measured() {
    assert_eq!(percentiles(&[]), None);
    let of = |last: u32| {
        let times: Vec<u32> = (1..=last).map(|at| at * 1000).collect();
        let found = percentiles(&times).expect("some");
        (found.p50_us, found.p99_us, found.p999_us)
    };
    assert_eq!(of(1), (1.0, 1.0, Some(1.0)));
    assert_eq!(of(4), (2.0, 4.0, Some(4.0)));
    assert_eq!(of(1000), (500.0, 990.0, Some(999.0)));
}

#[test]
fn connections_are_counted_when_the_server_has_ended_them() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let accepted = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&accepted);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            drop(stream);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let load = connect::connect(address, 4, Duration::from_millis(20)).expect("connected");
    let ended = load.units as u64;
    assert!(ended > 0 && load.latency.is_some(), "{load:?}");
    // Those that were under way at the end don't count. (The server counts after it has closed.)
    assert!(accepted.load(Ordering::SeqCst) + 1 >= ended);
}

#[test]
fn a_connection_that_fails_ends_the_measurement() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let why = connect::connect(address, 2, Duration::from_secs(5)).expect_err("refused");
    assert!(why.to_string().contains("refused"), "{why}");
}

#[test]
fn operations_are_done_and_counted() {
    let time = Duration::from_millis(2);
    for operation in Operation::ALL {
        let (count, taken) = files::work(operation, time).expect("done");
        assert!(count > 0 && taken >= time, "{operation:?}");
        let known = Operation::ALL.map(Operation::byte);
        assert_eq!(
            known
                .iter()
                .filter(|byte| **byte == operation.byte())
                .count(),
            1
        );
        assert!(
            Service::ALL
                .iter()
                .all(|service| service.byte() != operation.byte())
        );
    }
    let load = ask::local(Operation::Null, server(1), Duration::ZERO).expect("done");
    assert!(load.units >= 0.0 && load.latency.is_none());
}

#[test]
fn idle_connections_come_from_as_many_addresses_as_they_need() {
    let from = |connections| {
        let addresses = held_from([10, 9, 0, 2].into(), connections);
        addresses.map(|one| one.to_string()).collect::<Vec<_>>()
    };
    assert!(from(0).is_empty());
    assert_eq!(from(hold::PER_ADDRESS), ["10.9.0.100"]);
    assert_eq!(from(hold::PER_ADDRESS + 1), ["10.9.0.100", "10.9.0.101"]);
    assert_eq!(from(MOST_HELD).len(), 150);
}
