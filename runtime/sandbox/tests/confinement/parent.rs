//! Starts the processes and judges how they end.

use super::attacks::{ATTACKS, Attack};
use super::child::{COMPONENTS, ESCAPED, LEAKED, NOT_ENTERED, ORDER, Order, SECRET, TOKEN};
use super::needs::{NEEDS, make_memory};
use super::raw;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{BufRead, BufReader, IoSlice};
use std::mem::MaybeUninit;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

/// An unprivileged user that isn't the one the sandbox changes to.
const SOMEBODY: u32 = 65533;

/// How a case ended.
type Outcome = Result<(), Bad>;

enum Bad {
    Failed(String),
    Skipped(String),
}

impl From<String> for Bad {
    fn from(what: String) -> Bad {
        Bad::Failed(what)
    }
}

type Run = Box<dyn Fn(&World, Start) -> Outcome>;

/// What runs, and as whom.
struct Case {
    name: String,
    start: Start,
    run: Run,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Root,
    User,
    /// An unprivileged user that is root in a user namespace of its own, as by `unshare -Ur`.
    Namespace,
}

/// Things to attack.
struct World {
    order: Order,
    landlock: i32,
    _keep: (TcpListener, UdpSocket, UnixListener, UnixListener),
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.order.path);
    }
}

/// Runs every case whose name has the first argument in it, prints, and ends the process.
pub fn run_all() {
    let pattern = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let pattern = pattern.unwrap_or_default();
    let (mut passed, mut failed, mut skipped, mut filtered) = (0, 0, 0, 0);
    let world = World::new();
    for case in cases() {
        if !case.name.contains(&pattern) {
            filtered += 1;
            continue;
        }
        match (case.run)(&world, case.start) {
            Ok(()) => {
                passed += 1;
            }
            Err(Bad::Skipped(why)) => {
                println!("SKIP: {}: {why}", case.name);
                skipped += 1;
            }
            Err(Bad::Failed(what)) => {
                println!("test {} ... FAILED: {what}", case.name);
                failed += 1;
            }
        }
    }
    drop(world);
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured; \
         {filtered} filtered out"
    );
    std::process::exit(i32::from(failed != 0));
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (start, word) in [(Start::Root, "root"), (Start::User, "user")] {
        let mut add = |name: String, run: Run| {
            let name = format!("{word}: {name}");
            cases.push(Case { name, start, run });
        };
        for attack in ATTACKS {
            for (component, (of, ..)) in COMPONENTS.iter().enumerate() {
                let name = format!("{} (seccomp, {of})", attack.name);
                let run = move |world: &World, start| seccomp(world, start, component, attack);
                add(name, Box::new(run));
            }
            if !attack.with.is_empty() {
                let name = format!("{} (below seccomp)", attack.name);
                add(name, Box::new(|world, start| below(world, start, attack)));
            }
        }
        for need in NEEDS {
            let run = |world: &World, start| satisfied(world, start, need.name);
            add(need.name.to_owned(), Box::new(run));
        }
        for (kind, expected, says) in ENDS {
            let run = |world: &World, start| ends(world, start, kind, *expected, says);
            add(format!("a child's {kind}"), Box::new(run));
        }
        add("nothing leaks in".to_owned(), Box::new(leaks));
        add("what the kernel shows".to_owned(), Box::new(shown));
    }
    cases.push(Case {
        name: "root of a namespace: what the kernel shows".to_owned(),
        start: Start::Namespace,
        run: Box::new(shown),
    });
    cases
}

/// How children end: by a signal (negative) or a code, and what they say on standard error.
const ENDS: &[(&str, i32, &str)] = &[
    ("panic", 101, "as ordered"),
    ("abort", -libc::SIGABRT, ""),
    ("overflow", -libc::SIGABRT, "overflowed its stack"),
    ("tell", -libc::SIGSYS, "refused the system call socket ("),
    ("threads", NOT_ENTERED, "2 threads"),
    #[cfg(target_arch = "x86_64")]
    ("interrupt", -libc::SIGSYS, ""),
];

impl World {
    fn new() -> World {
        let own = std::process::id();
        let path = format!("/tmp/skink-sandbox-{own}");
        let abstract_name = format!("skink-sandbox-{own}");
        let name = SocketAddr::from_abstract_name(&abstract_name).expect("a name");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a TCP port");
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a UDP port");
        let in_files = UnixListener::bind(&path).expect("a path");
        let hidden = UnixListener::bind_addr(&name).expect("an abstract socket");
        let order = Order {
            kind: String::new(),
            name: String::new(),
            component: 0,
            parent: own.into(),
            sibling: 0,
            secret: raw::at(&SECRET),
            tcp_port: tcp.local_addr().expect("bound").port(),
            udp_port: udp.local_addr().expect("bound").port(),
            path,
            abstract_name,
        };
        // landlock_create_ruleset(2) with LANDLOCK_CREATE_RULESET_VERSION.
        let landlock = raw::call(444, &[0, 0, 1]).unwrap_or(0) as i32;
        World {
            order,
            landlock,
            _keep: (tcp, udp, in_files, hidden),
        }
    }
}

