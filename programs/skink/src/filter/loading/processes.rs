//! The packet filters of a `skink run`: each process has one, and all have the same rules.
use super::{ask, refused};
use crate::failure::Failure;
use crate::tools::Found;
use serde_json::{Value, json};
use skink_filter::RuleSet;

/// What one process says.
struct Said {
    pid: u32,
    program: String,
    shown: Result<Value, String>,
}

/// Asks all of them.
fn ask_all(found: &Found) -> Vec<Said> {
    let processes = found.info.processes.iter();
    let said = processes.map(|process| Said {
        pid: process.pid,
        program: process.program.clone(),
        shown: ask(found, Some(process.owner)),
    });
    said.collect()
}

/// What they do together.
pub fn show(found: &Found) -> Result<Value, Failure> {
    let said = ask_all(found);
    match said.first().map(|first| &first.shown) {
        None => Err(refused(found, &"none of its processes has a stack yet")),
        Some(Err(why)) if said.iter().all(|it| it.shown.is_err()) => Err(refused(found, why)),
        Some(_) => Ok(sum(said)),
    }
}

/// Sums of what processes with the same rules have counted; the rules are those of the first that answers. Beside them,
/// each process, and why it isn't in the sums.
fn sum(said: Vec<Said>) -> Value {
    let mut sums: Option<Value> = None;
    let mut processes = Vec::new();
    for Said {
        pid,
        program,
        shown,
    } in said
    {
        let left_out = match (shown, &mut sums) {
            (Err(why), _) => Some(why),
            (Ok(shown), None) => {
                sums = Some(shown);
                None
            }
            (Ok(shown), Some(sums))
                if texts(&shown) == texts(sums)
                    && shown.get("left_out") == sums.get("left_out") =>
            {
                add(sums, &shown);
                None
            }
            (Ok(_), Some(_)) => Some(OTHER_RULES.to_owned()),
        };
        processes.push(json!({ "pid": pid, "program": program, "left_out": left_out }));
    }
    let mut sums = sums.unwrap_or_else(|| json!({}));
    if let Some(sums) = sums.as_object_mut() {
        sums.insert("processes".to_owned(), processes.into());
    }
    sums
}

const OTHER_RULES: &str = "it has other rules: load them again";

/// Adds numbers to numbers of the same place, but those that name a rule.
fn add(sums: &mut Value, more: &Value) {
    match (sums, more) {
        (Value::Object(sums), Value::Object(more)) => {
            for (key, sum) in sums.iter_mut() {
                if let Some(more) = more.get(key).filter(|_| !is_name(key)) {
                    add(sum, more);
                }
            }
        }
        (Value::Array(sums), Value::Array(more)) => {
            sums.iter_mut()
                .zip(more)
                .for_each(|(sum, more)| add(sum, more));
        }
        (sum @ Value::Number(_), Value::Number(more)) => {
            let both = sum.as_u64().zip(more.as_u64());
            *sum = both
                .map_or(0, |(sum, more)| sum.saturating_add(more))
                .into();
        }
        _ => {}
    }
}

/// Whether what has this key is the same in all processes.
fn is_name(key: &str) -> bool {
    matches!(key, "number" | "line" | "left_out")
}

/// The rules that are told, as text.
fn texts(shown: &Value) -> Vec<&str> {
    let rules = shown.get("rules").and_then(Value::as_array);
    let rules = rules.into_iter().flatten();
    rules
        .filter_map(|rule| rule.get("rule").and_then(Value::as_str))
        .collect()
}

/// A line for each process that isn't in the sums.
pub fn left_out(shown: &Value) -> String {
    let processes = shown.get("processes").and_then(Value::as_array);
    let lines = processes.into_iter().flatten().filter_map(|process| {
        let why = process.get("left_out")?.as_str()?;
        let (program, pid) = (process.get("program")?.as_str()?, process.get("pid")?);
        Some(format!("without {program} {pid}: {why}\n"))
    });
    lines.collect()
}

/// Whether all have these rules: in how many, in words; an error names those that haven't.
pub fn confirm(found: &Found, rules: &str) -> Result<String, Failure> {
    // They were parsed before.
    let rules = RuleSet::parse(rules).unwrap_or_default();
    let said = ask_all(found);
    let why_not = |said: &Said| match &said.shown {
        Err(why) => Some(why.clone()),
        Ok(shown) if is_of(shown, &rules) => None,
        Ok(_) => Some(OTHER_RULES.to_owned()),
    };
    let without: Vec<String> = said
        .iter()
        .filter_map(|said| {
            let why = why_not(said)?;
            Some(format!("{} {}: {why}", said.program, said.pid))
        })
        .collect();
    if !without.is_empty() {
        let why = format!(
            "of {} processes these don't say that they have the new rules: {}",
            said.len(),
            without.join("; ")
        );
        return Err(refused(found, &why));
    }
    Ok(match said.len() {
        0 => "in processes that get a stack from now on".to_owned(),
        1 => "in 1 process".to_owned(),
        count => format!("in {count} processes"),
    })
}

/// Whether what a process shows is these rules. Where there are too many some aren't shown.
fn is_of(shown: &Value, rules: &RuleSet) -> bool {
    let left_out = shown.get("left_out").and_then(Value::as_u64).unwrap_or(0);
    let shown = shown.get("rules").and_then(Value::as_array);
    let shown: &[Value] = shown.map_or(&[], Vec::as_slice);
    let is_right = |it: &Value| {
        let number = it.get("number").and_then(Value::as_u64);
        let rule = number.and_then(|number| rules.rules.get(usize::try_from(number).ok()?));
        let text = it.get("rule").and_then(Value::as_str);
        rule.is_some_and(|rule| text == Some(&rules.text(rule).to_string()))
    };
    shown.len() as u64 + left_out == rules.rules.len() as u64 && shown.iter().all(is_right)
}

#[cfg(test)]
mod tests;
