//! What the tools have in common: finding what runs, and writing.
use crate::failure::Failure;
use crate::stderr::tell;
use skink_control::{ControlError, InstanceInfo, ProcessInfo, RegionKind, Tool, instances};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// One running `skink run` or `skink up`, and the connection to it.
pub struct Found {
    pub info: InstanceInfo,
    tool: Tool,
}

impl Found {
    /// The memory of one process, unless it has just ended or hasn't registered any.
    pub fn open(&self, process: &ProcessInfo, kind: RegionKind) -> Option<OwnedFd> {
        if !process.regions.contains(&kind) {
            return None;
        }
        let memory = self.tool.open(process.owner, kind);
        memory
            .inspect_err(|error| tracing::info!("process {}: {error}", process.pid))
            .ok()
    }

    /// The connection.
    pub fn tool(&self) -> &Tool {
        &self.tool
    }

    /// Asks again who is there.
    pub fn refresh(&mut self) -> Result<(), ControlError> {
        self.info = self.tool.list()?;
        clean(&mut self.info);
        Ok(())
    }
}

/// All that run, or those called for by name or process id: their own, or else those of programs.
pub fn find(selector: Option<&str>) -> Result<Vec<Found>, Failure> {
    find_by(selector, choose)
}

/// Once finding all has taken so long, what other users run isn't asked any more: anybody may have sockets where nobody answers.
const STRANGERS: Duration = Duration::from_secs(3);

/// Takes away what isn't called for by a name or a process id.
type Choice = fn(&mut Vec<Found>, &str);

fn find_by(selector: Option<&str>, choice: Choice) -> Result<Vec<Found>, Failure> {
    let mut found = Vec::new();
    let mut refused = None;
    let mut silent = Vec::new();
    let began = Instant::now();
    for instance in instances() {
        if instance.is_of_stranger() && began.elapsed() > STRANGERS {
            let pid = instance.pid;
            tracing::warn!(
                "skink with process id {pid}, another user's, isn't asked: others took too long"
            );
            continue;
        }
        let answer = instance.connect().and_then(|tool| Ok((tool.list()?, tool)));
        match answer {
            Ok((mut info, tool)) => {
                clean(&mut info);
                found.push(Found { info, tool });
            }
            Err(ControlError::Refused(reason)) => {
                let reason: String = reason
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(300)
                    .collect();
                refused = Some(format!("skink with process id {}: {reason}", instance.pid));
            }
            // It has just ended, or was killed and left its socket.
            Err(ControlError::Unreachable(_) | ControlError::Closed) => {}
            Err(error) => {
                tracing::warn!("skink with process id {}: {error}", instance.pid);
                silent.push(instance.pid.to_string());
            }
        }
    }
    if let Some(selector) = selector {
        choice(&mut found, selector);
    }
    match (found.is_empty(), selector, refused) {
        (true, None, Some(reason)) => Err(Failure::tool(reason)),
        (true, Some(selector), Some(reason)) => Err(Failure::tool(format!(
            "nothing called or numbered {selector} runs here that may be looked into; {reason}"
        ))),
        (true, Some(selector), None) if silent.is_empty() => Err(Failure::tool(format!(
            "nothing called or numbered {selector} runs here: see `skink ps` for what does"
        ))),
        (true, Some(selector), None) => Err(Failure::tool(format!(
            "nothing called or numbered {selector} answers here; it may be the skink with process id {}, which doesn't",
            silent.join(" or ")
        ))),
        (_, _, _) => Ok(found),
    }
}

fn choose(found: &mut Vec<Found>, selector: &str) {
    let is_one = found.iter().any(|one| is_called(&one.info, selector));
    found.retain_mut(|one| match is_one {
        true => is_called(&one.info, selector),
        false => select(&mut one.info, Some(selector)),
    });
}

fn choose_called(found: &mut Vec<Found>, selector: &str) {
    found.retain(|one| is_called(&one.info, selector));
}

/// What programs call themselves, and whatever another user's socket says, may hold anything, escape sequences for the reader's
/// terminal too.
fn clean(info: &mut InstanceInfo) {
    fn wash(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::String(text) if text.contains(char::is_control) => {
                *text = text.replace(char::is_control, "?");
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(wash),
            serde_json::Value::Object(values) => {
                values.values_mut().for_each(wash);
                values.retain(|key, _| !key.contains(char::is_control));
            }
            _ => {}
        }
    }
    if let Ok(mut value) = serde_json::to_value(&*info) {
        wash(&mut value);
        if let Ok(washed) = serde_json::from_value(value) {
            *info = washed;
        }
    }
}

/// The only `skink up` there is, or the one that is called for. (What is done to a stack isn't done to one that merely serves a program
/// of that name.)
pub fn find_stack(selector: Option<&str>) -> Result<Found, Failure> {
    let mut found = find_by(selector, choose_called)?;
    found.retain(|found| found.info.topology.is_some());
    let none = "no stack in processes of its own runs here: start one with `skink up`";
    only(found, none)
}

/// The only one that runs, or the one that is called for.
pub fn find_one(selector: Option<&str>) -> Result<Found, Failure> {
    only(find_by(selector, choose_called)?, NOTHING_RUNS)
}

fn only(mut found: Vec<Found>, none: &str) -> Result<Found, Failure> {
    let names: Vec<String> = found.iter().map(|one| one.info.name.clone()).collect();
    match (found.pop(), found.is_empty()) {
        (Some(found), true) => Ok(found),
        (None, _) => Err(Failure::tool(none)),
        (Some(_), false) => Err(Failure::tool(format!(
            "several run here: say which with --name: {}",
            names.join(", ")
        ))),
    }
}

/// Whether an instance is asked for; if a single process of it is, the others are left out.
pub fn select(info: &mut InstanceInfo, selector: Option<&str>) -> bool {
    let Some(selector) = selector else {
        return true;
    };
    if is_called(info, selector) {
        return true;
    }
    let pid: Option<u32> = selector.parse().ok();
    info.processes
        .retain(|process| process.program == selector || Some(process.pid) == pid);
    info.finished.clear();
    !info.processes.is_empty()
}

/// Whether that is the name of the instance itself, or its process id.
fn is_called(info: &InstanceInfo, selector: &str) -> bool {
    info.name == selector || selector.parse() == Ok(info.pid)
}

/// Says on standard error that there is nothing to show.
pub fn say_nothing_runs() {
    tell(format_args!("{NOTHING_RUNS}"));
}

const NOTHING_RUNS: &str =
    "nothing runs here; start a program with `skink run -- PROGRAM`, or a stack with `skink up`";

/// Writes `text` at once.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    let written = output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush());
    written.map_err(|error| Failure::output(&error))
}

/// Writes a value as JSON, and a newline.
pub fn print_json<T: serde::Serialize>(value: &T, pretty: bool) -> Result<(), Failure> {
    let text = if pretty {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    let mut text = text.map_err(|error| Failure::tool(error.to_string()))?;
    text.push('\n');
    print(&text)
}

/// Columns of text, each as wide as its widest cell; columns in `right` are flush right.
pub fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell = match right.contains(&column) {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:<width$}  "),
            };
            line.push_str(&cell);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
pub mod tests;
