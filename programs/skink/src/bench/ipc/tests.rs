use super::*;

fn round(discarded: bool, figure: f64) -> Round {
    let sample = |name, p50| Sample {
        name,
        minimum: p50 / 2.0,
        p50,
        p99: p50 * 2.0,
    };
    Round {
        discarded: discarded.then(|| "somebody compiled".to_owned()),
        stolen: 0.25,
        cycles_per_tick: 1.5,
        samples: vec![
            sample("enqueue", 20.0),
            sample("round-trip-cache-line", 100.0),
            sample("round-trip-queues", figure),
        ],
    }
}

fn results(rounds: Vec<Round>) -> Results {
    Results {
        build: "release",
        ticks_per_ns: 2.0,
        rounds,
        ..Results::default()
    }
}

#[test]
fn discarded_rounds_do_not_count() {
    let results = results(vec![
        round(false, 140.0),
        round(true, 900.0),
        round(false, 160.0),
        round(false, 150.0),
    ]);
    let text = report::text(&results);
    assert!(text.contains("1.50 (1.40–1.60)"), "{text}");
    assert!(text.contains("1 of 4 rounds discarded"), "{text}");
    assert!(text.contains("somebody compiled"), "{text}");
    assert!(!text.contains("DON'T QUOTE"), "{text}");
    assert!(text.contains("took 25 (25–25)% of a processor"), "{text}");
    // Twenty ticks: two in a nanosecond, and one and a half cycles each.
    let enqueue = text.lines().find(|line| line.starts_with("enqueue "));
    let figures: Vec<&str> = enqueue.unwrap_or_default().split_whitespace().collect();
    assert!(figures.ends_with(&["10.0", "30"]), "{text}");
    let json = report::json(&results).expect("JSON");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["ratios"][0]["ratio"]["median"], 1.5);
    assert_eq!(json["rounds"][1]["discarded"], "somebody compiled");
}

#[test]
fn if_all_are_disturbed_it_says_so() {
    let text = report::text(&results(vec![round(true, 150.0)]));
    assert!(text.contains("DON'T QUOTE"), "{text}");
    assert!(text.contains("1.50 (1.50–1.50)"), "{text}");
}

#[test]
fn a_round_counts_while_both_processors_stay_where_they_are() {
    for lines in [[180.0, 170.0, 175.0], [1100.0, 1050.0, 1020.0]] {
        assert_eq!(misplaced(&lines, 2.5), None);
    }
    for lines in [
        [75.0, 75.0, 180.0],
        [180.0, 1100.0, 180.0],
        [170.0, 190.0, 180.0],
    ] {
        let why = misplaced(&lines, 2.5).expect("a reason");
        assert!(why.ends_with("was moved"), "{why}");
    }
    let why = misplaced(&[75.0, 76.0, 75.0], 2.5).expect("a reason");
    assert!(why.ends_with("one core"), "{why}");
}

#[test]
fn rounds_elsewhere_are_not_mixed_with_most() {
    let lines = [180.0, 170.0, 1100.0, 190.0, 75.0];
    let placed = |line| {
        let mut round = round(false, 1.5 * line);
        round.samples[1].p50 = line;
        round
    };
    let mut results = results(lines.into_iter().map(placed).collect());
    assert_eq!(results.alike().count(), 3);
    results.discard_others();
    let discarded = results.rounds.iter().map(|round| round.discarded.is_some());
    assert_eq!(
        discarded.collect::<Vec<_>>(),
        [false, false, true, false, true]
    );
    assert_eq!(results.counting().0.len(), 3);
}
