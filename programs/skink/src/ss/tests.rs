use super::*;
use skink_memory::{FallbackReason, Region, TableConfig};
use skink_wire::{Endpoint, FourTuple};

fn endpoint(text: &str) -> Endpoint {
    text.parse::<std::net::SocketAddr>()
        .expect("an endpoint")
        .into()
}

fn process() -> ProcessInfo {
    crate::tools::tests::info().processes[0].clone()
}

fn table() -> SendRegion {
    let config = TableConfig {
        sockets: 8,
        send_bytes: 4096,
        receive_bytes: 4096,
    };
    let table = Region::create("test", config).expect("a table");
    let rows = [
        (
            SocketKind::TcpListener,
            State::Listen,
            "0.0.0.0:80",
            "0.0.0.0:0",
        ),
        (
            SocketKind::Tcp,
            State::Established,
            "10.77.0.2:80",
            "10.77.0.1:50000",
        ),
        (SocketKind::Tcp, State::Closed, "0.0.0.0:0", "0.0.0.0:0"),
        (SocketKind::Udp, State::Closed, "[fd77::2]:53", "[::]:0"),
        (
            SocketKind::Udp,
            State::Closed,
            "[fd77::2]:99",
            "[fd77::1]:53",
        ),
    ];
    for (slot, (kind, state, local, remote)) in rows.into_iter().enumerate() {
        let slot = slot as u32;
        table.open_slot(slot, kind);
        let record = table.record(slot);
        record.state.store(state as u8, Relaxed);
        if slot != 2 {
            record.set_four_tuple(&FourTuple::new(endpoint(local), endpoint(remote)));
        }
    }
    table.record(1).rtt_us.store(1500, Relaxed);
    table.record(1).cwnd.store(14_600, Relaxed);
    table.record(1).snd_wnd.store(100, Relaxed);
    table.receive_ring(1).write(b"abc");
    table.send_ring(1).write(b"abcd");
    table.sending().clone()
}

fn sockets() -> Vec<Socket> {
    let table = table();
    (0..table.used())
        .filter_map(|slot| socket(&table, slot, "web", &process()))
        .collect()
}

#[test]
fn records_are_shown_as_sockets() {
    let shown: Vec<String> = sockets()
        .iter()
        .map(|one| {
            format!(
                "{} {} {} {}",
                one.protocol, one.state, one.local, one.remote
            )
        })
        .collect();
    let expected = [
        "tcp LISTEN 0.0.0.0:80 *:*",
        "tcp ESTABLISHED 10.77.0.2:80 10.77.0.1:50000",
        "tcp CLOSED *:* *:*",
        "udp UNCONN [fd77::2]:53 *:*",
        "udp ESTAB [fd77::2]:99 [fd77::1]:53",
    ];
    assert_eq!(shown, expected);
    let text = serde_json::to_string(&sockets()[1]).expect("JSON");
    let expected = concat!(
        r#"{"instance":"web","pid":101,"program":"nginx","protocol":"tcp","state":"ESTABLISHED","#,
        r#""local":"10.77.0.2:80","remote":"10.77.0.1:50000","recv_q":3,"send_q":4,"#,
        r#""tcp":{"rtt_us":1500,"cwnd_bytes":14600,"retransmits":0,"mss":0,"peer_window":100}}"#,
    );
    assert_eq!(text, expected);
}

#[test]
fn options_select_sockets_as_those_of_ss() {
    for (listening, all, expected) in [
        (false, false, vec![1, 4]),
        (true, false, vec![0, 3]),
        (false, true, vec![0, 1, 2, 3, 4]),
        (true, true, vec![0, 1, 2, 3, 4]),
    ] {
        let options = SsOptions {
            instance: None,
            json: false,
            listening,
            all,
        };
        let sockets = sockets();
        let shown = (0..sockets.len()).filter(|at| wanted(&sockets[*at], &options));
        assert_eq!(shown.collect::<Vec<_>>(), expected, "{listening} {all}");
    }
}

#[test]
fn sockets_of_the_kernel_come_with_their_reason() {
    let fallback = Fallback {
        fd: 7,
        reason: FallbackReason::UnsupportedOption,
        protocol: 17,
        detail: 25,
        endpoint: endpoint("127.0.0.1:53"),
    };
    let report = Report {
        sockets: sockets(),
        fallbacks: vec![kernel_socket(&fallback, "web", &process())],
    };
    let text = describe(&report);
    assert!(text.contains("rtt 1.500 ms, cwnd 14600"), "{text}");
    let last = text.lines().last().expect("lines");
    let expected = "udp    127.0.0.1:53  nginx/101   7  unsupported-option (25)  An option was set that Skink doesn't have.";
    assert_eq!(last, expected);
}
