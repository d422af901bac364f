use super::RuleSet;
use crate::test_support::{Random, rules};

/// The rules of a file as text.
fn expanded(text: &str) -> Vec<String> {
    let set = rules(text);
    let rules = set.rules.iter();
    rules.map(|rule| set.text(rule).to_string()).collect()
}

#[test]
fn one_statement_becomes_these_rules() {
    for (text, expected) in [
        ("pass", &["pass all flags S/SA keep state"][..]),
        ("pass all no state", &["pass all no state"]),
        ("block", &["block drop all"]),
        (
            "block return in log quick",
            &["block return in log quick all"],
        ),
        (
            "block drop out on eth0 all",
            &["block drop out on eth0 all"],
        ),
        ("block on ! lo0", &["block drop on ! lo0 all"]),
        (
            "set block-policy return\nblock\nblock drop",
            &["block return all", "block drop all"],
        ),
        (
            "pass in proto tcp to port 80",
            &["pass in proto tcp from any to any port = 80 flags S/SA keep state"],
        ),
        (
            "pass in proto tcp from any to any port https flags any",
            &["pass in proto tcp from any to any port = 443 flags any keep state"],
        ),
        (
            "pass proto udp from port != 53 to port 1000:1999",
            &["pass proto udp from any port != 53 to any port 1000:1999 keep state"],
        ),
        (
            "pass proto udp from port 5 >< 9 to port 5 <> 9 no state",
            &["pass proto udp from any port 5 >< 9 to any port 5 <> 9 no state"],
        ),
        (
            "block proto tcp to port { < 10, <=20 >30,>= 40, = 7 }",
            &[
                "block drop proto tcp from any to any port < 10",
                "block drop proto tcp from any to any port <= 20",
                "block drop proto tcp from any to any port > 30",
                "block drop proto tcp from any to any port >= 40",
                "block drop proto tcp from any to any port = 7",
            ],
        ),
        // The last list varies fastest.
        (
            "pass proto { tcp, udp } from { 10.0.0.1, 10.1/16 } to port { 1 2 }",
            &[
                "pass inet proto tcp from 10.0.0.1 to any port = 1 flags S/SA keep state",
                "pass inet proto tcp from 10.0.0.1 to any port = 2 flags S/SA keep state",
                "pass inet proto tcp from 10.1.0.0/16 to any port = 1 flags S/SA keep state",
                "pass inet proto tcp from 10.1.0.0/16 to any port = 2 flags S/SA keep state",
                "pass inet proto udp from 10.0.0.1 to any port = 1 keep state",
                "pass inet proto udp from 10.0.0.1 to any port = 2 keep state",
                "pass inet proto udp from 10.1.0.0/16 to any port = 1 keep state",
                "pass inet proto udp from 10.1.0.0/16 to any port = 2 keep state",
            ],
        ),
        // Combinations of different IP versions are left out.
        (
            "block from { 10/8, fd00::/8 } to { 192.0.2.1, 2001:db8::1 }",
            &[
                "block drop inet from 10.0.0.0/8 to 192.0.2.1",
                "block drop inet6 from fd00::/8 to 2001:db8::1",
            ],
        ),
        (
            "block from ! 10.1.2.3/8",
            &["block drop inet from ! 10.0.0.0/8 to any"],
        ),
        (
            "pass inet proto icmp icmp-type { echoreq, unreach code needfrag, 5 code 1 }",
            &[
                "pass inet proto icmp all icmp-type echoreq keep state",
                "pass inet proto icmp all icmp-type unreach code 4 keep state",
                "pass inet proto icmp all icmp-type redir code 1 keep state",
            ],
        ),
        (
            "pass proto icmp6 icmp6-type neighbrsol no state",
            &["pass proto icmp6 all icmp6-type neighbrsol no state"],
        ),
        ("pass proto 47", &["pass proto 47 all keep state"]),
        (
            "pass proto tcp flags /SFRA label 'it is \"x\"'",
            &["pass proto tcp all flags /FSRA keep state label 'it is \"x\"'"],
        ),
        (
            "table <bad> const { 10/8, !10.1.2.3, fd00::/8 }\nblock in from <bad> to ! <good>\n\
             table <good> { }",
            &["block drop in from <bad> to ! <good>"],
        ),
        (
            "table <bad> persist { 10/8, !10.1.2.3 }\nblock in from <bad> to ! <good>\n\
             table <good> { ::1 }",
            &["block drop in from <bad> to ! <good>"],
        ),
        // Macros, in quotes and without, in each other, and in lists.
        (
            "if = eth0\nports = \"{ 80, 443 }\"\nboth = \"$ports\"\npass in on $if proto tcp to port $both",
            &[
                "pass in on eth0 proto tcp from any to any port = 80 flags S/SA keep state",
                "pass in on eth0 proto tcp from any to any port = 443 flags S/SA keep state",
            ],
        ),
        (
            "a = 10.0.0.1\nb = 10.0.0.0/8 # with a comment \\\n pass all \\\r\n and more\npass from { $a, $b }",
            &[
                "pass inet from 10.0.0.1 to any flags S/SA keep state",
                "pass inet from 10.0.0.0/8 to any flags S/SA keep state",
            ],
        ),
        // Lines.
        ("# nothing\n\n   \t\n", &[]),
        (
            "block \\\n  in \\\r\n  quick\r\n",
            &["block drop in quick all"],
        ),
        (
            "block from {\n  10.0.0.1 # one\n\n  10.0.0.2,\n}\nblock out",
            &[
                "block drop inet from 10.0.0.1 to any",
                "block drop inet from 10.0.0.2 to any",
                "block drop out all",
            ],
        ),
    ] {
        assert_eq!(expanded(text), expected, "{text}");
    }
}

