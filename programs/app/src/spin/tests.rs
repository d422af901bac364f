use super::*;

fn short_sleeps(spin: &mut Spin, times: u32) {
    for _ in 0..times {
        spin.slept(Instant::ZERO, Instant::ZERO + LONGEST);
    }
}

#[test]
fn a_program_that_waits_long_sleeps_at_once() {
    let mut spin = Spin::new();
    assert!(!spin.is_worth_it(true));
    short_sleeps(&mut spin, STREAK);
    assert!(spin.is_worth_it(true));
    spin.slept(Instant::ZERO, Instant::ZERO + 2 * LONGEST);
    assert!(!spin.is_worth_it(true));
    short_sleeps(&mut spin, STREAK - 1);
    assert!(!spin.is_worth_it(true));
}

#[test]
fn a_program_that_does_anything_else_than_one_small_answer_sleeps_at_once() {
    let mut spin = Spin::new();
    short_sleeps(&mut spin, STREAK);
    assert!(!spin.is_worth_it(false));
    short_sleeps(&mut spin, STREAK);
    assert!(spin.is_worth_it(true));
}
