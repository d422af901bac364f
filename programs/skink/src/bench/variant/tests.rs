use super::*;

fn names(comparisons: &[Comparison]) -> Vec<String> {
    let of = |one: &Comparison| {
        let mark = if one.like_for_like { " (like)" } else { "" };
        format!("{} ÷ {}: {}{mark}", one.variant, one.base, one.against)
    };
    comparisons.iter().map(of).collect()
}

#[test]
fn names_tell_variants_apart() {
    let places = Place::all();
    assert_eq!(places.len(), 3);
    let variants = Variant::of_skink(&places[..1], &BackEnd::ALL, true);
    let names: Vec<String> = Variant::kernels()
        .iter()
        .chain(&variants)
        .map(ToString::to_string)
        .collect();
    let expected = [
        "kernel-gso-on",
        "kernel-gso-off",
        "library-packet-gso-on",
        "library-packet-gso-off",
        "library-xdp-gso-on",
        "library-xdp-gso-off",
        "library-tap-gso-on",
        "library-tap-gso-off",
    ];
    assert_eq!(names, expected);
    let once = Variant::of_skink(&places[..1], &[BackEnd::Xdp, BackEnd::Xdp], false);
    assert_eq!(once.len(), 1);
    let rules = Variant {
        rules: 1024,
        ..once[0].clone()
    };
    assert_eq!(rules.to_string(), "library-xdp-gso-on-rules-1024");
    let raw = Variant::raw(&[BackEnd::Packet, BackEnd::Xdp, BackEnd::Packet], true);
    let raw: Vec<String> = raw.iter().map(ToString::to_string).collect();
    let expected = [
        "raw-packet",
        "raw-packet-gso-off",
        "raw-xdp",
        "raw-xdp-gso-off",
    ];
    assert_eq!(raw, expected);
}

#[test]
fn only_the_library_is_in_the_program() {
    let found: Vec<(String, bool)> = Place::all()
        .into_iter()
        .map(|place| (place.name, place.in_program))
        .collect();
    let expected = [("library", true), ("single", false), ("split", false)];
    assert_eq!(found, expected.map(|(name, is)| (name.to_owned(), is)));
    assert!(Place::parse("neither-a-topology-nor-a-file").is_err());
}

#[test]
fn each_is_held_against_the_kernel_and_the_library() {
    let places = Place::all();
    let mut variants = Variant::kernels().to_vec();
    variants.extend(Variant::of_skink(&places[..2], &[BackEnd::Packet], true));
    let found = names(&comparisons(&variants));
    assert_eq!(found.len(), 4 * 2 + 2);
    for expected in [
        "library-packet-gso-on ÷ kernel-gso-on: kernel, GSO on (like)",
        "library-packet-gso-on ÷ kernel-gso-off: kernel, GSO off",
        "library-packet-gso-off ÷ kernel-gso-off: kernel, GSO off (like)",
        "single-packet-gso-off ÷ library-packet-gso-off: the library",
    ] {
        assert!(found.iter().any(|one| one == expected), "{found:?}");
    }
}

#[test]
fn rules_are_held_against_none() {
    let plain = Variant::of_skink(&Place::all(), &[BackEnd::Packet], false);
    let ruled = plain.iter().map(|variant| Variant {
        rules: 9,
        ..variant.clone()
    });
    let variants: Vec<Variant> = plain.iter().cloned().chain(ruled).collect();
    let found = names(&comparisons(&variants));
    let without = |one: &&String| one.ends_with("the same without rules");
    assert_eq!(found.iter().filter(without).count(), 3, "{found:?}");
    let expected =
        "split-packet-gso-on-rules-9 ÷ split-packet-gso-on: the same without rules".to_owned();
    assert!(found.contains(&expected), "{found:?}");
}

#[test]
fn idle_connections_are_held_against_none() {
    let [kernel, _] = Variant::kernels();
    let skink = Variant::of_skink(&Place::all()[..1], &[BackEnd::Packet], false);
    let idle = |variant: &Variant| Variant {
        idle: 9,
        ..variant.clone()
    };
    let all = [
        kernel.clone(),
        idle(&kernel),
        skink[0].clone(),
        idle(&skink[0]),
    ];
    assert_eq!(
        names(&comparisons(&all)),
        [
            "kernel-gso-on-idle-9 ÷ kernel-gso-on: the same without idle connections",
            "library-packet-gso-on ÷ kernel-gso-on: kernel, GSO on (like)",
            "library-packet-gso-on-idle-9 ÷ kernel-gso-on-idle-9: kernel, GSO on (like)",
            "library-packet-gso-on-idle-9 ÷ library-packet-gso-on: the same without idle connections",
        ]
    );
}

#[test]
fn more_workers_are_held_against_one() {
    let [kernel, _] = Variant::kernels();
    let two = |variant: &Variant| Variant {
        workers: 2,
        ..variant.clone()
    };
    let skink = Variant::of_skink(&Place::all()[..1], &[BackEnd::Packet], false);
    let all = [kernel.clone(), two(&kernel), two(&skink[0])];
    assert_eq!(
        names(&comparisons(&all)),
        [
            "kernel-gso-on-workers-2 ÷ kernel-gso-on: the same with one worker",
            "library-packet-gso-on-workers-2 ÷ kernel-gso-on-workers-2: kernel, GSO on (like)",
        ]
    );
}

#[test]
fn a_stack_is_held_against_its_back_end_alone() {
    let [kernel, _] = Variant::kernels();
    let nics = [BackEnd::Packet, BackEnd::Xdp];
    let mut all = vec![kernel];
    all.extend(Variant::raw(&nics, false));
    all.extend(Variant::of_skink(&Place::all()[..1], &nics, false));
    assert_eq!(
        names(&comparisons(&all)),
        [
            "raw-packet ÷ kernel-gso-on: kernel, GSO on (like)",
            "raw-xdp ÷ kernel-gso-on: kernel, GSO on",
            "library-packet-gso-on ÷ kernel-gso-on: kernel, GSO on (like)",
            "library-packet-gso-on ÷ raw-packet: the raw back end",
            "library-xdp-gso-on ÷ kernel-gso-on: kernel, GSO on (like)",
            "library-xdp-gso-on ÷ raw-xdp: the raw back end",
        ]
    );
    // Each on a cable of its own kind.
    let mut all = Variant::raw(&nics[1..], true);
    all.extend(Variant::of_skink(&Place::all()[..1], &nics[1..], true));
    assert_eq!(
        names(&comparisons(&all)),
        [
            "library-xdp-gso-on ÷ raw-xdp: the raw back end",
            "library-xdp-gso-off ÷ raw-xdp-gso-off: the raw back end",
        ]
    );
}
