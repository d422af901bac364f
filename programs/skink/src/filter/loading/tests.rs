use super::*;
use serde_json::json;
use std::io::Read;

#[test]
fn rules_are_shown_with_what_they_counted() {
    let shown = json!({
        "active": true,
        "rules": [
            { "number": 0, "line": 2, "rule": "block in", "packets": 12, "bytes": 720, "states": 0 },
            { "number": 1, "line": 3, "rule": "pass out", "packets": 3, "bytes": 180, "states": 1 },
        ],
        "left_out": 4,
        "states": 1,
        "totals": { "blocked": 12, "passed_by_state": 2 },
    });
    let expected = "    \
Rule      Packets  Bytes  States
@0  block in       12    720       0
@1  pass out        3    180       1
and 4 rules more
states 1, blocked 12, passed by state 2
";
    assert_eq!(describe(&shown), expected);
    let mut skipped = shown;
    skipped["active"] = json!(false);
    assert!(describe(&skipped).starts_with("everything passes"));
    assert_eq!(
        describe(&json!({ "rules": [] })),
        "no rules: everything passes\n"
    );
    assert_eq!(describe(&json!(7)), "no rules: everything passes\n");
}

#[test]
fn rules_are_handed_over_from_their_beginning() {
    let mut file = in_memory("block in\n").expect("memory");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("readable");
    assert_eq!(text, "block in\n");
}
