mod filtering;
mod served;
mod strangers;

use super::*;
use crate::tether::{Found, Heard, Numbers};
use crate::transport::MAXIMUM_REQUEST;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use skink_memory::{CaptureReader, CaptureRing};
use skink_messages::{Counter, Counters};
use skink_wire::{Endpoint, FourTuple};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Default)]
struct Recorder(Rc<RefCell<Vec<String>>>, Rc<RefCell<Vec<TetherParts>>>);

impl Recorder {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut())
    }
}

impl Owners for Recorder {
    fn grant(&mut self, owner: u16, _peer: &Peer) -> Result<Grant, String> {
        if owner == 3 {
            return Err("the NIC has three queues only".to_owned());
        }
        self.0.borrow_mut().push(format!("grant {owner}"));
        Ok(Grant::Nic(NicGrant {
            nic: format!("nic {owner}"),
            nic_descriptors: vec![pipe(b"first"), pipe(b"second")],
            ports: (owner == 1).then(|| PortMaps {
                tcp: pipe(b"of tcp"),
                udp: pipe(b"of udp"),
            }),
        }))
    }
    fn retire(
        &mut self,
        owner: u16,
        _memory: BTreeMap<RegionKind, OwnedFd>,
        tethers: Vec<TetherParts>,
    ) -> bool {
        self.0.borrow_mut().push(format!("retire {owner}"));
        let goes_on = !tethers.is_empty();
        self.1.borrow_mut().extend(tethers);
        goes_on
    }
    fn release(&mut self, owner: u16) {
        self.0.borrow_mut().push(format!("release {owner}"));
    }
    fn answering(&mut self, owner: u16) {
        self.0.borrow_mut().push(format!("answering {owner}"));
    }
    fn have_stacks(&self) -> bool {
        true
    }
    fn heir(&mut self, tried: &[u16], _flow: &FourTuple, _only_waiting: bool) -> Option<u16> {
        (0..3).find(|owner| !tried.contains(owner))
    }
    fn find(&self, flow: &FourTuple, owners: Vec<(u16, [OwnedFd; 2])>) -> Option<u16> {
        // Whoever is asked about has that one.
        let has_it = flow.remote.port == 6;
        owners.first().filter(|_| has_it).map(|(owner, _)| *owner)
    }

    fn lead_to(&mut self, flow: &FourTuple, owner: u16, table: Option<[OwnedFd; 2]>) {
        let checked = if table.is_some() { " if it has it" } else { "" };
        let port = flow.remote.port;
        self.0
            .borrow_mut()
            .push(format!("lead {port} to {owner}{checked}"));
    }
    fn load_filter(&mut self, rules: &str) -> Result<String, String> {
        match rules {
            "nonsense" => Err("the old rules stay".to_owned()),
            _ => Ok("done".to_owned()),
        }
    }
}

/// The reading end of a pipe that says `text`.
fn pipe(text: &[u8]) -> OwnedFd {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    rustix::io::write(&writer, text).expect("room");
    reader
}

