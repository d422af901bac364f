use super::super::load::Fate;
use super::super::state::Settings;
use super::*;
use crate::fault::strike::Strike;
use skink_injector::{End, Ending, Injection};

fn injection(class: Class, activated_ms: Option<u64>) -> Injection {
    Injection {
        class,
        place: "skink_tcp::input".to_owned(),
        what: format!("{class}: something"),
        before: String::new(),
        after: String::new(),
        injected_ms: 0,
        activated_ms,
    }
}

/// A run after which nobody noticed anything.
fn run(component: &str, effect: Effect) -> Run {
    let end = End {
        after_ms: 9,
        ending: Ending::Signal(11),
        place: None,
    };
    let fates = ["web-1", "ssh", "datagrams", "names"];
    Run {
        number: 0,
        strike: Strike {
            component: component.to_owned(),
            pid: 1,
            class: Class::Random,
            seed: 1,
            injections: vec![
                injection(Class::Loop, Some(8)),
                injection(Class::Nop, Some(5)),
                injection(Class::Ptr, None),
            ],
            executed: 3,
            effect,
            end: (effect != Effect::Survived).then_some(end),
            why: None,
            back_ms: (effect != Effect::Survived).then_some(20),
        },
        fates: fates.map(|name| (name.to_owned(), Fate::Alive)).into(),
        unreachable: Vec::new(),
        by_hand: None,
        restarted: false,
        others: Vec::new(),
        ended: Vec::new(),
        given_up: BTreeMap::new(),
    }
}

fn troubled(change: impl Fn(&mut Run)) -> Run {
    let mut run = run("tcp", Effect::Crash);
    change(&mut run);
    run
}

fn fate(run: &mut Run, name: &str, fate: Fate) {
    run.fates.insert(name.to_owned(), fate);
}

fn campaign() -> Campaign {
    Campaign {
        settings: Settings {
            seed: 5,
            class: Class::Random,
            topology: "split".to_owned(),
            recovery: None,
            patience: 15,
        },
        runs: vec![
            run("tcp", Effect::Crash),
            run("ip", Effect::Hang),
            troubled(|run| fate(run, "ssh", Fate::Broken("reset".to_owned()))),
            troubled(|run| fate(run, "web-1", Fate::Wrong("the page differs".to_owned()))),
            troubled(|run| fate(run, "names", Fate::Stalled)),
            troubled(|run| {
                run.unreachable = vec!["sshd".to_owned()];
                run.by_hand = Some("ip".to_owned());
            }),
            troubled(|run| {
                run.unreachable = vec!["sshd".to_owned()];
                run.restarted = true;
                run.given_up.insert("tcp.record.bad_ends".to_owned(), 2);
            }),
            // These don't count.
            run("udp", Effect::Survived),
            {
                let mut run = run("udp", Effect::Survived);
                fate(&mut run, "names", Fate::Stalled);
                run
            },
        ],
    }
}

#[test]
fn counts_only_what_crashed_or_hung() {
    let counts = count(&campaign());
    let of = |injected, activated, crashes, hangs| OfClass {
        injected,
        activated,
        crashes,
        hangs,
    };
    let expected = Counts {
        runs: 9,
        crashes: 7,
        hangs: 1,
        by_component: [("ip".to_owned(), 1), ("tcp".to_owned(), 6)].into(),
        transparent: 2,
        reachable: 5,
        by_hand: 1,
        broke_tcp: 2,
        transparent_to_udp: 6,
        restarted: 1,
        corrupt: 1,
        not_back: 0,
        others_died: 0,
        silent_damage: 1,
        injected: 27,
        activated: 18,
        by_class: [
            (Class::Nop, of(9, 9, 0, 0)),
            (Class::Ptr, of(9, 0, 0, 0)),
            // The last that was activated, not the last that was injected.
            (Class::Loop, of(9, 9, 6, 1)),
        ]
        .into(),
        given_up: [("tcp.record.bad_ends".to_owned(), 2)].into(),
    };
    assert_eq!(counts, expected);
}

#[test]
fn tables() {
    let text = markdown(&campaign());
    for line in [
        "| total | ip | tcp |",
        "| 7 | 1 | 6 |",
        "| fully transparent crashes | 2 |",
        "| reachable from outside | 5 (+ 1 manually fixed) |",
        "| crash broke TCP connections | 2 |",
        "| transparent to UDP | 6 |",
        "| restart of the whole necessary | 1 |",
        "| fully transparent recovery | 28.6% |",
        "| TCP connections lost | 28.6% |",
        "| loop | 9 | 9 | 6 | 1 |",
        "| `tcp.record.bad_ends` | 2 |",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} isn't in\n{text}");
    }
}

#[test]
fn is_stored_and_loaded() {
    let campaign = campaign();
    let json = json(&campaign).expect("it can be written");
    let value: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(value["counts"]["crashes"], 7);
    let text = serde_json::to_string(&campaign).expect("it can be written");
    let again: Campaign = serde_json::from_str(&text).expect("it can be read");
    assert_eq!(count(&again), count(&campaign));
}
