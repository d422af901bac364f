use super::*;
use crate::filter::loading::describe;

fn said(pid: u32, shown: Result<Value, &str>) -> Said {
    Said {
        pid,
        program: "nginx".to_owned(),
        shown: shown.map_err(str::to_owned),
    }
}

fn shown(rules: &[&str], packets: u64) -> Value {
    let rules = rules.iter().enumerate().map(|(number, rule)| {
        json!({ "number": number, "line": 7, "rule": rule, "packets": packets, "bytes": packets * 60, "states": 1 })
    });
    json!({
        "active": true,
        "rules": rules.collect::<Vec<_>>(),
        "left_out": 0,
        "states": 2,
        "totals": { "passed": packets },
    })
}

#[test]
fn what_processes_count_is_summed_and_who_is_not_in_the_sums_is_named() {
    let rules = ["block in", "pass out"];
    let sums = sum(vec![
        said(1, Err("it doesn't answer")),
        said(2, Ok(shown(&rules, 3))),
        said(3, Ok(shown(&rules, 40))),
        said(4, Ok(shown(&["pass out"], 500))),
    ]);
    let expected = "    \
Rule      Packets  Bytes  States
@0  block in       43   2580       2
@1  pass out       43   2580       2
states 4, passed 43
without nginx 1: it doesn't answer
without nginx 4: it has other rules: load them again
";
    assert_eq!(describe(&sums), expected);
    assert_eq!(sums["rules"][1]["line"], 7);
    assert_eq!(
        sums["processes"][1],
        json!({ "pid": 2, "program": "nginx", "left_out": null })
    );
    let none = sum(vec![
        said(1, Err("it has ended")),
        said(2, Ok(shown(&[], 0))),
    ]);
    let expected = "no rules: everything passes\nwithout nginx 1: it has ended\n";
    assert_eq!(describe(&none), expected);
}

#[test]
fn rules_are_confirmed_by_their_text() {
    let rules = RuleSet::parse("block in all\npass out all\n").expect("rules");
    let texts: Vec<String> = rules
        .rules
        .iter()
        .map(|rule| rules.text(rule).to_string())
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut many = shown(&texts[..1], 0);
    many["left_out"] = 1.into();
    for (shown, is_theirs) in [
        (shown(&texts, 5), true),
        (many, true),
        (shown(&texts[..1], 5), false),
        (shown(&["block in", "pass"], 5), false),
        (json!(7), false),
    ] {
        assert_eq!(is_of(&shown, &rules), is_theirs, "{shown}");
    }
}
