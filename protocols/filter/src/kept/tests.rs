use super::*;
use crate::Filter;
use crate::test_support::{PEER, US, at, filter, icmp, passes, tcp, udp};
use crate::verdict::Direction::{In, Out};

/// Nothing comes in unasked, and everything may go out.
const CLIENT_ONLY: &str = "block in all\npass out all keep state\n";

fn table() -> StoredTable {
    StoredTable::create("stored", 64).expect("memory")
}

/// A filter that finds what is in the table.
fn successor(table: &StoredTable, seconds: u64) -> (Filter, usize) {
    let mut filter = filter(CLIENT_ONLY);
    let found = filter.keep_in(at(seconds), table.clone());
    (filter, found)
}

#[test]
fn an_answer_gets_through_after_a_restart_and_nothing_else() {
    let table = table();
    let (mut first, found) = successor(&table, 0);
    assert_eq!(found, 0);
    assert!(passes(&mut first, 0, Out, &udp(US, PEER)));
    assert!(passes(&mut first, 0, Out, &icmp(US, PEER, 8, 77)));
    assert!(passes(&mut first, 0, Out, &tcp(US, PEER, "S")));
    drop(first);
    // Twice: a successor keeps what it has found.
    for seconds in [1, 2] {
        let (mut next, found) = successor(&table, seconds);
        assert_eq!((found, next.states()), (2, 2));
        let stranger = "198.51.100.9:53";
        assert!(!passes(&mut next, seconds, In, &udp(stranger, US)));
    }
    let (mut last, _) = successor(&table, 3);
    assert!(passes(&mut last, 3, In, &udp(PEER, US)));
    assert!(passes(&mut last, 3, In, &icmp(PEER, US, 0, 77)));
    // What TCP has is rebuilt from what `tcp` knows.
    assert!(!passes(&mut last, 3, In, &tcp(PEER, US, "SA")));
}

#[test]
fn what_has_expired_does_not_come_back() {
    let table = table();
    let (mut first, _) = successor(&table, 0);
    assert!(passes(&mut first, 0, Out, &udp(US, PEER)));
    // A minute without an answer.
    let (mut next, found) = successor(&table, 59);
    assert_eq!(found, 1);
    assert!(passes(&mut next, 59, In, &udp(PEER, US)));
    drop(next);
    // The answer was noted: five minutes.
    assert_eq!(successor(&table, 358).1, 1);
    assert_eq!(successor(&table, 360).1, 0);
    // And is gone for good.
    assert_eq!(successor(&table, 100).1, 0);
}

#[test]
fn a_flow_that_goes_on_is_kept_for_nearly_its_whole_time() {
    let table = table();
    let (mut first, _) = successor(&table, 0);
    for seconds in 0..=100 {
        assert!(passes(&mut first, seconds, Out, &udp(US, PEER)));
    }
    // The last packet was at 100; an eighth of a minute may be missing.
    assert_eq!(successor(&table, 100 + 52).1, 1);
    assert_eq!(successor(&table, 100 + 60).1, 0);
}

#[test]
fn a_flow_takes_up_the_rest_of_its_time() {
    let table = table();
    let (mut first, _) = successor(&table, 0);
    assert!(passes(&mut first, 0, Out, &udp(US, PEER)));
    let (mut next, found) = successor(&table, 50);
    assert_eq!(found, 1);
    let _ = next.poll(at(61));
    assert_eq!(next.states(), 0);
    assert!(!passes(&mut next, 61, In, &udp(PEER, US)));
    assert_eq!(successor(&table, 55).1, 0, "forgotten in the table too");
}

#[test]
fn nonsense_is_freed() {
    let table = table();
    let (mut writer, _) = StoredWriter::new(table.clone());
    let key = |client, id| StoredKey {
        client,
        kind: KIND,
        id,
    };
    let flow = |number| {
        let end = (7, 9);
        let track = Track::Datagram {
            opener: Side::Local,
            answered: false,
        };
        encode(&Key::new(Family::V4, number, end, end), track, at(60))
    };
    let mut late = flow(protocol::UDP);
    late[40..].copy_from_slice(&u64::MAX.to_ne_bytes());
    for (client, id, value) in [
        (CLIENT, 1, [255; 48]),
        (CLIENT, 2, [0; 48]),
        (CLIENT, 3, flow(protocol::TCP)),
        (CLIENT + 1, 4, flow(protocol::UDP)),
        (CLIENT, u128::MAX, late),
    ] {
        assert!(writer.put(key(client, id), &value, None).is_some());
    }
    let (mut next, found) = successor(&table, 0);
    assert_eq!(found, 1, "its time is cut to what it can be");
    let _ = next.poll(at(61));
    assert_eq!(next.states(), 0);
    assert_eq!(StoredWriter::new(table).1.len(), 0);
}
