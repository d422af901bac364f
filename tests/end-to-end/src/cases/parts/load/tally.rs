//! What came of many deaths.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What was killed, and what the clients said.
#[derive(Default)]
pub struct Tally {
    replaced: BTreeMap<String, Times>,
    runs: u64,
    requests: u64,
    lost: u64,
    late: u64,
    wrong: u64,
}

/// Of one process.
#[derive(Default)]
struct Times {
    away: Vec<Duration>,
    silent: Vec<Duration>,
}

impl Tally {
    /// A process was killed or upgraded; how long it was away, and how long until anything left the stack again,
    /// if that was seen.
    pub fn replaced(&mut self, name: &str, away: Duration, silent: Option<Duration>) {
        let times = self.replaced.entry(name.to_owned()).or_default();
        times.away.push(away);
        times.silent.extend(silent);
    }

    /// How often something was.
    pub fn count(&self) -> usize {
        self.replaced.values().map(|times| times.away.len()).sum()
    }

    /// All clients of a run have ended.
    pub fn end_run(&mut self) {
        self.runs += 1;
    }

    /// What a client printed, and what is wrong with that. One that complains has lost a connection at
    /// least, or seen wrong bytes; wrk counts them.
    pub fn client(&mut self, said: &str, wrong: Option<&str>) {
        self.requests += said
            .lines()
            .find_map(|line| line.trim().split_once(" requests in")?.0.parse().ok())
            .unwrap_or(0);
        let Some(why) = wrong else {
            return;
        };
        let errors = said.lines().find(|line| line.contains("Socket errors"));
        let count = |kind| errors.map_or(0, |line| number_after(line, kind));
        let late = count("timeout ");
        let broken = count("connect ") + count("read ") + count("write ");
        let differs = ["differ", "another value", "not asked", "answered more"];
        if differs.iter().any(|word| why.contains(word)) {
            self.wrong += 1;
        } else if late + broken > 0 {
            self.late += late;
            self.lost += broken;
        } else {
            self.lost += 1;
        }
    }
}

fn number_after(line: &str, word: &str) -> u64 {
    let rest = line.split_once(word).map_or("", |(_, rest)| rest);
    let end = rest.find(|it: char| !it.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().unwrap_or(0)
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} times a process was replaced in {} runs, {} requests of wrk: {} connections lost, {} answers late, \
             {} clients saw wrong bytes",
            self.count(),
            self.runs,
            self.requests,
            self.lost,
            self.late,
            self.wrong
        )?;
        writeln!(
            f,
            "{:<12}{:>6}{:>22}{:>22}   ms: median, worst",
            "", "times", "until it runs again", "until a frame leaves"
        )?;
        for (name, times) in &self.replaced {
            let (away, silent) = (summary(&times.away), summary(&times.silent));
            writeln!(f, "{name:<12}{:>6}{away:>22}{silent:>22}", times.away.len())?;
        }
        Ok(())
    }
}

/// Median and worst, in milliseconds.
fn summary(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
    let (median, worst) = (ms(sorted.get(sorted.len() / 2)), ms(sorted.last()));
    format!("{median:.0} {worst:>7.0}")
}
