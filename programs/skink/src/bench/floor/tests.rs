use super::super::results::{Comparison, ProcessCosts, Settings};
use super::*;

const KERNEL: &str = "kernel-gso-off";
const LIBRARY: &str = "library-xdp-gso-off";
const BARE: &str = "raw-xdp-gso-off";

/// 1,000 units at `us` each, `user` of it in the program, and what passed the cable for each.
fn measured(variant: &str, us: f64, user: f64, received: Frames, sent: Frames) -> Measurement {
    let processes = [(PROGRAM, user), ("supervisor", 99.0)].map(|(name, user)| ProcessCosts {
        name: name.to_owned(),
        user_seconds: user * 1e-3,
        system_seconds: 99.0,
        ..ProcessCosts::default()
    });
    let counts = |frames: Frames| {
        let number = frames.per_unit * 1e3;
        (number as u64, (number * frames.bytes) as u64)
    };
    let ((frames_in, bytes_in), (frames_out, bytes_out)) = (counts(received), counts(sent));
    Measurement {
        variant: variant.to_owned(),
        units: 1e3,
        server_cpu_us_per_unit: us,
        processes: processes.to_vec(),
        traffic: Some(Traffic {
            frames_in,
            bytes_in,
            frames_out,
            bytes_out,
        }),
        ..Measurement::default()
    }
}

fn frames_of(per_unit: f64, bytes: f64) -> Frames {
    Frames { per_unit, bytes }
}

fn workload(name: &str, unit: Unit, rounds: Vec<Vec<Measurement>>) -> WorkloadResults {
    let rounds = rounds.into_iter().map(|measurements| Round {
        measurements,
        ..Round::default()
    });
    WorkloadResults {
        name: name.to_owned(),
        unit,
        rounds: rounds.collect(),
        ..WorkloadResults::default()
    }
}

/// Pairs at 2 and 4 µs, and a workload of which the library receives and sends so much.
fn results(received: Frames, sent: Frames) -> Results {
    let pairs = |name: &str, us| {
        let small = frames_of(1.0, 60.0);
        let bare = [us, 9.0 * us, us].map(|us| vec![measured(BARE, us, us, small, small)]);
        workload(name, Unit::Pair, bare.to_vec())
    };
    let round = |slower: f64| {
        // What the kernel received doesn't matter, nor what Skink's program used itself.
        let other = frames_of(77.0, 99.0);
        vec![
            measured(KERNEL, 20.0 * slower, 3.0, other, other),
            measured(LIBRARY, 8.0 * slower, 99.0, received, sent),
        ]
    };
    let rounds = vec![round(1.0), round(1.0), round(5.0)];
    let compared = |base: &str, against: &str, like_for_like| Comparison {
        variant: LIBRARY.to_owned(),
        base: base.to_owned(),
        against: against.to_owned(),
        like_for_like,
    };
    Results {
        settings: Settings {
            mtu: 1500,
            ..Settings::default()
        },
        comparisons: vec![
            compared(KERNEL, "kernel, GSO off", true),
            compared("kernel-gso-on", "kernel, GSO on", false),
            compared(BARE, RAW, false),
        ],
        workloads: vec![
            workload("20B", Unit::Request, rounds),
            pairs("64B", 2.0),
            pairs("1514B", 4.0),
        ],
        ..Results::default()
    }
}

