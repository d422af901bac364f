//! Another build for a process: started beside the one that runs, put in its place once it has said what
//! it is, and taken back if it doesn't last (NewtOS, section 2.5.3: live update is a restart with
//! other code; adoption does the rest).
use super::{Component, State};
use crate::interfaces;
use skink_control::{
    Build, ComponentProcess, Executable, LinkError, Report, SignalDescriptor, spawn_component,
};
use std::time::{Duration, Instant};

/// How long a build may take to say which one it is.
pub const INTRODUCTION: Duration = Duration::from_secs(5);
/// How long it may take until it serves: connections wait meanwhile.
pub const START: Duration = Duration::from_secs(2);
/// Who serves this long is kept.
pub const TRIAL: Duration = Duration::from_millis(500);

/// Where another build is on its way.
enum Stage {
    /// Its process was started then, and hasn't said yet what it is.
    Started(Box<ComponentProcess>, Instant),
    /// It can take over: the process whose place it takes is about to end.
    Ready(Box<ComponentProcess>, Instant),
    /// It has the place. Since when the one before was about to end.
    OnTrial(Instant),
    /// It had the place, and isn't kept; why.
    TakenBack(String),
}

/// What came of another build.
#[derive(PartialEq, Eq, Debug)]
pub enum Upgraded {
    /// Nothing yet; when to ask again at the latest.
    Wait(Instant),
    /// It is kept. How long nobody served.
    Kept(Duration),
    /// It isn't, and the one before serves, or is being started; why.
    Refused(String),
}

/// One build's way into the place of another.
pub struct Upgrade {
    executable: Executable,
    /// For the case that it is no good.
    before: Executable,
    release: String,
    stage: Stage,
}

impl Component {
    /// The build that runs, or will next.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }

    /// Starts another build beside what runs.
    pub fn upgrade(
        &mut self,
        now: Instant,
        signals: &SignalDescriptor,
        executable: &Executable,
    ) -> Result<(), String> {
        let process = self
            .spawn(executable, signals)
            .map_err(|why| format!("{}: {why}", executable.name().display()))?;
        self.upgrade = Some(Upgrade {
            executable: executable.clone(),
            before: self.executable.clone(),
            release: String::new(),
            stage: Stage::Started(Box::new(process), now),
        });
        Ok(())
    }

    pub(super) fn spawn(
        &self,
        executable: &Executable,
        signals: &SignalDescriptor,
    ) -> Result<ComponentProcess, String> {
        let arguments = ["component", self.name.as_str()];
        spawn_component(executable, &arguments, &self.cores, signals)
            .map_err(|error| format!("its process can't be made: {error}"))
    }

    /// Goes on with what [`Component::upgrade`] began.
    pub fn drive_upgrade(&mut self, now: Instant) -> Upgraded {
        let Some(mut upgrade) = self.upgrade.take() else {
            return Upgraded::Refused("nothing was begun".to_owned());
        };
        let waits = match upgrade.stage {
            Stage::Started(mut process, since) => match hear(&mut process, &interfaces::own()) {
                Ok(Some(build)) => {
                    upgrade.release = build.release;
                    upgrade.stage = Stage::Ready(process, now);
                    // Adoption is made for that: there is no other way to hand over.
                    self.kill();
                    now + START
                }
                Ok(None) if now < since + INTRODUCTION => {
                    upgrade.stage = Stage::Started(process, since);
                    since + INTRODUCTION
                }
                heard => {
                    end(&mut process);
                    let silent = format!("it says nothing for {} s", INTRODUCTION.as_secs());
                    return Upgraded::Refused(heard.err().unwrap_or(silent));
                }
            },
            Stage::Ready(..) => now + START,
            Stage::OnTrial(begun) => match self.state {
                State::Serving(since) if since + TRIAL <= now => {
                    return Upgraded::Kept(since.saturating_duration_since(begun));
                }
                State::Serving(since) => since + TRIAL,
                _ => now + START,
            },
            Stage::TakenBack(why) => return Upgraded::Refused(why),
        };
        self.upgrade = Some(upgrade);
        Upgraded::Wait(waits)
    }

    /// Whether another build waits for the end of the process that runs.
    pub fn is_replaced(&self) -> bool {
        let stage = self.upgrade.as_ref().map(|upgrade| &upgrade.stage);
        matches!(stage, Some(Stage::Ready(..)))
    }

    /// Whether the process that runs is of a build that isn't kept yet.
    pub fn is_on_trial(&self) -> bool {
        let stage = self.upgrade.as_ref().map(|upgrade| &upgrade.stage);
        matches!(stage, Some(Stage::OnTrial(_)))
    }

    /// The process of the other build, if it waits for its turn: it is the next one.
    pub(super) fn take_candidate(&mut self) -> Option<ComponentProcess> {
        let mut upgrade = self
            .upgrade
            .take_if(|it| matches!(it.stage, Stage::Ready(..)))?;
        let Stage::Ready(process, begun) = upgrade.stage else {
            return None;
        };
        upgrade.stage = Stage::OnTrial(begun);
        self.executable = upgrade.executable.clone();
        self.release = upgrade.release.clone();
        self.upgrade = Some(upgrade);
        Some(*process)
    }

    /// The process has ended. If it was on trial the build isn't kept: the one before is next.
    pub(super) fn judge(&mut self, why: &str) {
        if let Some(upgrade) = &mut self.upgrade
            && matches!(upgrade.stage, Stage::OnTrial(_))
        {
            self.executable = upgrade.before.clone();
            upgrade.stage = Stage::TakenBack(why.to_owned());
        }
    }

    /// Its process, while it isn't the component's.
    pub(super) fn candidate(&self) -> Option<&ComponentProcess> {
        match &self.upgrade.as_ref()?.stage {
            Stage::Started(process, _) | Stage::Ready(process, _) => Some(process),
            Stage::OnTrial(_) | Stage::TakenBack(_) => None,
        }
    }
}

/// Ends a process that never had a place.
pub fn end(process: &mut ComponentProcess) {
    process.kill();
    process.wait();
}

/// What a build says of itself, unless it hasn't yet. An error says why it can't be used.
pub fn hear(process: &mut ComponentProcess, own: &Build) -> Result<Option<Build>, String> {
    match process.link.receive() {
        Ok(Some((Report::Born(build), _))) => {
            let conflicts = own.conflicts(&build);
            if conflicts.is_empty() {
                return Ok(Some(build));
            }
            Err(format!(
                "it is release {}, and can't work with what runs ({}): end all programs and start skink up \
                 anew to change to it",
                build.release,
                conflicts.join("; ")
            ))
        }
        Ok(Some(_)) => Err("it said something else than what it is".to_owned()),
        Ok(None) => match process.try_wait() {
            Ok(Some(status)) => Err(format!("{} at once", super::ends::describe(status))),
            Ok(None) => Ok(None),
            Err(error) => Err(format!("it can't be waited for: {error}")),
        },
        Err(LinkError::Closed) => {
            Err("it isn't a build of skink, or not one that can be a component".to_owned())
        }
        Err(LinkError::Failed(what)) => Err(format!("it can't be understood: {what}")),
    }
}
