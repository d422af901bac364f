use super::*;

fn stat(parent: u32, flags: u32, times: [u32; 4]) -> String {
    let [user, system, children_user, children_system] = times;
    format!(
        "7 (a) b (c) S {parent} 1 1 0 -1 {flags} 0 0 0 0 {user} {system} {children_user} {children_system} 20 0 1"
    )
}

#[test]
fn stat_lines_are_read() {
    let read = parse_stat(&stat(3, 4_194_304, [1, 20, 300, 4000]));
    let expected = Stat {
        parent: 3,
        kernel_thread: false,
        ticks: 4321,
    };
    assert_eq!(read, Some(expected));
    let thread = parse_stat(&stat(2, 69_238_880 | 0x0020_0000, [1, 0, 0, 0]));
    assert!(thread.is_some_and(|thread| thread.kernel_thread));
    for bad in [
        "",
        "7 (sh",
        "7 (sh) S 1 2",
        "7 (sh) S x 1 1 0 -1 0 0 0 0 0 1 1 1 1",
    ] {
        assert_eq!(parse_stat(bad), None, "{bad}");
    }
}

#[test]
fn the_own_family_and_the_kernel_are_no_others() {
    let process = |parent, ticks| Stat {
        parent,
        kernel_thread: false,
        ticks,
    };
    let mut stats = BTreeMap::from([
        (1, process(0, 100)),
        (50, process(1, 1_000)),
        // The family; its grandchild has a smaller number than its child.
        (60, process(50, 10_000)),
        (70, process(60, 20_000)),
        (40, process(70, 40_000)),
        (80, process(50, 300)),
    ]);
    stats.insert(
        2,
        Stat {
            parent: 0,
            kernel_thread: true,
            ticks: 500_000,
        },
    );
    assert_eq!(sum_of_others(&stats, 60), 14.0);
    // What an ended child used goes over to its parent: no time is lost.
    stats.remove(&80);
    stats.insert(50, process(1, 1_300));
    assert_eq!(sum_of_others(&stats, 60), 14.0);
}

#[test]
fn the_halves_understand_each_other() {
    let (inner, outer) = UnixStream::pair().expect("a socket");
    let (sender, replies) = channel();
    let input = BufReader::new(inner.try_clone().expect("a copy"));
    std::thread::spawn(move || {
        for line in input.lines().map_while(Result::ok) {
            let reply: Reply = serde_json::from_str(&line).expect("a reply");
            if sender.send(reply).is_err() {
                break;
            }
        }
    });
    let outside = Outside {
        stream: inner,
        replies,
    };
    let server = std::thread::spawn(move || serve(&outer));
    assert_eq!(
        outside.pin("no thread is called so", 0, true),
        Ok(Vec::new())
    );
    outside.watch().expect("watching");
    assert!(outside.others().is_ok_and(|share| share >= 0.0));
    let mut results = Results::default();
    results.settings.rounds = 17;
    outside.finish(Ok(results)).expect("sent");
    let served = server.join().expect("no panic").expect("an outcome");
    assert_eq!(served.map(|results| results.settings.rounds).ok(), Some(17));
}

#[test]
fn the_turns_of_a_thread_are_read() {
    let before = parse_turns("1000 50 3\n").expect("three numbers");
    let after = parse_turns("4000 90 5\n").expect("three numbers");
    let expected = Turns {
        count: 2,
        ran_ns: 3000,
        waited_ns: 40,
    };
    assert_eq!(after.since(&before), expected);
    assert_eq!(parse_turns("1000 50"), None);
}