/// A process of this test, and the other end of its standard input.
struct Started {
    child: Child,
    socket: OwnedFd,
}

impl Started {
    /// How it ended, and what it said on standard error.
    fn end(self) -> (ExitStatus, String) {
        drop(self.socket);
        let output = self.child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status, said)
    }
}

fn start(order: &Order, start: Start, kind: &str, name: &str) -> Result<Started, Bad> {
    let order = Order {
        kind: kind.to_owned(),
        name: name.to_owned(),
        ..order.clone()
    };
    let root = rustix::process::geteuid().is_root();
    let (own, theirs) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .expect("a pair");
    let mut command = Command::new(std::env::current_exe().expect("an executable"));
    command
        .env(ORDER, order.encode())
        .env(TOKEN.0, TOKEN.1)
        .env_remove("SKINK_LOG")
        .env("RUST_BACKTRACE", "1")
        .stdin(theirs)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if start == Start::Root && !(root && has_nobody()) {
        return Err(Bad::Skipped(
            "needs root, and user 65534 to change to".to_owned(),
        ));
    }
    if start != Start::Root && root {
        command.uid(SOMEBODY).gid(SOMEBODY);
    }
    // SAFETY: between fork and exec; makes a few system calls, and its memory is the parent's copy.
    unsafe {
        command.pre_exec(move || {
            if start == Start::Namespace {
                become_root_of_namespace()?;
            }
            // A descriptor that nobody meant to hand over.
            match libc::dup2(2, LEAKED) {
                LEAKED => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    match command.spawn() {
        Ok(child) => Ok(Started { child, socket: own }),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Err(Bad::Skipped(
            "this user namespace has no unprivileged user".to_owned(),
        )),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(Bad::Skipped(
            "the test isn't in a directory that everybody may enter, or namespaces are forbidden"
                .to_owned(),
        )),
        Err(error) => Err(Bad::Failed(format!("can't be started: {error}"))),
    }
}

/// Whether this user namespace has user 65534 (user_namespaces(7): first, first outside, count).
fn has_nobody() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let numbers = |line: &str| -> Option<(u64, u64)> {
        let mut words = line.split_whitespace().map(|word| word.parse().ok());
        let first = words.next()??;
        Some((first, words.nth(1)??))
    };
    map.lines()
        .filter_map(numbers)
        .any(|(first, count)| (first..first + count).contains(&65534))
}

/// Maps the user to root in a new user namespace.
fn become_root_of_namespace() -> std::io::Result<()> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    // The change of user took the files in /proc away.
    let _ = raw::call(libc::SYS_prctl, &[libc::PR_SET_DUMPABLE.into(), 1]);
    raw::call(libc::SYS_unshare, &[libc::CLONE_NEWUSER.into()])
        .map_err(std::io::Error::from_raw_os_error)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    std::fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))
}

fn signal_or_code(status: ExitStatus) -> i32 {
    match status.signal() {
        Some(signal) => -signal,
        None => status.code().unwrap_or(-1),
    }
}

/// Fails unless the child ended so, and said this.
fn expect(child: Started, ends: &[i32], says: &str) -> Outcome {
    let (status, said) = child.end();
    let end = signal_or_code(status);
    if end == ESCAPED {
        return Err(Bad::Failed("came through".to_owned()));
    }
    if !ends.contains(&end) || !said.contains(says) {
        return Err(Bad::Failed(format!(
            "{status}, expected one of {ends:?} and {says:?}; it said: {said}"
        )));
    }
    Ok(())
}

/// Starts another component, which says that it has entered its own sandbox.
fn start_sibling(world: &World, whom: Start) -> Result<(Started, Order), Bad> {
    let mut sibling = start(&world.order, whom, "wait", "")?;
    let line = first_line(&mut sibling);
    let secret = line.split(' ').next().and_then(|word| word.parse().ok());
    let Some(secret) = secret else {
        return Err(Bad::Failed(format!(
            "the sibling isn't ready: {line}{}",
            sibling.end().1
        )));
    };
    let order = Order {
        sibling: sibling.child.id().into(),
        secret,
        ..world.order.clone()
    };
    Ok((sibling, order))
}

