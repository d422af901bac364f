use super::*;
use skink_filter::RuleSet;

#[test]
fn there_are_as_many_rules_as_wanted_and_no_mistakes() {
    for count in [FEWEST, 4, 100, 1024, MOST] {
        let set = RuleSet::parse(&text(count)).expect("no mistakes");
        assert_eq!(set.rules.len(), count as usize);
    }
}

#[test]
fn both_servers_can_be_reached() {
    let text = text(1024);
    assert!(text.starts_with("block all\n"));
    for port in SERVED {
        let rule = format!("\npass in inet proto tcp to port {port} flags S/SA keep state\n");
        assert_eq!(text.matches(&rule).count(), 1, "{port}");
    }
}