#[test]
fn what_is_printed_can_be_read_again() {
    let text = "table <bad> { 10.0.0.0/8, !10.1.2.3, fd00::/8 }\n\
        block return in log quick on ! eth1 inet proto { tcp udp } from ! <bad> port 1:2 to 10/8 port 3 >< 9\n\
        pass out proto tcp from 192.0.2.1 to port { 22, >= 5 } flags SA/SARF label \"x y\"\n\
        pass inet6 proto icmp6 icmp6-type { echoreq, 200 code 3 }\n\
        pass proto tcp flags any\npass\npass no state\npass proto tcp no state\n";
    let set = rules(text);
    let mut printed = String::new();
    for table in &set.tables {
        printed.push_str(&format!("{table}\n"));
    }
    for rule in &set.rules {
        printed.push_str(&format!("{}\n", set.text(rule)));
    }
    let mut again = rules(&printed);
    for (rule, original) in again.rules.iter_mut().zip(&set.rules) {
        rule.line = original.line;
    }
    assert_eq!(again, set, "{printed}");
}

#[test]
fn mistakes_are_told_where_they_are() {
    for (text, line, column, message) in [
        ("pas in", 1, 1, "expected \"pass\", \"block\""),
        ("pass in in", 1, 9, "\"in\" stands too late or twice"),
        (
            "pass proto tcp log",
            1,
            16,
            "the order is in or out, log, quick",
        ),
        ("pass\n  block foo\npass", 2, 9, "found \"foo\""),
        ("pass proto tpc", 1, 12, "expected a protocol"),
        ("pass proto 256", 1, 12, "expected a protocol"),
        ("pass proto +6", 1, 12, "expected a protocol"),
        ("pass to port 80", 1, 9, "needs \"proto tcp\""),
        ("pass proto icmp to port 80", 1, 20, "needs \"proto tcp\""),
        ("pass proto tcp to port 65536", 1, 24, "expected a port"),
        ("pass proto tcp to port 9:5", 1, 24, "upside down"),
        ("pass proto tcp to port 9:", 1, 24, "expected a port"),
        ("pass from 10.0.0.0/33", 1, 20, "33 bits is longer"),
        ("pass from 10.0.0", 1, 11, "expected an address"),
        ("pass from web.example.org", 1, 11, "names of hosts"),
        (
            "pass from fe80::1%eth0",
            1,
            11,
            "zone\" is not supported by Skink",
        ),
        ("pass from ! any", 1, 13, "matches nothing"),
        (
            "pass from <bad",
            1,
            15,
            "expected > after the table's name, but the line ends here",
        ),
        ("pass from <bad>", 1, 12, "table <bad> isn't defined"),
        (
            "table <a> { ::1 }\ntable <a> { ::2 }",
            2,
            8,
            "defined twice",
        ),
        ("pass from 10.0.0.1 to ::1", 1, 1, "different IP versions"),
        ("pass inet from ::1", 1, 1, "different IP versions"),
        (
            "pass inet6 proto icmp",
            1,
            1,
            "and protocol are of different IP versions",
        ),
        ("pass proto icmp6 to 10/8", 1, 1, "different IP versions"),
        ("pass label a label b", 1, 14, "\"label\" stands twice"),
        ("pass proto tcp flags S/SA flags any", 1, 27, "stands twice"),
        ("pass $x", 1, 6, "macro $x isn't defined"),
        ("x = \"$x\"\npass $x", 2, 6, "contains itself"),
        (
            "x = \"1 y\"\npass proto $x",
            2,
            12,
            "in $x: expected \"flags\"",
        ),
        ("pass label \"x", 1, 12, "isn't ended"),
        ("pass é in", 1, 6, "'é'"),
        ("pass from { }", 1, 13, "expected an address"),
        ("x = ", 1, 5, "expected the macro's value"),
        ("x = { 80 }", 1, 5, "value in quotes"),
        ("pass proto udp flags S/SA", 1, 16, "flags are those of TCP"),
        ("pass proto tcp flags S/A", 1, 24, "no segment matches"),
        ("pass proto tcp flags X/A", 1, 22, "expected flags"),
        ("pass icmp-type echoreq", 1, 6, "needs \"proto icmp\""),
        (
            "pass proto icmp icmp-type what",
            1,
            27,
            "expected an ICMP type",
        ),
        ("block keep state", 1, 1, "of which to keep state"),
        ("pass keep state no state", 1, 17, "exclude each other"),
        ("set block-policy what", 1, 18, "\"drop\" or \"return\""),
        ("block from { 10.0.0.1", 1, 22, "} at the end of the list"),
        // What pf has and Skink hasn't.
        (
            "nat on eth0 from 10/8 to any -> 1.2.3.4",
            1,
            1,
            "\"nat\" is not supported by Skink",
        ),
        ("rdr pass on eth0", 1, 1, "\"rdr\" is not supported"),
        ("scrub in all", 1, 1, "\"scrub\" is not supported"),
        ("anchor \"x\"", 1, 1, "\"anchor\" is not supported"),
        ("queue a", 1, 1, "\"queue\" is not supported"),
        ("match in all", 1, 1, "\"match\" is not supported"),
        ("antispoof for eth0", 1, 1, "\"antispoof\" is not supported"),
        ("set limit states 5", 1, 5, "\"set limit\" is not supported"),
        (
            "pass all modulate state",
            1,
            10,
            "\"modulate state\" is not supported",
        ),
        (
            "pass all keep state (max 5)",
            1,
            21,
            "\"keep state (...)\" is not supported",
        ),
        ("pass in all rtable 1", 1, 13, "\"rtable\" is not supported"),
        ("pass from self", 1, 11, "\"self\" is not supported"),
        (
            "pass from (eth0)",
            1,
            11,
            "interface as an address\" is not supported",
        ),
        (
            "pass from 10.0.0.1 - 10.0.0.9",
            1,
            20,
            "range of addresses\" is not supported",
        ),
        (
            "table <a> file \"x\"",
            1,
            11,
            "table from a file\" is not supported",
        ),
        ("block return-rst", 1, 7, "write \"block return\""),
        ("pass log (all)", 1, 10, "\"log (...)\" is not supported"),
    ] {
        let errors = RuleSet::parse(text).expect_err(text);
        let first = &errors[0];
        assert_eq!(
            (first.line, first.column),
            (line, column),
            "{text:?}: {first}"
        );
        assert!(first.message.contains(message), "{text:?}: {first}");
    }
}

