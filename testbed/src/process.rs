use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a condition may take to come true before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(5);

/// This process's number, and its process namespace's: in private ones all have the same numbers, and
/// where the build lies below `/tmp` that isn't private.
fn own() -> String {
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let namespace = namespace.to_string_lossy();
    let number: String = namespace.chars().filter(char::is_ascii_digit).collect();
    format!("{number}-{}", std::process::id())
}

/// A running program; it is ended when this value goes.
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

/// A process that a signal has stopped, among this one and its descendants.
fn stopped(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    if stat.rsplit(')').next()?.starts_with(" T") {
        return Some(pid);
    }
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let numbers = children.split_whitespace();
    numbers
        .filter_map(|number| number.parse().ok())
        .find_map(stopped)
}

impl Process {
    /// Starts `command`; what it prints goes to a file that [`Process::log`] reads.
    pub fn spawn(mut command: Command, name: &str) -> io::Result<Process> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let log = std::env::temp_dir().join(format!("skink-{}-{number}.log", own()));
        let output = File::create(&log)?;
        command.stdin(Stdio::null());
        command.stdout(output.try_clone()?).stderr(output);
        // With it Python writes a line word by word, and who waits for the first one would take that for the line.
        command.env_remove("PYTHONUNBUFFERED");
        let child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("can't start {name}: {error}"))
        })?;
        Ok(Process {
            child,
            name: name.to_owned(),
            log,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// All it has printed so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map_or_else(
            |_| String::new(),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// Waits until `condition` holds; fails after 20 s, or when the program ends before.
    pub fn wait_until(&self, what: &str, mut condition: impl FnMut() -> bool) -> io::Result<()> {
        let start = Instant::now();
        while !condition() {
            let ended = self.has_ended();
            if ended || start.elapsed() > PATIENCE {
                let why = match stopped(self.id()) {
                    _ if ended => "it ended".to_owned(),
                    Some(pid) => format!(
                        "somebody has stopped process {pid} of it by a signal (SIGSTOP): continue that, and try again"
                    ),
                    None => "it took too long".to_owned(),
                };
                return Err(io::Error::other(format!(
                    "{}: waited until {what}, but {why}; it printed:\n{}",
                    self.name,
                    self.log()
                )));
            }
            std::thread::sleep(INTERVAL);
        }
        Ok(())
    }

    /// Whether it has ended, whatever it came to.
    pub fn has_ended(&self) -> bool {
        !Path::new(&format!("/proc/{}", self.id())).exists() || self.is_zombie()
    }

    fn is_zombie(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()));
        stat.is_ok_and(|stat| {
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(" Z"))
        })
    }

    /// Waits until the program ends; kills it after `limit`.
    pub fn wait(mut self, limit: Duration) -> io::Result<(ExitStatus, String)> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok((status, self.log()));
            }
            if start.elapsed() > limit {
                let said = self.log();
                return Err(io::Error::other(format!(
                    "{} did not end within {limit:?}; it printed:\n{said}",
                    self.name
                )));
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Asks the program to end (SIGTERM), and waits for that.
    pub fn stop(self) -> io::Result<(ExitStatus, String)> {
        self.signal(rustix::process::Signal::TERM);
        self.wait(PATIENCE)
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.signal(rustix::process::Signal::TERM);
            let start = Instant::now();
            while let Ok(None) = self.child.try_wait() {
                if start.elapsed() > Duration::from_secs(5) {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    break;
                }
                std::thread::sleep(INTERVAL);
            }
        }
        let _ = std::fs::remove_file(&self.log);
    }
}

/// A directory that is removed with this value.
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty directory whose name holds `name`, readable by all.
    pub fn new(name: &str) -> io::Result<Scratch> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("skink-{name}-{}-{number}", own()));
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
