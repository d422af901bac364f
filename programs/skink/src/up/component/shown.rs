//! What tools are told of a process.
use super::{Component, State};
use skink_control::{ComponentInfo, QueueInfo};
use std::time::{Duration, Instant, UNIX_EPOCH};

impl Component {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Release of the build that runs, or ran last.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// What it does, in a word.
    pub fn state(&self) -> &'static str {
        match self.state {
            State::Waiting(_) | State::Starting(_) if self.is_failing => "failing",
            State::Waiting(_) => "waiting",
            State::Starting(_) => "starting",
            State::Serving(_) => "running",
            State::Dying | State::Stopped => "stopping",
        }
    }

    /// Process id, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.id())
    }

    /// For tools. `queues` is what waits for it.
    pub fn info(&self, queues: Vec<QueueInfo>) -> ComponentInfo {
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        ComponentInfo {
            owner: self.owner,
            name: self.name.clone(),
            components: self.hosts.clone(),
            cores: self.cores.clone(),
            release: self.release.clone(),
            executable: self.executable.name().display().to_string(),
            pid: self.pid(),
            state: self.state().to_owned(),
            started_ms: millis(started),
            restarts: self.restarts,
            last_end: self.last_end.clone(),
            starts_in_ms: self.pause(Instant::now()).map(millis),
            sandbox: self.sandbox.clone(),
            orders: self.orders.len(),
            queues,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
