//! Kills whole stacks in short scenarios, before each step and after each act, and lets successors adopt
//! what they leave.

use skink_simulator::{CrashPlan, Report, Scenario, run};
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a stack may die in a scenario.
struct Extent {
    steps: u64,
    acts: Vec<u64>,
}

fn extent(scenario: &Scenario) -> Extent {
    let report = run(scenario.clone(), false);
    check(&report, "without a crash");
    Extent {
        steps: report.steps,
        acts: report.acts,
    }
}

fn check(report: &Report, what: &str) {
    assert!(
        report.failures.is_empty(),
        "{what}, seed {}: {}",
        report.seed,
        report.failures.join("\n")
    );
    let given_up = report.counted.iter();
    let given_up = given_up.filter(|(label, count)| label.contains(".record.") && **count > 0);
    let given_up: Vec<_> = given_up.collect();
    assert!(
        given_up.is_empty(),
        "{what}, seed {}: {given_up:?}",
        report.seed
    );
    assert_eq!(
        report.complete, report.connections,
        "{what}, seed {}: {:?}",
        report.seed, report.others
    );
}

/// All crashes of short scenarios: before each `every`th step, and at each act of each host.
fn crashes(scenario: &Scenario, every: u64) -> Vec<CrashPlan> {
    let extent = extent(scenario);
    let mut plans = Vec::new();
    for (host, acts) in extent.acts.iter().enumerate() {
        for step in (1..=extent.steps).step_by(every as usize) {
            plans.push(CrashPlan {
                host,
                step,
                loses: step % 2 == 0,
                deaths: (step % 3) as u32,
                ..CrashPlan::default()
            });
        }
        for act in 1..=*acts {
            plans.push(CrashPlan {
                host,
                step: 1,
                acts: act,
                loses: act % 2 == 0,
                deaths: (act % 3) as u32,
                ..CrashPlan::default()
            });
        }
    }
    plans
}

fn all_crashes(name: &str, scenario: &Scenario, every: u64) -> u64 {
    let plans = crashes(scenario, every);
    let next = AtomicU64::new(0);
    let died = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed) as usize;
                    let Some(plan) = plans.get(index) else {
                        return;
                    };
                    let scenario = Scenario {
                        crashes: vec![*plan],
                        ..scenario.clone()
                    };
                    let report = run(scenario, false);
                    check(&report, &format!("{name}, {plan:?}"));
                    died.fetch_add(report.crashes as u64, Ordering::Relaxed);
                }
            });
        }
    });
    died.into_inner()
}

#[test]
fn a_stack_may_die_at_any_step_and_act_of_a_short_scenario() {
    for name in skink_simulator::SHORT {
        let began = std::time::Instant::now();
        let scenario = Scenario::short(name).expect("a scenario");
        let died = all_crashes(name, &scenario, 1);
        println!("{name}: {died} deaths, {:?}", began.elapsed());
        assert!(died > 100, "{name}: {died}");
    }
}
