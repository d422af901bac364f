//! All orders in which a producer and a consumer could see each other's stores, by loom. Run it with
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p skink-channel --test loom --release --target-dir target/loom
//! ```
//!
//! (ThreadSanitizer isn't part of the tests, as docs/decisions/0005 says, and Miri needs a nightly compiler. Loom knows the
//! memory model that they only sample.)
#![cfg(loom)]

use loom::sync::{Arc, Condvar, Mutex, Notify};
use loom::thread;
use skink_channel::{ChunkInMemory, Fenced, Queue, QueueError, in_memory};

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

#[test]
fn messages_arrive_whole_and_in_order() {
    model(|| {
        let (mut producer, mut consumer) = Queue::in_memory::<[u64; 2]>(24, 2);
        let sending = thread::spawn(move || {
            let mut number = 1;
            while number <= 3 {
                match producer.push(&[number, !number]) {
                    Ok(()) => number += 1,
                    Err(QueueError::Full) => thread::yield_now(),
                    Err(QueueError::Corrupt) => panic!("corrupt"),
                }
            }
        });
        let mut expected = 1;
        while expected <= 3 {
            match consumer.pop().expect("not corrupt") {
                Some(message) => {
                    assert_eq!(message, [expected, !expected]);
                    expected += 1;
                }
                None => thread::yield_now(),
            }
        }
        sending.join().expect("sent");
    });
}

#[test]
fn a_batch_comes_in_order() {
    model(|| {
        let (mut producer, mut consumer) = Queue::in_memory::<u64>(16, 4);
        let sending = thread::spawn(move || {
            (1..=2).for_each(|number| producer.write(&number).expect("room"));
            producer.publish();
            producer.push(&3).expect("room");
        });
        let mut seen = 0;
        while let Some(number) = consumer.peek().expect("not corrupt") {
            seen += 1;
            assert_eq!(number, seen);
        }
        consumer.release();
        sending.join().expect("sent");
    });
}

/// A lost wake-up is a deadlock, which loom reports; where the other side looks again and again, as too many branches.
#[test]
fn no_wake_up_is_lost() {
    model(|| {
        let (mut producer, mut consumer) = Queue::in_memory::<u64>(16, 2);
        let (mut announcer, mut caller) = in_memory();
        let bell = Arc::new(Notify::new());
        let ringing = bell.clone();
        let sending = thread::spawn(move || {
            for number in 1..=2 {
                producer.push(&number).expect("room");
                if caller.must_ring() {
                    ringing.notify();
                }
            }
        });
        let mut expected = 1;
        while expected <= 2 {
            while let Some(number) = consumer.pop().expect("not corrupt") {
                assert_eq!(number, expected);
                expected += 1;
            }
            if expected <= 2 {
                announcer.announce();
                if !consumer.is_ready() {
                    bell.wait();
                }
                announcer.retract();
            }
        }
        sending.join().expect("sent");
    });
}

/// A futex as the kernel has it: whether a thread sleeps there is looked at under a lock, and so is the word, before it does.
#[derive(Default)]
struct Futex {
    asleep: Mutex<bool>,
    woken: Condvar,
}

impl Futex {
    fn wait_while(&self, word: impl Fn() -> bool) {
        let mut asleep = self.asleep.lock().expect("the lock");
        *asleep = word();
        while *asleep {
            asleep = self.woken.wait(asleep).expect("the lock");
        }
    }

    fn wake(&self) -> bool {
        let mut asleep = self.asleep.lock().expect("the lock");
        let found = std::mem::take(&mut *asleep);
        if found {
            self.woken.notify_one();
        }
        found
    }
}