#[test]
fn the_program_and_half_a_pair_for_each_frame() {
    for (received, sent, floor) in [
        // 3 + 1 * 2 / 2 + 1 * 2 / 2
        (frames_of(1.0, 120.0), frames_of(1.0, 300.0), Some(5.0)),
        (frames_of(1.0, 512.0), frames_of(0.5, 512.0), Some(4.5)),
        // 3 + 2 * 2 / 2 + 16 * 4 / 2
        (frames_of(2.0, 60.0), frames_of(16.0, 1500.0), Some(37.0)),
        (frames_of(2.0, 60.0), frames_of(16.0, 1514.0), Some(37.0)),
        (frames_of(1.0, 513.0), frames_of(0.0, 0.0), Some(5.0)),
        // Segments that no back end sends by frames.
        (frames_of(2.0, 60.0), frames_of(1.0, 1515.0), None),
        (frames_of(1.0, 60_000.0), frames_of(1.0, 60.0), None),
    ] {
        let found = floors(&results(received, sent));
        let [one] = found.as_slice() else {
            panic!("{found:?}");
        };
        let expected = Floor {
            workload: "20B".to_owned(),
            unit: Unit::Request,
            variant: LIBRARY.to_owned(),
            kernel: KERNEL.to_owned(),
            raw: BARE.to_owned(),
            kernel_us_per_unit: 20.0,
            skink_us_per_unit: 8.0,
            floor_us_per_unit: floor,
            program_us_per_unit: 3.0,
            received,
            sent,
            ratio: 2.5,
            goal: Some(2.5),
            reached: Some(true),
            disturbed: false,
        };
        assert_eq!(*one, expected, "{received:?} {sent:?}");
    }
}

#[test]
fn large_frames_have_none_where_the_kernel_joins_and_cuts_them() {
    let (small, large) = (frames_of(1.0, 60.0), frames_of(1.0, 1500.0));
    for (received, sent, floor) in [
        (small, small, Some(5.0)),
        (small, large, None),
        (large, small, None),
    ] {
        let mut packet = results(received, sent);
        let rename = |name: &mut String| *name = name.replace("xdp", "packet");
        for one in &mut packet.comparisons {
            rename(&mut one.variant);
            rename(&mut one.base);
        }
        let rounds = packet.workloads.iter_mut().flat_map(|one| &mut one.rounds);
        let measurements = rounds.flat_map(|round| &mut round.measurements);
        measurements.for_each(|one| rename(&mut one.variant));
        let found = floors(&packet);
        let found: Vec<_> = found.iter().map(|one| one.floor_us_per_unit).collect();
        assert_eq!(found, [floor], "{received:?} {sent:?}");
    }
}

#[test]
fn without_its_back_end_a_variant_has_none() {
    let small = frames_of(1.0, 60.0);
    let whole = results(small, small);
    let mut without = whole.clone();
    without
        .workloads
        .retain(|workload| workload.unit != Unit::Pair);
    assert_eq!(floors(&without), []);
    let mut without = whole.clone();
    without.comparisons.retain(|one| one.against != RAW);
    assert_eq!(floors(&without), []);
    // Those of one size may do.
    for (size, expected) in [("64B", None), ("1514B", Some(5.0))] {
        let mut without = whole.clone();
        without.workloads.retain(|workload| workload.name != size);
        let found = floors(&without);
        let first = found.first().expect("one");
        assert_eq!(first.floor_us_per_unit, expected, "without {size}");
    }
}

#[test]
fn results_that_have_no_counts_have_no_floor() {
    let small = frames_of(1.0, 60.0);
    let mut old = results(small, small);
    let rounds = old.workloads.iter_mut().flat_map(|one| &mut one.rounds);
    for measurement in rounds.flat_map(|round| &mut round.measurements) {
        measurement.traffic = None;
    }
    assert_eq!(floors(&old), []);
}

#[test]
fn a_disturbed_back_end_disturbs_the_floor() {
    let small = frames_of(1.0, 60.0);
    for name in ["20B", "64B", "1514B"] {
        let mut results = results(small, small);
        let mut workloads = results.workloads.iter_mut();
        let workload = workloads.find(|one| one.name == name).expect("it is there");
        for round in &mut workload.rounds {
            round.discarded = Some("it thundered".to_owned());
        }
        let found = floors(&results);
        assert!(found.iter().all(|one| one.disturbed), "{name}");
        assert_eq!(found.len(), 1, "{name}");
    }
}
