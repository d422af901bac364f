use super::*;
use core::time::Duration;
use std::collections::BTreeMap;

const TICK_NS: u64 = 1 << TICK_SHIFT;

fn drain(wheel: &mut TimerWheel, now: Instant) -> Vec<u32> {
    let mut fired: Vec<u32> = std::iter::from_fn(|| wheel.pop_expired(now)).collect();
    fired.sort_unstable();
    fired
}

#[test]
fn a_timer_fires_after_its_deadline_and_never_before() {
    for ms in [0, 1, 5, 254, 255, 256, 300, 65_535, 70_000, 20_000_000] {
        let mut wheel = TimerWheel::new();
        let deadline = Instant::from_millis(ms);
        wheel.set(3, deadline);
        let just_before = Instant::from_nanos(deadline.as_nanos().saturating_sub(1));
        assert_eq!(drain(&mut wheel, just_before), [], "{ms} ms");
        let one_tick_late = deadline + Duration::from_nanos(TICK_NS);
        assert_eq!(drain(&mut wheel, one_tick_late), [3], "{ms} ms");
        assert_eq!(wheel.next_deadline(), None);
    }
}

/// The obviously right oracle: a sorted map of deadlines.
#[test]
fn random_use_agrees_with_a_sorted_map() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let mut wheel = TimerWheel::new();
    let mut oracle: BTreeMap<u32, u64> = BTreeMap::new();
    let mut now_tick = 0u64;
    for _ in 0..200_000 {
        match next(4) {
            0 | 1 => {
                let key = next(500) as u32;
                let spread = [3, 200, 3_000, 70_000, 20_000_000][next(5) as usize];
                let tick = now_tick + next(spread);
                wheel.set(key, Instant::from_nanos(tick * TICK_NS));
                oracle.insert(key, tick + 1);
            }
            2 => {
                let key = next(500) as u32;
                wheel.cancel(key);
                oracle.remove(&key);
            }
            _ => {
                let stride = [2, 50, 1_000, 100_000][next(4) as usize];
                now_tick += next(stride);
                let now = Instant::from_nanos(now_tick * TICK_NS);
                let expected: Vec<u32> = oracle
                    .iter()
                    .filter(|(_, tick)| **tick <= now_tick)
                    .map(|(key, _)| *key)
                    .collect();
                oracle.retain(|_, tick| *tick > now_tick);
                assert_eq!(drain(&mut wheel, now), expected);
            }
        }
        let bound = wheel.next_deadline().map(|at| at.as_nanos() / TICK_NS);
        match oracle.values().min() {
            Some(first) => assert!(bound.is_some_and(|bound| bound <= *first)),
            None => assert_eq!(bound, None),
        }
    }
}
