use super::*;

fn server(connections: u32) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || serve(&Arc::new(listener), connections));
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
