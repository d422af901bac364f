use super::*;
use std::collections::BTreeSet;

const STRIDE: u32 = 1024;

fn queue() -> FairQueue {
    FairQueue::new(&SocketTable::new(STRIDE))
}

/// Serves `times`, with this cost each time, sockets that always have more; answers what each program was given.
fn serve(queue: &mut FairQueue, times: usize, cost: impl Fn(u32) -> u64) -> [u64; 3] {
    let mut given = [0; 3];
    for _ in 0..times {
        let slot = queue.take().expect("one waits");
        queue.charge(slot, cost(slot));
        given[(slot / STRIDE) as usize] += cost(slot);
        queue.push(slot);
    }
    given
}

#[test]
fn programs_have_equal_shares_whatever_number_of_sockets_they_have() {
    let mut queue = queue();
    (0..1000).for_each(|slot| queue.push(slot));
    queue.push(STRIDE);
    (0..10).for_each(|slot| queue.push(2 * STRIDE + slot));
    // Also if the sockets of one send more at a time.
    let cost = |slot: u32| if slot < STRIDE { 700 } else { 100 };
    let given = serve(&mut queue, 10_000, cost);
    let (least, most) = (given.iter().min(), given.iter().max());
    assert!(
        most.zip(least)
            .is_some_and(|(most, least)| most - least <= 700),
        "{given:?}"
    );
}

#[test]
fn sockets_of_a_program_take_turns() {
    let mut queue = queue();
    (0..4).for_each(|slot| queue.push(slot));
    serve(&mut queue, 6, |_| 1);
    let mut rest: Vec<_> = std::iter::from_fn(|| queue.take()).collect();
    assert_eq!(rest, [2, 3, 0, 1]);
    assert!(queue.is_empty());
    rest.truncate(2);
    rest.iter().for_each(|slot| queue.push(*slot));
    queue.put_back(7);
    assert_eq!(
        (queue.take(), queue.take(), queue.len()),
        (Some(7), Some(2), 1)
    );
}

#[test]
fn who_asks_seldom_is_next_at_once_and_has_saved_up_nothing() {
    let mut queue = queue();
    (0..100).for_each(|slot| queue.push(slot));
    serve(&mut queue, 1000, |_| 64);
    for _ in 0..10 {
        queue.push(STRIDE);
        // One of the others may have been given as little.
        let next = [queue.take(), queue.take()];
        assert!(next.contains(&Some(STRIDE)), "{next:?}");
        for slot in next.into_iter().flatten() {
            queue.charge(slot, 64);
            if slot < STRIDE {
                queue.push(slot);
            }
        }
        serve(&mut queue, 100, |_| 64);
    }
    queue.push(STRIDE);
    let given = serve(&mut queue, 100, |_| 64);
    assert!(given[0].abs_diff(given[1]) <= 64, "{given:?}");
}

#[test]
fn who_never_waits_has_nothing_to_pay_for_later() {
    let mut queue = queue();
    queue.push(0);
    serve(&mut queue, 10, |_| 64);
    assert_eq!(queue.take(), Some(0));
    // One is served at once whenever it has something, for long.
    (0..1000).for_each(|_| queue.charge(STRIDE, 64));
    queue.push(0);
    queue.push(STRIDE);
    let given = serve(&mut queue, 100, |_| 64);
    assert!(given[0].abs_diff(given[1]) <= 128, "{given:?}");
}

#[test]
fn what_is_put_in_is_taken_once() {
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut queue, mut waiting) = (queue(), BTreeSet::new());
    for _ in 0..20_000 {
        let slot = draw(5) as u32 * STRIDE + draw(4) as u32;
        match draw(4) {
            0 if waiting.insert(slot) => queue.push(slot),
            1 if waiting.insert(slot) => queue.put_back(slot),
            2 | 3 => {
                let taken = queue.take();
                assert_eq!(taken.is_none(), waiting.is_empty());
                if let Some(taken) = taken {
                    assert!(waiting.remove(&taken), "{taken}");
                    queue.charge(taken, draw(1000));
                }
            }
            _ => {}
        }
        assert_eq!(
            (queue.len(), queue.is_empty()),
            (waiting.len(), waiting.is_empty())
        );
        assert!(waiting.iter().all(|slot| queue.contains(*slot)));
    }
}
