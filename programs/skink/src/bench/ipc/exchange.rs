//! The exchanges that are measured. Each runs one side on one processor and the other on another.
//! Times are ticks of the time-stamp counter.

mod lanes;
mod lines;
mod wake_ups;

use super::outside;
use lines::{bare, one_way};
use serde::Serialize;
use skink_channel::{
    Consumer, Doorbell, Message, Producer, Queue, QueueError, QueueGeometry, Sleeper,
    SleeperDescriptors, SpinBudget, time_stamp,
};
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wake_ups::{by_eventfd, by_pipe, doorbells};

/// What fits into a slot of one cache line.
type Line = [u64; 7];
/// What fits into half of one: a request's number and a rich pointer, for example.
type HalfLine = [u64; 3];

const SLOTS: u32 = 256;
/// Messages between two looks at the time.
const BLOCK: u64 = 64;
const BATCH: u64 = 32;
const BLOCKS: usize = 4_000;
/// Round trips between two looks at the time: they are as short as some processors' time-stamp counter is coarse.
const ROUND_TRIP_BLOCK: u64 = 16;
const ROUND_TRIP_BLOCKS: usize = 4_000;
/// All of them.
const ROUND_TRIPS: u64 = (ROUND_TRIP_BLOCKS + WARM_UP) as u64 * ROUND_TRIP_BLOCK;
const IN_FLIGHT: u64 = 16;
const WAKE_UPS: usize = 2_000;
/// Not counted at first: caches, predictors and pages get warm.
const WARM_UP: usize = 200;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exchange {
    /// Enqueue a message and publish it, while the other processor consumes.
    Enqueue,
    /// The same with a message of 24 bytes.
    EnqueueSmall,
    /// The first, with one publication for 32 messages.
    EnqueueBatch,
    /// The first, and look each time whether the consumer sleeps (it doesn't).
    EnqueueDoorbell,
    /// Send a message by a lane as components do, by itself: encode, write, publish, and look whether the neighbour sleeps.
    Lane,
    /// The same with one publication and one look for 32 messages.
    LaneBatch,
    /// A number goes to the other processor and back in one cache line.
    BareRoundTrip,
    /// The same in two lines, each written by one side alone and new each time: what one-way memory
    /// costs, whatever is done with it.
    OneWayRoundTrip,
    /// A message goes there and back by two queues.
    QueueRoundTrip,
    /// The same with a message of 24 bytes.
    QueueRoundTripSmall,
    /// The same with [`IN_FLIGHT`] messages under way, each side taking and answering what is there: what a
    /// message costs components that have more to do than wait for it (PIKA, table 2, "concurrent").
    QueueRoundTrips,
    /// A call goes there by a lane, and its outcome back; each side publishes, releases and looks whether the other one sleeps.
    LaneRoundTrip,
    /// There and back by two eventfds; both sides sleep in the kernel.
    EventfdWakeUp,
    /// There and back by two pipes.
    PipeWakeUp,
    /// There and back by two queues; both sides sleep at once.
    DoorbellWakeUp,
    /// The same, but both sides spin first, as components do.
    SpinningWakeUp,
}

/// Figures of one exchange, in ticks for each message or round trip.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: &'static str,
    pub minimum: f64,
    pub p50: f64,
    pub p99: f64,
}

impl Sample {
    fn of(name: &'static str, mut ticks: Vec<u64>, divisor: u64) -> Sample {
        ticks.sort_unstable();
        let at = |part: usize| {
            let index = ticks.len().saturating_sub(1) * part / 100;
            ticks.get(index).copied().unwrap_or(0) as f64 / divisor as f64
        };
        Sample {
            name,
            minimum: at(0),
            p50: at(50),
            p99: at(99),
        }
    }
}

impl Exchange {
    pub const ALL: [Exchange; 16] = [
        Exchange::Enqueue,
        Exchange::EnqueueSmall,
        Exchange::EnqueueBatch,
        Exchange::EnqueueDoorbell,
        Exchange::Lane,
        Exchange::LaneBatch,
        Exchange::BareRoundTrip,
        Exchange::OneWayRoundTrip,
        Exchange::QueueRoundTrip,
        Exchange::QueueRoundTripSmall,
        Exchange::QueueRoundTrips,
        Exchange::LaneRoundTrip,
        Exchange::EventfdWakeUp,
        Exchange::PipeWakeUp,
        Exchange::DoorbellWakeUp,
        Exchange::SpinningWakeUp,
    ];

