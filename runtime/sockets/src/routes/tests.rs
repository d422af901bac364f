use super::*;

#[test]
fn routes_leave_no_channel_unused() {
    for (channels, count) in [
        ([0, 0, 0], Some(1)),
        ([0, 1, 2], Some(3)),
        ([2, 0, 1], Some(3)),
        ([1, 0, 1], Some(2)),
        ([0, 1, 1], Some(2)),
        ([1, 1, 1], None),
        ([0, 2, 0], None),
        ([0, 1, 3], None),
        ([255, 255, 255], None),
    ] {
        let routes = Routes::new(channels);
        assert_eq!(
            routes.map(|routes| routes.channels()),
            count,
            "{channels:?}"
        );
        assert_eq!(Routes::try_from(channels).ok(), routes);
    }
}

#[test]
fn each_process_gets_one_channel() {
    for (hosts, channels) in [
        (["a", "a", "a"], [0, 0, 0]),
        (["a", "b", "c"], [0, 1, 2]),
        (["a", "b", "a"], [0, 1, 0]),
        (["a", "b", "b"], [0, 1, 1]),
        (["a", "a", "b"], [0, 0, 1]),
    ] {
        assert_eq!(Some(Routes::to_hosts(&hosts)), Routes::new(channels));
    }
    let routes = Routes::to_hosts(&["a", "b", "a"]);
    assert!(
        routes
            .parts(0)
            .eq([ServedBy::Syscall, ServedBy::Udp].into_iter())
    );
    assert!(routes.parts(1).eq([ServedBy::Tcp]));
    assert_eq!(routes.channel(ServedBy::Tcp), 1);
}
