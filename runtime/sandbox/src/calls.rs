//! System calls as data: what each kind of process needs, and with which arguments.
//!
//! Without a rule a call is allowed with any arguments. That is no less safe where every argument is a
//! descriptor (all of which were handed over), or the process's own memory; and it is faster.

use core::ffi::c_long;

/// One system call that is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// As in the manual.
    pub name: &'static str,
    /// On this architecture.
    pub number: c_long,
    /// One rule must hold, and of it every condition. Without rules the call is allowed as it comes.
    pub rules: &'static [&'static [Condition]],
}

/// What must be true of one argument.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// Counted from 0.
    pub argument: u8,
    /// The bits that are looked at. If none is above the lowest 32, the kernel takes the argument for
    /// an `int` and so does the filter.
    pub mask: u64,
    /// What these bits must be.
    pub value: Value,
}

/// What an argument is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// A number.
    Is(u64),
    /// The number of the process that enters the sandbox.
    OwnProcess,
}

const INT: u64 = 0xffff_ffff;

/// The condition that the bits of `mask` in an argument have the value `value`.
pub const fn condition(argument: u8, mask: u64, value: u64) -> Condition {
    Condition {
        argument,
        mask,
        value: Value::Is(value),
    }
}

const fn is(argument: u8, value: i32) -> Condition {
    condition(argument, INT, value as u32 as u64)
}

const fn lacks(argument: u8, bits: i32) -> Condition {
    condition(argument, bits as u32 as u64, 0)
}

const fn null(argument: u8) -> Condition {
    condition(argument, u64::MAX, 0)
}

impl Call {
    /// Allowed with any arguments.
    pub const fn any(name: &'static str, number: c_long) -> Call {
        Call {
            name,
            number,
            rules: &[],
        }
    }

    /// Allowed if all conditions of one of the rules hold.
    pub const fn only(
        name: &'static str,
        number: c_long,
        rules: &'static [&'static [Condition]],
    ) -> Call {
        Call {
            name,
            number,
            rules,
        }
    }
}

