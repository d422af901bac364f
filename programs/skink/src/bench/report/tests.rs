use super::super::results::{Calibration, Comparison, Memory, Traffic, Unit, WorkloadResults};
use super::super::statistics::tests::{comparisons, round, workload};
use super::super::variant::RAW;
use super::*;

fn results() -> Results {
    let mut results = Results {
        comparisons: comparisons(),
        ..Results::default()
    };
    let mut workload = workload();
    workload.calibration.push(Calibration {
        variant: "skink-packet".to_owned(),
        tried: vec![
            ("sendfile off".to_owned(), 7.25),
            ("sendfile".to_owned(), 6.0),
        ],
        chosen: "sendfile".to_owned(),
        disturbed: false,
    });
    workload.failures.push(VariantFailure {
        variant: "skink-tap".to_owned(),
        why: "it thundered\n".to_owned(),
    });
    let disturbed = workload
        .rounds
        .iter_mut()
        .filter(|round| round.discarded.is_some());
    for round in disturbed {
        round.silent.push(VariantFailure {
            variant: "skink-xdp".to_owned(),
            why: "nothing was answered".to_owned(),
        });
    }
    results.workloads.push(workload);
    results.settings.disturbance_limit = 0.05;
    results.settings.connections = 64;
    results.machine.build = "release".to_owned();
    results
        .not_pinned
        .push("skink-packet: the server's NAPI".to_owned());
    results
}

