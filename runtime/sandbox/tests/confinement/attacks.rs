//! Ways out that must be closed. Each answers `Ok` if it is open.

use super::child::Order;
use super::raw::{Answer, at, call, loopback, unix};
use skink_sandbox::Call;

/// One way out.
pub struct Attack {
    pub name: &'static str,
    /// The calls that are allowed when the layers below seccomp are attacked. Empty: only seccomp
    /// closes this one.
    pub with: &'static [Call],
    /// What these layers refuse it with.
    pub errors: &'static [i32],
    /// The version of Landlock that they need for it; 0 if none.
    pub landlock: i32,
    pub run: fn(&Order) -> Answer,
}

macro_rules! calls {
    ($($number:ident),*) => { &[$(Call::any(stringify!($number), libc::$number)),*] };
}

const fn closed_by_seccomp(name: &'static str, run: fn(&Order) -> Answer) -> Attack {
    Attack {
        name,
        with: &[],
        errors: &[],
        landlock: 0,
        run,
    }
}

const fn closed_twice(
    name: &'static str,
    with: &'static [Call],
    errors: &'static [i32],
    landlock: i32,
    run: fn(&Order) -> Answer,
) -> Attack {
    Attack {
        name,
        with,
        errors,
        landlock,
        run,
    }
}

const DENIED: &[i32] = &[libc::EACCES];
const NOT_PERMITTED: &[i32] = &[libc::EPERM];