#[test]
fn every_mistake_is_told_with_its_line_and_a_caret() {
    let text = "pass in\nblok out\n\tpass proto tcp to port 99999\nblock from {\n 1.2.3\n 5.6.7.8\n}\n\
        pass from <nobody>\n";
    let errors = RuleSet::parse(text).expect_err("four mistakes");
    let places: Vec<(u32, u32)> = errors
        .iter()
        .map(|error| (error.line, error.column))
        .collect();
    assert_eq!(places, [(2, 1), (3, 25), (5, 2), (8, 12)]);
    let shown = errors[1].to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("3:25: expected a port"), "{shown}");
    assert_eq!(lines[1], "    \tpass proto tcp to port 99999");
    assert_eq!(lines[2], format!("    \t{}^^^^^", " ".repeat(23)));
}

#[test]
fn growth_is_bounded() {
    let list = (0..300)
        .map(|n| n.to_string())
        .collect::<Vec<_>>()
        .join(" ");
    let text = format!("p = \"{{ {list} }}\"\nblock proto tcp from port $p to port $p");
    let errors = RuleSet::parse(&text).expect_err("90,000 rules");
    assert!(
        errors[0].message.contains("more than 65536 rules"),
        "{}",
        errors[0]
    );
    let mut text = "a0 = \"10.0.0.1 10.0.0.2\"\n".to_owned();
    for level in 1..15 {
        text.push_str(&format!(
            "a{level} = \"$a{0} $a{0} $a{0} $a{0}\"\n",
            level - 1
        ));
    }
    text.push_str("block from { $a14 }");
    let errors = RuleSet::parse(&text).expect_err("4^14 addresses");
    assert!(
        errors[0].message.contains("beyond all bounds"),
        "{}",
        errors[0]
    );
    assert!(
        RuleSet::parse(&"?\n".repeat(1_000))
            .expect_err("noise")
            .len()
            <= 51
    );
}

