//! A neighbour writes whatever it likes to all that it may write. The victim goes on: it doesn't panic,
//! each of its calls does a bounded amount of work, and its other neighbours notice nothing.
#![cfg(not(loom))]

use skink_channel::{
    Consumer, Doorbell, HolderId, Pool, PoolGeometry, PoolReader, PoolSet, Producer, Queue,
    QueueDescriptors, QueueError, RequestDatabase, RequestId, RichPointer, Sleeper,
    SleeperDescriptors, SpinBudget,
};
use skink_memory::Mapping;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const GOOD_MESSAGES: u64 = 30_000;

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
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

/// Numbers of which some make sense in almost any place.
fn nasty(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => random.below(32),
        1 => u64::MAX - random.below(32),
        2 => 1 << random.below(64),
        3 => u64::from(random.next() as u32),
        _ => random.next(),
    }
}

fn spoil(memory: &Mapping, random: &mut Random) {
    let words = memory.words();
    let at = match random.below(3) {
        // Where the index is.
        0 => 16,
        _ => random.below(words.len() as u64) as usize,
    };
    if let Some(word) = words.get(at) {
        let value = match random.below(2) {
            0 => nasty(random),
            // Ahead of what it was, as an honest neighbour's would be.
            _ => word.load(Ordering::Relaxed).wrapping_add(random.below(17)),
        };
        word.store(value, Ordering::Relaxed);
    }
}

/// What the hostile neighbour was handed.
struct Weapons {
    memory: Vec<Mapping>,
    /// The producer's half of a queue to the victim, to be written, and the consumer's.
    inbound: [Mapping; 2],
    bell: OwnedFd,
}

