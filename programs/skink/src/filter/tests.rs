use super::*;

const GOOD: &str = "table <t> { 10/8 }\nset skip on lo\nblock all\npass in proto tcp from <t> to port { 80 443 }\n";

#[test]
fn rules_are_shown_expanded_and_numbered() {
    let rules = RuleSet::parse(GOOD).expect("good rules");
    assert_eq!(
        describe(&rules),
        "set skip on lo\n\
         table <t> { 10.0.0.0/8 }\n\
         @0 block drop all\n\
         @1 pass in proto tcp from <t> to any port = 80 flags S/SA keep state\n\
         @2 pass in proto tcp from <t> to any port = 443 flags S/SA keep state\n"
    );
    let report = report(&Ok(rules));
    let lines: Vec<(usize, u32)> = report.rules.iter().map(|r| (r.number, r.line)).collect();
    assert_eq!((report.ok, lines), (true, vec![(0, 3), (1, 4), (2, 4)]));
}

#[test]
fn mistakes_name_the_file_and_the_place() {
    let errors = RuleSet::parse("block all\npass proto tpc\n").expect_err("a mistake");
    let shown = mistakes(Path::new("a.conf"), &errors);
    let mut lines = shown.lines();
    let first = lines.next().unwrap_or_default();
    assert!(
        first.starts_with("a.conf:2:12: expected a protocol"),
        "{shown}"
    );
    assert_eq!(lines.next(), Some("    pass proto tpc"));
    assert_eq!(lines.next(), Some("               ^^^"));
    let report = report(&Err(errors));
    assert!(!report.ok && report.rules.is_empty());
    assert_eq!((report.errors[0].line, report.errors[0].length), (2, 3));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let failure = read(Path::new("/nonexistent/rules")).expect_err("no such file");
    assert!(
        failure.message.contains("/nonexistent/rules"),
        "{failure:?}"
    );
    assert_eq!(failure.code, 1);
}