fn first_line(child: &mut Started) -> String {
    let mut line = String::new();
    let mut output = BufReader::new(child.child.stdout.as_mut().expect("piped"));
    output.read_line(&mut line).expect("text");
    line
}

fn seccomp(world: &World, whom: Start, component: usize, attack: &Attack) -> Outcome {
    let (sibling, sibling_order) = start_sibling(world, whom)?;
    let order = Order {
        component,
        ..sibling_order
    };
    let child = start(&order, whom, "attack", attack.name)?;
    expect(child, &[-libc::SIGSYS], "")?;
    survived(sibling)
}

fn below(world: &World, whom: Start, attack: &Attack) -> Outcome {
    if world.landlock < attack.landlock {
        let (need, have) = (attack.landlock, world.landlock);
        return Err(Bad::Skipped(format!("needs Landlock {need}, not {have}")));
    }
    let (sibling, order) = start_sibling(world, whom)?;
    let child = start(&order, whom, "below", attack.name)?;
    expect(child, attack.errors, "")?;
    survived(sibling)
}

fn survived(sibling: Started) -> Outcome {
    let (status, said) = sibling.end();
    if !status.success() {
        return Err(Bad::Failed(format!("the sibling: {status}, {said}")));
    }
    Ok(())
}

fn satisfied(world: &World, whom: Start, need: &str) -> Outcome {
    let child = start(&world.order, whom, "need", need)?;
    let memory = make_memory();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [memory.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let parts = [IoSlice::new(b"x")];
    // A need that doesn't read it may have ended already.
    let _ = rustix::net::sendmsg(&child.socket, &parts, &mut ancillary, SendFlags::NOSIGNAL);
    expect(child, &[0], "")
}

fn ends(world: &World, whom: Start, kind: &str, end: i32, says: &str) -> Outcome {
    expect(start(&world.order, whom, kind, "")?, &[end], says)
}

fn leaks(world: &World, whom: Start) -> Outcome {
    expect(start(&world.order, whom, "leaks", "")?, &[0], "")
}

/// What `/proc` says of a process in the sandbox.
fn shown(world: &World, whom: Start) -> Outcome {
    let (sibling, order) = start_sibling(world, whom)?;
    let root = rustix::process::geteuid().is_root();
    let read = |file: &str| {
        std::fs::read_to_string(format!("/proc/{}/{file}", order.sibling))
            .map_err(|error| Bad::Failed(format!("{file}: {error}")))
    };
    // The kernel pads with spaces.
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let status = words(read("status")?);
    let limits = words(read("limits")?);
    let user = match (whom, root) {
        (Start::Root, _) => 65534,
        (_, true) => SOMEBODY,
        (_, false) => rustix::process::getuid().as_raw(),
    };
    let mut expected = vec![
        format!("Uid: {user} {user} {user} {user}"),
        "NoNewPrivs: 1".to_owned(),
        "Seccomp: 2".to_owned(),
        "Threads: 1".to_owned(),
        "Max open files 64 64".to_owned(),
        "Max processes 0 0".to_owned(),
        "Max core file size 0 0".to_owned(),
    ];
    let mut sets = vec!["Inh", "Prm", "Eff", "Amb"];
    if whom != Start::User {
        sets.push("Bnd");
    }
    if whom == Start::Root {
        expected.push("Groups: NStgid".to_owned());
    }
    expected.extend(sets.iter().map(|set| format!("Cap{set}: {:016x}", 0)));
    let all = format!("{status} {limits}");
    if let Some(line) = expected.iter().find(|line| !all.contains(*line)) {
        return Err(Bad::Failed(format!("no {line:?} in {all}")));
    }
    hidden(&order, whom, root)?;
    survived(sibling)
}

/// Root may look at the environment, and so may who made a namespace, and must find nothing; nobody else
/// may look.
fn hidden(order: &Order, whom: Start, root: bool) -> Outcome {
    let path = format!("/proc/{}/environ", order.sibling);
    // What can't be dumped belongs to root (proc(5)), or to the root of its namespace.
    let owner = std::fs::metadata(&path).map_err(|error| error.to_string())?;
    if whom != Start::Namespace && owner.uid() != 0 {
        return Err(Bad::Failed(format!("{path} is {}'s", owner.uid())));
    }
    match std::fs::read(&path) {
        Ok(bytes) if bytes.iter().any(|byte| *byte != 0) => {
            Err(Bad::Failed("the environment is still shown".to_owned()))
        }
        Ok(_) if !root && whom == Start::User => {
            Err(Bad::Failed("its memory can be read".to_owned()))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}
