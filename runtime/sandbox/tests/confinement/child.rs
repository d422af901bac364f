//! The process that enters the sandbox.

use super::attacks::ATTACKS;
use super::needs::{Given, NEEDS};
use super::raw;
use rustix::fd::{AsFd, BorrowedFd};
use skink_sandbox::{Call, EVENT_LOOP, NIC_TAP, Refusal, Sandbox, Tasks};
use std::io::{Read, Write};

/// What the parent wants, and whom there is to attack.
#[derive(Clone, Debug)]
pub struct Order {
    /// `attack`, `below`, `need` or another word that [`obey`] knows.
    pub kind: String,
    /// Which attack or need.
    pub name: String,
    /// Whose calls are allowed to who attacks: by [`COMPONENTS`].
    pub component: usize,
    pub parent: i64,
    /// Another process in a sandbox of the same user.
    pub sibling: i64,
    /// Where both have something in their memory.
    pub secret: i64,
    pub tcp_port: u16,
    pub udp_port: u16,
    pub path: String,
    pub abstract_name: String,
}

/// Components whose calls differ.
pub const COMPONENTS: [(&str, Tasks<'static>); 8] = [
    ("filter", FILTER),
    ("ip", IP),
    ("syscall", SYSCALL),
    ("tcp", TCP),
    (
        "link on AF_PACKET",
        Tasks {
            nic: Some("packet"),
            ..IP
        },
    ),
    (
        "link on AF_XDP",
        Tasks {
            nic: Some("xdp"),
            ..IP
        },
    ),
    (
        "single on AF_PACKET",
        Tasks {
            nic: Some("packet"),
            ..TCP
        },
    ),
    (
        "single on AF_XDP",
        Tasks {
            nic: Some("xdp"),
            ..TCP
        },
    ),
];

const FILTER: Tasks<'static> = Tasks {
    memory: false,
    programs: false,
    transports: false,
    nic: None,
    shares_nic: false,
};
const IP: Tasks<'static> = Tasks {
    memory: true,
    ..FILTER
};
const SYSCALL: Tasks<'static> = Tasks {
    programs: true,
    ..IP
};
const TCP: Tasks<'static> = Tasks {
    transports: true,
    ..SYSCALL
};

/// In the environment of a child.
pub const ORDER: &str = "SKINK_SANDBOX_ORDER";
/// A variable that must not be left, and a number that isn't handed over.
pub const TOKEN: (&str, &str) = ("SKINK_TOKEN", "00112233445566778899aabbccddeeff");
pub const LEAKED: i32 = 57;

/// How a child ends whose attack came through.
pub const ESCAPED: i32 = 200;
/// How a child ends that got the sandbox's error.
pub const NOT_ENTERED: i32 = 201;

/// Read by the attacks on another component.
pub static SECRET: [u8; 8] = *b"unshared";

impl Order {
    /// For the environment.
    pub fn encode(&self) -> String {
        format!(
            "{}|{}|{}|{}|{}|{}|{}|{}|{}|{}",
            self.kind,
            self.name,
            self.component,
            self.parent,
            self.sibling,
            self.secret,
            self.tcp_port,
            self.udp_port,
            self.path,
            self.abstract_name
        )
    }

    pub fn from_environment() -> Option<Order> {
        let text = std::env::var(ORDER).ok()?;
        let mut parts = text.split('|').map(str::to_owned);
        let mut next = || parts.next().expect("a whole order");
        Some(Order {
            kind: next(),
            name: next(),
            component: next().parse().expect("a number"),
            parent: next().parse().expect("a process"),
            sibling: next().parse().expect("a process"),
            secret: next().parse().expect("an address"),
            tcp_port: next().parse().expect("a port"),
            udp_port: next().parse().expect("a port"),
            path: next(),
            abstract_name: next(),
        })
    }
}

