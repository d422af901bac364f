use super::*;
use std::collections::{BTreeMap, BTreeSet};

const A: NeighbourId = NeighbourId(0);
const B: NeighbourId = NeighbourId(1);

fn database(capacity: u32) -> RequestDatabase<u32> {
    RequestDatabase::new(capacity, 2, 0)
}

#[test]
fn an_answer_counts_once_and_from_the_one_that_was_asked() {
    let mut requests = database(4);
    let id = requests.issue(A, 7).expect("room");
    assert_eq!(requests.complete(id, B), None, "B wasn't asked");
    assert_eq!(requests.complete(id, NeighbourId(9)), None, "who is that");
    assert_eq!(requests.complete(id, A), Some(7));
    assert_eq!(requests.complete(id, A), None, "again");
    assert_eq!((requests.ignored(), requests.awaited()), (3, 0));
}

#[test]
fn forged_ids_match_nothing() {
    let mut requests = database(4);
    let id = requests.issue(A, 7).expect("room").to_wire();
    for forged in [
        0,
        1,
        2,
        3,
        u64::MAX,
        id + 1,
        id ^ 1 << 63,
        id ^ 1 << INDEX_BITS,
        id + 4,
    ] {
        assert_eq!(
            requests.complete(RequestId::from_wire(forged), A),
            None,
            "{forged:x}"
        );
    }
    assert_eq!(requests.complete(RequestId::from_wire(id), A), Some(7));
}

#[test]
fn a_full_database_hands_the_request_back() {
    let mut requests = database(2);
    let first = requests.issue(A, 1).expect("room");
    requests.issue(B, 2).expect("room");
    assert_eq!(requests.issue(A, 3), Err(RequestsFull(3)));
    requests.complete(first, A);
    assert_eq!(
        requests.issue(NeighbourId(2), 3),
        Err(RequestsFull(3)),
        "no such neighbour"
    );
    requests.issue(A, 3).expect("room");
}

#[test]
fn a_death_aborts_the_requests_to_the_dead_alone_oldest_first() {
    let mut requests = database(8);
    let ids: Vec<RequestId> = [(A, 1), (B, 2), (A, 3), (A, 4)]
        .map(|(neighbour, abort)| requests.issue(neighbour, abort).expect("room"))
        .to_vec();
    assert_eq!(requests.complete(ids[2], A), Some(3));
    assert_eq!(requests.abort_all(A), 2);
    assert_eq!(requests.complete(ids[0], A), None, "an answer of the dead");
    let mut again = Vec::new();
    while let Some(aborted) = requests.poll_aborted() {
        assert_eq!(aborted.neighbour, A);
        // Issued again to its successor while the others are still to be aborted.
        again.push((
            aborted.abort,
            aborted.id,
            requests.issue(A, aborted.abort).expect("room"),
        ));
        assert!(again.len() <= 2, "what is issued again isn't aborted again");
    }
    let aborts: Vec<u32> = again.iter().map(|(abort, ..)| *abort).collect();
    assert_eq!(aborts, [1, 4]);
    for (abort, old, new) in again {
        assert_ne!(old, new);
        assert_eq!(requests.complete(old, A), None, "late");
        assert_eq!(requests.complete(new, A), Some(abort));
    }
    assert_eq!(requests.complete(ids[1], B), Some(2), "B lives");
    assert_eq!(requests.abort_all(A), 0);
    assert_eq!(requests.abort_all(NeighbourId(2)), 0);
}

#[test]
fn ids_do_not_come_back_soon() {
    let mut seen = BTreeSet::new();
    for incarnation in 0..3 {
        let mut requests: RequestDatabase<()> = RequestDatabase::new(4, 1, incarnation);
        for _ in 0..10_000 {
            let id = requests.issue(A, ()).expect("room");
            assert!(seen.insert(id.to_wire()), "{id:?} again");
            assert_ne!(id.to_wire(), 0);
            requests.complete(id, A);
        }
    }
}

#[test]
fn the_count_of_an_entry_wraps_within_its_incarnation() {
    let mut requests: RequestDatabase<()> = RequestDatabase::new(1, 1, 5);
    requests.entries[0].generation = 5 << 32 | u64::from(u32::MAX);
    let last = requests.issue(A, ()).expect("room");
    requests.complete(last, A);
    let first = requests.issue(A, ()).expect("room");
    assert_eq!(first.to_wire() >> INDEX_BITS, 5 << 32 | 1);
}

/// Against a map, in a random order.
#[test]
fn does_what_a_map_does() {
    let mut state = 1_u64;
    let mut random = |limit: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut requests = database(16);
    let mut model: BTreeMap<u64, (NeighbourId, u32)> = BTreeMap::new();
    let mut late = Vec::new();
    for number in 0..50_000 {
        let neighbour = NeighbourId(random(2) as u16);
        match random(20) {
            0..10 => match requests.issue(neighbour, number) {
                Ok(id) => assert_eq!(model.insert(id.to_wire(), (neighbour, number)), None),
                Err(RequestsFull(back)) => assert_eq!((back, model.len()), (number, 16)),
            },
            10..18 if !model.is_empty() => {
                let nth = random(model.len() as u64) as usize;
                let (id, (asked, abort)) =
                    model.iter().nth(nth).map(|(a, b)| (*a, *b)).expect("there");
                let expected = (asked == neighbour).then_some(abort);
                assert_eq!(
                    requests.complete(RequestId::from_wire(id), neighbour),
                    expected
                );
                if expected.is_some() {
                    model.remove(&id);
                    late.push(id);
                }
            }
            18 if !late.is_empty() => {
                let id = late[random(late.len() as u64) as usize];
                assert_eq!(requests.complete(RequestId::from_wire(id), neighbour), None);
            }
            19 => {
                let mut expected: Vec<(u64, u32)> = model
                    .iter()
                    .filter(|(_, (asked, _))| *asked == neighbour)
                    .map(|(id, (_, abort))| (*id, *abort))
                    .collect();
                expected.sort_by_key(|(_, abort)| *abort);
                model.retain(|_, (asked, _)| *asked != neighbour);
                assert_eq!(requests.abort_all(neighbour) as usize, expected.len());
                let aborted: Vec<(u64, u32)> = std::iter::from_fn(|| requests.poll_aborted())
                    .map(|aborted| (aborted.id.to_wire(), aborted.abort))
                    .collect();
                assert_eq!(aborted, expected);
            }
            _ => {}
        }
        assert_eq!(requests.awaited() as usize, model.len());
    }
}
