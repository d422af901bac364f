//! Landlock: no file, no TCP port, no abstract socket, no signal outside. Best effort, by what the kernel
//! knows.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, Ruleset,
    RulesetAttr, RulesetError, RulesetStatus, Scope,
};

/// What Landlock refuses from which version of its interface on, and what is missing below.
const REFUSES: [(i32, &str); 4] = [
    (
        4,
        "TCP ports are left to seccomp (Landlock refuses them from Linux 6.7 on)",
    ),
    (
        5,
        "device controls are left to seccomp (Landlock refuses them from Linux 6.10 on)",
    ),
    (
        6,
        "signals and abstract sockets are left to seccomp (Landlock refuses them from Linux 6.12 on)",
    ),
    (
        9,
        "sockets in the file system are left to seccomp (Landlock refuses them from Linux 7.1 on)",
    ),
];

/// Refuses everything that Landlock can refuse. Answers the version of its interface that was used, and
/// adds what is missing to `missing`.
pub(crate) fn restrict(missing: &mut Vec<&'static str>) -> Result<Option<i32>, RulesetError> {
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V9))?
        .handle_access(AccessNet::from_all(ABI::V9))?
        .scope(Scope::from_all(ABI::V9))?
        .create()?
        .restrict_self()?;
    let version = match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _)
        | (_, LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) => None,
        (_, LandlockStatus::Available { effective_abi, .. }) => Some(effective_abi as i32),
    };
    match version {
        None => missing.push(
            "files, TCP ports and signals are left to seccomp (no Landlock: Linux 5.13, with \
             `landlock` among the kernel's `lsm=`)",
        ),
        Some(version) => missing.extend(
            REFUSES
                .iter()
                .filter(|(from, _)| version < *from)
                .map(|(_, what)| *what),
        ),
    }
    Ok(version)
}
