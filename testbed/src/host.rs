use crate::enter::run_command;
use crate::process::Process;
use crate::traffic::Traffic;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A network namespace that stands for a machine. It is gone when this value and the processes in
/// it are.
pub struct Host {
    namespace: OwnedFd,
    /// Keeps a process id in the namespace, by which a link's end can be moved there.
    holder: Process,
}

/// How to make a [`Host::cable`].
#[derive(Clone, Copy, Debug)]
pub struct Cable {
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Queues of each end in each direction.
    pub queues: u32,
}

impl Default for Cable {
    fn default() -> Cable {
        Cable {
            mtu: 1_500,
            queues: 1,
        }
    }
}

impl Host {
    /// A machine without any link but its own loopback.
    pub fn new() -> io::Result<Host> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "infinity"]);
        let holder = Process::spawn(command, "a network namespace")?;
        let path = format!("/proc/{}/ns/net", holder.id());
        let own = std::fs::read_link("/proc/self/ns/net")?;
        holder.wait_until("the namespace is made", || {
            std::fs::read_link(&path).is_ok_and(|link| link != own)
        })?;
        let namespace = std::fs::File::open(&path)?.into();
        let host = Host { namespace, holder };
        host.ip("link set lo up")?;
        // Router solicitations and the like would only blur what is measured and counted.
        let mut sysctl = host.command("sh");
        sysctl.args(["-c", "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; echo 0 >/proc/sys/net/ipv6/conf/default/router_solicitations"]);
        let _ = run_command(sysctl);
        Ok(host)
    }

    /// A command that will run on this host.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let namespace = self.namespace.as_raw_fd();
        // SAFETY: between fork and exec only an async-signal-safe system call is made, on a
        // descriptor that the parent keeps open until the command is spawned.
        unsafe {
            command.pre_exec(move || {
                if libc::setns(namespace, libc::CLONE_NEWNET) != 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        command
    }

    /// Runs `ip` with these arguments on this host.
    pub fn ip(&self, arguments: &str) -> io::Result<String> {
        let mut command = self.command("ip");
        command.args(arguments.split_whitespace());
        run_command(command)
    }

    /// Joins this host's new interface `here` to `other`'s new interface `there`, both up.
    pub fn cable(&self, here: &str, other: &Host, there: &str, cable: Cable) -> io::Result<()> {
        let Cable { mtu, queues } = cable;
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        self.ip(&format!(
            "link add {here} mtu {mtu} {queues} type veth peer name {there} mtu {mtu} {queues} netns {}",
            other.holder.id()
        ))?;
        self.ip(&format!("link set {here} up"))?;
        other.ip(&format!("link set {there} up"))?;
        Ok(())
    }

    /// Gives interface `name` an address such as `10.0.0.1/24`, usable at once.
    pub fn address(&self, name: &str, address: &str) -> io::Result<()> {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        self.ip(&format!("addr add {address} dev {name}{nodad}"))?;
        Ok(())
    }

    /// Lets kernel threads of their own, called `napi/NAME-…`, receive what comes in through
    /// interface `name`, so that this work can be pinned and is charged to nobody else. A veth has
    /// them only while it is up and joins inbound segments ([`crate::Offload::Joining`]) or has an
    /// XDP program.
    pub fn threaded_napi(&self, name: &str) -> io::Result<()> {
        // sysfs shows the interfaces of the namespace in which it was mounted.
        let script = format!("mount -t sysfs sysfs /sys && echo 1 >/sys/class/net/{name}/threaded");
        let mut command = self.command("unshare");
        command.args(["--mount", "sh", "-c", &script]);
        run_command(command).map(drop)
    }

    /// Has processor `cpu` receive what comes in through interface `name` (receive packet steering),
    /// whichever processor it arrives on. What passes a veth as large segments has no NAPI: without
    /// this the sender's processor does the receiver's work.
    pub fn receive_on(&self, name: &str, cpu: usize) -> io::Result<()> {
        let mask = 1_u32.checked_shl(u32::try_from(cpu).unwrap_or(32));
        let mask = mask.ok_or(io::ErrorKind::InvalidInput)?;
        let script = format!(
            "mount -t sysfs sysfs /sys && for queue in /sys/class/net/{name}/queues/rx-*; do \
             echo {mask:x} >$queue/rps_cpus || exit; done"
        );
        let mut command = self.command("unshare");
        command.args(["--mount", "sh", "-c", &script]);
        run_command(command).map(drop)
    }

    /// After how many polls that find nothing frames interrupt again (`napi_defer_hard_irqs`): 0 unless interrupts
    /// through interface `name` are put off.
    pub fn interrupts_put_off(&self, name: &str) -> io::Result<u32> {
        let file = format!("/sys/class/net/{name}/napi_defer_hard_irqs");
        let mut command = self.command("unshare");
        let script = format!("mount -t sysfs sysfs /sys && cat {file}");
        command.args(["--mount", "sh", "-c", &script]);
        let told = run_command(command)?;
        told.trim().parse().map_err(io::Error::other)
    }

    /// What interface `name` has carried until now.
    pub fn traffic(&self, name: &str) -> io::Result<Traffic> {
        Traffic::of(self.holder.id(), name)
    }

    /// Runs `work` in a thread that is on this host.
    pub fn thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<std::thread::JoinHandle<io::Result<T>>> {
        let namespace = self.namespace.try_clone()?;
        Ok(std::thread::spawn(move || {
            // SAFETY: a plain system call; it moves only the calling thread.
            if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(work())
        }))
    }
}
