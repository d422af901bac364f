use super::*;

#[test]
fn who_sleeps_on_a_futex_is_woken_once_and_by_who_lets_the_lock_go() {
    let mut parking = Parking::new();
    let id = parking.enter();
    let word = parking.sleeps_on_futex(id);
    parking.wake(id);
    parking.wake(id);
    let woken = parking.take_woken();
    assert!(matches!(&woken[..], [Call::Futex(its)] if Arc::ptr_eq(its, &word)));
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

#[test]
fn one_thread_at_a_time_is_woken_to_drive() {
    let mut parking = Parking::new();
    let ids = [parking.enter(), parking.enter()];
    let words = ids.map(|id| parking.sleeps_on_futex(id));
    parking.hand_over();
    parking.hand_over();
    assert_eq!(parking.take_woken().len(), 1);
    let asleep = |parking: &Parking| {
        let woken = words.iter().map(|word| word.load(Ordering::Relaxed));
        assert_eq!(parking.waiters.len(), 2);
        woken.filter(|woken| *woken == 0).count()
    };
    assert_eq!(asleep(&parking), 1);
    // It has what it waited for, and doesn't drive.
    parking.leave(ids[0]);
    parking.hand_over();
    assert_eq!(asleep(&parking), 0);
}

#[test]
fn who_sleeps_on_a_flow_ring_is_not_woken_to_drive() {
    let mut parking = Parking::new();
    let [ring, futex] = [parking.enter(), parking.enter()];
    parking.sleeps_on_ring(ring, -1);
    parking.hand_over();
    assert!(parking.take_woken().is_empty());
    parking.sleeps_on_futex(futex);
    parking.hand_over();
    assert!(matches!(&parking.take_woken()[..], [Call::Futex(_)]));
    // But for what it waits for.
    parking.wake(ring);
    assert!(matches!(&parking.take_woken()[..], [Call::Ring(-1)]));
}

#[test]
fn who_sleeps_on_a_berth_is_woken_to_drive() {
    let descriptors = skink_channel::SleeperDescriptors::create("test").expect("a sleeper");
    let ends = descriptors.sleeper().expect("descriptors");
    let sleeper = skink_channel::Sleeper::attach(ends, skink_channel::SpinBudget::new(0));
    let mut sleeper = sleeper.expect("a sleeper");
    let mut parking = Parking::new();
    let id = parking.enter();
    let berth = sleeper.lie_down(7).expect("a berth");
    parking.sleeps_on_berth(id, berth.clone());
    parking.hand_over();
    assert!(!berth.is_occupied(), "it won't sleep any more");
    assert!(matches!(&parking.take_woken()[..], [Call::Berth(_)]));
    parking.leave(id);
    assert!(sleeper.lie_down(7).is_some(), "the berth is free again");
}