fn read(descriptor: &OwnedFd) -> String {
    let mut bytes = [0; 20];
    let count = rustix::io::read(descriptor, &mut bytes).expect("readable");
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

/// A directory of its own for the socket of one server.
struct Directory(std::path::PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = format!("skink-control-test-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(path);
        std::fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn server(directory: &Directory) -> (Server<Recorder>, Recorder) {
    let size = TableSize {
        sockets: 16,
        send_bytes: 4096,
        receive_bytes: 8192,
    };
    let config = ServerConfig {
        name: "test".to_owned(),
        access: Access::Token,
        topology: None,
        command: vec!["program".to_owned(), "--flag".to_owned()],
        nic: "tap:test0".to_owned(),
        addresses: vec!["10.77.0.2/24".parse().expect("an address")],
        gateways: vec!["10.77.0.1".parse().expect("an address")],
        tcp_table: size,
        udp_table: size,
        socket_memory: u64::MAX,
        rules: "block in".to_owned(),
        interface: "test0".to_owned(),
    };
    let owners = Recorder::default();
    let server = Server::in_directory(config, owners.clone(), &directory.0);
    (server.expect("a server"), owners)
}

/// Runs `client` in a thread while the server serves, and then until the server has nothing to do.
fn serve<T: Send>(
    server: &mut Server<Recorder>,
    client: impl FnOnce([(&'static str, String); 2], &std::path::Path) -> T + Send,
) -> T {
    let (environment, path) = (server.environment(), server.socket_path().to_owned());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let answer = client(environment, &path);
            done.store(true, Ordering::Release);
            answer
        });
        let mut last_round = false;
        while !last_round {
            last_round = done.load(Ordering::Acquire) || running.is_finished();
            wait(server.as_fd());
            server.serve(Instant::now());
        }
        running.join().expect("the client")
    })
}

fn wait(descriptor: BorrowedFd<'_>) {
    let mut descriptors = [rustix::event::PollFd::from_borrowed_fd(
        descriptor,
        rustix::event::PollFlags::IN,
    )];
    let limit = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 5_000_000,
    };
    let _ = rustix::event::poll(&mut descriptors, Some(&limit));
}

fn connect([(_, name), (_, token)]: &[(&'static str, String); 2]) -> Broker {
    Broker::connect(name, token).expect("a broker")
}

fn attach(broker: &mut Broker) -> LibraryGrant {
    match broker.attach().expect("a slot") {
        Attached::Library(grant) => *grant,
        Attached::Served(grant) => panic!("not a part of the NIC: {grant:?}"),
    }
}

fn tool(path: &std::path::Path) -> Tool {
    let instance = Instance {
        pid: std::process::id(),
        socket: path.to_owned(),
    };
    instance.connect().expect("the instance")
}

#[test]
fn processes_get_slots_and_give_them_back_by_closing() {
    let directory = Directory::new("slots");
    let (mut server, owners) = server(&directory);
    let (mut first, second, refused) = serve(&mut server, |environment, _| {
        let mut brokers = [connect(&environment), connect(&environment)];
        let [first, second] = brokers.each_mut().map(attach);
        assert_eq!(
            (first.owner, first.nic.as_str(), first.answers),
            (0, "nic 0", true)
        );
        assert_eq!((second.owner, second.answers), (1, false));
        assert_eq!(first.addresses[0].to_string(), "10.77.0.2/24");
        assert_eq!(first.gateways[0].to_string(), "10.77.0.1");
        assert_eq!(first.tcp_table.receive_bytes, 8192);
        assert_eq!(
            (first.rules.as_str(), first.interface.as_str()),
            ("block in", "test0")
        );
        assert_ne!(first.seed, second.seed);
        assert!(first.ports.is_none());
        let texts: Vec<String> = second.nic_descriptors.iter().map(read).collect();
        assert_eq!(texts, ["first", "second"]);
        let ports = second.ports.as_ref().expect("tables of ports");
        assert_eq!([read(&ports.tcp), read(&ports.udp)], ["of tcp", "of udp"]);
        let mut third = connect(&environment);
        let network = third.network().expect("the addresses");
        assert_eq!(network.addresses, first.addresses);
        assert_eq!(network.gateways, first.gateways);
        third.attach().expect("a slot");
        let refused = connect(&environment).attach();
        let [first, second] = brokers;
        (first, second, refused.map(drop))
    });
    assert!(matches!(refused, Err(ControlError::Refused(why)) if why.contains("three queues")));
    let expected = ["grant 0", "answering 0", "grant 1", "grant 2"];
    let mut log = owners.take();
    assert_eq!(log[..4], expected);

    // The one that answers goes: another is told. Here all are one process, which hasn't ended, but
    // comes again, as after `exec`: so a slot is free.
    drop(second);
    assert_eq!(first.take_notice().expect("a connection"), None);
    let mut second = serve(&mut server, |environment, _| {
        let mut second = connect(&environment);
        assert_eq!(attach(&mut second).owner, 1);
        drop(first);
        second
    });
    log.extend(owners.take());
    assert!(log.contains(&"release 2".to_owned()) && log.contains(&"release 1".to_owned()));
    assert_eq!(log[log.len() - 2..], ["retire 0", "answering 1"]);
    assert_eq!(
        second.take_notice().expect("a connection"),
        Some(Notice::Answer)
    );
    assert_eq!(server.attached(), 1);
}

/// Tells the child of the test below how to reach the server.
const CHILD: &str = "SKINK_TEST_CONTROL_CHILD";

#[test]
fn a_slot_is_given_out_again_when_its_process_has_ended() {
    const NAME: &str = "tests::a_slot_is_given_out_again_when_its_process_has_ended";
    if let Ok(path) = std::env::var(CHILD) {
        let [control, token] = [crate::CONTROL_VARIABLE, crate::TOKEN_VARIABLE]
            .map(|name| std::env::var(name).expect("told"));
        let mut broker = Broker::connect(&control, &token).expect("a broker");
        assert_eq!(attach(&mut broker).owner, 0);
        // The connection ends here, the process when the pipe does.
        drop(broker);
        std::fs::read(path).expect("a pipe");
        return;
    }
    let directory = Directory::new("ending");
    let (mut server, owners) = server(&directory);
    let pipe = directory.0.join("pipe");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("a pipe");
    let test = std::env::current_exe().expect("this test");
    let mut child = std::process::Command::new(test);
    child.args([NAME, "--exact"]).env(CHILD, &pipe);
    child.envs(server.environment());
    let mut child = child.spawn().expect("a child");
    let mut log = Vec::new();
    let mut until = |server: &mut Server<Recorder>, last: &str| {
        while log.last().is_none_or(|line| line != last) {
            wait(server.as_fd());
            server.serve(Instant::now());
            log.extend(owners.take());
        }
    };
    until(&mut server, "retire 0");
    serve(&mut server, |environment, _| {
        let second = attach(&mut connect(&environment));
        assert_eq!(second.owner, 1, "the child lives");
    });
    drop(std::fs::OpenOptions::new().write(true).open(&pipe));
    until(&mut server, "release 0");
    assert!(child.wait().expect("the child").success());
    serve(&mut server, |environment, _| {
        let third = attach(&mut connect(&environment));
        assert_eq!(third.owner, 0);
    });
}

#[test]
fn a_process_that_is_stopped_is_relieved_of_answering() {
    const NAME: &str = "tests::a_process_that_is_stopped_is_relieved_of_answering";
    if std::env::var(CHILD).is_ok() {
        let [control, token] = [crate::CONTROL_VARIABLE, crate::TOKEN_VARIABLE]
            .map(|name| std::env::var(name).expect("told"));
        let mut broker = Broker::connect(&control, &token).expect("a broker");
        assert!(attach(&mut broker).answers);
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::STOP).expect("stopped");
        // Any thread may take the signal, and this one go on until all are stopped.
        std::io::stdin()
            .read_to_end(&mut Vec::new())
            .expect("a pipe");
        return;
    }
    let directory = Directory::new("stopped");
    let (mut server, owners) = server(&directory);
    let test = std::env::current_exe().expect("this test");
    let mut child = std::process::Command::new(test);
    child.args([NAME, "--exact"]).env(CHILD, "");
    child.envs(server.environment());
    child.stdin(std::process::Stdio::piped());
    let mut child = Stopped(child.spawn().expect("a child"));
    let mut log = Vec::new();
    while !log.contains(&"grant 0".to_owned()) {
        let ended = child.0.try_wait().expect("a child");
        assert!(ended.is_none(), "{ended:?}");
        wait(server.as_fd());
        server.serve(Instant::now());
        log.extend(owners.take());
    }
    let pid = rustix::process::Pid::from_child(&child.0);
    let options = rustix::process::WaitOptions::UNTRACED;
    let status = rustix::process::waitpid(Some(pid), options).expect("a child");
    assert!(status.is_some_and(|(_, status)| status.stopped()));
    let mut second = serve(&mut server, |environment, _| {
        let mut second = connect(&environment);
        assert!(!attach(&mut second).answers);
        second
    });
    assert!(server.serve(Instant::now()).is_some(), "it looks again");
    log.extend(owners.take());
    assert_eq!(log[log.len() - 2..], ["grant 1", "answering 1"]);
    assert_eq!(
        second.take_notice().expect("a connection"),
        Some(Notice::Answer)
    );
    // It is the only one left: better than nobody.
    drop(second);
    while log.last().is_none_or(|line| line != "answering 0") {
        wait(server.as_fd());
        server.serve(Instant::now());
        log.extend(owners.take());
    }
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("a child");
    assert!(child.0.wait().expect("the child").success());
}

/// A child that wouldn't end by itself if the test failed.
struct Stopped(std::process::Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn tools_see_registered_memory_and_totals_outlive_processes() {
    let directory = Directory::new("tools");
    let (mut server, _) = server(&directory);
    let counters = Counters::create().expect("counters");
    let capture = CaptureRing::create(4096).expect("a ring");
    counters.add(Counter::TcpBytesIn, 41);
    let broker = serve(&mut server, |environment, path| {
        let mut broker = connect(&environment);
        broker.attach().expect("a slot");
        broker
            .register(&[(RegionKind::Counters, counters.fd())])
            .expect("registered");
        broker
            .register(&[(RegionKind::Capture, capture.fd())])
            .expect("registered");

        let tool = tool(path);
        let info = tool.list().expect("a description");
        assert_eq!(
            (info.name.as_str(), info.nic.as_str()),
            ("test", "tap:test0")
        );
        assert_eq!(info.command, ["program", "--flag"]);
        let [process] = &info.processes[..] else {
            panic!("one process: {info:?}");
        };
        assert_eq!((process.owner, process.pid), (0, std::process::id()));
        assert_eq!(process.regions, [RegionKind::Counters, RegionKind::Capture]);
        assert!(info.finished.is_empty());

        let memory = tool.open(0, RegionKind::Counters).expect("memory");
        let flags = rustix::fs::fcntl_getfl(&memory).expect("flags");
        assert!(!flags.contains(rustix::fs::OFlags::RDWR), "{flags:?}");
        let seen = Counters::open_read_only(memory).expect("counters");
        assert_eq!(seen.get(Counter::TcpBytesIn), 41);
        let memory = tool.open(0, RegionKind::Capture).expect("memory");
        let reader = CaptureReader::start(memory, 100).expect("the first reader");
        assert!(capture.wants());
        let memory = tool.open(0, RegionKind::Capture).expect("memory");
        assert!(
            CaptureReader::start(memory, 100).is_err(),
            "a second reader"
        );
        drop(reader);
        for (owner, kind) in [
            (0, RegionKind::TcpTable),
            (1, RegionKind::Counters),
            (999, RegionKind::Capture),
        ] {
            let refused = tool.open(owner, kind);
            assert!(
                matches!(refused, Err(ControlError::Refused(_))),
                "{owner} {kind:?}"
            );
        }
        broker
    });
    counters.add(Counter::TcpBytesIn, 1);
    let info = serve(&mut server, |environment, path| {
        drop(broker);
        // One more process, to be sure that the broker has noticed.
        connect(&environment).attach().expect("a slot");
        tool(path).list().expect("a description")
    });
    assert_eq!(
        info.finished.into_iter().collect::<Vec<_>>(),
        [("tcp.bytes_in".to_owned(), 42)]
    );
}

fn raw(name: &str) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None);
    let socket = socket.expect("a socket");
    let name = name.strip_prefix('@').expect("an abstract name");
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
    rustix::net::connect(&socket, &address).expect("connected");
    socket
}

#[test]
fn malformed_clients_are_cut_off_and_others_are_served() {
    let directory = Directory::new("malformed");
    let (mut server, owners) = server(&directory);
    let token = server.environment()[1].1.clone();
    let wrong = "0".repeat(32);
    let cases = [
        "x".to_owned(),
        "{}".to_owned(),
        "[".repeat(MAXIMUM_REQUEST),
        "1".repeat(MAXIMUM_REQUEST + 1),
        format!(r#"{{"request":"attach","protocol":2,"token":"{wrong}"}}"#),
        r#"{"request":"attach","protocol":2,"token":""}"#.to_owned(),
        format!(r#"{{"request":"attach","protocol":2,"token":"{token}","more":1}}"#),
        r#"{"request":"network","protocol":2,"token":"x"}"#.to_owned(),
        r#"{"request":"register","kind":"counters"}"#.to_owned(),
        r#"{"request":"list"}"#.to_owned(),
        r#"{"request":"open","owner":0,"kind":"counters"}"#.to_owned(),
        "\0\u{fffd}".to_owned(),
    ];
    serve(&mut server, |environment, _| {
        for case in &cases {
            let socket = raw(&environment[0].1);
            rustix::net::send(&socket, case.as_bytes(), SendFlags::empty()).expect("sent");
            let mut answer = [0; 10];
            let end = rustix::net::recv(&socket, &mut answer, RecvFlags::empty());
            assert!(
                matches!(end, Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET)),
                "{case}: {end:?}"
            );
        }
        let mut broker = connect(&environment);
        broker.attach().expect("a slot");
        // What could shrink isn't taken, nor what isn't memory.
        let unsealed = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC);
        let unsealed = unsealed.expect("a memfd");
        broker
            .register(&[(RegionKind::Counters, unsealed.as_fd())])
            .expect_err("unsealed memory");
        let mut broker = connect(&environment);
        broker.attach().expect("a slot");
        broker
            .register(&[(RegionKind::Counters, pipe(b"").as_fd())])
            .expect_err("a pipe");
    });
    assert!(owners.take().contains(&"grant 0".to_owned()));
    assert_eq!(server.attached(), 0);
}

#[test]
fn another_version_is_refused_with_a_reason() {
    let directory = Directory::new("version");
    let (mut server, _) = server(&directory);
    let token = server.environment()[1].1.clone();
    let answer = serve(&mut server, |environment, _| {
        let socket = raw(&environment[0].1);
        let text = format!(r#"{{"request":"attach","protocol":999,"token":"{token}"}}"#);
        rustix::net::send(&socket, text.as_bytes(), SendFlags::empty()).expect("sent");
        let mut answer = [0; 1000];
        let (_, length) =
            rustix::net::recv(&socket, &mut answer, RecvFlags::empty()).expect("an answer");
        String::from_utf8_lossy(&answer[..length]).into_owned()
    });
    assert!(
        answer.contains("refused") && answer.contains("999"),
        "{answer}"
    );
}

#[test]
fn a_client_that_says_nothing_is_closed_after_a_while_and_costs_nothing_before() {
    let directory = Directory::new("silent");
    let (mut server, _) = server(&directory);
    let start = Instant::now();
    assert_eq!(server.serve(start), None);
    let silent = raw(&server.environment()[0].1);
    let left = server.serve(start).expect("a deadline");
    assert!(left > Duration::from_secs(1));
    assert_eq!(server.serve(start + left), None);
    let end = rustix::net::recv(&silent, &mut [0; 10], RecvFlags::empty()).expect("the end");
    assert_eq!(end.1, 0);
}

#[test]
fn a_directory_is_searched_if_it_belongs_to_the_user_in_its_name() {
    let directory = Directory::new("whose");
    let uid = rustix::process::geteuid().as_raw();
    for (name, expected) in [
        (format!("skink-{uid}"), true),
        (format!("skink-{}", uid + 1), false),
        ("skink-evil".to_owned(), false),
        (uid.to_string(), false),
    ] {
        let path = directory.0.join(&name);
        std::fs::create_dir(&path).expect("a directory");
        assert_eq!(instance::is_its_users(&path), expected, "{name}");
    }
    let link = directory.0.join("link").join(format!("skink-{uid}"));
    std::fs::create_dir(directory.0.join("link")).expect("a directory");
    std::os::unix::fs::symlink("/", &link).expect("a link");
    assert!(!instance::is_its_users(&link));
}

#[test]
fn a_socket_left_over_by_a_dead_instance_is_removed() {
    let directory = Directory::new("left-over");
    let path = directory.0.join("12345.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    std::fs::write(directory.0.join("other.txt"), "").expect("a file");
    let found = instance::list(&directory.0);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].pid, &found[0].socket), (12345, &path));
    // Another kind of socket, but the file is there and somebody could listen: first a live one.
    let (server, _) = server(&directory);
    assert_eq!(instance::list(&directory.0).len(), 2);
    let live = server.socket_path().to_owned();
    drop(server);
    assert!(!live.exists(), "removed by its owner");

    let dead = directory.0.join("54321.sock");
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None);
    let socket = socket.expect("a socket");
    let address = SocketAddrUnix::new(&dead).expect("a path");
    rustix::net::bind(&socket, &address).expect("bound");
    drop(socket);
    let instance = Instance {
        pid: 54321,
        socket: dead.clone(),
    };
    assert!(matches!(
        instance.connect(),
        Err(ControlError::Unreachable(_))
    ));
    assert!(!dead.exists());
}

