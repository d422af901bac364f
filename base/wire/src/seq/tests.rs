use super::*;

#[test]
fn comparison_goes_around_the_circle() {
    // (a, b): a comes before b.
    let table = [
        (0, 1),
        (u32::MAX, 0),
        (u32::MAX - 5, 5),
        (0x7fff_ffff, 0x8000_0000),
        (0, 0x7fff_ffff),
        (0x8000_0001, 0),
    ];
    for (a, b) in table {
        let (a, b) = (SeqNum(a), SeqNum(b));
        assert!(a.lt(b) && a.le(b) && b.gt(a) && b.ge(a), "{a} {b}");
        assert!(!b.lt(a) && !b.le(a) && !a.gt(b) && !a.ge(b), "{a} {b}");
        assert_eq!(a.max(b), b);
        assert_eq!(b.max(a), b);
        assert_eq!(a.min(b), a);
        assert_eq!(b.min(a), a);
    }
    for n in [0, 1, 0x8000_0000, u32::MAX] {
        let n = SeqNum(n);
        assert!(n.le(n) && n.ge(n) && !n.lt(n) && !n.gt(n));
    }
}

#[test]
fn arithmetic_wraps() {
    let mut n = SeqNum(u32::MAX) + 2;
    assert_eq!(n, SeqNum(1));
    assert_eq!(n - 3, SeqNum(u32::MAX - 1));
    n -= 2;
    assert_eq!(n, SeqNum(u32::MAX));
    n += 1;
    assert_eq!(n, SeqNum(0));
    assert_eq!(SeqNum(u32::MAX - 1).distance_to(SeqNum(3)), 5);
    assert_eq!(SeqNum(3).distance_to(SeqNum(u32::MAX - 1)), u32::MAX - 4);
}