/// All of them.
pub const ATTACKS: &[Attack] = &[
    // Files.
    closed_twice("open a file", calls![SYS_openat], DENIED, 1, |_| {
        open("/etc/passwd\0", libc::O_RDONLY)
    }),
    closed_twice("make a file", calls![SYS_openat], DENIED, 1, |_| {
        open("/tmp/skink-escaped\0", libc::O_WRONLY | libc::O_CREAT)
    }),
    closed_twice(
        "write own memory by /proc",
        calls![SYS_openat],
        DENIED,
        1,
        |_| open("/proc/self/mem\0", libc::O_RDWR),
    ),
    closed_twice("execute a file", calls![SYS_execve], DENIED, 1, |_| {
        let none = [0u64];
        call(libc::SYS_execve, &[at("/bin/true\0"), at(&none), at(&none)])
    }),
    closed_by_seccomp("look at a file", |_| {
        let room = [0u8; 256];
        call(libc::SYS_newfstatat, &[-100, at("/\0"), at(&room), 0])
    }),
    // Networks.
    closed_twice(
        "connect TCP",
        calls![SYS_socket, SYS_connect],
        DENIED,
        4,
        |order| {
            let socket = socket(libc::AF_INET, libc::SOCK_STREAM)?;
            let address = loopback(order.tcp_port);
            call(libc::SYS_connect, &[socket, at(&address), 16])
        },
    ),
    closed_twice("bind TCP", calls![SYS_socket, SYS_bind], DENIED, 4, |_| {
        let socket = socket(libc::AF_INET, libc::SOCK_STREAM)?;
        call(libc::SYS_bind, &[socket, at(&loopback(0)), 16])
    }),
    closed_by_seccomp("send UDP", |order| {
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM)?;
        let address = loopback(order.udp_port);
        call(libc::SYS_sendto, &[socket, at(""), 0, 0, at(&address), 16])
    }),
    closed_by_seccomp("send UDP on a socket that was handed over", |order| {
        let address = loopback(order.udp_port);
        call(libc::SYS_sendto, &[0, at(""), 0, 0, at(&address), 16])
    }),
    closed_by_seccomp("make those wait who share a descriptor", |_| {
        call(libc::SYS_fcntl, &[0, libc::F_SETFL.into(), 0])
    }),
    closed_by_seccomp("name an address in a message", |order| {
        let address = loopback(order.udp_port);
        let message = named(&address);
        call(libc::SYS_sendmsg, &[0, at(&message), 0])
    }),
    closed_by_seccomp("name an address in one of several messages", |order| {
        let address = loopback(order.udp_port);
        // SAFETY: all zeros is a valid mmsghdr.
        let mut messages: [libc::mmsghdr; 1] = unsafe { core::mem::zeroed() };
        messages[0].msg_hdr = named(&address);
        call(libc::SYS_sendmmsg, &[0, at(&messages), 1, 0])
    }),
    closed_twice(
        "connect to an abstract socket",
        calls![SYS_socket, SYS_connect],
        NOT_PERMITTED,
        6,
        |order| connect_unix(&format!("\0{}", order.abstract_name)),
    ),
    closed_by_seccomp("connect to a socket in the file system", |order| {
        connect_unix(&order.path)
    }),
    closed_by_seccomp("make a pair of sockets", |_| {
        let pair = [0i32; 2];
        call(libc::SYS_socketpair, &[1, 1, 0, at(&pair)])
    }),
    // Other processes.
    closed_twice(
        "trace the parent",
        calls![SYS_ptrace],
        NOT_PERMITTED,
        0,
        |order| call(libc::SYS_ptrace, &[0x4206, order.parent]),
    ),
    closed_twice(
        "read the parent's memory",
        calls![SYS_process_vm_readv],
        NOT_PERMITTED,
        0,
        |order| copy(libc::SYS_process_vm_readv, order.parent, order.secret),
    ),
    closed_twice(
        "read another component's memory",
        calls![SYS_process_vm_readv],
        NOT_PERMITTED,
        0,
        |order| copy(libc::SYS_process_vm_readv, order.sibling, order.secret),
    ),
    closed_twice(
        "write another component's memory",
        calls![SYS_process_vm_writev],
        NOT_PERMITTED,
        0,
        |order| copy(libc::SYS_process_vm_writev, order.sibling, order.secret),
    ),
    closed_twice(
        "take another component's descriptor",
        calls![SYS_pidfd_open, SYS_pidfd_getfd],
        NOT_PERMITTED,
        0,
        |order| {
            let process = call(libc::SYS_pidfd_open, &[order.sibling, 0])?;
            call(libc::SYS_pidfd_getfd, &[process, 0, 0])
        },
    ),
    closed_twice(
        "signal the parent",
        calls![SYS_kill],
        NOT_PERMITTED,
        6,
        |order| call(libc::SYS_kill, &[order.parent, 0]),
    ),
    closed_twice(
        "signal another component",
        calls![SYS_kill],
        NOT_PERMITTED,
        6,
        |order| call(libc::SYS_kill, &[order.sibling, 0]),
    ),
    closed_by_seccomp("abort another component", |order| {
        let abort = libc::SIGABRT.into();
        call(libc::SYS_tgkill, &[order.sibling, order.sibling, abort])
    }),
    closed_by_seccomp("end itself by another signal", |_| {
        let own = std::process::id().into();
        call(libc::SYS_tgkill, &[own, own, libc::SIGTERM.into()])
    }),
    closed_twice(
        "fork",
        calls![SYS_clone],
        &[libc::EAGAIN],
        0,
        |_| match call(libc::SYS_clone, &[libc::SIGCHLD.into()])? {
            0 => call(libc::SYS_exit_group, &[0]),
            child => Ok(child),
        },
    ),
    closed_twice(
        "start a thread",
        calls![
            SYS_mprotect,
            SYS_clone,
            SYS_clone3,
            SYS_set_robust_list,
            SYS_rseq
        ],
        &[libc::EAGAIN],
        0,
        |_| {
            let thread = std::thread::Builder::new().spawn(|| ());
            thread
                .map(|_| 0)
                .map_err(|error| error.raw_os_error().unwrap_or(0))
        },
    ),
    // Code.
    closed_by_seccomp("map executable memory", |_| map(libc::PROT_EXEC)),
    closed_by_seccomp("map memory for everything", |_| {
        map(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)
    }),
    closed_by_seccomp("make memory executable", |_| {
        let memory = map(libc::PROT_READ | libc::PROT_WRITE)?;
        let protection = (libc::PROT_READ | libc::PROT_EXEC).into();
        call(libc::SYS_mprotect, &[memory, 4096, protection])
    }),
    closed_by_seccomp("make memory executable with a key", |_| {
        let memory = map(libc::PROT_READ)?;
        let arguments = [memory, 4096, libc::PROT_EXEC.into(), -1];
        call(libc::SYS_pkey_mprotect, &arguments)
    }),
    closed_by_seccomp("execute memory", |_| {
        let file = call(libc::SYS_memfd_create, &[at("x\0"), 0])?;
        let none = [0u64];
        call(
            libc::SYS_execveat,
            &[file, at("\0"), at(&none), at(&none), 0x1000],
        )
    }),
    closed_by_seccomp("change personality", |_| {
        call(libc::SYS_personality, &[0x0040_0000])
    }),
    // Rights.
    closed_twice(
        "raise a limit",
        calls![SYS_prlimit64],
        NOT_PERMITTED,
        0,
        |_| {
            let limit = [1u64 << 20; 2];
            let resource = libc::RLIMIT_NOFILE.into();
            call(libc::SYS_prlimit64, &[0, resource, at(&limit), 0])
        },
    ),
    closed_twice(
        "become root",
        calls![SYS_setresuid],
        NOT_PERMITTED,
        0,
        |_| call(libc::SYS_setresuid, &[0, 0, 0]),
    ),
    closed_twice(
        "take groups",
        calls![SYS_setgroups],
        NOT_PERMITTED,
        0,
        |_| call(libc::SYS_setgroups, &[1, at(&[0u32])]),
    ),
    closed_twice(
        "take a capability",
        calls![SYS_capset],
        NOT_PERMITTED,
        0,
        |_| {
            let sets = [1u32; 6];
            call(libc::SYS_capset, &[at(&[0x2008_0522u32, 0]), at(&sets)])
        },
    ),
    closed_twice("chroot", calls![SYS_chroot], NOT_PERMITTED, 0, |_| {
        call(libc::SYS_chroot, &[at("/\0")])
    }),
    closed_twice(
        "make a file system",
        calls![SYS_fsopen],
        NOT_PERMITTED,
        0,
        |_| call(libc::SYS_fsopen, &[at("tmpfs\0"), 0]),
    ),
    closed_by_seccomp("make a user namespace", |_| {
        call(libc::SYS_unshare, &[libc::CLONE_NEWUSER.into()])
    }),
    closed_by_seccomp("let others read the memory", |_| {
        call(libc::SYS_prctl, &[libc::PR_SET_DUMPABLE.into(), 1])
    }),
    // The kernel's back yard.
    closed_by_seccomp("ioctl", |_| {
        let pending = 0i32;
        call(libc::SYS_ioctl, &[0, libc::FIONREAD as i64, at(&pending)])
    }),
    closed_by_seccomp("fcntl with other owners", |_| {
        call(libc::SYS_fcntl, &[0, libc::F_SETOWN.into(), 1])
    }),
    closed_by_seccomp("set a socket's option", |_| {
        let (level, name) = (libc::SOL_SOCKET.into(), libc::SO_BROADCAST.into());
        call(libc::SYS_setsockopt, &[0, level, name, at(&1i32), 4])
    }),
    closed_by_seccomp("userfaultfd", |_| call(libc::SYS_userfaultfd, &[1])),
    closed_by_seccomp("bpf", |_| {
        let map = [2u32, 4, 4, 1, 0, 0, 0, 0];
        call(libc::SYS_bpf, &[0, at(&map), 32])
    }),
    closed_by_seccomp("io_uring", |_| {
        let parameters = [0u8; 120];
        call(libc::SYS_io_uring_setup, &[1, at(&parameters)])
    }),
    closed_by_seccomp("perf_event_open", |_| {
        let attributes = [0u8; 128];
        call(libc::SYS_perf_event_open, &[at(&attributes), 0, -1, -1, 0])
    }),
    closed_by_seccomp("keep a key", |_| {
        call(
            libc::SYS_add_key,
            &[at("user\0"), at("k\0"), at("v"), 1, -2],
        )
    }),
    closed_by_seccomp("lock by priority", |_| {
        let word = 0u32;
        let lock = libc::FUTEX_LOCK_PI.into();
        call(libc::SYS_futex, &[at(&word), lock])
    }),
    #[cfg(target_arch = "x86_64")]
    closed_by_seccomp("calls of the x32 interface", |_| {
        call(libc::SYS_getpid | 0x4000_0000, &[])
    }),
];

fn open(path: &str, flags: i32) -> Answer {
    call(
        libc::SYS_openat,
        &[libc::AT_FDCWD.into(), at(path), flags.into(), 0o600],
    )
}

fn socket(family: i32, kind: i32) -> Answer {
    call(libc::SYS_socket, &[family.into(), kind.into(), 0])
}

fn connect_unix(name: &str) -> Answer {
    let socket = socket(libc::AF_UNIX, libc::SOCK_STREAM)?;
    let (address, bytes) = unix(name);
    call(libc::SYS_connect, &[socket, at(&address), bytes])
}

/// Copies eight bytes from or to another process.
fn copy(number: i64, process: i64, address: i64) -> Answer {
    let own = [0u8; 8];
    let (here, there) = ([at(&own), 8], [address, 8]);
    call(number, &[process, at(&here), 1, at(&there), 1, 0])
}

fn map(protection: i32) -> Answer {
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS).into();
    call(libc::SYS_mmap, &[0, 4096, protection.into(), flags, -1, 0])
}

/// An empty message to an address.
fn named(address: &[u8; 16]) -> libc::msghdr {
    // SAFETY: all zeros is a valid msghdr.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_name = address.as_ptr().cast_mut().cast();
    message.msg_namelen = 16;
    message
}
