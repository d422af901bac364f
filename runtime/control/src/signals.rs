//! Signals as something to poll for, which neither std nor rustix offers.
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// A signal that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// It came from the kernel, such as a terminal's interrupt key: then the whole foreground
    /// process group has got it already.
    pub from_kernel: bool,
}

/// Signals that are blocked for this thread and delivered through a descriptor instead
/// (`signalfd(2)`). To be made before any other thread is.
#[derive(Debug)]
pub struct SignalDescriptor {
    descriptor: OwnedFd,
    before: libc::sigset_t,
}

impl SignalDescriptor {
    /// Takes over the given signals, by number; but what the starter has us ignore (`nohup`, a shell's `&` in a script) goes
    /// on to be ignored, which a descriptor wouldn't do.
    pub fn new(signals: &[i32]) -> io::Result<SignalDescriptor> {
        let mut set = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the set before anything else reads it, and
        // `sigprocmask` initialises `before` if it succeeds, which is checked before it is used.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals.iter().filter(|signal| !is_ignored(**signal)) {
                libc::sigaddset(set.as_mut_ptr(), *signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let descriptor = libc::signalfd(-1, set.as_ptr(), flags);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(SignalDescriptor {
                descriptor: OwnedFd::from_raw_fd(descriptor),
                before: before.assume_init(),
            })
        }
    }

    /// As [`SignalDescriptor::new`], in a program whose predecessor in the same process had taken these signals
    /// over: for children they are as if neither had. One that came meanwhile isn't lost.
    pub fn inherited(signals: &[i32]) -> io::Result<SignalDescriptor> {
        let mut descriptor = SignalDescriptor::new(signals)?;
        for signal in signals {
            // SAFETY: the set was initialised by `sigprocmask`.
            unsafe { libc::sigdelset(&raw mut descriptor.before, *signal) };
        }
        Ok(descriptor)
    }

    /// Takes the next signal; never waits.
    pub fn take(&self) -> Option<Received> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer is ours and as long as stated; every bit pattern is a valid value.
        let info = unsafe {
            let got = libc::read(self.descriptor.as_raw_fd(), info.as_mut_ptr().cast(), size);
            if got != size as isize {
                return None;
            }
            info.assume_init()
        };
        Some(Received {
            signal: i32::try_from(info.ssi_signo).unwrap_or(0),
            from_kernel: info.ssi_code == libc::SI_KERNEL,
        })
    }
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed, and the kernel fills in what it is; zeros are a valid value too.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    // Ended children are to be waited for all the same.
    signal != libc::SIGCHLD && action.sa_sigaction == libc::SIG_IGN
}

impl AsFd for SignalDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Starts `command` with the signal mask as it was before `signals` was made.
pub fn spawn_with_signals(command: &mut Command, signals: &SignalDescriptor) -> io::Result<Child> {
    let mask = signals.before;
    let restore = move || {
        // SAFETY: `mask` is an initialised set, and the call is async-signal-safe.
        let failed = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
        if failed == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: the closure only makes an async-signal-safe call.
    unsafe { command.pre_exec(restore) };
    command.spawn()
}

#[cfg(test)]
mod tests;
