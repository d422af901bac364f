//! The program to run, and the library to preload into it.
use super::elf::{self, Kind};
use super::user::User;
use crate::failure::{Failure, NOT_FOUND};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How deep interpreters may be nested, as in the kernel (`BINPRM_MAX_RECURSION` is 4).
const MAXIMUM_INTERPRETERS: usize = 4;
const HEAD_BYTES: u64 = 16 * 1024;
const LIBRARY: &str = "libskink.so";

/// The file that a shell would run for `name`.
pub fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    find_in(name, &path)
}

fn find_in(name: &OsStr, path: &OsStr) -> Result<PathBuf, Failure> {
    let shown = name.to_string_lossy();
    let executable = |path: &Path| {
        let metadata = std::fs::metadata(path);
        metadata.map(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        return match executable(Path::new(name)) {
            Ok(true) => Ok(name.into()),
            Ok(false) => Err(Failure::cannot_run(format!(
                "{shown} is not an executable file: make it one with `chmod +x {shown}`, or give another program"
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failure {
                message: format!("there is no program {shown}: check the path"),
                code: NOT_FOUND,
            }),
            Err(error) => Err(Failure::cannot_run(format!(
                "can't look at {shown}: {error}"
            ))),
        };
    }
    let mut candidates = std::env::split_paths(path).map(|directory| directory.join(name));
    let found =
        candidates.find(|candidate| !name.is_empty() && executable(candidate).unwrap_or(false));
    found.ok_or_else(|| Failure {
        message: format!(
            "there is no program {shown} in any directory of PATH: check the name, or give its path"
        ),
        code: NOT_FOUND,
    })
}

/// Refuses programs into which no library can be preloaded, so that they would silently use the
/// kernel's stack.
pub fn check(path: &Path, user: Option<&User>) -> Result<(), Failure> {
    let mut path = path.to_owned();
    for _ in 0..=MAXIMUM_INTERPRETERS {
        check_privileges(&path, user)?;
        let shown = path.display();
        let head = read_head(&path);
        let head =
            head.map_err(|error| Failure::cannot_run(format!("can't read {shown}: {error}")))?;
        let refuse = |why: &str| Err(Failure::cannot_run(format!("{shown} {why}")));
        path = match elf::kind(&head) {
            Kind::Dynamic(loader) if loader.contains("ld-musl") => {
                return refuse(
                    "is linked with musl, and Skink's library needs glibc: use a glibc build of it",
                );
            }
            Kind::Dynamic(_) => return Ok(()),
            Kind::Static => {
                return refuse(
                    "is statically linked, so Skink can't preload its library into it: use a dynamically linked build of it (for Go: one with cgo)",
                );
            }
            Kind::Foreign => {
                return refuse(
                    "is built for another kind of machine or word size than skink, so Skink can't preload its library into it: use a native 64-bit build of it",
                );
            }
            Kind::Unknown => {
                return refuse(
                    "is neither an ELF program nor a script that begins with #!: run it with its interpreter, such as `sh FILE`",
                );
            }
            Kind::Script(interpreter, argument) => {
                match next_program(&interpreter, argument.as_deref()) {
                    Some(next) => next,
                    None => interpreter.into(),
                }
            }
        };
    }
    Err(Failure::cannot_run(format!(
        "{} is a script of scripts, too deeply nested to run",
        path.display()
    )))
}

/// `#!/usr/bin/env NAME` runs NAME.
fn next_program(interpreter: &str, argument: Option<&str>) -> Option<PathBuf> {
    if Path::new(interpreter).file_name()? != "env" {
        return None;
    }
    let mut words = argument?.split_whitespace();
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    find(OsStr::new(name)).ok()
}

/// The loader ignores `LD_PRELOAD` where a program gains privileges.
fn check_privileges(path: &Path, user: Option<&User>) -> Result<(), Failure> {
    let metadata = std::fs::metadata(path).map_err(|error| Failure {
        message: format!(
            "can't find {}, which should run the program: {error}",
            path.display()
        ),
        code: NOT_FOUND,
    })?;
    let own = User {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    let User { uid, gid } = user.copied().unwrap_or(own);
    let mode = metadata.permissions().mode();
    let gains = if mode & 0o4000 != 0 && metadata.uid() != uid {
        "setuid"
    } else if mode & 0o2010 == 0o2010 && metadata.gid() != gid {
        "setgid"
    } else if uid != 0 && has_capabilities(path) {
        "given file capabilities"
    } else {
        return Ok(());
    };
    Err(Failure::cannot_run(format!(
        "{} is {gains}, so the system doesn't let Skink preload its library into it: run skink as the user it changes to, or use a copy without that",
        path.display()
    )))
}

fn has_capabilities(path: &Path) -> bool {
    let mut value = [0u8; 64];
    rustix::fs::getxattr(path, c"security.capability", &mut value).is_ok()
}

fn read_head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(head)
}

/// The library to preload: `SKINK_LIBRARY`, or `libskink.so` beside this program or where a package
/// puts it. What the loader couldn't load is refused: it would say so in a line, and the program would use the kernel's stack.
pub fn library(user: Option<&User>) -> Result<PathBuf, Failure> {
    let path = find_library()?;
    let shown = path.display();
    let refuse = |why: &str| Err(Failure::own(format!("the library {shown} {why}")));
    let head = read_head(&path);
    let head = head.map_err(|error| Failure::own(format!("can't read {shown}: {error}")))?;
    if !head.starts_with(b"\x7fELF") {
        return refuse("isn't one: unset SKINK_LIBRARY, or set it to the path of libskink.so");
    }
    let mount = rustix::fs::statvfs(&path);
    if mount.is_ok_and(|it| it.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC)) {
        return refuse(
            "is on a file system that is mounted with `noexec`: put it elsewhere, and set SKINK_LIBRARY to its path",
        );
    }
    if let Some(user) = user.filter(|user| user.uid != 0)
        && let Some(closed) = path
            .ancestors()
            .find(|part| !is_open_to(part, user, part == &path))
    {
        return refuse(&format!(
            "can't be read by user {}, who has no right to {}: put it where everybody may read it, and set SKINK_LIBRARY to its path",
            user.uid,
            closed.display()
        ));
    }
    Ok(path)
}

/// Whether a user may read the file, or go through the directory. Where there is an access control list, so it is taken to be.
fn is_open_to(path: &Path, user: &User, is_file: bool) -> bool {
    let Ok(metadata) = std::fs::metadata(path) else {
        return true;
    };
    if rustix::fs::getxattr(path, c"system.posix_acl_access", &mut [0u8; 256]).is_ok() {
        return true;
    }
    let shift = match (metadata.uid() == user.uid, metadata.gid() == user.gid) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    let wanted = if is_file { 0o4 } else { 0o1 };
    metadata.permissions().mode() >> shift & wanted != 0
}

fn find_library() -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os("SKINK_LIBRARY") {
        let path = std::path::absolute(PathBuf::from(path)).unwrap_or_default();
        return match path.is_file() {
            true => usable(path),
            false => Err(Failure::own(format!(
                "SKINK_LIBRARY names {}, which isn't there: set it to the path of {LIBRARY}, or unset it",
                path.display()
            ))),
        };
    }
    let program = std::env::current_exe()
        .map_err(|error| Failure::own(format!("can't find out where skink itself is ({error}): set SKINK_LIBRARY to the path of {LIBRARY}")))?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    let candidates = [
        directory.join(LIBRARY),
        directory.join("../lib/skink").join(LIBRARY),
    ];
    let found = candidates.iter().find(|candidate| candidate.is_file());
    match found {
        Some(path) => usable(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())),
        None => Err(Failure::own(format!(
            "can't find {LIBRARY}, neither as {} nor as {}: install it there, or set SKINK_LIBRARY to its path",
            candidates[0].display(),
            candidates[1].display()
        ))),
    }
}

/// The loader splits `LD_PRELOAD` at spaces and colons, puts other words in the place of some that begin with a dollar sign, and
/// knows no way to quote any.
fn usable(path: PathBuf) -> Result<PathBuf, Failure> {
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| matches!(byte, b' ' | b':' | b'$'))
    {
        return Err(Failure::own(format!(
            "the path {} has a space, colon or dollar sign in it, which LD_PRELOAD can't have: put {LIBRARY} elsewhere and set SKINK_LIBRARY to its path",
            path.display()
        )));
    }
    Ok(path)
}

#[cfg(test)]
mod tests;
