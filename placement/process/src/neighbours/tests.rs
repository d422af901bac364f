use super::Neighbours;
use skink_control::Part;

#[test]
fn a_successor_is_told_from_the_one_that_was_expected() {
    let mut neighbours = Neighbours::new([1, 1, 3, 1, 1, 1, 1]);
    let meetings = [
        (Part::Link, 1, Some(7), (false, None)),
        (Part::Link, 1, Some(7), (false, None)),
        (Part::Link, 2, Some(8), (true, Some(7))),
        (Part::Filter, 3, None, (false, None)),
        (Part::Filter, 4, None, (true, None)),
        (Part::Ip, 2, Some(9), (true, None)),
        (Part::Ip, 3, None, (true, Some(9))),
    ];
    for (part, incarnation, pool, expected) in meetings {
        let met = neighbours.meet(part, incarnation, pool);
        let got = (met.restarted, met.old_pool);
        assert_eq!(got, expected, "{part:?} {incarnation}");
    }
}
