use super::*;

#[test]
fn who_sleeps_on_a_futex_is_woken_once_and_by_who_lets_the_lock_go() {
    let mut parking = Parking::new();
    let id = parking.enter();
    let word = parking.sleeps_on_futex(id);
    parking.wake(id);
    parking.wake(id);
    let woken = parking.take_woken();
    assert_eq!(woken.len(), 1);
    assert!(Arc::ptr_eq(&woken[0], &word));
    assert_eq!(word.load(Ordering::Relaxed), 1, "it won't sleep any more");
    assert!(parking.take_woken().is_empty());
}

#[test]
fn whoever_is_awake_or_gone_needs_no_waking() {
    let mut parking = Parking::new();
    let id = parking.enter();
    parking.wake(id);
    parking.leave(id);
    parking.wake(id);
    parking.wake(7);
    assert!(parking.take_woken().is_empty());
}