fn one_space(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn ratios_come_first_and_nothing_is_hidden() {
    let text = text(&results());
    let expected = [
        "Work per server CPU second",
        "workload  variant  ÷ gso-on  ÷ gso-off  rounds",
        "20B       skink-packet  1.00 (1.00–1.50)  2.00 (2.00–2.50)   3",
        "Work per second",
        "64 connections",
        "closed-loop",
        "20B  kernel-gso-on  sendfile  12.0 (10.0–20.0) µs/request  83333 (50000–100000)  120",
        "Where the server's CPU time went",
        "20B  kernel-gso-on  program  3.60  2.40  0.50  0.02  -  -  request",
        "20B  kernel-gso-on  the rest  -  6.00  -  -  -  -  request",
        "20B: 1 of 4 rounds discarded; kernel-gso-on's own cost spread over 83%",
        "discarded, for instance: during skink-packet, it thundered",
        "while others used the machine, on skink-xdp nothing was answered",
        "more than 5% of a CPU",
        "20B  skink-packet  sendfile off 7.2  sendfile 6.0  → sendfile",
        "NOT PINNED: skink-packet",
        "FAILED: 20B on skink-tap: it thundered\n",
    ];
    let flat = one_space(&text);
    let mut rest = flat.as_str();
    for words in expected {
        let words = one_space(words);
        let at = rest.find(&words);
        let at = at.unwrap_or_else(|| panic!("{words:?} isn't in\n{rest}"));
        rest = &rest[at + words.len()..];
    }
    assert!(
        !text.contains("DISTURBED") && !text.contains("DEBUG"),
        "{text}"
    );
}

#[test]
fn figures_not_to_be_quoted_are_marked() {
    let mut results = results();
    results.workloads[0]
        .rounds
        .retain(|round| round.discarded.is_some());
    results.machine.build = "debug".to_owned();
    let text = text(&results);
    for words in [
        "A DEBUG BUILD",
        "1, all DISTURBED",
        "1 of 1 rounds discarded",
        "DON'T QUOTE",
    ] {
        assert!(text.contains(words), "{words:?} isn't in\n{text}");
    }
    assert!(super::text(&Results::default()).contains("none: nothing was measured on both"));
}

#[test]
fn several_workloads_are_shown_at_a_glance() {
    let mut results = results();
    assert!(!text(&results).contains("At a glance"));
    results.workloads.push(WorkloadResults {
        name: "bulk-send".to_owned(),
        unit: Unit::Gibibyte,
        ..workload()
    });
    let flat = one_space(&text(&results));
    for words in [
        "variant 20B bulk-send skink-packet 1.00 1.00",
        "variant 20B /s bulk-send Gbit/s kernel-gso-on 83333 715827.88",
        "bulk-send kernel-gso-on sendfile 0.00 (0.00–0.00) s/GiB 715827.88",
        "bulk-send kernel-gso-on program 0 0 0 0 - - GiB",
    ] {
        assert!(flat.contains(words), "{words:?} isn't in\n{flat}");
    }
}

#[test]
fn json_has_ratios_and_every_raw_figure() {
    let text = json(&results()).expect("JSON");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let at = |pointer: &str| value.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(at("/ratios/0/ratio/highest"), 1.5);
    assert_eq!(at("/ratios/1/base"), "kernel-gso-off");
    assert_eq!(
        at("/workloads/0/rounds/1/discarded"),
        "during skink-packet, it thundered"
    );
    let measurement = "/workloads/0/rounds/3/measurements/2";
    assert_eq!(at(&format!("{measurement}/server_cpu_us_per_unit")), 8.0);
    assert_eq!(at(&format!("{measurement}/latency/p99_us")), 400.0);
    let whole: Results = serde_json::from_str(&text).expect("results");
    assert_eq!(whole.workloads[0].rounds.len(), 4);
}

#[test]
fn memory_of_idle_connections_is_told_for_each() {
    let mut results = results();
    assert!(!text(&results).contains("idle connections"));
    let with = |connections, processes_bytes| Memory {
        connections,
        processes_bytes,
        shared_bytes: 1 << 20,
        slab_bytes: 3 << 20,
    };
    for round in &mut results.workloads[0].rounds {
        for measurement in &mut round.measurements {
            measurement.memory = match measurement.variant.as_str() {
                "kernel-gso-on" => Some(with(0, 2 << 20)),
                "kernel-gso-off" => Some(with(1024, 4 << 20)),
                _ => None,
            };
        }
    }
    let flat = one_space(&text(&results));
    for words in [
        "kernel-gso-on 0 2.0 1.0 3.0 - 3.0",
        "kernel-gso-off 1024 4.0 1.0 5.0 2048 3.0",
    ] {
        assert!(flat.contains(words), "{words:?} isn't in\n{flat}");
    }
}

#[test]
fn frames_and_the_floor_are_told_where_they_were_counted() {
    let mut results = results();
    assert!(!text(&results).contains("The floor"));
    results.settings.mtu = 1500;
    let against = Comparison {
        base: "raw-packet".to_owned(),
        against: RAW.to_owned(),
        like_for_like: false,
        ..results.comparisons[0].clone()
    };
    results.comparisons.push(against);
    results.workloads.push(WorkloadResults {
        name: "64B".to_owned(),
        unit: Unit::Pair,
        rounds: vec![round(&[("raw-packet", 2.0)], None)],
        ..WorkloadResults::default()
    });
    let rounds = results.workloads.iter_mut().flat_map(|one| &mut one.rounds);
    for measurement in rounds.flat_map(|round| &mut round.measurements) {
        measurement.traffic = Some(Traffic {
            frames_in: 1000,
            bytes_in: 140_000,
            frames_out: 2000,
            bytes_out: 60_000,
        });
    }
    let flat = one_space(&text(&results));
    for words in [
        "the rest - 6.00 - - 1.00 of 140 B 2.00 of 30 B request",
        // The program used 3.6 µs on the kernel, and three frames are a pair and a half.
        "20B skink-packet 12.0 10.0 6.60 3.60 1.52 1.82 1.00 - - µs/request",
    ] {
        assert!(flat.contains(words), "{words:?} isn't in\n{flat}");
    }
    let json = json(&results).expect("JSON");
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let floor = &value["floors"][0]["floor_us_per_unit"];
    assert!(
        floor
            .as_f64()
            .is_some_and(|floor| (floor - 6.6).abs() < 1e-9)
    );
}

#[test]
fn goals_are_below_ratios_that_have_some() {
    let mut results = results();
    for one in &mut results.comparisons {
        one.variant = "library-packet-gso-on".to_owned();
    }
    for round in &mut results.workloads[0].rounds {
        round.measurements[2].variant = "library-packet-gso-on".to_owned();
    }
    let other = WorkloadResults {
        name: "1MB".to_owned(),
        ..results.workloads[0].clone()
    };
    results.workloads.push(other);
    assert!(!text(&results).contains("goal"));
    results.settings.verb = goals::VERB.to_owned();
    let flat = one_space(&text(&results));
    let words = "library-packet-gso-on 1.00 1.00 goal ÷ kernel-gso-on 1.80 - ";
    assert!(flat.contains(words), "{words:?} isn't in\n{flat}");
}

#[test]
fn it_is_said_how_clients_asked() {
    let mut results = results();
    assert!(!text(&results).contains("At a rate"));
    results.workloads[0].rate = Some(9);
    let text = text(&results);
    assert!(text.contains("At a rate") && !text.contains("closed-loop"));
    // The client's rate is no merit of the server's; latencies under it are.
    assert!(!text.contains("Work per second"));
    assert!(text.contains("99th percentile of latency"));
}