    /// Whether it is compared with [`Exchange::BareRoundTrip`].
    pub fn is_beside_line(self) -> bool {
        matches!(
            self,
            Exchange::OneWayRoundTrip
                | Exchange::QueueRoundTrip
                | Exchange::QueueRoundTripSmall
                | Exchange::QueueRoundTrips
                | Exchange::LaneRoundTrip
        )
    }

    pub fn name(self) -> &'static str {
        match self {
            Exchange::Enqueue => "enqueue",
            Exchange::EnqueueSmall => "enqueue-24-bytes",
            Exchange::EnqueueBatch => "enqueue-batch-32",
            Exchange::EnqueueDoorbell => "enqueue-doorbell",
            Exchange::Lane => "enqueue-lane",
            Exchange::LaneBatch => "enqueue-lane-batch-32",
            Exchange::BareRoundTrip => "round-trip-cache-line",
            Exchange::OneWayRoundTrip => "round-trip-one-way-lines",
            Exchange::QueueRoundTrip => "round-trip-queues",
            Exchange::QueueRoundTripSmall => "round-trip-queues-24-bytes",
            Exchange::QueueRoundTrips => "round-trips-queues-16",
            Exchange::LaneRoundTrip => "round-trip-lanes",
            Exchange::EventfdWakeUp => "wake-up-eventfd",
            Exchange::PipeWakeUp => "wake-up-pipe",
            Exchange::DoorbellWakeUp => "wake-up-doorbell",
            Exchange::SpinningWakeUp => "wake-up-spinning",
        }
    }

    /// Measures it once, one side on each of the processors.
    pub fn measure(self, cpus: [usize; 2]) -> io::Result<Sample> {
        let (ticks, divisor) = match self {
            Exchange::Enqueue => (enqueue::<Line>(cpus, |to, n| to.push(&[n; 7]))?, BLOCK),
            Exchange::EnqueueSmall => (enqueue::<HalfLine>(cpus, |to, n| to.push(&[n; 3]))?, BLOCK),
            Exchange::EnqueueBatch => (enqueue(cpus, write_in_batches)?, BLOCK),
            Exchange::EnqueueDoorbell => (enqueue_and_ring(cpus)?, BLOCK),
            Exchange::Lane => (lanes::enqueue(cpus, 1)?, BLOCK),
            Exchange::LaneBatch => (lanes::enqueue(cpus, BATCH)?, BLOCK),
            Exchange::BareRoundTrip => (bare(cpus)?, ROUND_TRIP_BLOCK),
            Exchange::OneWayRoundTrip => (one_way(cpus)?, ROUND_TRIP_BLOCK),
            Exchange::QueueRoundTrip => (queues::<7>(cpus)?, ROUND_TRIP_BLOCK),
            Exchange::QueueRoundTripSmall => (queues::<3>(cpus)?, ROUND_TRIP_BLOCK),
            Exchange::QueueRoundTrips => (many_by_queues(cpus)?, BLOCK),
            Exchange::LaneRoundTrip => (lanes::round_trips(cpus)?, ROUND_TRIP_BLOCK),
            Exchange::EventfdWakeUp => (by_eventfd(cpus)?, 1),
            Exchange::PipeWakeUp => (by_pipe(cpus)?, 1),
            Exchange::DoorbellWakeUp => (doorbells(cpus, SpinBudget::new(0))?, 1),
            Exchange::SpinningWakeUp => (doorbells(cpus, SpinBudget::for_processors(2))?, 1),
        };
        Ok(Sample::of(self.name(), ticks, divisor))
    }
}

/// What lies in cache lines of its own (x86 prefetches them in pairs).
#[repr(align(128))]
struct Apart<T>(T);

impl<T> Apart<T> {
    fn into_inner(self) -> T {
        self.0
    }
}

