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
fn others_are_asked_once_and_have_a_second() {
    let mut misled = Misled::default();
    for millis in [0, 200, 600] {
        assert!(misled.may_be(at(millis), &flow(1)));
    }
    assert_eq!(misled.take(), Some(flow(1)));
    assert_eq!(misled.take(), None);
    assert!(!misled.may_be(at(1_400), &flow(1)));
    // Much later it may be another connection between the same ends.
    assert!(misled.may_be(at(4_000), &flow(1)));
    assert_eq!(misled.take(), Some(flow(1)));
}

/// A flood of segments has nobody reset, and no more asked than that.
#[test]
fn a_flood_is_left_unanswered() {
    let mut misled = Misled::default();
    for port in 0..1_000 {
        assert!(misled.may_be(at(1), &flow(port)));
    }
    assert!(misled.may_be(at(3_000), &flow(999)));
    assert_eq!(std::iter::from_fn(|| misled.take()).count(), MOST);
    assert!(misled.may_be(at(4_001), &flow(999)));
    assert_eq!(misled.take(), Some(flow(999)));
}