#[test]
fn signals_come_as_data_and_children_start_without_the_mask() {
    let signals = SignalDescriptor::new(&[libc::SIGUSR2]).expect("a descriptor");
    assert_eq!(signals.take(), None);
    let thread = rustix::thread::gettid();
    // SAFETY: sends a signal that this thread blocks.
    unsafe {
        libc::syscall(
            libc::SYS_tgkill,
            libc::getpid(),
            thread.as_raw_nonzero().get(),
            libc::SIGUSR2,
        )
    };
    let expected = Received {
        signal: libc::SIGUSR2,
        from_kernel: false,
    };
    assert_eq!(signals.take(), Some(expected));
    let mut command = std::process::Command::new("/bin/grep");
    command
        .args(["SigBlk", "/proc/self/status"])
        .stdout(std::process::Stdio::piped());
    let child = spawn_with_signals(&mut command, &signals).expect("grep");
    let output = child.wait_with_output().expect("its output");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.trim(), "SigBlk:\t0000000000000000");
}

fn notice(broker: &mut Broker) -> Notice {
    loop {
        match broker.take_notice().expect("a connection") {
            Some(notice) => return notice,
            None => wait(broker.as_fd()),
        }
    }
}

/// Its sockets, which is answered.
fn register(broker: &mut Broker) {
    for kind in [RegionKind::TcpTable, RegionKind::TcpSendRings] {
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("table", flags).expect("memory");
        let seals = rustix::fs::SealFlags::SHRINK;
        rustix::fs::fcntl_add_seals(&memory, seals).expect("a seal");
        broker
            .register(&[(kind, memory.as_fd())])
            .expect("room for it");
    }
}

