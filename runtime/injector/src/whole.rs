//! What is done to a process as a whole. It isn't traced: nobody takes a process for hung that is.
use crate::class::Class;
use crate::error::InjectError;
use crate::inject::{End, Injection, Outcome, Plan};
use crate::trace::Ending;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process, pidfd_open, prlimit,
};
use std::time::{Duration, Instant};

pub(crate) fn inject(
    number: u32,
    plan: &Plan,
    watch: &mut dyn FnMut(&Injection),
) -> Result<Outcome, InjectError> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(InjectError::Gone(number))?;
    let failed = |error: Errno| match error {
        Errno::SRCH => InjectError::Gone(number),
        error => InjectError::Trace("be signalled or limited", number, error.into()),
    };
    let ended = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
    let start = Instant::now();
    let what = harm(pid, plan.class).map_err(failed)?;
    let injection = Injection {
        class: plan.class,
        place: "the process".to_owned(),
        what: format!("{}: {what}", plan.class),
        before: String::new(),
        after: String::new(),
        injected_ms: 0,
        activated_ms: Some(0),
    };
    watch(&injection);
    let end = wait(&ended, plan.patience).then(|| End {
        after_ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        ending: Ending::Unseen,
        place: None,
    });
    Ok(Outcome {
        injections: vec![injection],
        executed: 0,
        end,
    })
}

/// Does it; answers what was done.
fn harm(pid: Pid, class: Class) -> Result<&'static str, Errno> {
    match class {
        Class::Kill => {
            kill_process(pid, Signal::KILL)?;
            Ok("it was killed (SIGKILL)")
        }
        Class::Hang => {
            kill_process(pid, Signal::STOP)?;
            Ok("it was stopped (SIGSTOP)")
        }
        _ => {
            let none = Rlimit {
                current: Some(0),
                maximum: Some(0),
            };
            prlimit(Some(pid), Resource::As, none)?;
            Ok("it gets no more memory (RLIMIT_AS)")
        }
    }
}

/// Whether it ended in time.
fn wait(ended: &rustix::fd::OwnedFd, time: Duration) -> bool {
    let time = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    let mut ended = [PollFd::new(ended, PollFlags::IN)];
    poll(&mut ended, Some(&time)).is_ok_and(|ready| ready > 0)
}
