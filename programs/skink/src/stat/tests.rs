use super::*;

fn counters(pairs: &[(Counter, u64)]) -> Vec<u64> {
    let of = |counter: &Counter| {
        pairs
            .iter()
            .find(|pair| pair.0 == *counter)
            .map_or(0, |pair| pair.1)
    };
    Counter::ALL.iter().map(of).collect()
}

fn example() -> InstanceReport {
    let first = counters(&[(Counter::TcpBytesIn, 5), (Counter::IpDropArp, 1)]);
    let second = counters(&[(Counter::TcpBytesIn, 30)]);
    report(&crate::tools::tests::info(), &[first, second], false)
}

#[test]
fn the_sums_include_processes_that_have_ended() {
    let text = serde_json::to_string(&Report {
        instances: vec![example()],
    })
    .expect("JSON");
    let expected = concat!(
        r#"{"instances":[{"pid":100,"name":"web","command":["nginx"],"nic":"tap:skink0","#,
        r#""addresses":["10.77.0.2/24"],"started_ms":5,"#,
        r#""counters":{"ip.drop.arp":1,"tcp.bytes_in":42},"calls":null,"processes":["#,
        r#"{"owner":0,"pid":101,"program":"nginx","counters":{"ip.drop.arp":1,"tcp.bytes_in":5}},"#,
        r#"{"owner":1,"pid":102,"program":"helper","counters":{"tcp.bytes_in":30}}]}]}"#,
    );
    assert_eq!(text, expected);
}

#[test]
fn drops_stand_apart_with_their_reason() {
    let text = describe(&example(), false, None);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "web (process id 100, tap:skink0, 10.77.0.2/24): 2 processes, nginx 101, helper 102"
    );
    assert!(
        lines[1].starts_with("  tcp.bytes_in  42  Payload"),
        "{text}"
    );
    assert_eq!(lines[2], "  dropped, and why:");
    assert_eq!(
        lines[3],
        "  ip.drop.arp  1  ARP packets that are broken or contradict us."
    );
    assert_eq!(lines.len(), 4);
    let all = describe(&example(), true, None);
    assert_eq!(all.lines().count(), Counter::ALL.len() + 2);
}

#[test]
fn what_is_watched_is_the_change() {
    let before = Report {
        instances: vec![example()],
    };
    let mut now = before.clone();
    now.instances[0]
        .counters
        .insert("tcp.bytes_in".to_owned(), 50);
    now.instances[0]
        .counters
        .insert("tcp.bytes_out".to_owned(), 3);
    let change = difference(&now, &before);
    let counters = &change.instances[0].counters;
    assert_eq!(
        (
            counters["tcp.bytes_in"],
            counters["tcp.bytes_out"],
            counters["ip.drop.arp"]
        ),
        (8, 3, 0)
    );
    assert!(
        describe(&change.instances[0], false, Some(Duration::from_secs(2))).contains("in 2 s\n")
    );
}

/// Two programs and the stack that serves them.
fn served(calls: u64, others: u64, asked: u64) -> InstanceReport {
    let counts = |share: u64| {
        counters(&[
            (Counter::AppCalls, calls / share),
            (Counter::AppOtherCalls, others / share),
            (Counter::AppAsked, asked / share),
        ])
    };
    let mut info = crate::tools::tests::info();
    info.topology = Some("split".to_owned());
    let mut stack = info.processes[0].clone();
    stack.owner = FIRST_COMPONENT;
    info.processes.push(stack);
    // What the stack counts isn't the programs'.
    report(&info, &[counts(2), counts(2), counts(1)], false)
}

#[test]
fn the_share_of_calls_that_programs_resolve_is_told() {
    let first = served(600, 200, 40);
    let expected = Calls::counted(|counter| match counter {
        Counter::AppCalls => 600,
        Counter::AppOtherCalls => 200,
        Counter::AppAsked => 40,
        _ => 0,
    });
    assert_eq!(first.calls, Some(expected));
    let text = describe(&first, false, None);
    let said = "  of the programs' 800 calls about sockets, 95.00% were resolved in the program; for \
                the others 40 messages went to syscall";
    assert!(text.contains(said), "{text}");
    let reports = [served(1600, 200, 42), first].map(|instance| Report {
        instances: vec![instance],
    });
    let change = difference(&reports[0], &reports[1]);
    let text = serde_json::to_string(&change.instances[0].calls).expect("JSON");
    assert_eq!(
        text,
        r#"{"made":1000,"to_syscall":2,"resolved_percent":99.8}"#
    );
    assert!(!describe(&served(0, 0, 0), false, None).contains("resolved"));
}
