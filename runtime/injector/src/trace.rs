//! A process in the tracer's hands (ptrace(2)).
use crate::edits::Counter;
use crate::error::InjectError;
use crate::image::Image;
use crate::maps;
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Between two looks whether the process has stopped.
const SHORT: Duration = Duration::from_micros(50);
/// The same, when it hasn't for a while.
const LONG: Duration = Duration::from_millis(1);
/// How long until then.
const WHILE: Duration = Duration::from_millis(5);
/// What a process that can be stopped stops within.
const STOP: Duration = Duration::from_secs(2);

/// How a process ended.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// With an exit code.
    Exit(i32),
    /// By a signal.
    Signal(i32),
    /// Nobody was there to see how.
    Unseen,
}

/// Why a process has stopped. It stays so until [`Subject::go_on`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// It has executed a breakpoint trap at that address.
    Trap(u64),
    /// It is about to get a signal, at that address.
    Signal(Signal, u64),
    /// It was asked to.
    Asked,
    /// It is no more.
    Ended(Ending),
}

/// A process that is traced.
pub(crate) struct Subject {
    pid: Pid,
    memory: File,
    /// Address less the address as linked.
    bias: u64,
}

impl Subject {
    /// Takes a process that executes `image`. It dies with this thread, unless it is let go before.
    pub(crate) fn seize(number: u32, image: &Image) -> Result<Subject, InjectError> {
        let pid = i32::try_from(number).map_err(|_| InjectError::Gone(number))?;
        let pid = Pid::from_raw(pid);
        // Looked at first: from seizing on an error would kill it.
        let bias = bias(number, image)?;
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{number}/mem"))
            .map_err(|error| InjectError::Trace("have its memory opened", number, error))?;
        ptrace::seize(pid, Options::PTRACE_O_EXITKILL).map_err(|error| match error {
            Errno::ESRCH => InjectError::Gone(number),
            error => InjectError::Trace("be traced", number, error.into()),
        })?;
        Ok(Subject { pid, memory, bias })
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Where something is that is linked to be at `address`.
    pub(crate) fn address(&self, linked: u64) -> u64 {
        linked.wrapping_add(self.bias)
    }

    /// The other way round.
    pub(crate) fn linked(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }

    /// Waits until it stops, for whatever reason; `None` if the time comes first.
    pub(crate) fn wait(&self, until: Instant) -> Result<Option<Stop>, InjectError> {
        let start = Instant::now();
        loop {
            let status = waitpid(self.pid, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL));
            let status = match status {
                Err(Errno::ECHILD) => return Ok(Some(Stop::Ended(Ending::Unseen))),
                status => status.map_err(|error| self.failed("be waited for", error))?,
            };
            if let Some(stop) = self.read_status(status)? {
                return Ok(Some(stop));
            }
            let now = Instant::now();
            if now >= until {
                return Ok(None);
            }
            let pause = match now.duration_since(start) < WHILE {
                true => SHORT,
                false => LONG,
            };
            std::thread::sleep(pause.min(until.duration_since(now)));
        }
    }

    fn read_status(&self, status: WaitStatus) -> Result<Option<Stop>, InjectError> {
        let stop = match status {
            WaitStatus::Exited(_, code) => Stop::Ended(Ending::Exit(code)),
            WaitStatus::Signaled(_, signal, _) => Stop::Ended(Ending::Signal(signal as i32)),
            WaitStatus::Stopped(_, signal) => match (self.instruction_pointer()?, signal) {
                (Some(address), Signal::SIGTRAP) => Stop::Trap(address.wrapping_sub(1)),
                (Some(address), signal) => Stop::Signal(signal, address),
                // Its end is heard of next.
                (None, _) => return Ok(None),
            },
            WaitStatus::PtraceEvent(..) | WaitStatus::PtraceSyscall(_) => Stop::Asked,
            WaitStatus::Continued(_) | WaitStatus::StillAlive => return Ok(None),
        };
        Ok(Some(stop))
    }

