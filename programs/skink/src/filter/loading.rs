//! `skink filter load` and `skink filter show`: rules of a running stack.
mod processes;

use super::rules_in;
use crate::cli::{FilterLoadOptions, FilterShowOptions};
use crate::failure::Failure;
use crate::tools::{self, Found};
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;
use std::fmt::{Display, Write as _};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

pub fn load(options: &FilterLoadOptions) -> Result<(), Failure> {
    // Mistakes are found here first, where the file's name is known.
    let text = rules_in(&options.file, Failure::tool)?;
    let mut found = tools::find_one(options.name.as_deref())?;
    let file = in_memory(&text)
        .map_err(|error| Failure::tool(format!("the rules can't be handed over: {error}")))?;
    let answer = found.tool().load_filter(file.as_fd());
    let mut done = answer.map_err(|error| refused(&found, &error))?;
    if found.info.topology.is_none() {
        // Whichever process was called for: they have the rules together.
        found.refresh().map_err(|error| refused(&found, &error))?;
        done = format!("{done} {}", processes::confirm(&found, &text)?);
    }
    tools::print(&format!("{}: {done}\n", found.info.name))
}

pub fn show(options: &FilterShowOptions) -> Result<(), Failure> {
    let found = tools::find_one(options.name.as_deref())?;
    let shown = match found.info.topology {
        Some(_) => ask(&found, None).map_err(|why| refused(&found, &why))?,
        None => processes::show(&found)?,
    };
    if options.json {
        return tools::print_json(&shown, true);
    }
    // It may be what a program says: nothing in it may act on the terminal.
    let acts = |it: char| it.is_control() && it != '\n';
    tools::print(&describe(&shown).replace(acts, "?"))
}

/// What the packet filter of the stack does, or that of one process; or why it doesn't say so.
fn ask(found: &Found, owner: Option<u16>) -> Result<Value, String> {
    let answer = found.tool().show_filter(owner);
    let json = answer.map_err(|error| error.to_string())?;
    serde_json::from_str(&json).map_err(|error| format!("it answered what can't be shown: {error}"))
}

fn refused(found: &Found, why: &dyn Display) -> Failure {
    Failure::tool(format!("{}: {why}", found.info.name))
}

fn in_memory(text: &str) -> io::Result<File> {
    let file = memfd_create("skink-rules", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(text.as_bytes())?;
    // The reader's position is ours.
    io::Seek::rewind(&mut file)?;
    Ok(file)
}

/// Each rule with what it has counted, and the sums.
fn describe(shown: &Value) -> String {
    let number = |value: &Value, key: &str| match value.get(key).and_then(Value::as_u64) {
        Some(number) => number.to_string(),
        None => "-".to_owned(),
    };
    let rules = shown.get("rules").and_then(Value::as_array);
    let rules = rules.map(Vec::as_slice).unwrap_or_default();
    let aside = processes::left_out(shown);
    if rules.is_empty() {
        return format!("no rules: everything passes\n{aside}");
    }
    let header = ["", "Rule", "Packets", "Bytes", "States"].map(str::to_owned);
    let mut rows = vec![header.to_vec()];
    rows.extend(rules.iter().map(|rule| {
        let text = rule.get("rule").and_then(Value::as_str);
        vec![
            format!("@{}", number(rule, "number")),
            text.unwrap_or("?").to_owned(),
            number(rule, "packets"),
            number(rule, "bytes"),
            number(rule, "states"),
        ]
    }));
    let mut text = match shown.get("active") {
        Some(Value::Bool(false)) => {
            "everything passes: `set skip` leaves the stack's interface unfiltered\n".to_owned()
        }
        _ => String::new(),
    };
    text += &tools::table(&rows, &[2, 3, 4]);
    let left_out = number(shown, "left_out");
    if !matches!(left_out.as_str(), "-" | "0") {
        let _ = writeln!(text, "and {left_out} rules more");
    }
    let _ = write!(text, "states {}", number(shown, "states"));
    let totals = shown.get("totals").and_then(Value::as_object);
    for (key, value) in totals.into_iter().flatten() {
        let _ = write!(text, ", {} {value}", key.replace('_', " "));
    }
    text.push('\n');
    text + &aside
}

#[cfg(test)]
mod tests;
