//! Kills, hangs and upgrades single components in short scenarios, in each of their turns.

use skink_simulator::machine::{Shown, Who};
use skink_simulator::{Manner, NAMED, PartDeath, Report, SHORT, Scenario, run};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Longer than a component was away, and a peer's first retransmission timer, nobody waits: what got lost
/// here is sent again at once.
const LATE_MS: u128 = 1_100;

fn whole(name: &str) -> Report {
    let report = run(scenario(name, &[]), false);
    assert_eq!(report.failures, Vec::<String>::new(), "{name}");
    report
}

fn scenario(name: &str, deaths: &[PartDeath]) -> Scenario {
    Scenario::short_apart(name, deaths.to_vec()).expect("a scenario")
}

fn replay(name: &str, deaths: &[PartDeath]) -> String {
    let deaths = deaths.iter().map(|death| format!(" --death {death}"));
    let deaths: String = deaths.collect();
    format!(
        "replay with: cargo run --release -p skink-simulator -- --short {name} --split{deaths} --verbose"
    )
}

fn check(name: &str, deaths: &[PartDeath], whole: &Report, report: &Report) {
    let replay = replay(name, deaths);
    assert!(
        report.failures.is_empty(),
        "{}\n{replay}",
        report.failures.join("\n")
    );
    assert_eq!(
        report.complete, report.connections,
        "{:?}\n{replay}",
        report.others
    );
    assert_eq!(report.counted["tcp.resets_in"], 0, "{replay}");
    // Losses, full NICs and a reader's pauses make runs as late by themselves.
    let slow = ["losses", "overload", "zero-window"].contains(&name);
    if deaths.len() == 1 && !slow {
        let late = report.done.since(whole.done).as_millis();
        let down: u128 = deaths.iter().map(|death| death.down.as_millis()).sum();
        // There the peer has repeated its request, and its next timer is of three seconds (RFC 6298 (5.7)).
        let timers = if name == "half-open" { 3 } else { 1 };
        assert!(late <= down + timers * LATE_MS, "{late} ms late\n{replay}");
    }
}

/// Runs all, on two threads; answers how many components died and how many messages were refused.
fn run_all(name: &str, whole: &Report, plans: &[Vec<PartDeath>]) -> (usize, u64) {
    let next = AtomicUsize::new(0);
    let (died, foreign) = (AtomicUsize::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(deaths) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = run(scenario(name, deaths), false);
                    check(name, deaths, whole, &report);
                    died.fetch_add(report.deaths, Ordering::Relaxed);
                    foreign.fetch_add(report.foreign, Ordering::Relaxed);
                }
            });
        }
    });
    (died.into_inner(), foreign.into_inner())
}

/// How many of the deaths there are: each turn of each component, and a manner that changes from turn to
/// turn. `skink-simulator --short NAME --split --all` goes through all manners in all turns.
fn step(name: &str) -> usize {
    match name {
        "handshake" | "client-first" | "server-first" | "both-at-once" | "half-open" => 5,
        "datagrams" => 13,
        _ => 17,
    }
}

#[test]
fn any_component_may_die_in_any_turn() {
    for name in SHORT {
        let whole = whole(name);
        let shared = whole.shared.iter().all(|count| *count > 0);
        assert_eq!(shared, name == "shared", "{name}: {:?}", whole.shared);
        let all = PartDeath::all(&whole.turns);
        let some = all.iter().step_by(step(name));
        let plans: Vec<_> = some.map(|death| vec![*death]).collect();
        let (died, foreign) = run_all(name, &whole, &plans);
        println!(
            "{name}: {} plans of {}, {died} deaths",
            plans.len(),
            all.len()
        );
        assert!(died > 50, "{name}: {died}");
        assert!(foreign > 0, "{name}: no message of the dead was refused");
    }
}

/// The same component twice in a row, its neighbour beside it, and the other host's.
#[test]
fn components_may_die_one_after_the_other() {
    for name in ["handshake", "both-ways", "echo", "datagrams"] {
        let whole = whole(name);
        let all = PartDeath::all(&whole.turns);
        let mut plans = Vec::new();
        for (index, death) in all.iter().enumerate().step_by(step(name) * 7) {
            let again = PartDeath {
                turn: death.turn + 1,
                ..*death
            };
            let neighbours = death.who.neighbours();
            let who = neighbours[index % neighbours.len()];
            let beside = PartDeath {
                turn: death.turn,
                down: death.down / 2,
                ..PartDeath::new(death.host, who)
            };
            let other = PartDeath {
                host: 1 - death.host,
                ..*death
            };
            plans.push(vec![*death, again]);
            plans.push(vec![*death, beside]);
            plans.push(vec![*death, other, again]);
        }
        let (died, _) = run_all(name, &whole, &plans);
        assert!(died > 100, "{name}: {died}");
    }
}

