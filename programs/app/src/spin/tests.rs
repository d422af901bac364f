use super::*;

fn short_sleeps(spin: &mut Spin, times: u32) {
    for _ in 0..times {
        spin.slept(raw::now());
    }
}

#[test]
fn a_program_that_waits_long_sleeps_at_once() {
    let mut spin = Spin::new();
    assert!(!spin.is_worth_it(1));
    short_sleeps(&mut spin, STREAK);
    assert!(spin.is_worth_it(1));
    spin.slept(raw::now() - 2 * LONGEST);
    assert!(!spin.is_worth_it(1));
    short_sleeps(&mut spin, STREAK - 1);
    assert!(!spin.is_worth_it(1));
}

#[test]
fn a_program_that_answers_several_at_a_time_sleeps_at_once() {
    let mut spin = Spin::new();
    short_sleeps(&mut spin, STREAK);
    assert!(!spin.is_worth_it(2));
    short_sleeps(&mut spin, STREAK);
    assert!(spin.is_worth_it(0));
}
