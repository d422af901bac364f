//! The packet filter's rules and what it counted.
use crate::clock;
use crate::host::Host;
use serde_json::{Value, json};
use skink_filter::{Filter, RuleSet};

/// Bytes of JSON that fit into one report beside the rest.
const SHOWN_BYTES: usize = 56 * 1024;

impl Host {
    /// Puts rules in force.
    pub(crate) fn load_rules(&mut self, text: &str) -> Result<(), String> {
        if self.inner.load_rules(text)? {
            return Ok(());
        }
        let rules = parse(text)?;
        match self.front.stack.whole() {
            Some(stack) => {
                stack.set_rules(clock::now(), &self.interface, rules);
                Ok(())
            }
            None => Err("the packet filter is in another process".to_owned()),
        }
    }

    /// Rules and counters as JSON.
    pub(crate) fn show_filter(&mut self) -> String {
        let apart = self.inner.show_filter();
        let here = || self.front.stack.whole()?.filter().map(show);
        apart
            .or_else(here)
            .unwrap_or_else(|| json!({ "active": false, "rules": [], "states": 0 }).to_string())
    }
}

/// Rules of the supervisor.
pub(crate) fn parse(text: &str) -> Result<RuleSet, String> {
    RuleSet::parse(text).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        format!("the packet filter's rules:\n{}", lines.join("\n"))
    })
}

/// Rules and counters as JSON. Rules beyond what fits are left out, and their number is told.
pub(crate) fn show(filter: &Filter) -> String {
    let (mut rules, mut bytes, mut left_out) = (Vec::new(), 0, 0);
    for rule in describe(filter) {
        let length = rule.to_string().len() + 1;
        if bytes + length > SHOWN_BYTES {
            left_out += 1;
        } else {
            bytes += length;
            rules.push(rule);
        }
    }
    let totals = filter.totals();
    json!({
        "active": filter.is_active(),
        "rules": rules,
        "left_out": left_out,
        "states": filter.states(),
        "totals": {
            "passed": totals.passed,
            "passed_by_state": totals.passed_by_state,
            "blocked": totals.blocked,
            "returned": totals.returned,
            "malformed": totals.malformed,
            "refused": totals.refused,
            "states_made": totals.states_made,
            "states_expired": totals.states_expired,
            "states_evicted": totals.states_evicted,
        },
    })
    .to_string()
}

fn describe(filter: &Filter) -> impl Iterator<Item = Value> {
    let set = filter.rule_set();
    filter.rules().enumerate().map(|(number, (rule, counted))| {
        json!({
            "number": number,
            "line": rule.line,
            "rule": set.text(rule).to_string(),
            "evaluations": counted.evaluations,
            "packets": counted.packets,
            "bytes": counted.bytes,
            "states_made": counted.states_made,
            "states": counted.states,
            "logged": counted.logged,
        })
    })
}
