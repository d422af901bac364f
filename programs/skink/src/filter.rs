//! `skink filter`: rules of the packet filter.
mod loading;

use crate::cli::{FilterCheckOptions, FilterVerb};
use crate::failure::Failure;
use crate::tools;
use serde::Serialize;
use skink_control::MAXIMUM_RULES;
use skink_filter::{ParseError, RuleSet};
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What `skink filter check --json` writes.
#[derive(Serialize, PartialEq, Debug)]
struct Report {
    ok: bool,
    tables: Vec<String>,
    rules: Vec<RuleReport>,
    errors: Vec<ErrorReport>,
}

#[derive(Serialize, PartialEq, Debug)]
struct RuleReport {
    number: usize,
    /// Of the file, from 1.
    line: u32,
    rule: String,
}

#[derive(Serialize, PartialEq, Debug)]
struct ErrorReport {
    line: u32,
    column: u32,
    /// How many characters are meant.
    length: u32,
    message: String,
    /// The line itself.
    text: String,
}

/// Does what is asked of the filter.
pub fn filter(verb: &FilterVerb) -> Result<(), Failure> {
    match verb {
        FilterVerb::Check(options) => check(options),
        FilterVerb::Load(options) => loading::load(options),
        FilterVerb::Show(options) => loading::show(options),
    }
}

fn check(options: &FilterCheckOptions) -> Result<(), Failure> {
    let text = read(&options.file)?;
    let parsed = RuleSet::parse(&text);
    if parsed.is_ok() && is_too_long(&text) {
        return Err(Failure::tool(format!(
            "{}: {TOO_LONG}",
            options.file.display()
        )));
    }
    if options.json {
        tools::print_json(&report(&parsed), true)?;
    }
    match parsed {
        Ok(rules) if options.json => drop(rules),
        Ok(rules) => tools::print(&describe(&rules))?,
        Err(errors) => {
            let count = match errors.len() {
                1 => "1 mistake".to_owned(),
                count => format!("{count} mistakes"),
            };
            if !options.json {
                eprint!("{}", mistakes(&options.file, &errors));
            }
            let file = options.file.display();
            return Err(Failure::tool(format!("{file}: {count}; no rule is used")));
        }
    }
    Ok(())
}

/// The text of a file of rules that has no mistake in it; `failure` makes an error of a sentence.
pub fn rules_in(file: &Path, failure: fn(String) -> Failure) -> Result<String, Failure> {
    let text = read(file).map_err(|error| failure(error.message))?;
    match RuleSet::parse(&text) {
        Ok(_) if is_too_long(&text) => Err(failure(format!("{}: {TOO_LONG}", file.display()))),
        Ok(_) => Ok(text),
        Err(errors) => {
            let mistakes = mistakes(file, &errors);
            Err(failure(mistakes.trim_end().replace('\n', "\nskink: ")))
        }
    }
}

const TOO_LONG: &str = "the rules are too long: make them shorter than 180 KiB, where a line's end and a quotation mark count twice";

/// Reads rules that were handed in for those that are in force. An error says why the old ones stay.
pub fn accept(rules: &str) -> Result<RuleSet, String> {
    let set = RuleSet::parse(rules).map_err(|mistakes| {
        let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        format!(
            "the old rules stay, since there are mistakes: {}",
            lines.join("; ")
        )
    })?;
    match is_too_long(rules) {
        true => Err(format!("the old rules stay: {TOO_LONG}")),
        false => Ok(set),
    }
}

fn is_too_long(rules: &str) -> bool {
    serde_json::to_vec(rules).is_ok_and(|text| text.len() > MAXIMUM_RULES)
}

/// That so many rules are in force, in a sentence.
pub fn in_force(rules: &RuleSet, interface: &str) -> String {
    match (rules.rules.len(), rules.skips(interface)) {
        (count, true) if count > 0 => format!(
            "everything passes: the rules are loaded, but `set skip` leaves {interface} unfiltered"
        ),
        (1, _) => "1 rule is in force".to_owned(),
        (count, _) => format!("{count} rules are in force"),
    }
}

/// The text of a file, or of standard input for `-`.
fn read(file: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    // A little more than what is too long, so that it is told as such.
    let most = MAXIMUM_RULES as u64 + 1;
    let read = match file == Path::new("-") {
        true => std::io::stdin().take(most).read_to_end(&mut bytes),
        false => File::open(file).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    read.map_err(|error| Failure::tool(format!("can't read {}: {error}", file.display())))?;
    if bytes.len() > MAXIMUM_RULES {
        return Err(Failure::tool(format!("{}: {TOO_LONG}", file.display())));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().get(..error.utf8_error().valid_up_to());
        let before = good.unwrap_or_default().iter();
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        let file = file.display();
        Failure::tool(format!(
            "{file}: line {line} isn't UTF-8 text: this doesn't look like a file of rules"
        ))
    })
}

/// The rules as they are after expansion, numbered.
fn describe(rules: &RuleSet) -> String {
    let mut text = String::new();
    for interface in &rules.skip {
        let _ = writeln!(text, "set skip on {interface}");
    }
    for table in &rules.tables {
        let _ = writeln!(text, "{table}");
    }
    for (number, rule) in rules.rules.iter().enumerate() {
        let _ = writeln!(text, "@{number} {}", rules.text(rule));
    }
    text
}

fn mistakes(file: &Path, errors: &[ParseError]) -> String {
    let mut text = String::new();
    for error in errors {
        let _ = writeln!(text, "{}:{error}", file.display());
    }
    text
}

fn report(parsed: &Result<RuleSet, Vec<ParseError>>) -> Report {
    let (empty, none) = (RuleSet::default(), Vec::new());
    let (rules, errors) = match parsed {
        Ok(rules) => (rules, &none),
        Err(errors) => (&empty, errors),
    };
    let numbered = rules.rules.iter().enumerate();
    Report {
        ok: parsed.is_ok(),
        tables: rules.tables.iter().map(ToString::to_string).collect(),
        rules: numbered
            .map(|(number, rule)| RuleReport {
                number,
                line: rule.line,
                rule: rules.text(rule).to_string(),
            })
            .collect(),
        errors: errors
            .iter()
            .map(|error| ErrorReport {
                line: error.line,
                column: error.column,
                length: error.length,
                message: error.message.clone(),
                text: error.text.clone(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests;
