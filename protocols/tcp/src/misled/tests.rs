use super::*;
use skink_wire::Endpoint;

fn flow(port: u16) -> FourTuple {
    let end = |port| Endpoint::new([10, 0, 0, 1].into(), port);
    FourTuple::new(end(80), end(port))
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

#[test]
fn others_are_asked_once_and_have_some_time() {
    let mut misled = Misled::default();
    for millis in [0, 200, 499] {
        assert!(misled.may_be(at(millis), &flow(1)));
    }
    assert_eq!(misled.take(), Some(flow(1)));
    assert_eq!(misled.take(), None);
    assert!(!misled.may_be(at(600), &flow(1)));
    // Much later it may be another connection between the same ends.
    assert!(misled.may_be(at(4_000), &flow(1)));
    assert_eq!(misled.take(), Some(flow(1)));
}

/// Who comes while many do is answered at once, and no more are asked about than that.
#[test]
fn a_flood_keeps_nobody_waiting() {
    let mut misled = Misled::default();
    for port in 0..1_000 {
        assert_eq!(misled.may_be(at(1), &flow(port)), usize::from(port) < MOST);
    }
    assert!(!misled.may_be(at(3_000), &flow(999)));
    assert_eq!(std::iter::from_fn(|| misled.take()).count(), MOST);
    assert!(misled.may_be(at(4_001), &flow(999)));
    assert_eq!(misled.take(), Some(flow(999)));
}

/// Where nobody asks, what is to be asked about goes with what is remembered.
#[test]
fn nothing_piles_up() {
    let mut misled = Misled::default();
    for round in 0..10 {
        for port in 0..MOST as u16 {
            misled.may_be(at(round * 5_000), &flow(port));
        }
    }
    assert_eq!(misled.unasked.len(), MOST);
}
