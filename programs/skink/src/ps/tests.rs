use super::*;

#[test]
fn sizes_and_durations_are_short() {
    for (bytes, expected) in [
        (0, "0 B"),
        (999, "999 B"),
        (4096, "4.0 KiB"),
        (5_368_709, "5.1 MiB"),
        (1_043_333_120, "995 MiB"),
        (1 << 40, "1.0 TiB"),
    ] {
        assert_eq!(size(bytes), expected, "{bytes}");
    }
    for (seconds, expected) in [
        (0, "0s"),
        (59, "59s"),
        (61, "1m01s"),
        (7384, "2h03m"),
        (90_000, "1d01h"),
    ] {
        assert_eq!(duration(seconds), expected, "{seconds}");
    }
}

#[test]
fn one_that_cannot_stay_up_is_shown_with_when_it_is_tried_again() {
    let mut stack = component(&stack(), &Activity::default());
    stack.state = FAILING.to_owned();
    stack.starts_in_ms = Some(1_240);
    let expected = "stack can't stay up and is tried again in 1.2 s";
    assert!(failing(&stack).starts_with(expected), "{}", failing(&stack));
    stack.starts_in_ms = None;
    let expected = "stack can't stay up and is being tried again";
    assert!(failing(&stack).starts_with(expected), "{}", failing(&stack));
}

fn stack() -> ComponentInfo {
    ComponentInfo {
        owner: FIRST_COMPONENT,
        name: "stack".to_owned(),
        components: vec!["ip".to_owned(), "tcp".to_owned()],
        cores: Vec::new(),
        pid: None,
        state: "waiting".to_owned(),
        started_ms: 0,
        release: "0.1.0".to_owned(),
        executable: "/usr/bin/skink".to_owned(),
        restarts: 3,
        last_end: Some("signal 9 killed it".to_owned()),
        starts_in_ms: None,
        sandbox: "no Landlock".to_owned(),
        orders: 2,
        queues: vec![queue("link", "ip", 3), queue("programs", "ip", 12)],
    }
}

fn queue(from: &str, to: &str, waiting: u64) -> QueueInfo {
    QueueInfo {
        from: from.to_owned(),
        to: to.to_owned(),
        waiting,
        capacity: 512,
    }
}

#[test]
fn processes_that_wait_to_be_started_are_shown_too() {
    let instance = InstanceReport {
        name: "web".to_owned(),
        pid: 5,
        topology: Some("single".to_owned()),
        nic: "packet:eth0".to_owned(),
        addresses: vec!["10.0.0.2/24".to_owned()],
        processes: vec![component(&stack(), &Activity::default())],
        programs: vec![ProgramReport {
            name: "nginx".to_owned(),
            pid: 17,
            uid: 33,
            tcp_sockets: 4,
            udp_sockets: 1,
            memory_bytes: 8192,
            usage: None,
            queues: vec![queue("tcp", "program", 2), queue("udp", "program", 1)],
        }],
    };
    let expected = "\
web (single, 10.0.0.2/24 on packet:eth0)
  Process  PID  State    CPU  Memory  Uptime  Restarts  Orders  Queue  Components
  stack      -  waiting    -       -       -         3       2     15  ip tcp
  stack died last: signal 9 killed it
  Program  PID  User  TCP  UDP   Memory  CPU  Queue
  nginx     17    33    4    1  8.0 KiB    -      3
";
    assert_eq!(describe(&instance), expected);
}