/// If a wake-up finds nobody, the producer rings, and who sleeps on the bell wakes the thread: here it does so itself.
#[test]
fn no_wake_up_is_lost_on_a_berth() {
    model(|| {
        let (mut producer, mut consumer) = Queue::in_memory::<u64>(16, 2);
        let (mut announcer, caller) = in_memory();
        let futex = Arc::new(Futex::default());
        let rung = Arc::new(Mutex::new(false));
        let (waking, ringing) = (futex.clone(), rung.clone());
        let sending = thread::spawn(move || {
            for number in 1..=2 {
                producer.push(&number).expect("room");
                if caller.berth_of(7, &Fenced::now()).is_some() && !waking.wake() {
                    *ringing.lock().expect("the lock") = true;
                    waking.wake();
                }
            }
        });
        let mut expected = 1;
        while expected <= 2 {
            while let Some(number) = consumer.pop().expect("not corrupt") {
                assert_eq!(number, expected);
                expected += 1;
            }
            if expected <= 2 {
                let berth = announcer.lie_down(7).expect("nobody else's");
                if !consumer.is_ready() {
                    futex.wait_while(|| !std::mem::take(&mut *rung.lock().expect("the lock")));
                }
                berth.rise();
            }
        }
        sending.join().expect("sent");
    });
}

/// A thread that sleeps on a side bell and on the bell.
#[test]
fn no_wake_up_is_lost_on_a_side_bell() {
    model(|| {
        let (mut producer, mut consumer) = Queue::in_memory::<u64>(16, 2);
        let (mut announcer, mut caller) = in_memory();
        announcer.lead(7, 0);
        let bells = Arc::new(Notify::new());
        let ringing = bells.clone();
        let sending = thread::spawn(move || {
            for number in 1..=2 {
                producer.push(&number).expect("room");
                let fenced = Fenced::now();
                let rings = match caller.side_bell_of(7, &fenced) {
                    Some(side) => side.must_ring,
                    None => caller.must_ring_after(&fenced),
                };
                if rings {
                    ringing.notify();
                }
            }
        });
        let mut expected = 1;
        while expected <= 2 {
            while let Some(number) = consumer.pop().expect("not corrupt") {
                assert_eq!(number, expected);
                expected += 1;
            }
            if expected <= 2 {
                announcer.announce_beside(0);
                announcer.announce();
                if !consumer.is_ready() {
                    bells.wait();
                }
                announcer.retract_beside(0);
                announcer.retract();
            }
        }
        sending.join().expect("sent");
    });
}

/// As components send: several written, one publication and one look at the sleeper for all of them, and again in the same slots.
#[test]
fn no_wake_up_is_lost_for_a_batch() {
    model(|| {
        let (mut producer, mut consumer) = Queue::in_memory::<[u64; 2]>(24, 2);
        let (mut announcer, mut caller) = in_memory();
        let bell = Arc::new(Notify::new());
        let ringing = bell.clone();
        let sending = thread::spawn(move || {
            let mut number = 1;
            while number <= 3 {
                while number <= 3 && producer.write(&[number, !number]).is_ok() {
                    number += 1;
                }
                match producer.publish() {
                    0 => thread::yield_now(),
                    _ if caller.must_ring() => ringing.notify(),
                    _ => {}
                }
            }
        });
        let mut expected = 1;
        while expected <= 3 {
            while let Some(message) = consumer.peek().expect("not corrupt") {
                assert_eq!(message, [expected, !expected]);
                expected += 1;
            }
            // There may be more behind slots that were taken.
            if consumer.release() == 0 {
                announcer.announce();
                if !consumer.is_ready() {
                    bell.wait();
                }
                announcer.retract();
            }
        }
        sending.join().expect("sent");
    });
}

