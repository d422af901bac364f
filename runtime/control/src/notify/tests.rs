use super::*;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A manager's socket by an abstract name that no other test has, and its address.
fn manager(test: &str) -> (UnixDatagram, OsString) {
    let name = format!("skink-notify-{test}-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let socket = UnixDatagram::bind_addr(&address).expect("a free name");
    socket.set_nonblocking(true).expect("a socket");
    (socket, OsString::from(format!("@{name}")))
}

fn heard(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    let bytes = manager.recv(&mut buffer).expect("a message");
    String::from_utf8_lossy(&buffer[..bytes]).into_owned()
}

#[test]
fn each_message_is_what_the_manager_expects() {
    let (manager, address) = manager("messages");
    let notifier = Notifier::to(&address).expect("a socket");
    type Say = fn(&Notifier) -> Result<(), NotifyError>;
    let table: [(Say, &str); 6] = [
        (Notifier::ready, "READY=1"),
        (Notifier::watchdog, "WATCHDOG=1"),
        (Notifier::stopping, "STOPPING=1"),
        (|to| to.main_process(4711), "MAINPID=4711"),
        (
            |to| to.status("7 components, 2 restarts"),
            "STATUS=7 components, 2 restarts",
        ),
        (|to| to.status("a\nREADY=1\r\0b"), "STATUS=a READY=1  b"),
    ];
    for (say, expected) in table {
        say(&notifier).expect("sent");
        assert_eq!(heard(&manager), expected);
    }
}

#[test]
fn a_path_is_an_address_as_well() {
    let path = std::env::temp_dir().join(format!("skink-notify-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let manager = UnixDatagram::bind(&path).expect("a path");
    manager.set_nonblocking(true).expect("a socket");
    let sent = Notifier::to(path.as_os_str()).and_then(|notifier| notifier.ready());
    std::fs::remove_file(&path).expect("it was there");
    sent.expect("sent");
    assert_eq!(heard(&manager), "READY=1");
}

#[test]
fn what_is_no_address_is_told() {
    let long = format!("/{}", "x".repeat(200));
    for address in ["", "@", "relative/path", "vsock:2:1234", &long] {
        let error = Notifier::to(OsStr::new(address)).expect_err("no address");
        assert!(
            matches!(error, NotifyError::BadAddress(_)),
            "{address}: {error}"
        );
        assert!(error.to_string().contains("unset it"), "{error}");
    }
}

#[test]
fn a_manager_that_is_gone_is_an_error_and_no_signal() {
    let (manager, address) = manager("gone");
    let notifier = Notifier::to(&address).expect("a socket");
    drop(manager);
    let error = notifier.watchdog().expect_err("nobody listens");
    assert!(matches!(error, NotifyError::Send(_)), "{error}");
}

#[test]
fn an_event_loop_never_waits_for_the_manager() {
    let (manager, address) = manager("full");
    let notifier = Notifier::to(&address).expect("a socket");
    // More than any queue of datagrams has room for.
    let refused = (0..100_000).find_map(|_| notifier.watchdog().err());
    let Some(NotifyError::Send(error)) = refused else {
        panic!("the queue has no end: {refused:?}");
    };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(heard(&manager), "WATCHDOG=1");
    notifier.status("room again").expect("sent");
}

#[test]
fn the_watchdog_is_for_one_process() {
    let half = |limit: &str, process: Option<&str>| {
        half_of_watchdog(OsStr::new(limit), process.map(OsStr::new), 17)
    };
    let second = Some(Duration::from_secs(1));
    let table = [
        ("2000000", None, second),
        ("2000000", Some("17"), second),
        ("2000000", Some("18"), None),
        ("2000000", Some("x"), None),
        ("1", Some("17"), None),
        ("0", None, None),
        ("-5", None, None),
        ("soon", None, None),
    ];
    for (limit, process, expected) in table {
        assert_eq!(half(limit, process), expected, "{limit} {process:?}");
    }
}

#[test]
fn a_program_that_a_process_becomes_is_watched_as_the_process_was() {
    let mut command = Command::new("true");
    // What the process was started with, or what it has from its predecessor.
    command.env("WATCHDOG_PID", "1");
    Notifier::watch(&mut command);
    let mut names = command.get_envs();
    let (_, process) = names.find(|(name, _)| *name == "WATCHDOG_PID").expect("it");
    let interval = half_of_watchdog(OsStr::new("2000000"), process, std::process::id());
    assert_eq!(interval, Some(Duration::from_secs(1)));
}