impl Weapons {
    /// Publishes messages as an honest neighbour would, and sometimes more of them than fit.
    fn bait(&self, random: &mut Random) {
        let [own, theirs] = &self.inbound;
        let head = theirs.words()[16].load(Ordering::Relaxed);
        for number in head..head.saturating_add(random.below(20)) {
            let slot = 16 + number as usize % 16 * 3;
            own.words()[slot].store(number.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Without waiting for room: once the others are done nobody makes any.
    fn write(&self, value: u64) {
        let _ = rustix::io::ioctl_fionbio(&self.bell, true);
        let _ = rustix::io::write(&self.bell, &value.to_ne_bytes());
    }

    fn use_them(&self, stop: &AtomicBool, mut random: Random) {
        while !stop.load(Ordering::Relaxed) {
            for memory in &self.memory {
                spoil(memory, &mut random);
            }
            self.bait(&mut random);
            match random.below(40) {
                0 => self.write(nasty(&mut random)),
                1 => self.write(1),
                2 => {
                    // Only while there is something, lest this side of it hang.
                    let _ = rustix::io::ioctl_fionbio(&self.bell, true);
                    let _ = rustix::io::read(&self.bell, &mut [0; 8]);
                    let _ = rustix::io::ioctl_fionbio(&self.bell, random.below(2) == 0);
                }
                3 => std::thread::yield_now(),
                _ => {}
            }
        }
    }
}

fn attach_consumer(queue: &QueueDescriptors) -> Option<Consumer<[u64; 2]>> {
    Consumer::attach(queue.consumer().expect("descriptors"), queue.geometry).ok()
}

fn attach_producer(queue: &QueueDescriptors) -> Option<Producer<[u64; 2]>> {
    Producer::attach(queue.producer().expect("descriptors"), queue.geometry).ok()
}

/// The victim's ends of the queues it shares with the hostile neighbour, made anew when spoilt.
struct Victim<'a> {
    inbound: &'a QueueDescriptors,
    outbound: &'a QueueDescriptors,
    consumer: Option<Consumer<[u64; 2]>>,
    producer: Option<Producer<[u64; 2]>>,
    corrupt: u64,
    received: u64,
}

impl Victim<'_> {
    fn turn(&mut self) {
        match &mut self.consumer {
            None => self.consumer = attach_consumer(self.inbound),
            Some(consumer) => {
                for taken in 0.. {
                    match consumer.peek() {
                        Ok(Some(_)) => self.received += 1,
                        Ok(None) => break,
                        Err(_) => {
                            self.corrupt += 1;
                            self.consumer = None;
                            return;
                        }
                    }
                    // A component's own bound; and no neighbour can show more than a queue's worth
                    // that isn't released.
                    assert!(taken < 16, "more than fits");
                }
                consumer.release();
            }
        }
        match &mut self.producer {
            None => self.producer = attach_producer(self.outbound),
            Some(producer) => match producer.push(&[1, 2]) {
                Ok(()) | Err(QueueError::Full) => {}
                Err(QueueError::Corrupt) => {
                    self.corrupt += 1;
                    self.producer = None;
                }
            },
        }
    }
}

#[test]
fn a_hostile_neighbour_spoils_its_own_queues_alone() {
    let inbound = Queue::create("test-in", 24, 16).expect("a queue");
    let outbound = Queue::create("test-out", 24, 16).expect("a queue");
    let good = Queue::create("test-good", 24, 16).expect("a queue");
    // A sleeper for each of the two, as they don't trust each other.
    let (sleeper, trap) = (
        SleeperDescriptors::create("test-good").expect("a sleeper"),
        SleeperDescriptors::create("test-bad").expect("a sleeper"),
    );
    let map = |fd| Mapping::from_fd(fd).expect("map");
    let handed = trap.doorbell().expect("descriptors");
    let weapons = Weapons {
        memory: vec![
            map(inbound.producer().expect("descriptors").own),
            map(outbound.consumer().expect("descriptors").own),
        ],
        inbound: [
            map(inbound.producer().expect("descriptors").own),
            Mapping::from_fd_read_only(inbound.producer().expect("descriptors").theirs)
                .expect("map"),
        ],
        bell: handed.bell,
    };
    let mut victim = Victim {
        inbound: &inbound,
        outbound: &outbound,
        consumer: None,
        producer: None,
        corrupt: 0,
        received: 0,
    };
    // One after the other first, so that it is seen to hit: later nobody knows who comes when.
    let mut random = Random(7);
    victim.turn();
    for _ in 0..100 {
        weapons.bait(&mut random);
        victim.turn();
    }
    for _ in 0..100 {
        weapons
            .memory
            .iter()
            .for_each(|half| spoil(half, &mut random));
        victim.turn();
    }
    assert!(
        victim.received > 0 && victim.corrupt > 0,
        "the attack misses"
    );
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| weapons.use_them(&stop, Random(1)));
        let mut producer = attach_producer(&good).expect("attach");
        let mut doorbell =
            Doorbell::attach(sleeper.doorbell().expect("descriptors")).expect("attach");
        scope.spawn(move || {
            let mut number = 0;
            while number < GOOD_MESSAGES {
                match producer.push(&[number, !number]) {
                    Ok(()) => number += 1,
                    Err(QueueError::Full) => std::thread::yield_now(),
                    Err(QueueError::Corrupt) => panic!("the good queue is corrupt"),
                }
                doorbell.ring();
            }
        });
        let spin = || SpinBudget::for_processors(processors());
        let mut sleeper =
            Sleeper::attach(sleeper.sleeper().expect("descriptors"), spin()).expect("attach");
        let mut trapped =
            Sleeper::attach(trap.sleeper().expect("descriptors"), spin()).expect("attach");
        let mut consumer = attach_consumer(&good).expect("attach");
        let mut expected = 0;
        while expected < GOOD_MESSAGES {
            victim.turn();
            while let Some(message) = consumer.pop().expect("the good queue is corrupt") {
                assert_eq!(message, [expected, !expected]);
                expected += 1;
            }
            let millisecond = Some(Duration::from_millis(1));
            let ready = || consumer.is_ready() || expected == GOOD_MESSAGES;
            sleeper.wait(millisecond, None, ready).expect("wait");
            trapped.announce();
            trapped.retract();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// The consumer's page says what it likes: its producers ring at most once for each batch.
#[test]
fn a_hostile_sleeper_costs_a_call_for_each_batch() {
    let sleeper = SleeperDescriptors::create("test").expect("a sleeper");
    let mut doorbell = Doorbell::attach(sleeper.doorbell().expect("fds")).expect("attach");
    let (page, _bell) = sleeper.sleeper().expect("descriptors");
    let page = Mapping::from_fd(page).expect("map");
    let mut random = Random(2);
    for batch in 1..=30_000 {
        spoil(&page, &mut random);
        // It never reads: at last a ring more doesn't fit, and needn't.
        doorbell.ring();
        assert!(doorbell.rung() <= batch);
    }
    assert!(doorbell.rung() > 100);
}

#[test]
fn made_up_pointers_and_answers_do_no_harm() {
    let geometry = PoolGeometry::new(256, 32).expect("sizes");
    let mut pool = Pool::create(3, "test", geometry, 2).expect("a pool");
    let mut set = PoolSet::new();
    set.insert(PoolReader::attach(pool.descriptors().expect("fds")).expect("attach"));
    let mut requests: RequestDatabase<u64> = RequestDatabase::new(32, 2, 1);
    let honest = HolderId(0);
    let chunk = pool.allocate().expect("free");
    pool.write(&chunk, 0, b"honest").expect("fits");
    let pointer = pool.lend(&chunk, 0, 6, honest).expect("lend");
    pool.free(chunk);
    let asked = skink_channel::NeighbourId(0);
    let id = requests.issue(asked, 5).expect("room");
    let mut random = Random(3);
    let mut resolved = 0;
    for _ in 0..200_000 {
        let made_up = RichPointer {
            pool: random.below(5) as u32,
            offset: nasty(&mut random) as u32,
            length: nasty(&mut random) as u32,
            generation: random.below(3) as u32,
        };
        if let Ok(bytes) = set.resolve(made_up) {
            let mut copy = [0; 256];
            bytes.copy_to(&mut copy);
            resolved += 1;
        }
        assert!(
            pool.give_back(made_up, HolderId(random.below(3) as u16 + 1))
                .is_err()
        );
        let forged = RequestId::from_wire(nasty(&mut random));
        let neighbour = skink_channel::NeighbourId(random.below(3) as u16 + 1);
        assert_eq!(requests.complete(forged, neighbour), None);
        assert_eq!(requests.complete(id, neighbour), None);
    }
    assert!(resolved > 0, "the attack was too plain");
    let mut copy = [0; 6];
    set.resolve(pointer).expect("lent").copy_to(&mut copy);
    assert_eq!(&copy, b"honest");
    assert_eq!(pool.give_back(pointer, honest), Ok(()));
    assert_eq!(requests.complete(id, asked), Some(5));
}
