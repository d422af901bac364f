//! Live update of the supervisor itself: it executes the other build, and stays the same process.
//!
//! The build is started first just to say what it is. Once nothing is under way a standby is made, which is of
//! the build before; the supervisor executes the other one, which inherits all descriptors and what is known of
//! them. Until it has served for a while that standby isn't replaced, and whatever a standby must know of before it has
//! consequences waits: should the other build end or hang, the standby goes on as after any death of a
//! supervisor, and tells who asked for the update.
use super::Served;
use super::upgrading::Upgrading;
use crate::component::SUPERVISOR;
use crate::interfaces;
use crate::up::component::upgrade::{INTRODUCTION, TRIAL, end, hear};
use serde::{Deserialize, Serialize};
use skink_control::{ComponentProcess, Executable, SignalDescriptor, spawn_component};
use std::time::{Duration, Instant};

/// How long to wait for a moment when nothing is under way.
const REST: Duration = Duration::from_secs(10);
/// How often to look for one.
const LOOK: Duration = Duration::from_millis(5);

/// How far it is.
#[derive(Serialize, Deserialize)]
pub enum Inheriting {
    /// A process of the other build was started then, to say what it is.
    #[serde(skip)]
    Met(Box<ComponentProcess>, Instant),
    /// The build fits, and is executed when nothing is under way: until then.
    Fits(#[serde(with = "skink_inherit::moments")] Instant),
    /// It was executed then. Whoever finds this and didn't execute it is the standby that goes on, or the heir.
    Executed(#[serde(with = "skink_inherit::moments")] Instant),
    /// It serves.
    OnTrial {
        #[serde(with = "skink_inherit::moments")]
        executed: Instant,
        #[serde(with = "skink_inherit::moments")]
        since: Instant,
    },
}

/// What comes next.
pub enum Next {
    Wait(Inheriting, Instant),
    Over(Result<Duration, String>),
}

impl Inheriting {
    /// Starts a process of the other build.
    pub fn begin(
        now: Instant,
        executable: &Executable,
        signals: &SignalDescriptor,
    ) -> Result<Inheriting, String> {
        let process = spawn_component(executable, &["component", SUPERVISOR], &[], signals);
        let process = process.map_err(|error| {
            let name = executable.name().display();
            format!("{name}: its process can't be made: {error}")
        })?;
        Ok(Inheriting::Met(Box::new(process), now))
    }

    /// Goes on.
    pub fn drive(self, now: Instant) -> Next {
        match self {
            Inheriting::Met(mut process, since) => {
                let limit = since + INTRODUCTION;
                let heard = hear(&mut process, &interfaces::of_supervisor());
                if let (Ok(None), true) = (&heard, now < limit) {
                    return Next::Wait(Inheriting::Met(process, since), limit);
                }
                end(&mut process);
                match heard {
                    Ok(Some(_)) => Next::Wait(Inheriting::Fits(now + REST), now + LOOK),
                    Ok(None) => Next::Over(Err(format!(
                        "it says nothing for {} s",
                        INTRODUCTION.as_secs()
                    ))),
                    Err(why) => Next::Over(Err(why)),
                }
            }
            Inheriting::Fits(until) if until <= now => {
                Next::Over(Err("a process of the stack doesn't run".to_owned()))
            }
            Inheriting::Fits(until) => Next::Wait(self, until.min(now + LOOK)),
            Inheriting::Executed(_) => Next::Over(Err(
                "it was executed, and that is all that is known".to_owned(),
            )),
            Inheriting::OnTrial { executed, since } => match since + TRIAL <= now {
                true => Next::Over(Ok(since.saturating_duration_since(executed))),
                false => Next::Wait(self, since + TRIAL),
            },
        }
    }

    /// The process that is to be polled.
    pub fn process(&self) -> Option<&ComponentProcess> {
        match self {
            Inheriting::Met(process, _) => Some(process),
            Inheriting::Fits(_) | Inheriting::Executed(_) | Inheriting::OnTrial { .. } => None,
        }
    }
}

impl Served {
    /// The build that is to be executed now.
    pub fn heir(&self) -> Option<&Executable> {
        let upgrading = self.upgrading.as_ref()?;
        let Some((executable, Inheriting::Fits(_))) = upgrading.inheriting() else {
            return None;
        };
        let rests = self.stack.processes.iter().all(|it| it.is_at_rest());
        (rests && self.errands.is_empty() && !self.unsaved && self.newcomers.is_empty())
            .then_some(executable)
    }

    /// From now on whoever finds that isn't the process that executes it, or has failed to.
    pub fn executing(&mut self, now: Instant) {
        self.set_inheriting(Inheriting::Executed(now));
        // Only this process knows how the NIC was before.
        self.stack.plant.adapt_anew();
    }

    /// It wasn't executed, or didn't last.
    pub fn not_executed(&mut self, why: &str) {
        let Some(upgrading) = &mut self.upgrading else {
            return;
        };
        if let Some((_, Inheriting::Executed(_))) = upgrading.inheriting() {
            upgrading.not_inherited(why);
        }
    }

    /// This program was executed, and has inherited all.
    pub fn inherit(&mut self) {
        let executed = match self.upgrading.as_ref().and_then(Upgrading::inheriting) {
            Some((_, Inheriting::Executed(at))) => *at,
            _ => Instant::now(),
        };
        let since = Instant::now();
        self.set_inheriting(Inheriting::OnTrial { executed, since });
        self.stack.plant.inherit();
        self.stack.processes.iter_mut().for_each(|it| it.inherit());
    }

    /// Whether this program was executed, and the standby is still of the build before.
    pub fn is_on_trial(&self) -> bool {
        let inheriting = self.upgrading.as_ref().and_then(Upgrading::inheriting);
        matches!(inheriting, Some((_, Inheriting::OnTrial { .. })))
    }

    fn set_inheriting(&mut self, inheriting: Inheriting) {
        if let Some(upgrading) = &mut self.upgrading {
            upgrading.set_inheriting(inheriting);
        }
    }

    /// The process of the other build, while it says what it is.
    pub fn met(&self) -> Option<&ComponentProcess> {
        let (_, inheriting) = self.upgrading.as_ref()?.inheriting()?;
        inheriting.process()
    }
}
