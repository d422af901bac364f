//! Other runs in the same network namespace: the kernel knows nothing of their addresses.
use super::network::Plan;
use crate::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use skink_control::{ControlError, InstanceInfo, instances};
use skink_nic::NicSpec;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// An abstract name: each network namespace has its own.
const TURN: &[u8] = b"skink-begins";
/// Who takes longer than this to begin, or has taken the name for another end, isn't waited for.
const LONGEST_TURN: Duration = Duration::from_secs(10);

/// The right to begin: one at a time in a network namespace, so that who comes next sees this one's addresses. To be had before
/// [`check`], and kept until others can see this run.
pub struct Turn {
    _listener: Option<OwnedFd>,
}

impl Turn {
    /// Waits for who begins just now.
    pub fn take() -> Turn {
        let until = Instant::now() + LONGEST_TURN;
        loop {
            match try_take() {
                Ok(listener) => {
                    return Turn {
                        _listener: Some(listener),
                    };
                }
                Err(rustix::io::Errno::ADDRINUSE) if Instant::now() < until => wait_for_turn(until),
                Err(error) => {
                    tracing::warn!(%error, "others that begin at this moment aren't seen");
                    return Turn { _listener: None };
                }
            }
        }
    }
}

fn socket() -> rustix::io::Result<(OwnedFd, SocketAddrUnix)> {
    let kind = SocketType::SEQPACKET;
    // To connect mustn't wait for room in a stranger's queue either.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    Ok((socket, SocketAddrUnix::new_abstract_name(TURN)?))
}

fn try_take() -> rustix::io::Result<OwnedFd> {
    let (socket, name) = socket()?;
    rustix::net::bind(&socket, &name)?;
    rustix::net::listen(&socket, 64)?;
    Ok(socket)
}

/// Until whoever has it lets go of it: then what waits at its socket is reset.
fn wait_for_turn(until: Instant) {
    let connected = socket().and_then(|(socket, name)| {
        rustix::net::connect(&socket, &name)?;
        Ok(socket)
    });
    let Ok(socket) = connected else {
        // It has gone already, hasn't begun to listen, or has no room.
        std::thread::sleep(Duration::from_millis(1));
        return;
    };
    let left = until.saturating_duration_since(Instant::now());
    let limit = Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    let _ = poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&limit));
}

/// Fails if another `skink run` has one of the addresses, or the TAP.
pub fn check(plan: &Plan) -> Result<(), Failure> {
    let own = namespace("self");
    for instance in instances() {
        if own.is_none() || namespace(&instance.pid.to_string()) != own {
            continue;
        }
        let tool = match instance.connect() {
            Ok(tool) if tool.is_of_stranger() && !may_use_nics(tool.listener()) => continue,
            connected => connected,
        };
        match tool.and_then(|tool| tool.list()) {
            Ok(info) => {
                if let Some(why) = conflict(plan, &info) {
                    return Err(Failure::own(why));
                }
            }
            Err(error @ ControlError::Stopped) => tracing::warn!(
                "whether skink with process id {} has an address of this one's can't be told: {error}",
                instance.pid
            ),
            // It has ended, or begins.
            Err(_) => {}
        }
    }
    Ok(())
}

/// What identifies the network namespace of a process.
fn namespace(pid: &str) -> Option<(u64, u64)> {
    namespace_of_kind(pid, "net")
}

fn namespace_of_kind(pid: &str, kind: &str) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(format!("/proc/{pid}/ns/{kind}")).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Whether a process could have an address here: any user may say so, and keep us from starting.
fn may_use_nics(pid: u32) -> bool {
    const ADMIN_OR_RAW: u64 = 1 << 12 | 1 << 13;
    let pid = pid.to_string();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let effective = lines.find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    // In a user namespace of its own a process has all that there are, and they are good for nothing here.
    let user = namespace_of_kind("self", "user");
    effective.is_some_and(|bits| bits & ADMIN_OR_RAW != 0)
        && user.is_some()
        && namespace_of_kind(&pid, "user") == user
}

fn conflict(plan: &Plan, other: &InstanceInfo) -> Option<String> {
    let what = match other.topology {
        Some(_) => "`skink up` called",
        None => "`skink run` of",
    };
    let who = format!("{what} {} (process id {})", other.name, other.pid);
    if matches!(plan.nic, NicSpec::Tap(_)) && other.nic == plan.nic.to_string() {
        return Some(format!(
            "{} is in use by {who}: name another with --nic, or leave --nic out",
            plan.nic
        ));
    }
    let has = |address| other.addresses.iter().any(|theirs| theirs.addr == address);
    let taken = plan.addresses.iter().find(|cidr| has(cidr.addr))?;
    Some(format!(
        "the address {} is in use by {who}: give the program another with --addr",
        taken.addr
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_a_tap_in_use_by_another_run_is_refused() {
        let plan = |nic: &str, address: &str| {
            let nic = nic.parse().expect("a NIC");
            Plan::new(nic, vec![address.parse().expect("an address")])
        };
        // It has 10.77.0.2 on tap:skink0.
        let other = crate::tools::tests::info();
        for (nic, address, expected) in [
            ("tap:skink0", "10.9.0.2/24", Some("tap:skink0")),
            ("tap:skink1", "10.77.0.2/16", Some("10.77.0.2")),
            ("packet:eth0", "10.77.0.2/24", Some("10.77.0.2")),
            ("tap:skink1", "10.77.0.3/24", None),
        ] {
            let why = conflict(&plan(nic, address), &other);
            assert_eq!(why.is_some(), expected.is_some(), "{nic} {address}");
            assert!(
                why.unwrap_or_default()
                    .contains(expected.unwrap_or_default())
            );
        }
        let as_root = rustix::process::geteuid().is_root();
        assert_eq!(may_use_nics(std::process::id()), as_root);
        assert!(!may_use_nics(0));
        assert_eq!(
            namespace("self"),
            namespace(&std::process::id().to_string())
        );
        assert!(namespace("self").is_some() && namespace("no process").is_none());
    }
}
