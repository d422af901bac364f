//! `skink upgrade`: another build takes the place of a stack's processes while it works.
use crate::cli::UpgradeOptions;
use crate::failure::Failure;
use crate::tools;
use serde_json::Value;
use std::fmt::Write;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// What this very command is.
const OWN: &str = "/proc/self/exe";

pub fn upgrade(options: &UpgradeOptions) -> Result<(), Failure> {
    let path = options.binary.as_deref().unwrap_or(Path::new(OWN));
    let file = File::open(path)
        .map_err(|error| Failure::tool(format!("can't read {}: {error}", path.display())))?;
    let found = tools::find_stack(options.name.as_deref())?;
    let name = &found.info.name;
    let failed = |what: &dyn std::fmt::Display| Failure::tool(format!("{name}: {what}"));
    let component = options.component.as_deref();
    let answer = found.tool().upgrade(component, file.as_fd());
    let json = answer.map_err(|error| failed(&error))?;
    let report: Value = serde_json::from_str(&json)
        .map_err(|error| failed(&format!("it answered what can't be shown: {error}")))?;
    match options.json {
        true => tools::print_json(&report, true)?,
        false => tools::print(&describe(&report))?,
    }
    match report.get("ok").and_then(Value::as_bool) {
        Some(true) => Ok(()),
        _ => Err(failed(
            &"the build isn't kept: all processes are of the one before; no connection was given up for it",
        )),
    }
}

fn describe(report: &Value) -> String {
    let mut text = String::new();
    let processes = report.get("processes").and_then(Value::as_array);
    for process in processes.into_iter().flatten() {
        let word = |key: &str| process.get(key).and_then(Value::as_str).unwrap_or("?");
        let away = process.get("away_ms").and_then(Value::as_f64);
        let (name, release, executable) = (word("name"), word("release"), word("executable"));
        let _ = match (away, process.get("failure").and_then(Value::as_str)) {
            (Some(away), _) => writeln!(
                text,
                "{name}: release {release} from {executable}, after {away:.1} ms"
            ),
            (None, why) => writeln!(
                text,
                "{name}: not {executable}: {}",
                why.unwrap_or("the reason is unknown")
            ),
        };
    }
    text
}

#[cfg(test)]
mod tests;