/// Runs the two sides, and answers what the first one measured.
///
/// Each side owns its ends of queues (`move`), and lies apart from the other, as in processes of their own: side by side
/// on one stack, what one end writes for itself takes the other side's cache line away. That made a round trip half as
/// long again.
fn on_both<T: Send>(
    cpus: [usize; 2],
    first: impl FnOnce() -> io::Result<T> + Send + 'static,
    second: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<T> {
    let [first_cpu, second_cpu] = cpus;
    let (first, second) = (Apart(first), Apart(second));
    std::thread::scope(|scope| {
        let second = scope.spawn(move || {
            outside::pin(None, second_cpu)?;
            second.into_inner()()
        });
        let first = scope.spawn(move || {
            outside::pin(None, first_cpu)?;
            first.into_inner()()
        });
        let died = |_| io::Error::other("a side of the measurement panicked");
        let measured = first.join().map_err(died)?;
        second.join().map_err(died)??;
        measured
    })
}

fn queue<T: Message>() -> io::Result<(Producer<T>, Consumer<T>)> {
    let queue = Queue::create("skink-bench", QueueGeometry::slot_bytes_for::<T>(), SLOTS)?;
    let producer = Producer::attach(queue.producer()?, queue.geometry);
    let consumer = Consumer::attach(queue.consumer()?, queue.geometry);
    Ok((
        producer.map_err(io::Error::other)?,
        consumer.map_err(io::Error::other)?,
    ))
}

fn sleeper(spin: SpinBudget) -> io::Result<(Sleeper, Doorbell)> {
    let descriptors = SleeperDescriptors::create("skink-bench")?;
    let sleeper = Sleeper::attach(descriptors.sleeper()?, spin);
    let doorbell = Doorbell::attach(descriptors.doorbell()?);
    Ok((
        sleeper.map_err(io::Error::other)?,
        doorbell.map_err(io::Error::other)?,
    ))
}

/// Blocks of messages that `send` sends, each begun when `is_empty` says so, while the other side consumes again and again.
fn time_blocks<P: Send + 'static, E: Debug + Send + 'static>(
    cpus: [usize; 2],
    mut producer: P,
    mut send: impl FnMut(&mut P, u64) -> Result<(), E> + Send + 'static,
    mut is_empty: impl FnMut(&mut P) -> io::Result<bool> + Send + 'static,
    mut consume: impl FnMut() -> io::Result<()> + Send + 'static,
) -> io::Result<Vec<u64>> {
    let stop = Arc::new(Apart(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let produce = move || {
        let mut ticks = Vec::with_capacity(BLOCKS);
        let mut sent = Ok(());
        for block in 0..BLOCKS + WARM_UP {
            let before = time_stamp();
            for number in 0..BLOCK {
                sent = sent.and(send(&mut producer, number));
            }
            let taken = time_stamp().wrapping_sub(before);
            if block >= WARM_UP {
                ticks.push(taken);
            }
            while !is_empty(&mut producer)? {
                std::hint::spin_loop();
            }
        }
        stop.0.store(true, Ordering::Relaxed);
        sent.map_err(|error| io::Error::other(format!("a message wasn't sent: {error:?}")))?;
        Ok(ticks)
    };
    let consume = move || {
        while !stopped.0.load(Ordering::Relaxed) {
            consume()?;
        }
        Ok(())
    };
    on_both(cpus, produce, consume)
}

/// By a queue.
fn enqueue<M: Message + 'static>(
    cpus: [usize; 2],
    send: impl FnMut(&mut Producer<M>, u64) -> Result<(), QueueError> + Send + 'static,
) -> io::Result<Vec<u64>> {
    let (producer, mut consumer) = queue::<M>()?;
    let is_empty = |producer: &mut Producer<M>| {
        let unreleased = producer.unreleased().map_err(io::Error::other)?;
        Ok(unreleased == 0)
    };
    let consume = move || {
        while let Some(message) = consumer.peek().map_err(io::Error::other)? {
            std::hint::black_box(message);
        }
        consumer.release();
        Ok(())
    };
    time_blocks(cpus, producer, send, is_empty, consume)
}

fn write_in_batches(producer: &mut Producer<Line>, number: u64) -> Result<(), QueueError> {
    producer.write(&[number; 7])?;
    if number % BATCH == BATCH - 1 {
        producer.publish();
    }
    Ok(())
}

fn enqueue_and_ring(cpus: [usize; 2]) -> io::Result<Vec<u64>> {
    // The consumer never sleeps here.
    let (_sleeper, mut doorbell) = sleeper(SpinBudget::new(0))?;
    enqueue::<Line>(cpus, move |producer, number| {
        producer.push(&[number; 7])?;
        doorbell.ring();
        Ok(())
    })
}

/// Asks again and again, and answers what each block of round trips took.
fn time_round_trips(
    blocks: usize,
    in_block: u64,
    mut round_trip: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<Vec<u64>> {
    let mut ticks = Vec::with_capacity(blocks);
    let mut before = time_stamp();
    for block in 0..blocks + WARM_UP {
        let first = block as u64 * in_block;
        for number in first..first + in_block {
            round_trip(number)?;
        }
        let now = time_stamp();
        if block >= WARM_UP {
            ticks.push(now.wrapping_sub(before));
        }
        before = now;
    }
    Ok(ticks)
}

// Compiled into its callers for the same reason as `Consumer::front`.
#[inline(always)]
fn next<M: Message>(consumer: &mut Consumer<M>) -> Result<M, QueueError> {
    loop {
        match consumer.peek()? {
            Some(message) => return Ok(message),
            None => std::hint::spin_loop(),
        }
    }
}

/// Messages of `WORDS` words of 8 bytes, one at a time. Each side gives a message's slot back when it has sent the next one,
/// while it would wait anyway.
fn queues<const WORDS: usize>(cpus: [usize; 2]) -> io::Result<Vec<u64>> {
    let (mut asked, mut to_answer) = queue::<[u64; WORDS]>()?;
    let (mut answered, mut to_read) = queue()?;
    let ask = move || {
        time_round_trips(ROUND_TRIP_BLOCKS, ROUND_TRIP_BLOCK, |number| {
            asked.push(&[number; WORDS]).map_err(io::Error::other)?;
            to_read.release();
            check(next(&mut to_read).map_err(io::Error::other)?, number)
        })
    };
    let answer = move || {
        for _ in 0..ROUND_TRIPS {
            let message = next(&mut to_answer).map_err(io::Error::other)?;
            answered.push(&message).map_err(io::Error::other)?;
            to_answer.release();
        }
        Ok(())
    };
    on_both(cpus, ask, answer)
}

/// Blocks of round trips of which [`IN_FLIGHT`] are under way at any time.
fn many_by_queues(cpus: [usize; 2]) -> io::Result<Vec<u64>> {
    let (mut asked, mut to_answer) = queue()?;
    let (mut answered, mut to_read) = queue()?;
    let all = (BLOCKS + WARM_UP) as u64 * BLOCK;
    let ask = move || {
        let mut ticks = Vec::with_capacity(BLOCKS);
        let (mut sent, mut received, mut before) = (0, 0, time_stamp());
        while received < all {
            while sent < all.min(received + IN_FLIGHT) {
                asked.write(&[sent; 7]).map_err(io::Error::other)?;
                sent += 1;
            }
            asked.publish();
            while let Some(message) = to_read.peek().map_err(io::Error::other)? {
                check(message, received)?;
                received += 1;
                if received % BLOCK == 0 {
                    let now = time_stamp();
                    ticks.push(now.wrapping_sub(before));
                    before = now;
                }
            }
            to_read.release();
        }
        Ok(ticks.split_off(WARM_UP))
    };
    let answer = move || {
        let mut done = 0;
        while done < all {
            while let Some(message) = to_answer.peek().map_err(io::Error::other)? {
                answered.write(&message).map_err(io::Error::other)?;
                done += 1;
            }
            to_answer.release();
            answered.publish();
        }
        Ok(())
    };
    on_both(cpus, ask, answer)
}

// Compiled into its callers, as `next`.
#[inline(always)]
fn check<const WORDS: usize>(message: [u64; WORDS], number: u64) -> io::Result<()> {
    // Word by word, as it was copied: for the array as a whole a processor waits (see `Consumer::front`).
    match message.iter().all(|word| *word == number) {
        true => Ok(()),
        false => Err(io::Error::other("another message came back")),
    }
}
