//! A broker whose owners are served by a stack in another process, and found by name.
use super::*;
use skink_sockets::{Attachment, Routes};
use std::collections::BTreeMap;
use std::io::Write;

/// Grants at once, or (odd slots) when told to.
#[derive(Default)]
struct Stacks {
    log: Vec<String>,
    questions: Vec<Question>,
    later: Vec<u16>,
    refuse_all: bool,
}

/// Each slot's program has one channel more than the one before, and then one again.
fn routes(owner: u16) -> Routes {
    let all = [[0, 0, 0], [0, 1, 0], [0, 1, 2]];
    Routes::new(all[usize::from(owner % 3)]).expect("routes")
}

fn parts(owner: u16) -> ServedParts {
    let routes = routes(owner);
    let channel = skink_sockets::program_descriptors(routes.channels());
    ServedParts {
        attachment: Attachment {
            program: owner.into(),
            tcp_stride: 16,
            udp_stride: 8,
            secret: u64::MAX - u64::from(owner),
            routes,
        },
        tcp_region: [b"tcp records", b"tcp sending", b"tcp waiting"].map(|it| pipe(it)),
        udp_region: [b"udp records", b"udp sending", b"udp waiting"].map(|it| pipe(it)),
        channel: (0..channel).map(|_| pipe(b"x")).collect(),
    }
}

impl Owners for Stacks {
    fn grant(&mut self, owner: u16, peer: &Peer) -> Result<Grant, String> {
        assert_eq!(peer.pid, std::process::id());
        assert!(!peer.groups.is_empty());
        self.log.push(format!("grant {owner}"));
        match owner % 2 {
            0 => Ok(Grant::Served(parts(owner))),
            _ => {
                self.later.push(owner);
                Ok(Grant::Later)
            }
        }
    }
    fn retire(
        &mut self,
        owner: u16,
        _memory: BTreeMap<RegionKind, OwnedFd>,
        _tethers: Vec<TetherParts>,
    ) -> bool {
        self.log.push(format!("retire {owner}"));
        false
    }
    fn release(&mut self, owner: u16) {
        self.log.push(format!("release {owner}"));
    }
    fn answering(&mut self, _owner: u16) {}
    fn is_waited_for(&self) -> bool {
        false
    }
    fn capacity(&self) -> u16 {
        600
    }
    fn admit(&self, _peer: &Peer) -> Result<(), String> {
        match self.refuse_all {
            true => Err("nobody may".to_owned()),
            false => Ok(()),
        }
    }
    fn region(&self, program: u32, secret: u64) -> Result<[[OwnedFd; 3]; 2], String> {
        match (program, secret) {
            (2, 7) => Ok([[b"0", b"1", b"2"], [b"3", b"4", b"5"]].map(|it| it.map(|it| pipe(it)))),
            (_, _) => Err("the secret is wrong".to_owned()),
        }
    }
    fn load_filter(&mut self, rules: &str) -> Result<String, String> {
        self.log.push(format!("rules {rules}"));
        Ok("done".to_owned())
    }
    fn show_filter(&mut self, question: Question) -> Answered {
        self.questions.push(question);
        Ok(None)
    }
}

fn config(name: &str) -> ServerConfig {
    let size = TableSize {
        sockets: 16,
        send_bytes: 4096,
        receive_bytes: 8192,
    };
    ServerConfig {
        name: format!("{name}-{}", std::process::id()),
        access: Access::Named,
        command: Vec::new(),
        nic: "tap:test0".to_owned(),
        topology: Some("single".to_owned()),
        addresses: vec!["10.77.0.2/24".parse().expect("an address")],
        gateways: Vec::new(),
        tcp_table: size,
        udp_table: size,
        socket_memory: u64::MAX,
        rules: String::new(),
        interface: String::new(),
    }
}

fn new_server(directory: &Directory, name: &str) -> Server<Stacks> {
    Server::in_directory(config(name), Stacks::default(), &directory.0).expect("a server")
}

/// Runs `client` with the abstract name, the path and the path for tools, while the server serves and
/// `answer` does what was left for later.
fn run<T: Send>(
    server: &mut Server<Stacks>,
    answer: impl Fn(&mut Server<Stacks>),
    client: impl FnOnce(&str, &str, &std::path::Path) -> T + Send,
) -> T {
    let abstract_name = server.environment()[0].1.clone();
    let tools = server.socket_path().to_owned();
    let named = abstract_name.trim_start_matches("@skink-up-");
    let name = named.rsplit_once('-').expect("a user id").0;
    let path = tools.with_file_name(format!("{name}.sock"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let path = path.to_str().expect("text");
            let result = client(&abstract_name, path, &tools);
            done.store(true, Ordering::Release);
            result
        });
        let mut last_round = false;
        while !last_round {
            last_round = done.load(Ordering::Acquire) || running.is_finished();
            wait(server.as_fd());
            server.serve(Instant::now());
            answer(server);
        }
        running.join().expect("the client")
    })
}