/// From this port to the first address.
fn flow(port: u16) -> FourTuple {
    let end = |address: &str, port| Endpoint::new(address.parse().expect("an address"), port);
    FourTuple::new(end("10.77.0.2", 80), end("10.77.0.9", port))
}

/// What one process stops to take goes to another one: connections, what comes for them meanwhile, and requests.
#[test]
fn connections_go_from_one_process_to_another() {
    let directory = Directory::new("handing");
    let (mut server, owners) = server(&directory);
    serve(&mut server, |environment, _| {
        let [mut first, mut second] = [connect(&environment), connect(&environment)];
        for broker in [&mut first, &mut second] {
            attach(broker);
            register(broker);
        }
        first
            .hand_over(&flow(1), b"parcel".to_vec(), false)
            .expect("room");
        let taken = |from, parcel: &[u8]| Notice::TakeIn {
            from,
            parcel: parcel.to_vec(),
            late: false,
        };
        assert_eq!(notice(&mut second), taken(0, b"parcel"));
        second.tell_taken_in(0, 0, &flow(1), true);
        let told = |port, serial, heir| Notice::HandedOver {
            flow: flow(port),
            serial,
            heir,
        };
        assert_eq!(notice(&mut first), told(1, 0, Some(1)));
        first.tell_late(1, &flow(1), b"segment".to_vec());
        let late = |port, segment: &[u8]| Notice::Late(flow(port), segment.to_vec());
        assert_eq!(notice(&mut second), late(1, b"segment"));
        // One that came with the seventh message, and one that couldn't be taken in.
        second.tell_taken_in(0, 7, &flow(2), true);
        assert_eq!(notice(&mut first), told(2, 7, Some(1)));
        second.tell_taken_in(0, 8, &flow(3), false);
        assert_eq!(notice(&mut first), told(3, 8, None));
        // Segments of one that the other has came to it, and of one that nobody has.
        first.tell_misled(&flow(6));
        first.tell_misled(&flow(9));
        first.tell_stray(&flow(4), b"request".to_vec());
        assert_eq!(notice(&mut second), late(4, b"request"));
        // Who is asked ends without an answer.
        first
            .hand_over(&flow(5), b"another".to_vec(), false)
            .expect("room");
        assert_eq!(notice(&mut second), taken(0, b"another"));
        drop(second);
        assert_eq!(notice(&mut first), told(5, 0, None));
    });
    let led: Vec<String> = owners.take();
    let led: Vec<&str> = led
        .iter()
        .filter_map(|line| line.strip_prefix("lead "))
        .collect();
    let expected = [
        "1 to 1 if it has it",
        "2 to 1 if it has it",
        "6 to 1",
        "4 to 1",
    ];
    assert_eq!(led, expected);
}