/// A successor of `syscall` asks for what was stored of one `store` after the other.
#[test]
fn store_may_die_while_it_shows_what_it_has() {
    let name = "half-open";
    let whole = whole(name);
    let mut plans = Vec::new();
    let [.., syscall, store] = &whole.turns[1];
    for (turn, late) in (1..=syscall.len() as u64).zip([0, 1].into_iter().cycle()) {
        for then in 1..=store.len() as u64 + 3 {
            let first = PartDeath {
                turn,
                ..PartDeath::new(1, Who::Syscall)
            };
            for shown in [Shown::All, Shown::Nothing, Shown::Taken] {
                let second = PartDeath {
                    turn: then,
                    shown,
                    down: skink_time::Duration::from_micros(late * 700),
                    ..PartDeath::new(1, Who::Store)
                };
                plans.push(vec![first, second]);
            }
        }
    }
    let (died, _) = run_all(name, &whole, &plans);
    assert!(died > plans.len(), "{died}");
}

/// A bell that isn't heard only delays.
#[test]
fn lost_bells_only_delay() {
    let mut lost = 0;
    for name in ["handshake", "both-ways", "zero-window", "datagrams"] {
        for per_mille in [10, 50, 200] {
            let mut scenario = scenario(name, &[]);
            if let Some(apart) = &mut scenario.apart {
                apart.lost_bells = per_mille;
            }
            scenario.gentle = false;
            let report = run(scenario, false);
            assert_eq!(report.failures, Vec::<String>::new(), "{name}");
            assert_eq!(report.complete, report.connections, "{name}");
            lost += report.lost_bells;
        }
    }
    assert!(lost > 50, "{lost}");
}

/// Whoever hangs has its queues filled by the others, who go on when it has a successor.
#[test]
fn queues_that_are_full_hold_nobody_up_for_good() {
    let mut full = 0;
    for who in Who::ALL {
        let mut scenario = Scenario::named("flood", 1).expect("a scenario");
        let apart = scenario.apart.as_mut().expect("components");
        apart.deaths = (0..4)
            .map(|at| PartDeath {
                at: skink_time::Instant::from_millis(5 + at * 40),
                manner: Manner::Hang,
                down: skink_time::Duration::from_millis(35),
                shown: Shown::All,
                ..PartDeath::new((at % 2) as usize, who)
            })
            .collect();
        let report = run(scenario, false);
        assert_eq!(report.failures, Vec::<String>::new(), "{who:?}");
        full += report.full;
    }
    assert!(full > 0, "no queue was ever full");
}

#[test]
fn long_scenarios_survive_deaths_at_random() {
    assert!(NAMED.contains(&"parts"));
    let (mut deaths, mut complete, mut lost) = (0, 0, 0);
    for seed in 0..60 {
        let scenario = Scenario::named("parts", seed).expect("a scenario");
        let report = run(scenario, false);
        assert!(
            report.failures.is_empty(),
            "seed {seed}: {}\nreplay with: cargo run --release -p skink-simulator -- --seed {seed} --name parts",
            report.failures.join("\n")
        );
        deaths += report.deaths;
        complete += report.complete;
        lost += report.lost_bells;
    }
    assert!(deaths > 1_000, "{deaths}");
    assert!(complete > 300, "{complete}");
    assert!(lost > 0, "{lost}");
}

/// Requests that waited for the peer's address, or were answered to one that is dead, are sent again at once.
#[test]
fn a_client_doesnt_wait_for_its_timer_when_what_is_below_tcp_was_replaced() {
    let name = "client-first";
    let whole = whole(name);
    let below = |death: &&PartDeath| {
        let who = [Who::Link, Who::Ip].contains(&death.who);
        who && death.host == 0 && death.down.is_zero() && death.deaths == 0
    };
    let all = PartDeath::all(&whole.turns);
    for death in all.iter().filter(below) {
        let report = run(scenario(name, &[*death]), false);
        check(name, &[*death], &whole, &report);
        let late = report.done.since(whole.done).as_millis();
        assert!(late < 500, "{late} ms late\n{}", replay(name, &[*death]));
    }
}