const FUTEX_COMMAND: u64 = !((libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u64) & INT;

/// What every component needs: to wait, to be woken, to ring doorbells, to hear and answer the supervisor, to allocate, to log, to
/// panic, to end. What it waits for and rings it was handed, or has made before it entered.
///
/// No call in this or another list makes a socket, opens a file, starts anything, or makes memory executable. `fstatat` and
/// `statx` aren't among them, since their flags can't keep a path out.
pub const EVENT_LOOP: &[Call] = &[
    // Descriptors that it has, or is sent beside a message. Nothing may be sent to an address: so neither `sendmsg` nor
    // `sendmmsg`, whose address no filter sees. A packet socket that is bound to one interface sends to any by them.
    Call::any("write", libc::SYS_write),
    // With RWF_NOWAIT: from a doorbell, whatever a neighbour did to the flags that its holders share.
    Call::any("preadv2", libc::SYS_preadv2),
    // Instead, before Linux 6.4, whose pipes know no RWF_NOWAIT.
    Call::any("read", libc::SYS_read),
    Call::any("close", libc::SYS_close),
    // The standard library's debug build looks before it closes.
    Call::only("fcntl", libc::SYS_fcntl, &[&[is(1, libc::F_GETFD)]]),
    Call::any("recvmsg", libc::SYS_recvmsg),
    Call::any("recvfrom", libc::SYS_recvfrom),
    Call::only("sendto", libc::SYS_sendto, &[&[null(4)]]),
    Call::any("epoll_ctl", libc::SYS_epoll_ctl),
    Call::any("epoll_pwait2", libc::SYS_epoll_pwait2),
    Call::any("ppoll", libc::SYS_ppoll),
    // Where the kernel's page for it doesn't do.
    Call::any("clock_gettime", libc::SYS_clock_gettime),
    // After it was stopped while it waited.
    Call::any("restart_syscall", libc::SYS_restart_syscall),
    // Memory, none of it executable.
    Call::only("mmap", libc::SYS_mmap, &[&[lacks(2, libc::PROT_EXEC)]]),
    Call::any("munmap", libc::SYS_munmap),
    Call::any("mremap", libc::SYS_mremap),
    Call::any("brk", libc::SYS_brk),
    // One thread waits for no lock; but the C library wakes whoever might, once it has made itself ready to unwind.
    Call::only(
        "futex",
        libc::SYS_futex,
        &[&[condition(1, FUTEX_COMMAND, libc::FUTEX_WAKE as u64)]],
    ),
    // Ending: a panic, an abort, and the standard library's message about a stack that overflowed.
    Call::any("exit", libc::SYS_exit),
    Call::any("exit_group", libc::SYS_exit_group),
    Call::any("rt_sigreturn", libc::SYS_rt_sigreturn),
    Call::any("rt_sigprocmask", libc::SYS_rt_sigprocmask),
    Call::any("rt_sigaction", libc::SYS_rt_sigaction),
    Call::any("sigaltstack", libc::SYS_sigaltstack),
    Call::any("getpid", libc::SYS_getpid),
    Call::any("gettid", libc::SYS_gettid),
    Call::only(
        "tgkill",
        libc::SYS_tgkill,
        &[&[
            Condition {
                argument: 0,
                mask: INT,
                value: Value::OwnProcess,
            },
            is(2, libc::SIGABRT),
        ]],
    ),
];

/// For a component that is handed memory while it runs, which it maps once it has looked at its size and seals.
pub const MEMORY: &[Call] = &[
    Call::any("fstat", libc::SYS_fstat),
    Call::only(
        "fcntl",
        libc::SYS_fcntl,
        &[&[is(1, libc::F_GET_SEALS)], &[is(1, libc::F_DUPFD_CLOEXEC)]],
    ),
];

/// For a component that serves programs: to ring them without waiting, and for numbers that none of them can guess.
pub const PROGRAMS: &[Call] = &[
    // A descriptor's flags are all holders': who made a doorbell wait would make those wait who ring it.
    Call::only(
        "fcntl",
        libc::SYS_fcntl,
        &[&[
            is(1, libc::F_SETFL),
            condition(2, libc::O_NONBLOCK as u64, libc::O_NONBLOCK as u64),
        ]],
    ),
    Call::any("getrandom", libc::SYS_getrandom),
];

/// For a transport: memory of rings goes back to the system when their sockets are closed, or idle.
pub const RECLAIM: &[Call] = &[Call::only(
    "fallocate",
    libc::SYS_fallocate,
    &[&[is(
        1,
        libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
    )]],
)];

/// `link` on an `AF_PACKET` ring, from the first frame on: it sends by `writev` too, and asks for statistics and errors.
pub const NIC_PACKET: &[Call] = &[
    Call::any("writev", libc::SYS_writev),
    Call::only(
        "getsockopt",
        libc::SYS_getsockopt,
        &[
            &[is(1, libc::SOL_SOCKET), is(2, libc::SO_ERROR)],
            &[is(1, libc::SOL_PACKET), is(2, libc::PACKET_STATISTICS)],
        ],
    ),
];

/// `link` on an `AF_XDP` socket, from the first frame on: statistics. Its doorbells are `sendto` and
/// `recvfrom` without an address, which [`EVENT_LOOP`] has.
pub const NIC_XDP: &[Call] = &[Call::only(
    "getsockopt",
    libc::SYS_getsockopt,
    &[
        &[is(1, libc::SOL_SOCKET), is(2, libc::SO_ERROR)],
        &[is(1, libc::SOL_XDP), is(2, libc::XDP_STATISTICS)],
    ],
)];

/// Whoever has queues of an `AF_XDP` NIC in turn with others, when one comes to it: its rings' places, and the bell.
pub const NIC_SHARED: &[Call] = &[
    Call::only(
        "getsockopt",
        libc::SYS_getsockopt,
        &[&[is(1, libc::SOL_XDP), is(2, libc::XDP_MMAP_OFFSETS)]],
    ),
    Call::any("timerfd_settime", libc::SYS_timerfd_settime),
];

/// `link` on a TAP queue, from the first frame on.
pub const NIC_TAP: &[Call] = &[Call::any("writev", libc::SYS_writev)];

/// What a component's process does, so far as that takes system calls that others don't make.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tasks<'a> {
    /// It is handed memory of programs and of restarted neighbours.
    pub memory: bool,
    /// It serves programs.
    pub programs: bool,
    /// It hosts a transport.
    pub transports: bool,
    /// It has a NIC of this kind (as in `skink_nic::Capabilities::kind`).
    pub nic: Option<&'a str>,
    /// Others have parts of that: there is a packet socket for what all see, and queues go from one to the other.
    pub shares_nic: bool,
}

impl Tasks<'_> {
    /// The lists of calls for them.
    pub fn lists(&self) -> Vec<&'static [Call]> {
        let mut lists = vec![EVENT_LOOP];
        for (does, list) in [
            (self.memory, MEMORY),
            (self.programs, PROGRAMS),
            (self.transports, RECLAIM),
        ] {
            if does {
                lists.push(list);
            }
        }
        match self.nic {
            Some("xdp" | "xdp-generic") => lists.extend([NIC_XDP, NIC_PACKET]),
            Some("packet") => lists.push(NIC_PACKET),
            Some(_) => lists.push(NIC_TAP),
            None => {}
        }
        if self.shares_nic {
            lists.extend([NIC_PACKET, NIC_SHARED]);
        }
        lists
    }
}

#[cfg(test)]
mod tests;
