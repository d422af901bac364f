//! The life of a run after the program was started: one thread that waits for signals, for the
//! program's processes and for tools, and uses no CPU while nothing happens.
use super::netlink;
use super::owners::NicOwners;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use skink_control::{Received, Server, SignalDescriptor};
use std::os::fd::AsFd;
use std::process::Child;
use std::time::{Duration, Instant};

/// Signals that are passed on to the program.
const FORWARDED: [i32; 7] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
];

/// All that come as data.
pub const SIGNALS: [i32; 8] = [
    libc::SIGCHLD,
    FORWARDED[0],
    FORWARDED[1],
    FORWARDED[2],
    FORWARDED[3],
    FORWARDED[4],
    FORWARDED[5],
    FORWARDED[6],
];

/// Serves until the program and all that it started have ended, and what they had written has arrived; answers the program's
/// exit code.
pub fn supervise(child: &Child, server: &mut Server<NicOwners>, signals: &SignalDescriptor) -> u8 {
    let main = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let mut code = None;
    let links = netlink::LinkEvents::listen()
        .inspect_err(|error| {
            tracing::warn!("a change of the interface's MTU isn't noticed: {error}")
        })
        .ok();
    loop {
        let limit = server.serve(Instant::now());
        tend(server, signals);
        if server.owners().have_stand_ins() && are_all_ours(server.owners()) {
            server.dismiss_orphans();
        }
        wait(server, signals, links.as_ref(), limit);
        if links.as_ref().is_some_and(netlink::LinkEvents::take)
            && let Some(mtu) = server.owners_mut().changed_mtu()
        {
            tracing::info!(mtu, "the interface has another MTU");
            server.tell_mtu(mtu);
        }
        while let Some(signal) = signals.take() {
            if signal.signal != libc::SIGCHLD {
                let is_ours = |pid| server.owners().is_ours(pid);
                forward(signal, main.filter(|_| code.is_none()), is_ours);
            }
        }
        if reap(main, &mut code, server.owners_mut()) {
            continue;
        }
        // The last words of processes that have just ended.
        server.serve(Instant::now());
        if !tend(server, signals) {
            return code.unwrap_or(0);
        }
    }
}

/// As [`NicOwners::tend`]: those that see to connections may hand them over.
fn tend(server: &mut Server<NicOwners>, signals: &SignalDescriptor) -> bool {
    let are_some = server.owners_mut().tend(signals);
    for (owner, link) in server.owners_mut().take_links() {
        server.hear_orphans(owner, link, Instant::now());
    }
    are_some
}

fn wait(
    server: &Server<NicOwners>,
    signals: &SignalDescriptor,
    links: Option<&netlink::LinkEvents>,
    limit: Option<Duration>,
) {
    let watched = [server.as_fd(), signals.as_fd()];
    let watched = watched.into_iter().chain(links.map(AsFd::as_fd));
    let mut descriptors: Vec<PollFd<'_>> = watched
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
        .collect();
    // Rounded up, so as not to come too early again and again.
    let limit = limit.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let _ = rustix::event::poll(&mut descriptors, limit.as_ref());
}

/// Whether of the program no process is left.
fn are_all_ours(owners: &NicOwners) -> bool {
    children().into_iter().all(|pid| owners.is_ours(pid))
}

/// Takes the status of every child that has ended. Answers whether any is left.
fn reap(main: Option<Pid>, code: &mut Option<u8>, owners: &mut NicOwners) -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if Some(pid) == main => {
                *code = Some(exit_code(status));
                tracing::debug!(?status, "the program has ended");
            }
            Ok(Some((pid, status))) => {
                owners.ended(pid.as_raw_nonzero().get().unsigned_abs());
                tracing::debug!(?pid, ?status, "a process has ended");
            }
            Ok(None) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// As a shell tells it.
fn exit_code(status: WaitStatus) -> u8 {
    let signalled = status.terminating_signal().map(|signal| 128 + signal);
    let code = status.exit_status().or(signalled).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Passes a signal on to the program, or to what it has left behind if it has ended. What a terminal
/// sends, it sends to the whole process group, so the program has it already. Processes of our own get none, unless they are all
/// that is left and are to end.
fn forward(received: Received, main: Option<Pid>, is_ours: impl Fn(Pid) -> bool) {
    let Some(signal) = Signal::from_named_raw(received.signal) else {
        return;
    };
    let ends = matches!(signal, Signal::TERM | Signal::INT | Signal::QUIT);
    let own_group = group(std::process::id());
    let targets = match main {
        Some(main) => vec![main],
        None => {
            let (ours, others): (Vec<_>, Vec<_>) =
                children().into_iter().partition(|pid| is_ours(*pid));
            match others.is_empty() && ends {
                true => ours,
                false => others,
            }
        }
    };
    for target in targets {
        let same_group = group(target.as_raw_nonzero().get().unsigned_abs()) == own_group;
        if !(received.from_kernel && same_group) {
            let _ = rustix::process::kill_process(target, signal);
        }
    }
}

/// The number of a process's group. It is 0 if the group's leader is outside our process namespace,
/// which rustix's `getpgrp` takes for impossible.
fn group(pid: u32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(2)?.parse().ok()
}

/// The processes whose parent we are.
fn children() -> Vec<Pid> {
    let path = format!("/proc/self/task/{}/children", std::process::id());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}
