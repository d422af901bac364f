use super::*;
use std::sync::Once;

/// The table, which all tests in this process share.
pub fn started() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        assert!(!is_ours(907), "before there is a table, all are ordinary");
        assert!(start());
    });
}

/// Its descriptors have numbers that none of a test beside it has, whose reads would be taken for a socket's.
#[test]
fn the_table_tells_what_descriptors_are() {
    started();
    let table = [
        (907, Entry::Socket(0)),
        (908, Entry::Epoll(0)),
        (909, Entry::Internal),
        (911, Entry::Socket(70_000)),
        (912, Entry::Plain(70_000)),
    ];
    for (fd, entry) in table {
        assert!(set(fd, entry));
    }
    for (fd, entry) in table {
        assert_eq!(get(fd), entry);
        assert!(is_listed(fd));
        let known = entry != Entry::Internal;
        assert_eq!(is_known(fd), known, "{fd}");
        let ours = known && !matches!(entry, Entry::Plain(_));
        assert_eq!(is_ours(fd), ours, "{fd}");
    }
    assert_eq!(
        in_range(908, 910).collect::<Vec<_>>(),
        [(908, Entry::Epoll(0)), (909, Entry::Internal)]
    );
    assert_eq!(in_range(908, u32::MAX).count(), 4);
    for fd in [-1, 906, 910, i32::MAX] {
        assert_eq!(get(fd), Entry::Ordinary, "{fd}");
    }
    assert!(!set(1 << 20, Entry::Socket(1)), "beyond the table");
    set(907, Entry::Ordinary);
    assert!(!is_ours(907));
    // One that went to the kernel: its end is heard of, once.
    fall(908);
    let state = (get(908), is_known(908), is_listed(908));
    assert_eq!(state, (Entry::Ordinary, false, true));
    assert!(take_fallen(908));
    assert!(!take_fallen(908) && !is_listed(908));
}