const SAMPLE: &str = "# a server\nif = \"eth0\"\nweb = \"{ 80, 443, 8000:8999 }\"\n\
    table <friends> const { 10/8, ! 10.9.8.7, 2001:db8::/32 }\nset block-policy return\nset skip on lo\n\
    block log all label \"rest\"\npass in quick on $if inet proto tcp from any port > 1023 to 192.0.2.1 \\\n\
    port $web flags S/SA keep state\npass proto icmp icmp-type { echoreq, unreach code needfrag }\n\
    pass out proto { tcp udp icmp6 47 } from { 192.0.2.1, ::1 } to ! <friends> no state\n\
    block drop in quick proto udp to port { != 53, 5 <> 9, 3><8 }\n";

/// Mutated files: no panic, and every place that is told is in the file.
#[test]
fn no_text_makes_the_parser_panic() {
    let pieces = [
        "{",
        "}",
        "<",
        ">",
        "!",
        "=",
        "\"",
        "$",
        "\\",
        "\n",
        "(",
        ",",
        "/",
        "$web",
        "$if",
        "port",
        "from",
        "table",
        "255.255.255.255/0",
        "999999999999999999999",
        "é",
        "\u{0}",
        "'",
        "any",
        "S/SA",
    ];
    for seed in 0..4_000 {
        let mut random = Random::new(seed);
        let mut text: Vec<char> = SAMPLE.chars().collect();
        for _ in 0..=random.below(6) {
            let at = random.below(text.len());
            let until = (at + random.below(12)).min(text.len());
            match random.below(4) {
                0 => drop(text.drain(at..until)),
                1 => drop(text.splice(at..until, random.pick(&pieces).chars())),
                2 => drop(text.splice(at..at, random.pick(&pieces).chars())),
                _ => {
                    let from = random.below(text.len());
                    let to = (from + random.below(40)).min(text.len());
                    let copy: Vec<char> = text[from..to].to_vec();
                    text.splice(at..at, copy);
                }
            }
        }
        let text: String = text.into_iter().collect();
        let Err(errors) = RuleSet::parse(&text) else {
            continue;
        };
        assert!(!errors.is_empty());
        let lines: Vec<&str> = text.split('\n').collect();
        for error in errors {
            let line = lines.get(error.line as usize - 1);
            let line = line.unwrap_or_else(|| panic!("seed {seed}: line of {error}"));
            assert_eq!(line.trim_end_matches('\r'), error.text, "seed {seed}");
            let width = line.chars().count() as u32;
            // The end of a line can be the place: what is missing belongs there.
            assert!(
                error.column >= 1 && error.column <= width + 1,
                "seed {seed}: {error}"
            );
            assert!(!error.to_string().is_empty());
        }
    }
}
