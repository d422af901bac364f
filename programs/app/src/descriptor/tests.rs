use super::*;

/// A signal handler that interrupted a call of the library's can close and share epoll sets that have none of Skink's sockets.
#[test]
fn a_plain_set_is_the_kernels_where_the_lock_cannot_be_had() {
    start();
    fd_table::tests::started();
    // A number that no other test has.
    let set = 850;
    let made = raw::epoll_create().expect("an epoll set");
    assert_eq!(raw::fcntl(made, libc::F_DUPFD, set as usize), Ok(850));
    raw::close(made);
    let copies = |set| {
        [
            close(set),
            duplicate(set, libc::F_DUPFD, 0),
            replace(set, 0, 0),
            control(set, libc::F_GETFL, 0),
        ]
    };
    let guard = lock().expect("nobody has it here");
    for (entry, answer) in [
        (Entry::Plain(0), Err(Stop::Kernel)),
        (Entry::Epoll(0), Err(crate::errno::WOULD_BLOCK)),
    ] {
        fd_table::set(set, entry);
        assert_eq!(copies(set), [answer; 4], "{entry:?}");
    }
    fd_table::set(set, Entry::Ordinary);
    drop(guard);
    raw::close(set);
}
