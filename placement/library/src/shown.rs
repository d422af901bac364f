//! What the packet filter tells tools.
use serde_json::{Value, json};
use skink_filter::Snapshot;

/// Bytes of JSON that fit into one message beside the rest.
const SHOWN_BYTES: usize = 56 * 1024;

/// Rules and counters as JSON; of a stack that never had rules, that there are none. Rules beyond what fits are left out,
/// and their number is told.
pub fn filter_shown(filter: Option<&Snapshot>) -> String {
    let Some(filter) = filter else {
        return json!({ "active": false, "rules": [], "states": 0 }).to_string();
    };
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
    let totals = &filter.totals;
    json!({
        "active": filter.is_active,
        "rules": rules,
        "left_out": left_out,
        "states": filter.states,
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

fn describe(filter: &Snapshot) -> impl Iterator<Item = Value> {
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