fn grant_later(server: &mut Server<Stacks>) {
    server.grant(1, Ok(Grant::Served(parts(1))));
    server.grant(3, Err("no memory for it".to_owned()));
}

fn served(broker: &mut Broker) -> ServedGrant {
    match broker.attach().expect("served") {
        Attached::Served(grant) => grant,
        Attached::Library(grant) => panic!("a stack of its own: {grant:?}"),
    }
}

#[test]
fn programs_are_served_at_once_or_later_by_name_or_path() {
    let directory = Directory::new("served");
    let mut server = new_server(&directory, "served");
    run(&mut server, grant_later, |name, path, _| {
        let [mut first, mut second, mut third, mut fourth] =
            [name, path, name, path].map(|place| Broker::connect(place, "").expect("a broker"));
        let info = first.network().expect("the network");
        assert_eq!(info.topology.as_deref(), Some("single"));
        assert_eq!(info.nic, "tap:test0");
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(first.uid().expect("credentials"), own);

        let grant = served(&mut first);
        assert_eq!(grant.attachment.program, 0);
        assert_eq!(grant.attachment.secret, u64::MAX);
        assert_eq!(grant.addresses, info.addresses);
        assert_eq!(
            grant.tcp_region.each_ref().map(read),
            ["tcp records", "tcp sending", "tcp waiting"]
        );
        assert_eq!(
            grant.udp_region.each_ref().map(read),
            ["udp records", "udp sending", "udp waiting"]
        );
        let channel = |grant: &ServedGrant| grant.channel.iter().map(read).collect::<String>();
        assert_eq!(channel(&grant), "x".repeat(12));
        for (broker, program, descriptors) in [(&mut second, 1, 18), (&mut third, 2, 24)] {
            let grant = served(broker);
            assert_eq!(grant.attachment.program, u32::from(program));
            assert_eq!(grant.attachment.routes, routes(program));
            assert_eq!(channel(&grant), "x".repeat(descriptors));
        }
        let refused = fourth.attach().map(drop);
        assert!(matches!(refused, Err(ControlError::Refused(why)) if why == "no memory for it"));

        let regions = third.region(2, 7).expect("the secret is right");
        assert_eq!(regions.tcp.each_ref().map(read), ["0", "1", "2"]);
        assert_eq!(regions.udp.each_ref().map(read), ["3", "4", "5"]);
        let wrong = third.region(2, 8).map(drop);
        assert!(matches!(wrong, Err(ControlError::Refused(_))));
        // Who isn't served may not ask.
        fourth.region(2, 7).expect_err("out of turn");
        // A program's own capture ring would be a place to lie in.
        let capture = CaptureRing::create(4096).expect("a ring");
        let refused = third.register(&[(RegionKind::Capture, capture.fd())]);
        assert!(matches!(refused, Err(ControlError::Refused(_))));
        let counters = Counters::create().expect("counters");
        third
            .register(&[(RegionKind::Counters, counters.fd())])
            .expect("registered");
    });
    // Nobody waits for the end of their process, which has no part of a NIC, and lives on here.
    let log = std::mem::take(&mut server.owners_mut().log);
    assert!(log.contains(&"release 0".to_owned()));
    run(&mut server, grant_later, |name, _, _| {
        let mut next = Broker::connect(name, "").expect("a broker");
        assert_eq!(served(&mut next).attachment.program, 0);
    });
}

#[test]
fn who_is_dismissed_is_closed_and_who_is_not_admitted_is_told() {
    let directory = Directory::new("dismissed");
    let mut server = new_server(&directory, "dismissed");
    let mut broker = run(&mut server, grant_later, |name, _, _| {
        let mut broker = Broker::connect(name, "").expect("a broker");
        served(&mut broker);
        broker
    });
    server.dismiss(0, "its stack is gone");
    assert!(matches!(broker.take_notice(), Err(ControlError::Closed)));
    server.owners_mut().refuse_all = true;
    run(&mut server, grant_later, |name, path, _| {
        let mut broker = Broker::connect(name, "").expect("a broker");
        let refused = broker.network();
        assert!(matches!(refused, Err(ControlError::Refused(why)) if why == "nobody may"));
        let mut broker = Broker::connect(path, "").expect("a broker");
        let refused = broker.attach().map(drop);
        assert!(matches!(refused, Err(ControlError::Refused(why)) if why == "nobody may"));
    });
}

