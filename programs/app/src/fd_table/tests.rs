use super::*;

#[test]
fn the_table_tells_what_descriptors_are() {
    assert!(!is_ours(7), "before there is a table, all are ordinary");
    assert!(start());
    let table = [
        (7, Entry::Socket(0)),
        (8, Entry::Epoll(0)),
        (9, Entry::Internal),
        (11, Entry::Socket(70_000)),
    ];
    for (fd, entry) in table {
        assert!(set(fd, entry));
    }
    for (fd, entry) in table {
        assert_eq!(get(fd), entry);
        assert!(is_listed(fd));
        assert_eq!(is_ours(fd), entry != Entry::Internal, "{fd}");
    }
    assert_eq!(
        in_range(8, 10).collect::<Vec<_>>(),
        [(8, Entry::Epoll(0)), (9, Entry::Internal)]
    );
    assert_eq!(in_range(8, u32::MAX).count(), 3);
    for fd in [-1, 6, 10, i32::MAX] {
        assert_eq!(get(fd), Entry::Ordinary, "{fd}");
    }
    assert!(!set(1 << 20, Entry::Socket(1)), "beyond the table");
    set(7, Entry::Ordinary);
    assert!(!is_ours(7));
    // One that went to the kernel: its end is heard of, once.
    fall(8);
    let state = (get(8), is_ours(8), is_listed(8));
    assert_eq!(state, (Entry::Ordinary, false, true));
    assert!(take_fallen(8));
    assert!(!take_fallen(8) && !is_listed(8));
}
