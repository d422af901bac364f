use crate::site::PATIENCE;
use crate::{Failure, Network, Outcome};
use rustix::process::Signal;
use serde_json::Value;
use skink_testbed::{Process, signal};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// A process of the stack, as `skink ps` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its name in the topology.
    pub name: String,
    /// Its process id if it runs.
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u64,
}

impl Network {
    /// The processes of the stack, without those that only supervise.
    ///
    /// # Errors
    /// If `skink ps` doesn't say.
    pub fn members(&self) -> Result<Vec<Member>, Failure> {
        let mut command = self.skink.command(&Network::tool()?.to_string_lossy());
        command.args(["ps", "--json", "--sample", "0"]);
        let text = Network::finish(command, "skink ps", PATIENCE)?;
        let report: Value = serde_json::from_str(&text)?;
        let processes = report["instances"][0]["processes"].as_array();
        let members: Vec<Member> = processes
            .into_iter()
            .flatten()
            .filter(|it| {
                it["components"]
                    .as_array()
                    .is_some_and(|all| !all.is_empty())
            })
            .map(member)
            .collect();
        match members.is_empty() {
            false => Ok(members),
            true => Err(Failure::Wrong(format!(
                "no process in what skink ps says:\n{text}"
            ))),
        }
    }

    /// Kills a process of the stack, or stops it for good, and waits until a successor runs, and all
    /// others. Answers for how long it was away.
    ///
    /// # Errors
    /// If it isn't replaced, or if another one was, or it more than once.
    pub fn replace(&self, name: &str, by: Signal) -> Result<Duration, Failure> {
        let before = self.members()?;
        let victim = before.iter().find(|it| it.name == name);
        let pid = victim.and_then(|it| it.pid);
        let pid = pid.ok_or_else(|| Failure::Wrong(format!("{name} doesn't run: {before:?}")))?;
        signal(pid, by)?;
        let start = Instant::now();
        let mut now = Err(Failure::Wrong(String::new()));
        self.wait_until(&format!("{name} is started again"), || {
            now = self.members();
            now.as_ref().is_ok_and(|all| {
                let again = |it: &Member| it.name == name && it.pid != Some(pid);
                all.iter().all(|it| it.pid.is_some()) && all.iter().any(again)
            })
        })?;
        let took = start.elapsed();
        let mut expected = restarts(&before);
        *expected.entry(name.to_owned()).or_default() += 1;
        let found = restarts(&now?);
        match expected == found {
            true => Ok(took),
            false => Err(Failure::Wrong(format!(
                "{name} was sent {by:?}; processes should have been started again this often: \
                 {expected:?}, but were: {found:?}; skink up printed:\n{}",
                self.up.as_ref().map(Process::log).unwrap_or_default()
            ))),
        }
    }

    /// Kills the supervisor, and waits until another one is there and all other processes run. Answers how
    /// long that took.
    ///
    /// # Errors
    /// If there is none afterwards.
    pub fn replace_supervisor(&self) -> Result<Duration, Failure> {
        let victim = self.supervisor()?;
        let victim = victim.ok_or_else(|| Failure::Wrong("no supervisor".to_owned()))?;
        self.up_is_dead.set(true);
        signal(victim, Signal::KILL)?;
        let start = Instant::now();
        self.wait_until("there is another supervisor", || {
            let now = self.supervisor();
            let another = now.is_ok_and(|now| now.is_some_and(|now| now != victim));
            let all_run = |all: Vec<Member>| all.iter().all(|it| it.pid.is_some());
            another && self.members().is_ok_and(all_run)
        })?;
        let took = start.elapsed();
        // Tools find it by that, and another skink that gets the dead one's id leaves it alone.
        let now = self.supervisor()?.unwrap_or_default();
        let socket = format!("/run/skink/{now}.sock");
        match Path::new(&socket).exists() {
            true => Ok(took),
            false => Err(Failure::Wrong(format!("{socket} isn't there"))),
        }
    }

    /// Waits until `condition` holds; fails after 20 s, or when `skink up` ends without being killed here.
    pub fn wait_until(&self, what: &str, mut condition: impl FnMut() -> bool) -> Outcome {
        let up = self.up.as_ref();
        let up = up.ok_or_else(|| Failure::Wrong("there is no skink up".to_owned()))?;
        if !self.up_is_dead.get() {
            return Ok(up.wait_until(what, condition)?);
        }
        let start = Instant::now();
        while !condition() {
            if start.elapsed() > Duration::from_secs(20) {
                return Err(Failure::Wrong(format!(
                    "waited until {what}, but it took too long; skink up printed:\n{}",
                    up.log()
                )));
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        Ok(())
    }
}

fn member(process: &Value) -> Member {
    let pid = process["pid"].as_u64().and_then(|pid| pid.try_into().ok());
    Member {
        name: process["name"].as_str().unwrap_or_default().to_owned(),
        pid: pid.filter(|_| process["state"] == "running"),
        restarts: process["restarts"].as_u64().unwrap_or(0),
    }
}

fn restarts(members: &[Member]) -> BTreeMap<String, u64> {
    let pairs = members.iter().map(|it| (it.name.clone(), it.restarts));
    pairs.collect()
}