#[test]
fn a_name_is_one_instances_only() {
    let directory = Directory::new("names");
    let server = new_server(&directory, "names");
    let second = Server::in_directory(config("names"), Stacks::default(), &directory.0);
    let error = second.map(drop).expect_err("the name is taken");
    assert!(error.to_string().contains("runs already"), "{error}");
    let (broker, place) = crate::named(&config("names").name).expect("found");
    assert_eq!(place, server.environment()[0].1);
    drop((broker, server));
    assert!(crate::named(&config("names").name).is_err());
    assert_eq!(
        std::fs::read_dir(&directory.0).expect("readable").count(),
        0
    );
    // What was left behind by one that was killed is no hindrance.
    let left_over = directory.0.join(format!("{}.sock", config("names").name));
    std::fs::write(&left_over, "").expect("a file");
    new_server(&directory, "names");
}

#[test]
fn many_programs_are_listed_in_parts() {
    let directory = Directory::new("many");
    let mut server = new_server(&directory, "many");
    let later = |server: &mut Server<Stacks>| {
        for owner in std::mem::take(&mut server.owners_mut().later) {
            server.grant(owner, Ok(Grant::Served(parts(owner))));
        }
    };
    let owners = run(&mut server, later, |name, _, tools| {
        let brokers = (0..270).map(|_| {
            let mut broker = Broker::connect(name, "").expect("a broker");
            served(&mut broker);
            broker
        });
        let brokers: Vec<Broker> = brokers.collect();
        let info = tool(tools).list().expect("a description");
        drop(brokers);
        info.processes
            .iter()
            .map(|process| process.owner)
            .collect::<Vec<_>>()
    });
    assert_eq!(owners, (0..270).collect::<Vec<_>>());
}

#[test]
fn rules_come_as_a_file_and_are_shown_when_the_stack_has_answered() {
    let directory = Directory::new("rules");
    let mut server = new_server(&directory, "rules");
    let answer = |server: &mut Server<Stacks>| {
        for question in std::mem::take(&mut server.owners_mut().questions) {
            server.answer(question, Ok("{}".to_owned()));
        }
    };
    run(&mut server, answer, |_, _, tools| {
        let tool = tool(tools);
        let path = tools.with_file_name("rules");
        let mut file = std::fs::File::options();
        let file = file.read(true).write(true).create(true).truncate(true);
        let mut file = file.open(&path).expect("a file");
        file.write_all(b"block in").expect("room");
        let again = std::fs::File::open(&path).expect("a file");
        assert_eq!(tool.load_filter(again.as_fd()).expect("loaded"), "done");
        assert_eq!(tool.show_filter(None).expect("an answer"), "{}");
        // What could make the broker wait, or is too long, isn't read.
        let refused = tool.load_filter(pipe(b"block in").as_fd());
        assert!(
            matches!(refused, Err(ControlError::Refused(_))),
            "{refused:?}"
        );
        file.write_all(&[b' '; 200_000]).expect("room");
        let long = std::fs::File::open(&path).expect("a file");
        let refused = tool.load_filter(long.as_fd());
        assert!(
            matches!(refused, Err(ControlError::Refused(_))),
            "{refused:?}"
        );
    });
    assert_eq!(server.owners().log, ["rules block in"]);
}

/// A supervisor died right after it had granted everything: its standby knows only that the program waits, which goes on.
#[test]
fn who_waits_may_have_been_granted_everything_already() {
    let directory = Directory::new("waits");
    let mut server = new_server(&directory, "waits");
    run(
        &mut server,
        |_| {},
        |name, _, _| {
            let mut first = Broker::connect(name, "").expect("a broker");
            first.attach().expect("an even slot");
            let mut second = Broker::connect(name, "").expect("a broker");
            let attach = crate::message::Request::Attach {
                protocol: crate::message::PROTOCOL,
                token: String::new(),
            };
            let sent = transport::send(second.as_fd(), &attach, &[], SendFlags::empty());
            sent.expect("it listens");
            let memory = Counters::create().expect("memory");
            second
                .register(&[(RegionKind::Counters, memory.fd())])
                .expect("it takes it");
        },
    );
    assert_eq!(server.owners().later, [1]);
}
