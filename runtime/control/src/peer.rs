//! Who is at the other end of a socket.
use crate::server::Peer;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `SO_PEERGROUPS` (linux/asm-generic/socket.h), which libc lacks.
const PEER_GROUPS: libc::c_int = 59;
/// Groups that are looked at; of more, the first ones.
const MAXIMUM_GROUPS: usize = 1024;

/// The process that connected, with the rights it had then. Its id is 0 if it is in a PID namespace that this process doesn't
/// see (rustix takes for granted that it isn't).
pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut bytes = size_of_val(&credentials) as libc::socklen_t;
    // SAFETY: the structure is ours and as long as stated; any bits are valid numbers.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut bytes,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut groups = vec![credentials.gid];
    groups.extend(supplementary(socket));
    Ok(Peer {
        pid: credentials.pid.unsigned_abs(),
        uid: credentials.uid,
        groups,
    })
}

/// Empty if they can't be had: then nobody is let in by them.
fn supplementary(socket: BorrowedFd<'_>) -> Vec<u32> {
    let mut groups = vec![0u32; MAXIMUM_GROUPS];
    let mut bytes = (MAXIMUM_GROUPS * size_of::<u32>()) as libc::socklen_t;
    // SAFETY: the buffer is ours and as long as stated; any bits are valid numbers.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            PEER_GROUPS,
            groups.as_mut_ptr().cast(),
            &mut bytes,
        )
    };
    if failed != 0 {
        return Vec::new();
    }
    groups.truncate(bytes as usize / size_of::<u32>());
    groups
}

/// Whether a process is stopped: by a signal, or by one that traces it (proc_pid_stat(5)).
pub(crate) fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let state = stat.ok().and_then(|stat| {
        let (_, rest) = stat.rsplit_once(") ")?;
        rest.chars().next()
    });
    matches!(state, Some('T' | 't'))
}