/// A connection that others have, too, goes to who comes in the place of its process, and from there to who asks.
#[test]
fn what_others_share_with_a_process_outlives_it() {
    let directory = Directory::new("tethers");
    let (mut server, owners) = server(&directory);
    let pairs = [1, 2, 3, 4, 5, 6].map(|port| (flow(port), tether::pair().expect("a pair")));
    let (first, second) = serve(&mut server, |environment, _| {
        let [mut first, mut second] = [connect(&environment), connect(&environment)];
        attach(&mut first);
        attach(&mut second);
        // The broker hears of this one that it has moved before it hears of it.
        let (late, others) = (&pairs[5], &pairs[..5]);
        second.tell_taken_in(0, 7, &late.0, true);
        notice(&mut first);
        for (flow, (_, end)) in others.iter().chain([late]) {
            first.tell_tethered(flow, end.as_fd());
        }
        first.tell_untethered(&flow(2));
        register(&mut first);
        second.tell_taken_in(0, 8, &flow(3), true);
        notice(&mut first);
        (first, second)
    });
    let [(_, (program, own)), over, moved, let_go, (_, fifth), late] = pairs;
    drop((own, fifth.1));
    for (_, (program, own)) in [over, moved, late] {
        drop(own);
        assert!(!tether::ask(program.as_fd()), "nobody else has it");
    }
    // The process says nothing of that.
    drop(let_go);
    drop(first);
    while owners.1.borrow().is_empty() {
        wait(server.as_fd());
        server.serve(Instant::now());
    }
    let parts: Vec<TetherParts> = owners.1.take();
    let flows: Vec<FourTuple> = parts.iter().map(|(flow, ..)| *flow).collect();
    assert_eq!(flows, [flow(1), flow(5)]);

    // In its place.
    let kind = SocketType::SEQPACKET;
    let link = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = link.expect("a pair");
    server.hear_orphans(0, ours, Instant::now());
    let token = server.environment()[1].1.clone();
    let (_, end, file) = &parts[0];
    serve(&mut server, |_, _| {
        let mut stand_in = Broker::resume(theirs, "");
        assert_eq!(tether::hear(end.as_fd()), Heard::default());
        assert!(matches!(tether::look(program.as_fd()), Ok(Found::Nothing)));
        assert!(tether::ask(program.as_fd()));
        assert!(tether::hear(end.as_fd()).asked);
        tether::fill(file.as_fd(), b"parcel").expect("room");
        stand_in.give(&flow(1), 9).expect("room");
        // There is no such connection.
        stand_in.give(&flow(2), 10).expect("room");
        let heard = notice(&mut stand_in);
        assert!(matches!(
            heard,
            Notice::HandedOver {
                serial: 10,
                heir: None,
                ..
            }
        ));
        let Ok(Found::Given(given)) = tether::look(program.as_fd()) else {
            panic!("nothing was given");
        };
        assert_eq!(given.numbers, Numbers { from: 0, serial: 9 });
        assert_eq!(given.flow, flow(1));
        assert_eq!(given.parcel(&token, 6).as_deref(), Ok(&b"parcel"[..]));
        assert!(given.parcel(&token, 5).is_err(), "it is too large");
        assert!(
            given.parcel("another", 6).is_err(),
            "nobody knows the token"
        );
        second.tell_taken_in(0, 9, &flow(1), true);
        let heard = notice(&mut stand_in);
        assert!(matches!(
            heard,
            Notice::HandedOver {
                serial: 9,
                heir: Some(1),
                ..
            }
        ));
    });
    drop(parts);
    assert!(matches!(tether::look(program.as_fd()), Ok(Found::Ended)));
}

