use super::*;
use serde_json::json;

#[test]
fn each_process_is_told_of_in_a_line() {
    let report = json!({"ok": false, "executable": "/new", "processes": [
        {"name": "ip", "release": "0.2.0", "executable": "/new", "away_ms": 3.21, "failure": null},
        {"name": "tcp", "release": "0.1.0", "executable": "/new", "away_ms": null, "failure": "signal 11 killed it"},
        {"name": "ip", "release": "0.1.0", "executable": "/old", "away_ms": 4.0, "failure": null},
    ]});
    assert_eq!(
        describe(&report),
        "ip: release 0.2.0 from /new, after 3.2 ms\n\
         tcp: not /new: signal 11 killed it\n\
         ip: release 0.1.0 from /old, after 4.0 ms\n"
    );
    assert_eq!(describe(&json!({})), "");
}
