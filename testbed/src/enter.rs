use std::ffi::OsStr;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

/// Set in the environment of the program once it is inside.
pub const INSIDE: &str = "SKINK_TESTBED";

/// A directory that [`enter`] makes, for what is temporary: in private memory, also where the build lies below `/tmp`, which then
/// isn't.
const TEMPORARY: &str = "/run/skink-temporary";

/// What `TMPDIR` may be for a program that calls [`enter`], so that nothing temporary outlives it; `None` if the build
/// lies where that would be.
pub fn private_temporary() -> Option<&'static str> {
    let program = std::env::current_exe().ok()?;
    (!program.starts_with("/run")).then_some(TEMPORARY)
}

/// Runs the calling program anew in private namespaces and exits as that does, or, when it is there
/// already, makes its directories private and returns. Call it first in `main`.
///
/// Everything ends with the program: the processes since theirs is a process namespace of its own,
/// links and addresses since the network namespace is, files since `/tmp` and `/run` are private
/// memory file systems. It ends with the caller too, whatever ends that.
pub fn enter() -> io::Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return make_private();
    }
    let mut inside = privately(std::env::args_os().skip(1))?;
    let status = inside.status().map_err(|error| {
        let what = "can't run unshare (of util-linux) to make private namespaces";
        io::Error::new(error.kind(), format!("{what}: {error}"))
    })?;
    let of_signal = || 128 + status.signal().unwrap_or_default();
    std::process::exit(status.code().unwrap_or_else(of_signal))
}

/// A command that runs the calling program with `arguments` in private namespaces, where its [`enter`] returns.
/// It ends with the thread that starts it.
///
/// # Errors
/// If this program's file isn't known.
pub fn privately<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> io::Result<Command> {
    let mut unshare = Command::new("unshare");
    unshare.args([
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    if !is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare
        .arg(std::env::current_exe()?)
        .args(arguments)
        .env(INSIDE, if is_root() { "root" } else { "user" });
    end_with_caller(&mut unshare);
    Ok(unshare)
}

/// Has `command` killed when the calling process ends. `unshare` blocks the signals that interrupt,
/// and the first process of a process namespace doesn't get them; so the caller stays outside, where
/// it is ended as any program is.
fn end_with_caller(command: &mut Command) {
    let caller = rustix::process::getpid();
    let die_too = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // It may have ended before that.
        match rustix::process::getppid() == Some(caller) {
            true => Ok(()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    };
    // SAFETY: between fork and exec only two system calls are made, and nothing is allocated.
    unsafe {
        command.pre_exec(die_too);
    }
}

fn make_private() -> io::Result<()> {
    // As on any machine, only root makes directories in `/run`: what Skink keeps there must not be in `/tmp`
    // instead, which the build may lie below.
    for (directory, mode) in [("/tmp", "mode=1777"), ("/run", "mode=755")] {
        // The build may lie below either: keep what is there visible.
        let inside = std::env::current_exe()?.starts_with(directory);
        if !inside {
            run("mount", ["-t", "tmpfs", "-o", mode, "tmpfs", directory])?;
        }
    }
    if let Some(directory) = private_temporary() {
        std::fs::create_dir_all(directory)?;
        // Programs that aren't root's have something temporary, too.
        std::fs::set_permissions(directory, Permissions::from_mode(0o1777))?;
    }
    // A view of this network namespace's interfaces; it isn't needed where it can't be had.
    let _ = run("mount", ["-t", "sysfs", "sysfs", "/sys"]);
    run("ip", ["link", "set", "lo", "up"])
}

/// Runs a command to its end; what it said on standard error is the error.
pub(crate) fn run<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> io::Result<()> {
    let mut command = Command::new(program);
    command.args(arguments);
    run_command(command).map(drop)
}

/// Runs a command to its end and answers what it printed.
pub(crate) fn run_command(mut command: Command) -> io::Result<String> {
    let output = command
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{command:?}: {error}")))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!(
            "{command:?} ended with {}: {}",
            output.status,
            said.trim()
        )))
    }
}

/// Whether the program has root's rights over the machine (not just over a namespace).
pub fn is_root() -> bool {
    match std::env::var_os(INSIDE) {
        Some(value) => value == "root",
        None => rustix::process::geteuid().is_root(),
    }
}

/// Those of `programs` that are not in the search path.
pub fn missing_programs<'a>(programs: &[&'a str]) -> Vec<&'a str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |program: &str| {
        std::env::split_paths(&path)
            .chain(["/usr/sbin", "/sbin"].map(|directory| Path::new(directory).to_owned()))
            .any(|directory| directory.join(program).is_file())
    };
    programs
        .iter()
        .copied()
        .filter(|program| !found(program))
        .collect()
}
