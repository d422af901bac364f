use super::*;
use ConnectionOption::*;

#[test]
fn only_what_was_changed_is_passed_on() {
    let changed = |change: &dyn Fn(&mut Options)| {
        let mut options = Options::new();
        change(&mut options);
        options.for_connection().collect::<Vec<_>>()
    };
    assert_eq!(changed(&|_| {}), []);
    assert_eq!(changed(&|options| options.no_delay = true), [NoDelay(true)]);
    assert_eq!(
        changed(&|options| options.linger = Some(0)),
        [ResetOnClose(true)]
    );
    assert_eq!(changed(&|options| options.linger = Some(3)), []);
    let keep_alive = changed(&|options| (options.keep_alive, options.keep_idle) = (true, 10));
    assert_eq!(keep_alive, [KeepAliveIdle(10), KeepAlive(true)]);
}
