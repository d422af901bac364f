//! What Skink needs of the kernel, whatever it is to do.
use crate::failure::Failure;
use rustix::event::{Timespec, epoll};

/// Makes sure of `epoll_pwait2`, without which neither programs nor stacks could sleep: Linux 5.11 has it, but a
/// container's filter may not let it pass.
pub fn check() -> Result<(), Failure> {
    let zero = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut events = [epoll::Event {
        flags: epoll::EventFlags::empty(),
        data: epoll::EventData::new_u64(0),
    }];
    let answer = epoll::create(epoll::CreateFlags::CLOEXEC)
        .and_then(|set| epoll::wait(&set, events.as_mut_slice(), Some(&zero)));
    match answer {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Failure::own(format!(
            "epoll_pwait2 doesn't work here ({error}): it takes Linux 5.11 (`uname -r`), and in a container a \
             system-call filter that lets it pass (Docker: --security-opt seccomp=unconfined)"
        ))),
    }
}
