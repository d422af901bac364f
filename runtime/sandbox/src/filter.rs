//! Lists of system calls, compiled for seccomp.

use crate::calls::{Call, Condition, Value};
use crate::error::SandboxError;
use crate::refusal::Refusal;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;

/// A filter, ready for the kernel.
pub(crate) struct Program {
    code: BpfProgram,
    system_calls: usize,
}

/// What ends a process that tells of its refused call: SIGSYS, sent by itself.
const TELL: Call = Call::only(
    "tgkill",
    libc::SYS_tgkill,
    &[&[
        Condition {
            argument: 0,
            mask: 0xffff_ffff,
            value: Value::OwnProcess,
        },
        crate::calls::condition(2, 0xffff_ffff, libc::SIGSYS as u64),
    ]],
);

pub(crate) fn compile(lists: &[&[Call]], refusal: Refusal) -> Result<Program, SandboxError> {
    let allowed = lists.iter().copied().flatten();
    let (action, allowed) = match refusal {
        Refusal::Kill => (SeccompAction::KillProcess, merge(allowed)),
        Refusal::Tell => (SeccompAction::Trap, merge(allowed.chain([&TELL]))),
    };
    if lists.iter().all(|list| list.is_empty()) {
        return Err(SandboxError::Filter("it is empty".to_owned()));
    }
    let system_calls = allowed.len();
    let code =
        assemble(allowed, action).map_err(|error| SandboxError::Filter(error.to_string()))?;
    Ok(Program { code, system_calls })
}

/// The rules for each call. None: any arguments will do, whatever rules another list has.
fn merge<'a>(calls: impl Iterator<Item = &'a Call>) -> BTreeMap<i64, Vec<&'static [Condition]>> {
    let mut merged: BTreeMap<i64, Vec<&'static [Condition]>> = BTreeMap::new();
    for call in calls {
        match merged.entry(call.number) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(call.rules.to_vec());
            }
            std::collections::btree_map::Entry::Occupied(mut place) => {
                if call.rules.is_empty() || place.get().is_empty() {
                    place.get_mut().clear();
                } else {
                    place.get_mut().extend_from_slice(call.rules);
                }
            }
        }
    }
    merged
}

fn assemble(
    allowed: BTreeMap<i64, Vec<&'static [Condition]>>,
    refused: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let mut rules = BTreeMap::new();
    for (number, own) in allowed {
        let own: Result<Vec<_>, _> = own.into_iter().map(rule).collect();
        rules.insert(number, own?);
    }
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
}

fn rule(conditions: &[Condition]) -> Result<SeccompRule, BackendError> {
    let conditions: Result<Vec<_>, _> = conditions
        .iter()
        .map(|condition| {
            let value = match condition.value {
                Value::Is(value) => value,
                Value::OwnProcess => u64::from(std::process::id()),
            };
            let length = match condition.mask >> 32 {
                0 => SeccompCmpArgLen::Dword,
                _ => SeccompCmpArgLen::Qword,
            };
            let test = SeccompCmpOp::MaskedEq(condition.mask);
            SeccompCondition::new(condition.argument, length, test, value)
        })
        .collect();
    SeccompRule::new(conditions?)
}

impl Program {
    /// How many system calls it lets through.
    pub(crate) fn system_calls(&self) -> usize {
        self.system_calls
    }

    /// Puts it in force for this thread, for good.
    pub(crate) fn apply(&self) -> Result<(), SandboxError> {
        const ADVICE: &str = "the kernel must have CONFIG_SECCOMP_FILTER";
        seccompiler::apply_filter(&self.code).map_err(|error| match error {
            seccompiler::Error::Seccomp(source) | seccompiler::Error::Prctl(source) => {
                SandboxError::Step {
                    doing: "applying the seccomp filter",
                    source,
                    advice: ADVICE,
                }
            }
            other => SandboxError::Step {
                doing: "applying the seccomp filter",
                source: io::Error::other(other),
                advice: ADVICE,
            },
        })
    }
}

#[cfg(test)]
mod tests;
