//! Runs seeds of the mixture and every scenario with a name. `SKINK_SEEDS` says how many.

use skink_simulator::{NAMED, Report, Scenario, run, simulate};
use std::sync::atomic::{AtomicU64, Ordering};

fn seeds() -> u64 {
    let text = std::env::var("SKINK_SEEDS").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(500)
}

fn check(report: &Report, name: &str) {
    assert!(
        report.failures.is_empty(),
        "seed {} failed: {}\nreplay with: cargo run --release -p skink-simulator -- --seed {}{name}",
        report.seed,
        report.failures.join("\n"),
        report.seed,
    );
}

#[test]
fn no_seed_loses_a_byte_or_hangs() {
    let next = AtomicU64::new(0);
    let (seeds, threads) = (seeds(), 2);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    check(&simulate(seed), "");
                }
            });
        }
    });
}

#[test]
fn no_named_scenario_fails() {
    for name in NAMED {
        for seed in 0..5 {
            let scenario = Scenario::named(name, seed).expect("a scenario");
            let report = run(scenario, false);
            check(&report, &format!(" --name {name}"));
        }
    }
}

#[test]
fn programs_go_on_when_another_one_is_killed() {
    let (mut killed, mut complete) = (0, 0);
    for seed in 0..60 {
        let scenario = Scenario::named("programs", seed).expect("a scenario");
        let report = run(scenario, false);
        check(&report, " --name programs");
        killed += report.killed;
        complete += report.complete;
    }
    assert!(killed > 20, "{killed} killed in the midst of a transfer");
    assert!(complete > 100, "{complete} complete");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..10 {
        let (first, second) = (simulate(seed), simulate(seed));
        assert_eq!(
            (first.trace, first.frames, first.steps, first.ended),
            (second.trace, second.frames, second.steps, second.ended),
            "seed {seed}"
        );
        assert_ne!(first.trace, simulate(seed + 1000).trace);
    }
}

#[test]
fn harm_is_done_and_noticed() {
    // A scenario whose harm never comes about would prove nothing.
    let counted = |name: &str, label: &str| -> u64 {
        (0..5)
            .filter_map(|seed| Scenario::named(name, seed))
            .map(|scenario| run(scenario, false).counted[label])
            .sum()
    };
    let table = [
        ("lossy", "tcp.retransmits"),
        ("reordered", "tcp.out_of_order"),
        ("corrupted", "tcp.drop.bad_checksum"),
        ("slow-readers", "tcp.zero_window_probes"),
        ("aborts", "tcp.resets_in"),
        ("clean", "tcp.established"),
        ("few-ports", "tcp.time_wait_reused"),
        ("datagrams", "ip.reassembled"),
    ];
    for (name, label) in table {
        assert!(counted(name, label) > 0, "{name} brought about no {label}");
    }
}
