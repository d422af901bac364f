use super::*;

const MSS: u32 = 1_000;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// Acknowledges a whole window each round-trip time, as a bulk transfer does.
fn run(cubic: &mut Cubic, from_ms: u64, rounds: u64, rtt_ms: u64) {
    for round in 0..rounds {
        let window = cubic.window();
        for _ in 0..window / MSS {
            let now = at(from_ms + round * rtt_ms);
            cubic.on_ack(now, MSS, Duration::from_millis(rtt_ms), true);
        }
    }
}

#[test]
fn slow_start_doubles_each_round_trip() {
    let mut cubic = Cubic::new(MSS);
    assert_eq!(cubic.window(), 10_000);
    run(&mut cubic, 0, 3, 50);
    assert_eq!(cubic.window(), 80_000);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut cubic = Cubic::new(MSS);
    cubic.on_ack(at(1), MSS, Duration::from_millis(50), false);
    assert_eq!(cubic.window(), 10_000);
}

#[test]
fn loss_takes_three_tenths_and_the_window_returns_by_the_cubic() {
    let mut cubic = Cubic::new(MSS);
    run(&mut cubic, 0, 4, 50);
    let before = cubic.window();
    cubic.on_loss(before);
    assert_eq!(cubic.window(), before / 10 * 7);
    // K = cbrt(48 segments / 0.4) = 4.9 s: slow at first near W_max, back at it after K.
    run(&mut cubic, 200, 97, 50);
    let near = f64::from(cubic.window()) / f64::from(before);
    assert!((0.95..1.06).contains(&near), "{near}");
    run(&mut cubic, 200 + 97 * 50, 60, 50);
    assert!(cubic.window() > before * 11 / 10);
}

#[test]
fn a_timeout_starts_over_from_one_segment_and_can_be_undone() {
    let mut cubic = Cubic::new(MSS);
    run(&mut cubic, 0, 2, 50);
    let before = cubic.window();
    let undo = cubic.on_timeout(before);
    assert_eq!(cubic.window(), MSS);
    assert!(cubic.in_slow_start());
    cubic.undo(undo);
    assert_eq!(cubic.window(), before);
}

#[test]
fn cube_roots_are_exact() {
    for root in [0u64, 1, 2, 3, 1_000, 4_932, 1 << 20, (1 << 40) + 7] {
        let cube = u128::from(root).pow(3);
        assert_eq!(cube_root(cube), root);
        assert_eq!(cube_root(cube + 1), root.max(1));
    }
}
