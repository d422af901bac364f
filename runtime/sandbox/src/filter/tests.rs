use super::*;
use crate::calls::{EVENT_LOOP, Tasks};

const A: &[Condition] = &[crate::calls::condition(0, 1, 1)];
const B: &[Condition] = &[crate::calls::condition(1, 1, 1)];

fn merged(calls: &[Call]) -> Option<usize> {
    merge(calls.iter()).get(&1).map(Vec::len)
}

#[test]
fn lists_add_up() {
    let any = Call::any("x", 1);
    let (a, b) = (Call::only("x", 1, &[A]), Call::only("x", 1, &[B]));
    let table: [(&[Call], Option<usize>); 7] = [
        (&[], None),
        (&[any], Some(0)),
        (&[a], Some(1)),
        (&[a, b], Some(2)),
        (&[a, any], Some(0)),
        (&[any, a], Some(0)),
        (&[any, a, b], Some(0)),
    ];
    for (calls, rules) in table {
        assert_eq!(merged(calls), rules, "{calls:?}");
    }
}

#[test]
fn what_ships_compiles_for_both_ways_to_refuse() {
    for refusal in [Refusal::Kill, Refusal::Tell] {
        for nic in ["packet", "xdp", "tap"] {
            let all = Tasks {
                memory: true,
                programs: true,
                transports: true,
                nic: Some(nic),
                shares_nic: true,
            };
            let program = compile(&all.lists(), refusal).expect("compiles");
            // The kernel's own limit is 4,096 instructions.
            assert!(program.code.len() < 512, "{}", program.code.len());
            assert!(program.system_calls() >= EVENT_LOOP.len());
        }
    }
}

#[test]
fn nothing_allowed_is_an_error_that_says_so() {
    for lists in [&[][..], &[&[][..]]] {
        let error = compile(lists, Refusal::Tell).err().expect("no filter");
        assert!(error.to_string().contains("at least one call"), "{error}");
    }
}