    /// Stops it. What it stops for may be something else that was about to happen.
    pub(crate) fn stop(&self) -> Result<Stop, InjectError> {
        match ptrace::interrupt(self.pid) {
            // Its end is still to be heard of.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(self.failed("be stopped", error)),
        }
        let stop = self.wait(Instant::now() + STOP)?;
        stop.ok_or_else(|| self.failed("be stopped", Errno::ETIMEDOUT))
    }

    /// Lets it run, with a signal if it is to get one.
    pub(crate) fn go_on(&self, signal: Option<Signal>) -> Result<(), InjectError> {
        match ptrace::cont(self.pid, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(self.failed("go on", error)),
        }
    }

    /// Lets go of it while it is stopped.
    pub(crate) fn release(&self) -> Result<(), InjectError> {
        match ptrace::detach(self.pid, None) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(self.failed("be let go", error)),
        }
    }

    /// Reads its memory; false if that can't be done.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.memory.read_exact_at(bytes, address).is_ok()
    }

    /// Writes to its memory, also where it couldn't by itself: it then gets a copy of its own.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), InjectError> {
        let written = self.memory.write_all_at(bytes, address);
        written.map_err(|error| InjectError::Trace("have its memory changed", self.id(), error))
    }

    fn failed(&self, what: &'static str, error: Errno) -> InjectError {
        InjectError::Trace(what, self.id(), error.into())
    }
}

#[cfg(target_arch = "x86_64")]
impl Subject {
    /// `None` if it was killed while it was stopped.
    fn registers(&self) -> Result<Option<nix::libc::user_regs_struct>, InjectError> {
        match ptrace::getregs(self.pid) {
            Ok(registers) => Ok(Some(registers)),
            Err(Errno::ESRCH) => Ok(None),
            Err(error) => Err(self.failed("have its registers read", error)),
        }
    }

    fn instruction_pointer(&self) -> Result<Option<u64>, InjectError> {
        Ok(self.registers()?.map(|registers| registers.rip))
    }

    /// The lowest address of its stack that is in use; `None` if it was killed.
    pub(crate) fn stack_pointer(&self) -> Result<Option<u64>, InjectError> {
        Ok(self.registers()?.map(|registers| registers.rsp))
    }

    /// Has it go on at `address`, with a register too large if one is to be.
    pub(crate) fn go_to(
        &self,
        address: u64,
        overrun: Option<(Counter, u64)>,
    ) -> Result<(), InjectError> {
        let Some(mut registers) = self.registers()? else {
            return Ok(());
        };
        registers.rip = address;
        match overrun {
            Some((Counter::Rdx, by)) => registers.rdx = registers.rdx.wrapping_add(by),
            Some((Counter::Rcx, by)) => registers.rcx = registers.rcx.wrapping_add(by),
            None => {}
        }
        match ptrace::setregs(self.pid, registers) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(self.failed("have its registers set", error)),
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Subject {
    fn instruction_pointer(&self) -> Result<Option<u64>, InjectError> {
        Err(InjectError::Unsupported)
    }

    pub(crate) fn stack_pointer(&self) -> Result<Option<u64>, InjectError> {
        Err(InjectError::Unsupported)
    }

    pub(crate) fn go_to(&self, _: u64, _: Option<(Counter, u64)>) -> Result<(), InjectError> {
        Err(InjectError::Unsupported)
    }
}

/// Address less the address as linked: executables are loaded anywhere.
fn bias(pid: u32, image: &Image) -> Result<u64, InjectError> {
    let failed = |error| InjectError::Trace("be looked at", pid, error);
    let executable = std::fs::read_link(format!("/proc/{pid}/exe"));
    let executable = executable.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => InjectError::Gone(pid),
        _ => failed(error),
    })?;
    let executable = executable.to_string_lossy();
    let maps = maps::read(pid).map_err(failed)?;
    let code = maps
        .iter()
        .find(|mapping| mapping.executable && mapping.path == executable);
    let missing = || failed(io::Error::other(format!("it doesn't execute {executable}")));
    let code = code.ok_or_else(missing)?;
    let linked = code.offset.wrapping_add(image.link_bias);
    Ok(code.range.start.wrapping_sub(linked))
}