/// What lies in the queue goes with the last descriptor of the program's, and who has taken it out has it.
#[test]
fn what_nobody_has_taken_is_told_from_what_somebody_has() {
    for taken in [false, true] {
        let (program, own) = tether::pair().expect("a pair");
        let numbers = Numbers { from: 3, serial: 1 };
        let file = tether::write_parcel(b"parcel").expect("memory");
        tether::give(own.as_fd(), &flow(1), file.as_fd(), 5, numbers).expect("room");
        if taken {
            assert!(matches!(tether::look(program.as_fd()), Ok(Found::Given(_))));
        }
        assert!(!tether::is_let_go(own.as_fd()));
        drop(program);
        assert!(tether::is_let_go(own.as_fd()));
        assert_eq!(tether::is_lost(own.as_fd()), !taken);
    }
}

/// Who has asked more often than it was heard, and has the connection by now, doesn't give it away for that.
#[test]
fn what_was_asked_before_is_forgotten() {
    let (program, own) = tether::pair().expect("a pair");
    for _ in 0..100 {
        assert!(tether::ask(program.as_fd()));
    }
    assert!(!tether::forget_questions(own.as_fd()));
    assert_eq!(tether::hear(own.as_fd()), Heard::default());
    assert!(tether::ask(program.as_fd()));
    assert!(tether::hear(own.as_fd()).asked);
}

/// A program that doesn't know of tethers writes to its end, and whoever sends something else by the other one isn't believed.
#[test]
fn what_else_is_said_by_a_tether_is_passed_over() {
    let (program, own) = tether::pair().expect("a pair");
    for words in [&b"GET / HTTP/1.1"[..], b"skink-want more", b"skink"] {
        rustix::net::send(&program, words, SendFlags::empty()).expect("room");
    }
    let other = Heard {
        other: true,
        asked: false,
    };
    assert_eq!(tether::hear(own.as_fd()), other);
    // However much that is: others have their turn.
    for _ in 0..20 {
        rustix::net::send(&program, b"GET", SendFlags::empty()).expect("room");
    }
    assert!(tether::ask(program.as_fd()));
    assert_eq!(tether::hear(own.as_fd()), other);
    assert!(tether::hear(own.as_fd()).asked);
    for words in [&b"{}"[..], &[0; 5000]] {
        rustix::net::send(&own, words, SendFlags::empty()).expect("room");
        assert!(tether::look(program.as_fd()).is_err());
    }
}
