//! Privileges: none to gain, no capability, another user.

use crate::error::SandboxError;
use crate::report::User;
use crate::sandbox::NOBODY;
use rustix::process::{DumpableBehavior, Gid, Uid, geteuid, getgid, getuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::io;

const NEEDS: &str = "this needs Linux 5.10 or newer, and a container that permits it";

/// Gives up everything, in the only order that works: the bounding set needs a capability, the change of
/// user another one, and it is the change that takes them away. Answers what became of the user, and
/// adds what couldn't be done to `missing`.
pub(crate) fn drop_all(
    user: Option<(u32, u32)>,
    missing: &mut Vec<&'static str>,
) -> Result<User, SandboxError> {
    set_no_new_privs(true).map_err(SandboxError::step("giving up new privileges", NEEDS))?;
    if !clear_bounding_set() {
        missing.push("the capability bounding set stays as it was (no CAP_SETPCAP)");
    }
    // Fails before Linux 4.3, which had no such set.
    let _ = clear_ambient_capability_set();
    let user = change_user(user, missing)?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).map_err(SandboxError::step("dropping capabilities", NEEDS))?;
    // After the change of user, which sets it to the system's default.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(SandboxError::step("hiding the memory", NEEDS))?;
    Ok(user)
}

/// Takes every capability out of the bounding set, also those that this build has no name for. Answers
/// whether it could.
fn clear_bounding_set() -> bool {
    for capability in 0..64 {
        // SAFETY: takes numbers only.
        let read = unsafe { libc::prctl(libc::PR_CAPBSET_READ, capability, 0, 0, 0) };
        match read {
            0 => continue,
            1 => {}
            // The kernel knows no capability of this number, nor of a higher one.
            _ => return true,
        }
        // SAFETY: takes numbers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            return false;
        }
    }
    true
}

fn change_user(
    user: Option<(u32, u32)>,
    missing: &mut Vec<&'static str>,
) -> Result<User, SandboxError> {
    let current = (getuid().as_raw(), getgid().as_raw());
    if !geteuid().is_root() {
        if user.is_some_and(|user| user != current) {
            missing.push("the configured user isn't taken, since only root can change it");
        }
        return Ok(User::Kept);
    }
    if set_thread_groups(&[]).is_err() {
        missing.push("supplementary groups stay (this user namespace doesn't let go of them)");
    }
    let (uid, gid) = user.unwrap_or((NOBODY, NOBODY));
    match become_user(uid, gid) {
        Ok(()) => Ok(User::Changed { from: current.0 }),
        // Nobody isn't mapped in the namespace that `unshare -Ur` makes, whose root is nobody special.
        Err(_) if user.is_none() => {
            missing.push("the user stays, since user 65534 can't be taken in this user namespace");
            Ok(User::Kept)
        }
        Err(source) => Err(SandboxError::Step {
            doing: "changing the user",
            source,
            advice: "configure a user and a group that exist in this user namespace",
        }),
    }
}

fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // The one value that isn't an id, but says "as it is".
    if uid == u32::MAX || gid == u32::MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}