/// Enters the sandbox and does what was ordered. Never returns.
pub fn obey(order: &Order) -> ! {
    // A child that hangs ends by a signal that nobody expects.
    // SAFETY: takes a number.
    unsafe { libc::alarm(30) };
    match order.kind.as_str() {
        "attack" | "below" => attack(order),
        "need" => {
            let given = Given::new();
            let waits_on = [given.bell.as_fd(), given.set.as_fd()];
            enter_with(&TCP.lists(), Refusal::Kill, &waits_on);
            let need = NEEDS.iter().find(|need| need.name == order.name);
            (need.expect("a known need").run)(&given);
            std::process::exit(0);
        }
        "wait" => wait(),
        "threads" => {
            let (_hold, held) = std::sync::mpsc::channel::<()>();
            std::thread::spawn(move || held.recv());
            enter(&[EVENT_LOOP], Refusal::Kill);
        }
        "user" => {
            let user = Some((u32::MAX, u32::MAX));
            let sandbox = Sandbox {
                user,
                ..Sandbox::new(&[EVENT_LOOP])
            };
            end_if_refused(sandbox.enter());
        }
        "tell" => {
            enter(&[EVENT_LOOP], Refusal::Tell);
            let _ = raw::call(libc::SYS_socket, &[1, 1, 0]);
        }
        "panic" => {
            enter(&[EVENT_LOOP], Refusal::Kill);
            panic!("as ordered");
        }
        "abort" => {
            enter(&[EVENT_LOOP], Refusal::Kill);
            std::process::abort();
        }
        "overflow" => {
            enter(&[EVENT_LOOP], Refusal::Kill);
            overflow(&mut [0; 1024]);
        }
        "leaks" => leaks(),
        #[cfg(target_arch = "x86_64")]
        "interrupt" => {
            enter(&[EVENT_LOOP], Refusal::Kill);
            // SAFETY: the 32-bit interface's getpid, which has no arguments and writes no memory.
            unsafe {
                core::arch::asm!("int 0x80", inout("rax") 20 => _, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
            };
        }
        other => panic!("unknown order {other}"),
    }
    std::process::exit(ESCAPED)
}

fn enter(lists: &[&[Call]], refusal: Refusal) -> skink_sandbox::Report {
    enter_with(lists, refusal, &[])
}

fn enter_with(
    lists: &[&[Call]],
    refusal: Refusal,
    keeps: &[BorrowedFd<'_>],
) -> skink_sandbox::Report {
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    let mut descriptors_to_keep = vec![stdin.as_fd(), stdout.as_fd()];
    descriptors_to_keep.extend(keeps);
    let sandbox = Sandbox {
        descriptors_to_keep,
        refusal,
        descriptor_limit: 64,
        ..Sandbox::new(lists)
    };
    end_if_refused(sandbox.enter())
}

fn end_if_refused<T>(result: Result<T, skink_sandbox::SandboxError>) -> T {
    result.unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(NOT_ENTERED)
    })
}

/// Ends with the error number that the attack got.
fn attack(order: &Order) -> ! {
    let attack = ATTACKS.iter().find(|attack| attack.name == order.name);
    let attack = attack.expect("a known attack");
    let (_, tasks) = COMPONENTS[order.component];
    let mut lists = tasks.lists();
    if order.kind == "below" {
        lists.push(attack.with);
    }
    enter(&lists, Refusal::Kill);
    let code = match (attack.run)(order) {
        Ok(_) => ESCAPED,
        Err(number) => number,
    };
    std::process::exit(code)
}

/// Says where its secret is and what confines it, and goes on until the parent closes the socket.
fn wait() -> ! {
    // With `read`.
    let report = enter(&[EVENT_LOOP, NIC_TAP], Refusal::Kill);
    println!("{} {report}", raw::at(&SECRET));
    std::io::stdout().flush().expect("told");
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0)
}

/// Panics if anything is left of what wasn't handed over.
fn leaks() -> ! {
    // SAFETY: the process has one thread.
    unsafe { std::env::set_var("SKINK_SET_LATER", "x") };
    enter(&[EVENT_LOOP], Refusal::Kill);
    assert_eq!(std::env::vars_os().count(), 0, "variables are left");
    for number in (3..64).chain([LEAKED]) {
        let open = raw::call(libc::SYS_fcntl, &[number.into(), libc::F_GETFD.into()]);
        assert_eq!(open, Err(libc::EBADF), "descriptor {number} is open");
    }
    for number in [0, 1, 2] {
        let open = raw::call(libc::SYS_fcntl, &[number, libc::F_GETFD.into()]);
        assert!(open.is_ok(), "descriptor {number} is closed");
    }
    std::process::exit(0)
}

#[expect(unconditional_recursion, reason = "that is its purpose")]
fn overflow(frame: &mut [u8; 1024]) -> u8 {
    let mut next = [frame[0]; 1024];
    std::hint::black_box(&mut next);
    overflow(&mut next).wrapping_add(next[7])
}
