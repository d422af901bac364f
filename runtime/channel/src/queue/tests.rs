use super::*;
use crate::memory::{Memory, Ordering, word};
use std::collections::VecDeque;

fn queue<T: Message>(
    slot_bytes: u32,
    capacity: u32,
) -> (QueueDescriptors, Producer<T>, Consumer<T>) {
    let queue = Queue::create("test", slot_bytes, capacity).expect("a queue");
    let producer = Producer::attach(queue.producer().expect("descriptors"), queue.geometry);
    let consumer = Consumer::attach(queue.consumer().expect("descriptors"), queue.geometry);
    (queue, producer.expect("attach"), consumer.expect("attach"))
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Against three plain queues: written, published, and copied out but not released.
#[test]
fn does_what_a_vecdeque_does() {
    for seed in 0..200 {
        let random = &mut Random(seed);
        let capacity = 1 << random.below(6);
        let (descriptors, mut producer, mut consumer) = queue::<[u64; 3]>(32, capacity);
        let mut written: VecDeque<u64> = VecDeque::new();
        let mut published: VecDeque<u64> = VecDeque::new();
        let mut peeked: VecDeque<u64> = VecDeque::new();
        // What the producer knows to be taken is at most what is.
        for number in 0..2_000_u64 {
            match random.below(16) {
                12 => {
                    let taken = written.len() + published.len() + peeked.len();
                    let message = [number, !number, number.rotate_left(7)];
                    let expected = match taken < capacity as usize {
                        true => {
                            written.push_back(number);
                            Ok(())
                        }
                        false => Err(QueueError::Full),
                    };
                    assert_eq!(producer.push(&message), expected, "seed {seed}");
                    // What was written before is published either way.
                    published.append(&mut written);
                }
                13..15 => {
                    let expected = published.front();
                    let expected = expected.map(|number| [*number, !number, number.rotate_left(7)]);
                    assert_eq!(consumer.front(), Ok(expected), "seed {seed}");
                    if random.below(2) == 0 {
                        consumer.advance();
                        peeked.extend(published.pop_front());
                    }
                }
                15 => {
                    let expected = published.pop_front();
                    let expected = expected.map(|number| [number, !number, number.rotate_left(7)]);
                    assert_eq!(consumer.pop(), Ok(expected), "seed {seed}");
                    // The others are given back with it.
                    if expected.is_some() {
                        peeked.clear();
                    }
                }
                0..4 => {
                    let taken = written.len() + published.len() + peeked.len();
                    let expected = match taken < capacity as usize {
                        true => {
                            written.push_back(number);
                            Ok(())
                        }
                        false => Err(QueueError::Full),
                    };
                    let message = [number, !number, number.rotate_left(7)];
                    assert_eq!(producer.write(&message), expected, "seed {seed}");
                }
                4..6 => {
                    assert_eq!(producer.publish(), written.len() as u64, "seed {seed}");
                    published.append(&mut written);
                }
                6..10 => {
                    assert_eq!(consumer.is_ready(), !published.is_empty(), "seed {seed}");
                    let expected = published.pop_front();
                    peeked.extend(expected);
                    let expected = expected.map(|number| [number, !number, number.rotate_left(7)]);
                    assert_eq!(consumer.peek(), Ok(expected), "seed {seed}");
                }
                10 => {
                    assert_eq!(consumer.release(), peeked.len() as u64, "seed {seed}");
                    peeked.clear();
                }
                _ => match random.below(8) {
                    0 => {
                        drop(producer);
                        let fds = descriptors.producer().expect("descriptors");
                        producer = Producer::attach(fds, descriptors.geometry).expect("attach");
                        written.clear();
                    }
                    1 => {
                        drop(consumer);
                        let fds = descriptors.consumer().expect("descriptors");
                        consumer = Consumer::attach(fds, descriptors.geometry).expect("attach");
                        peeked.append(&mut published);
                        std::mem::swap(&mut peeked, &mut published);
                    }
                    2 => {
                        let taken = (published.len() + peeked.len()) as u64;
                        assert_eq!(producer.unreleased(), Ok(taken), "seed {seed}");
                    }
                    _ => {
                        let taken = written.len() + published.len() + peeked.len();
                        let free = capacity - taken as u32;
                        assert_eq!(producer.reserve(free), Ok(()), "seed {seed}");
                        assert_eq!(producer.reserve(free + 1), Err(QueueError::Full));
                    }
                },
            }
        }
    }
}

#[test]
fn messages_of_odd_sizes_survive_the_way() {
    fn there_and_back<const N: usize>() {
        let slot_bytes = N.next_multiple_of(8) as u32 + 8;
        let (_, mut producer, mut consumer) = queue::<[u8; N]>(slot_bytes, 2);
        let message = std::array::from_fn(|at| (at % 255) as u8 + 1);
        producer.push(&message).expect("room");
        assert_eq!(consumer.pop(), Ok(Some(message)), "{N} bytes");
    }
    there_and_back::<1>();
    there_and_back::<7>();
    there_and_back::<8>();
    there_and_back::<9>();
    there_and_back::<63>();
    there_and_back::<64>();
    there_and_back::<4088>();
    assert_eq!(QueueGeometry::slot_bytes_for::<[u8; 56]>(), 64);
    assert_eq!(QueueGeometry::slot_bytes_for::<[u8; 57]>(), 128);
}

#[test]
fn sizes_that_cant_be_are_refused() {
    for (slot_bytes, capacity, good) in [
        (16, 1, true),
        (8, 1, false),
        (64, 1024, true),
        (4096, 2, true),
        (0, 16, false),
        (12, 16, false),
        (64, 0, false),
        (64, 12, false),
        (4104, 2, false),
        (16, 1 << 21, false),
    ] {
        let made = Queue::create("test", slot_bytes, capacity);
        assert_eq!(made.is_ok(), good, "{slot_bytes} bytes, {capacity} slots");
    }
}

#[test]
fn indices_that_make_no_sense_are_corrupt_and_stay_so() {
    // What the consumer stores to its head when 5 were published and it has released 2.
    for (head, good) in [
        (2, true),
        (3, true),
        (5, true),
        (1, false),
        (6, false),
        (0, false),
    ]
    .into_iter()
    .chain([u64::MAX, 1 << 63, 7, 1 << 32].map(|head| (head, false)))
    {
        let (descriptors, mut producer, mut consumer) = queue::<u64>(16, 8);
        (0..5).for_each(|number| producer.push(&number).expect("room"));
        (0..2).for_each(|_| assert!(consumer.pop().is_ok()));
        assert_eq!(producer.unreleased(), Ok(3));
        let fds = descriptors.consumer().expect("descriptors");
        let half = Memory::from_fd(fds.own).expect("map");
        word(&half, HEAD).store(head, Ordering::Relaxed);
        let expected = match good {
            true => Ok(5 - head),
            false => Err(QueueError::Corrupt),
        };
        assert_eq!(producer.unreleased(), expected, "head {head}");
        word(&half, HEAD).store(2, Ordering::Relaxed);
        if !good {
            assert_eq!(producer.unreleased(), expected, "head {head}, later");
            assert_eq!(producer.counters().corrupt, 1, "counted once");
        }
    }
}

#[test]
fn stamps_that_make_no_sense_are_corrupt_and_stay_so() {
    // Of 4 slots, in the first lap and in the third: message, whether the stamp says what it must.
    for (sent, table) in [
        (
            0,
            [
                (0, Ok(None)),
                (1, Ok(Some(0))),
                (2, CORRUPT),
                (u64::MAX, CORRUPT),
            ],
        ),
        (
            2,
            [(0, Ok(None)), (3, Ok(Some(0))), (1, CORRUPT), (2, CORRUPT)],
        ),
        (
            9,
            [
                (6, Ok(None)),
                (10, Ok(Some(5))),
                (0, CORRUPT),
                (14, CORRUPT),
            ],
        ),
    ] {
        for (stamp, expected) in table {
            let (descriptors, mut producer, mut consumer) = queue::<u64>(16, 4);
            for number in 0..sent {
                producer.push(&number).expect("room");
                assert_eq!(consumer.pop(), Ok(Some(number)));
            }
            let fds = descriptors.producer().expect("descriptors");
            let half = Memory::from_fd(fds.own).expect("map");
            let at = SLOTS + sent as usize % 4 * 2;
            let before = word(&half, at).swap(stamp, Ordering::Relaxed);
            assert_eq!(consumer.is_ready(), expected != Ok(None), "{sent}: {stamp}");
            assert_eq!(consumer.peek(), expected, "{sent}: {stamp}");
            if expected == CORRUPT {
                word(&half, at).store(before, Ordering::Relaxed);
                assert_eq!(consumer.peek(), CORRUPT, "{sent}: {stamp}, later");
                assert_eq!(consumer.counters().corrupt, 1, "counted once");
                assert!(!consumer.is_ready(), "keeps nobody awake");
            }
        }
    }
}

const CORRUPT: Result<Option<u64>, QueueError> = Err(QueueError::Corrupt);

/// Nor does giving back what was copied out before, or taking what wasn't.
#[test]
fn a_corrupt_queue_does_not_come_to_life_again() {
    let (descriptors, mut producer, mut consumer) = queue::<u64>(16, 4);
    (0..2).for_each(|number| producer.push(&number).expect("room"));
    assert_eq!(consumer.peek(), Ok(Some(0)));
    let fds = descriptors.producer().expect("descriptors");
    let half = Memory::from_fd(fds.own).expect("map");
    let stamp = word(&half, SLOTS + 2);
    let before = stamp.swap(77, Ordering::Relaxed);
    assert_eq!(consumer.peek(), CORRUPT);
    stamp.store(before, Ordering::Relaxed);
    consumer.advance();
    assert_eq!(consumer.release(), 1, "the one that came before");
    assert!(!consumer.is_ready());
    assert_eq!(consumer.peek(), CORRUPT);
    consumer.advance();
    assert_eq!((consumer.front(), consumer.release()), (CORRUPT, 0));
    let counters = consumer.counters();
    assert_eq!((counters.corrupt, counters.messages), (1, 1));
}

#[test]
fn no_producer_shows_more_than_fits() {
    let (descriptors, _, mut consumer) = queue::<u64>(16, 4);
    let fds = descriptors.producer().expect("descriptors");
    let half = Memory::from_fd(fds.own).expect("map");
    let stamp = |number: u64| {
        word(&half, SLOTS + number as usize % 4 * 2).store(number + 1, Ordering::Relaxed);
    };
    for number in 0..4 {
        stamp(number);
        assert!(consumer.peek().is_ok_and(|message| message.is_some()));
        stamp(number + 4);
    }
    assert_eq!(consumer.peek(), Ok(None), "all slots are taken");
    assert!(!consumer.is_ready());
    consumer.advance();
    assert_eq!(consumer.release(), 4);
    assert!(consumer.is_ready());
}

#[test]
fn a_producer_that_died_has_a_successor() {
    for (unseen, consumed) in [(0, 0), (1, 0), (1, 1), (4, 2), (4, 4)] {
        let (descriptors, mut producer, mut consumer) = queue::<u64>(16, 4);
        for number in 0..6 {
            producer.push(&number).expect("room");
            consumer.pop().expect("a message");
        }
        (0..unseen).for_each(|number| producer.push(&(100 + number)).expect("room"));
        let _ = producer.write(&200);
        drop(producer);
        (0..consumed).for_each(|_| assert!(consumer.pop().is_ok_and(|one| one.is_some())));
        let fds = descriptors.producer().expect("descriptors");
        let mut successor = Producer::<u64>::attach(fds, descriptors.geometry).expect("attach");
        assert_eq!(successor.unreleased(), Ok(unseen - consumed));
        let mut expected: Vec<u64> = (consumed..unseen).map(|number| 100 + number).collect();
        if successor.push(&7).is_ok() {
            expected.push(7);
        }
        let rest: Vec<u64> = std::iter::from_fn(|| consumer.pop().expect("sound")).collect();
        assert_eq!(rest, expected, "{unseen} unseen, {consumed} consumed");
    }
}

#[test]
fn what_a_mad_producer_stored_doesnt_wedge_its_successor() {
    // The stamp of a free slot.
    for stamp in [0, 5, u64::MAX] {
        let (descriptors, mut producer, mut consumer) = queue::<u64>(16, 4);
        for number in 0..6 {
            producer.push(&number).expect("room");
            consumer.pop().expect("a message");
        }
        producer.push(&6).expect("room");
        drop(producer);
        let fds = || descriptors.producer().expect("descriptors");
        let half = Memory::from_fd(fds().own).expect("map");
        // The one after the next free one, which the consumer hasn't come to.
        word(&half, SLOTS).store(stamp, Ordering::Relaxed);
        let mut successor = Producer::<u64>::attach(fds(), descriptors.geometry).expect("attach");
        for number in 7..20 {
            successor.push(&number).expect("room");
            assert_eq!(consumer.pop(), Ok(Some(number - 1)), "{stamp:?}");
        }
        assert_eq!(descriptors.depth().expect("readable"), 1);
    }
}

#[test]
fn a_consumer_that_claims_to_have_read_what_was_never_there_has_no_successor() {
    for (head, good) in [
        (5, true),
        (6, true),
        (4, true),
        (7, false),
        (8, false),
        (1 << 40, false),
    ] {
        let (descriptors, mut producer, mut consumer) = queue::<u64>(16, 4);
        for number in 0..6 {
            producer.push(&number).expect("room");
            assert_eq!(consumer.pop(), Ok(Some(number)));
        }
        drop(consumer);
        let fds = || descriptors.consumer().expect("descriptors");
        let half = Memory::from_fd(fds().own).expect("map");
        word(&half, HEAD).store(head, Ordering::Relaxed);
        let attached = Consumer::<u64>::attach(fds(), descriptors.geometry);
        assert_eq!(attached.is_ok(), good, "{head}");
        if let Err(error) = attached {
            assert!(matches!(error, AttachError::Corrupt), "{head}");
        }
    }
}

#[test]
fn whoever_made_a_queue_sees_how_much_waits() {
    let (descriptors, mut producer, mut consumer) = queue::<u64>(16, 4);
    for (pushed, popped, expected) in [(0, 0, 0), (3, 1, 2), (2, 0, 4), (0, 4, 0), (1, 0, 1)] {
        (0..pushed).for_each(|number| producer.push(&number).expect("room"));
        producer.publish();
        (0..popped).for_each(|_| assert!(consumer.pop().is_ok_and(|one| one.is_some())));
        consumer.release();
        assert_eq!(descriptors.depth().expect("readable"), expected);
    }
    let half = descriptors.consumer().expect("descriptors").own;
    let half = Memory::from_fd(half).expect("map");
    for (head, expected) in [(5, 1), (6, 0), (u64::MAX, 4), (0, 4)] {
        word(&half, HEAD).store(head, Ordering::Relaxed);
        assert_eq!(descriptors.depth().expect("readable"), expected, "{head}");
    }
}

#[test]
fn a_side_cant_get_at_the_others_memory() {
    let (descriptors, _, _) = queue::<u64>(16, 8);
    let (producer, consumer) = (descriptors.producer(), descriptors.consumer());
    for fd in [
        producer.expect("descriptors").theirs,
        consumer.expect("descriptors").theirs,
    ] {
        assert!(Memory::from_fd(fd).is_err(), "mapped for writing");
    }
}

#[test]
fn attaching_checks_what_it_is_handed() {
    let (descriptors, mut producer, _) = queue::<u64>(16, 8);
    let (other, _, _) = queue::<u64>(16, 16);
    let fds = || descriptors.producer().expect("descriptors");
    let error = Producer::<u64>::attach(fds(), other.geometry).err();
    assert!(matches!(error, Some(AttachError::OtherLayout)));
    let error = Producer::<[u8; 9]>::attach(fds(), descriptors.geometry).err();
    assert!(matches!(error, Some(AttachError::MessageTooLarge(9))));
    let swapped = ProducerDescriptors {
        own: descriptors.consumer().expect("descriptors").own,
        theirs: descriptors.consumer().expect("descriptors").theirs,
    };
    let error = Producer::<u64>::attach(swapped, descriptors.geometry).err();
    assert!(matches!(error, Some(AttachError::OtherLayout)));
    let unsealed = ProducerDescriptors {
        own: rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd"),
        theirs: fds().theirs,
    };
    let error = Producer::<u64>::attach(unsealed, descriptors.geometry).err();
    assert!(matches!(error, Some(AttachError::Memory(_))));
    producer.push(&1).expect("room");
    let half = Memory::from_fd(descriptors.consumer().expect("descriptors").own).expect("map");
    word(&half, HEAD).store(2, Ordering::Relaxed);
    let error = Producer::<u64>::attach(fds(), descriptors.geometry).err();
    assert!(matches!(error, Some(AttachError::Corrupt)));
}

#[test]
fn a_batch_is_seen_when_it_is_published() {
    let (_, mut producer, mut consumer) = queue::<u64>(16, 8);
    (0..5).for_each(|number| producer.write(&number).expect("room"));
    assert_eq!(consumer.peek(), Ok(None), "not published yet");
    assert_eq!((producer.publish(), producer.publish()), (5, 0));
    while let Ok(Some(_)) = consumer.peek() {}
    assert_eq!((consumer.release(), consumer.release()), (5, 0));
    for counters in [producer.counters(), consumer.counters()] {
        assert_eq!(counters.messages, 5);
    }
}

#[test]
fn what_was_written_before_is_published_with_a_push_and_before_it() {
    let (_, mut producer, mut consumer) = queue::<u64>(16, 4);
    for full in [false, true] {
        (0..2).for_each(|number| producer.write(&number).expect("room"));
        producer.push(&2).expect("room");
        if full {
            producer.push(&3).expect("room");
            assert_eq!(producer.push(&4), Err(QueueError::Full));
        }
        let said: Vec<u64> = std::iter::from_fn(|| consumer.pop().expect("sound")).collect();
        assert_eq!(said, (0..3 + u64::from(full)).collect::<Vec<u64>>());
        assert_eq!(producer.publish(), 0);
    }
}

#[test]
fn a_consumer_knows_when_it_made_room_in_a_full_queue() {
    let (_, mut producer, mut consumer) = queue::<u64>(16, 2);
    assert!(producer.has_room());
    producer.push(&1).expect("room");
    assert!(consumer.pop().is_ok());
    assert!(!consumer.made_room(), "it wasn't full");
    (2..4).for_each(|number| producer.push(&number).expect("room"));
    assert_eq!(producer.push(&4), Err(QueueError::Full));
    assert!(!producer.has_room());
    assert!(!consumer.made_room(), "nothing was released");
    assert!(consumer.peek().is_ok());
    assert!(!consumer.made_room() && !producer.has_room(), "nor now");
    consumer.release();
    assert!(producer.has_room());
    assert!(consumer.made_room());
    assert!(!consumer.made_room(), "told once");
}

#[test]
fn a_producers_successor_goes_on_counting() {
    let (descriptors, mut producer, _consumer) = queue::<[u64; 3]>(32, 8);
    for number in 0..3 {
        assert_eq!(producer.position(), number);
        producer.push(&[0; 3]).expect("room");
    }
    producer.write(&[0; 3]).expect("room");
    assert_eq!(producer.position(), 4);
    drop(producer);
    let fds = descriptors.producer().expect("descriptors");
    let producer = Producer::<[u64; 3]>::attach(fds, descriptors.geometry).expect("attach");
    assert_eq!(producer.position(), 3, "the last was never seen");
}

#[test]
fn a_message_that_was_looked_at_is_not_taken() {
    let (descriptors, mut producer, mut consumer) = queue::<[u64; 3]>(32, 2);
    consumer.advance();
    for number in [7, 8] {
        producer.push(&[number; 3]).expect("room");
    }
    assert_eq!(consumer.front(), Ok(Some([7; 3])));
    assert_eq!(
        consumer.front(),
        Ok(Some([7; 3])),
        "it is the next one still"
    );
    assert_eq!(consumer.release(), 0);
    consumer.advance();
    assert_eq!(consumer.front(), Ok(Some([8; 3])));
    assert_eq!(consumer.release(), 1, "the one that was taken");
    drop(consumer);
    let fds = descriptors.consumer().expect("descriptors");
    let mut consumer = Consumer::<[u64; 3]>::attach(fds, descriptors.geometry).expect("attach");
    assert_eq!(
        consumer.peek(),
        Ok(Some([8; 3])),
        "a successor sees it again"
    );
    consumer.advance();
    producer.push(&[9; 3]).expect("room");
    assert_eq!(consumer.front(), Ok(Some([9; 3])));
    consumer.advance();
    consumer.advance();
    assert_eq!((consumer.front(), consumer.release()), (Ok(None), 2));
    assert_eq!(consumer.counters().messages, 2, "not its predecessor's");
}

#[test]
fn who_makes_a_queue_sees_who_has_spoilt_it() {
    let fresh = || queue::<u64>(64, 4);
    let halves = |queue: &QueueDescriptors| {
        let open = |fd| Memory::from_fd(fd).expect("writable");
        let producer = open(queue.producer().expect("descriptors").own);
        (producer, open(queue.consumer().expect("descriptors").own))
    };
    let says = |queue: &QueueDescriptors| {
        let produced = queue.is_produced_well().expect("memory");
        (produced, queue.is_consumed_well().expect("memory"))
    };
    // Whatever they do, as long as it is what they may.
    let (descriptors, mut producer, mut consumer) = fresh();
    for number in 0..11 {
        producer.write(&number).expect("room");
        assert_eq!(says(&descriptors), (true, true), "{number}");
        producer.publish();
        assert_eq!(says(&descriptors), (true, true), "{number}");
        if number % 3 == 2 {
            while consumer.peek().expect("right").is_some() {}
            consumer.release();
            assert_eq!(says(&descriptors), (true, true), "{number}");
        }
    }
    // (half, word, value, what is said of both)
    let table = [
        (0, 0, 1, (false, true)),
        (0, CAPACITY, 8, (false, true)),
        (0, SLOTS, 1, (false, true)),
        (0, SLOTS + 8, u64::MAX, (false, true)),
        (1, 0, 1, (true, false)),
        (1, HEAD, 12, (true, false)),
        (1, HEAD, 0, (true, true)),
    ];
    for (half, at, value, expected) in table {
        let (descriptors, mut producer, mut consumer) = fresh();
        for number in 0..11 {
            producer.push(&number).expect("room");
            consumer.pop().expect("right").expect("one");
        }
        let (first, second) = halves(&descriptors);
        let half = if half == 0 { first } else { second };
        word(&half, at).store(value, Ordering::Relaxed);
        assert_eq!(says(&descriptors), expected, "word {at} is {value}");
    }
}