/// One fence serves two looks: whether who sent has to be woken for an answer, and for room.
#[test]
fn one_fence_serves_answer_and_room() {
    model(|| {
        let (mut asking, mut asked) = Queue::in_memory::<u64>(16, 1);
        let (mut answering, mut answers) = Queue::in_memory::<u64>(16, 1);
        let (mut announcer, mut caller) = in_memory();
        let bell = Arc::new(Notify::new());
        let ringing = bell.clone();
        let serving = thread::spawn(move || {
            let mut expected = 1;
            while expected <= 2 {
                match asked.peek().expect("not corrupt") {
                    Some(number) => assert_eq!(number, expected),
                    None => {
                        thread::yield_now();
                        continue;
                    }
                }
                // The second one isn't answered: it is awaited for room alone.
                if expected == 1 {
                    answering.write(&expected).expect("room");
                }
                let published = answering.publish() > 0;
                asked.release();
                let fenced = Fenced::now();
                let made_room = asked.made_room_after(&fenced);
                if (published || made_room) && caller.must_ring_after(&fenced) {
                    ringing.notify();
                }
                expected += 1;
            }
        });
        asking.push(&1).expect("room");
        let (mut kept, mut awaited) = (true, true);
        while kept || awaited {
            kept = kept && asking.push(&2).is_err();
            awaited = awaited && answers.pop().expect("not corrupt").is_none();
            if kept || awaited {
                announcer.announce();
                if !(kept && asking.has_room() || awaited && answers.is_ready()) {
                    bell.wait();
                }
                announcer.retract();
            }
        }
        serving.join().expect("served");
    });
}

/// A producer that keeps what it can't send sleeps until there is room.
#[test]
fn a_producer_that_waits_for_room_is_woken() {
    model(|| {
        let (mut producer, mut consumer) = Queue::in_memory::<u64>(16, 1);
        let (mut announcer, mut caller) = in_memory();
        let bell = Arc::new(Notify::new());
        let ringing = bell.clone();
        let receiving = thread::spawn(move || {
            let mut expected = 1;
            while expected <= 2 {
                match consumer.pop().expect("not corrupt") {
                    Some(number) => assert_eq!(number, expected),
                    None => {
                        thread::yield_now();
                        continue;
                    }
                }
                expected += 1;
                if consumer.made_room() && caller.must_ring() {
                    ringing.notify();
                }
            }
        });
        for number in 1..=2 {
            while let Err(error) = producer.push(&number) {
                assert_eq!(error, QueueError::Full);
                announcer.announce();
                if !producer.has_room() {
                    bell.wait();
                }
                announcer.retract();
            }
        }
        receiving.join().expect("received");
    });
}

/// One sleeper, two queues with a producer each.
#[test]
fn one_sleeper_serves_two_queues() {
    model(|| {
        let (mut announcer, caller) = in_memory();
        let bell = Arc::new(Notify::new());
        let mut callers = [Some(caller.clone()), Some(caller)];
        let mut consumers = Vec::new();
        let mut threads = Vec::new();
        for caller in &mut callers {
            let (mut producer, consumer) = Queue::in_memory::<u64>(16, 1);
            consumers.push(consumer);
            let (mut caller, ringing) = (caller.take().expect("one"), bell.clone());
            threads.push(thread::spawn(move || {
                producer.push(&1).expect("room");
                if caller.must_ring() {
                    ringing.notify();
                }
            }));
        }
        let mut seen = 0;
        while seen < 2 {
            for consumer in &mut consumers {
                seen += u64::from(consumer.pop().expect("not corrupt").is_some());
            }
            if seen < 2 {
                announcer.announce();
                if !consumers.iter().any(|consumer| consumer.is_ready()) {
                    bell.wait();
                }
                announcer.retract();
            }
        }
        threads
            .into_iter()
            .for_each(|one| one.join().expect("sent"));
    });
}

/// The creator takes a reader for dead, and fills the chunk anew while that one copies.
#[test]
fn what_is_copied_from_a_chunk_is_what_was_lent() {
    model(|| {
        let chunk = ChunkInMemory::new([1, 1]);
        let creator = chunk.clone();
        let writing = thread::spawn(move || {
            creator.generation().become_free(2);
            creator.write([2, 2]);
        });
        if let Some(copy) = chunk.copy_out(1) {
            assert_eq!(copy, [1, 1]);
        }
        writing.join().expect("written");
        assert_eq!(chunk.copy_out(1), None);
        assert_eq!(chunk.copy_out(2), Some([2, 2]));
    });
}
