//! System calls that another process makes, whether it wants to or not.
use std::io;

/// Another process that has one thread, stopped by ptrace(2) wherever it was: what its system calls answer shows what
/// an attacker could reach who had its code under control. When this value goes, the process goes on as
/// if nothing had happened. For the thread that made it.
pub struct Seized {
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    pid: libc::pid_t,
    #[cfg(target_arch = "x86_64")]
    before: libc::user_regs_struct,
    /// Where it has the instruction of a system call.
    #[cfg(target_arch = "x86_64")]
    syscall: u64,
    has_ended: bool,
}

/// What came of a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Called {
    /// It answered this, or the negative number of an error.
    Answered(i64),
    /// The process was ended by this signal.
    Ended(i32),
}

#[cfg(not(target_arch = "x86_64"))]
impl Seized {
    /// Not there on this architecture.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`].
    pub fn seize(_: u32) -> io::Result<Seized> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// As [`Seized::seize`].
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`].
    pub fn put(&self, _: &[u8]) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// As [`Seized::seize`].
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`].
    pub fn call(&mut self, _: i64, _: &[u64]) -> io::Result<Called> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(target_arch = "x86_64")]
mod by_ptrace {
    use super::{Called, Seized, io};
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    /// The instruction SYSCALL.
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    /// What the ABI lets functions use below their stack pointer is 128 bytes; and some more.
    const BELOW_STACK: u64 = 8192;

    impl Seized {
        /// Stops that process.
        ///
        /// # Errors
        /// [`io::ErrorKind::PermissionDenied`] for who may not trace it; what the system says otherwise.
        pub fn seize(pid: u32) -> io::Result<Seized> {
            let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
            let mut seized = Seized {
                pid,
                // SAFETY: plain numbers, for which zero is a value.
                before: unsafe { core::mem::zeroed() },
                syscall: find_syscall(pid)?,
                has_ended: true,
            };
            seized.request(libc::PTRACE_SEIZE, 0)?;
            match seized.stop() {
                Ok(()) => Ok(seized),
                Err(error) => {
                    let _ = seized.request(libc::PTRACE_DETACH, 0);
                    Err(error)
                }
            }
        }

        fn stop(&mut self) -> io::Result<()> {
            self.request(libc::PTRACE_INTERRUPT, 0)?;
            if let Some(Called::Ended(signal)) = self.wait()? {
                return Err(io::Error::other(format!("it ended by signal {signal}")));
            }
            self.before = self.registers()?;
            self.has_ended = false;
            Ok(())
        }

        /// Writes bytes to where the process has nothing, and answers their address there. The next call of this
        /// function overwrites them.
        ///
        /// # Errors
        /// What the system says.
        pub fn put(&self, bytes: &[u8]) -> io::Result<u64> {
            let memory = OpenOptions::new()
                .write(true)
                .open(format!("/proc/{}/mem", self.pid))?;
            let address = (self.before.rsp - BELOW_STACK) & !15;
            memory.write_all_at(bytes, address)?;
            Ok(address)
        }

        /// Has the process make a system call, which mustn't block.
        ///
        /// # Errors
        /// If the process has ended before, or stops for another reason.
        pub fn call(&mut self, number: i64, arguments: &[u64]) -> io::Result<Called> {
            let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
            let mut registers = self.before;
            registers.rip = self.syscall;
            registers.rax = number as u64;
            // It isn't in a system call that the kernel would begin anew.
            registers.orig_rax = u64::MAX;
            registers.rdi = argument(0);
            registers.rsi = argument(1);
            registers.rdx = argument(2);
            registers.r10 = argument(3);
            registers.r8 = argument(4);
            registers.r9 = argument(5);
            self.set_registers(&registers)?;
            self.request(libc::PTRACE_SINGLESTEP, 0)?;
            if let Some(ended) = self.wait()? {
                return Ok(ended);
            }
            let after = self.registers()?;
            match after.rip == self.syscall + SYSCALL.len() as u64 {
                true => Ok(Called::Answered(after.rax as i64)),
                false => Err(io::Error::other("it stopped elsewhere than after the call")),
            }
        }

        /// Waits until the process stops; `Some` if it has ended instead.
        fn wait(&mut self) -> io::Result<Option<Called>> {
            let mut status = 0;
            // SAFETY: writes to `status`.
            let waited = unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) };
            if waited != self.pid {
                return Err(io::Error::last_os_error());
            }
            if libc::WIFSTOPPED(status) {
                return Ok(None);
            }
            self.has_ended = true;
            let signal = match libc::WIFSIGNALED(status) {
                true => libc::WTERMSIG(status),
                false => 0,
            };
            Ok(Some(Called::Ended(signal)))
        }

        fn registers(&self) -> io::Result<libc::user_regs_struct> {
            // SAFETY: plain numbers, for which zero is a value.
            let mut registers: libc::user_regs_struct = unsafe { core::mem::zeroed() };
            self.request(libc::PTRACE_GETREGS, (&raw mut registers).addr())?;
            Ok(registers)
        }

        fn set_registers(&self, registers: &libc::user_regs_struct) -> io::Result<()> {
            self.request(libc::PTRACE_SETREGS, core::ptr::from_ref(registers).addr())
        }

        fn request(&self, request: libc::c_uint, data: usize) -> io::Result<()> {
            // SAFETY: `data` is zero, or where the kernel reads or writes the registers that it has for the other process.
            let answer = unsafe { libc::ptrace(request, self.pid, 0, data) };
            match answer {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        }
    }

    /// Where the process has the instruction of a system call in its code.
    fn find_syscall(pid: libc::pid_t) -> io::Result<u64> {
        let memory = std::fs::File::open(format!("/proc/{pid}/mem"))?;
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let mut code = vec![0; PART];
        for line in maps.lines().filter(|line| line.contains(" r-xp ")) {
            let range = line.split(' ').next().unwrap_or_default();
            let (Some(start), Some(end)) = bounds(range) else {
                continue;
            };
            for at in (start..end).step_by(PART) {
                let length = PART.min(usize::try_from(end - at).unwrap_or(PART));
                let part = &mut code[..length];
                if memory.read_exact_at(part, at).is_err() {
                    break;
                }
                if let Some(found) = part.windows(SYSCALL.len()).position(|it| it == SYSCALL) {
                    return Ok(at + found as u64);
                }
            }
        }
        Err(io::Error::other("it has no code that makes a system call"))
    }

    /// How much of the code is looked at at once.
    const PART: usize = 1 << 16;

    /// Both ends of a range as in proc_pid_maps(5).
    fn bounds(range: &str) -> (Option<u64>, Option<u64>) {
        let (start, end) = range.split_once('-').unwrap_or_default();
        let number = |text| u64::from_str_radix(text, 16).ok();
        (number(start), number(end))
    }

    impl Drop for Seized {
        fn drop(&mut self) {
            if !self.has_ended {
                let _ = self.set_registers(&self.before);
                let _ = self.request(libc::PTRACE_DETACH, 0);
            }
        }
    }
}
