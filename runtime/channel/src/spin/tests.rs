use super::SpinBudget;

enum Step {
    Paid,
    Slept(u64),
}
use Step::{Paid, Slept};

#[test]
fn spins_while_it_pays_and_stops_when_it_does_not() {
    // maximum, what happened, budget afterwards, all in nanoseconds
    let table: [(u64, &[Step], u64); 8] = [
        (20_000, &[], 2_000),
        (20_000, &[Paid], 4_000),
        (20_000, &[Paid, Paid, Paid, Paid, Paid], 20_000),
        (1_000_000, &[Paid, Paid, Paid, Paid, Paid], 20_000),
        (20_000, &[Slept(1_000_000)], 0),
        (20_000, &[Paid, Paid, Slept(1_000_000)], 4_000),
        (20_000, &[Slept(1_000_000), Slept(40_000)], 2_000),
        (0, &[Paid, Slept(0), Slept(1)], 0),
    ];
    for (row, (maximum, steps, expected)) in table.into_iter().enumerate() {
        let mut budget = SpinBudget::new(maximum);
        for step in steps {
            match step {
                Paid => budget.on_paid(),
                Slept(ns) => budget.on_slept(*ns),
            }
        }
        assert_eq!(budget.budget_ns(), expected, "row {row}");
    }
}

#[test]
fn a_consumer_whose_messages_come_late_spins_no_more_after_a_few_sleeps() {
    let mut budget = SpinBudget::new(SpinBudget::MAXIMUM_NS);
    (0..10).for_each(|_| budget.on_paid());
    let mut spun = 0;
    for _ in 0..1_000 {
        spun += budget.budget_ns();
        budget.on_slept(1_000_000);
    }
    assert!(spun <= 2 * SpinBudget::MAXIMUM_NS, "{spun} ns");
}

#[test]
fn nobody_spins_where_nobody_else_can_run() {
    for (processors, spins) in [(0, false), (1, false), (2, true), (64, true)] {
        let budget = SpinBudget::for_processors(processors);
        assert_eq!(budget.budget_ns() > 0, spins, "{processors}");
    }
}
