//! Two processes, one of which is killed again and again: nothing is lost, nothing is spoilt.
#![cfg(not(loom))]

use rustix::io::FdFlags;
use skink_channel::{
    Consumer, ConsumerDescriptors, Doorbell, DoorbellDescriptors, Producer, ProducerDescriptors,
    Queue, QueueDescriptors, QueueError, Sleeper, SleeperDescriptors, SpinBudget,
};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command};
use std::time::Duration;

const MESSAGES: u64 = 200_000;
/// In the environment of the other process: numbers of its descriptors.
const DESCRIPTORS: &str = "SKINK_CHANNEL_TEST_DESCRIPTORS";

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A number, and words that follow from it.
type Numbered = [u64; 7];

fn numbered(number: u64) -> Numbered {
    std::array::from_fn(|at| (number + at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn number_of(message: &Numbered) -> u64 {
    // The multiplicative inverse of the constant above, modulo 2^64.
    let number = message[0].wrapping_mul(0xf1de_83e1_9937_733d);
    assert_eq!(*message, numbered(number), "a spoilt message");
    number
}

struct Channels {
    requests: QueueDescriptors,
    replies: QueueDescriptors,
    parent: SleeperDescriptors,
    child: SleeperDescriptors,
}

impl Channels {
    fn new() -> Channels {
        Channels {
            requests: Queue::create("test-requests", 64, 256).expect("a queue"),
            replies: Queue::create("test-replies", 64, 64).expect("a queue"),
            parent: SleeperDescriptors::create("test-parent").expect("a sleeper"),
            child: SleeperDescriptors::create("test-child").expect("a sleeper"),
        }
    }

    /// Runs [`echo`] in another process.
    fn start(&self) -> Child {
        let requests = self.requests.consumer().expect("descriptors");
        let replies = self.replies.producer().expect("descriptors");
        let (page, bell) = self.child.sleeper().expect("descriptors");
        let doorbell = self.parent.doorbell().expect("descriptors");
        let handed = [
            requests.own,
            requests.theirs,
            replies.own,
            replies.theirs,
            page,
            bell,
            doorbell.page,
            doorbell.bell,
        ];
        let numbers = handed.each_ref().map(|fd| {
            rustix::io::fcntl_setfd(fd, FdFlags::empty()).expect("F_SETFD");
            fd.as_raw_fd().to_string()
        });
        Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "echo", "--nocapture", "--quiet"])
            .env(DESCRIPTORS, numbers.join(","))
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("another process")
    }
}

/// The other process: sends back what it gets. As a test of its own it does nothing.
#[test]
fn echo() {
    let Ok(numbers) = std::env::var(DESCRIPTORS) else {
        return;
    };
    let mut handed = numbers.split(',').map(|number| {
        let number = number.parse().expect("a number");
        // SAFETY: the parent opened it for this process, which uses it here alone.
        unsafe { OwnedFd::from_raw_fd(number) }
    });
    let mut next = || handed.next().expect("eight descriptors");
    let requests = ConsumerDescriptors {
        own: next(),
        theirs: next(),
    };
    let replies = ProducerDescriptors {
        own: next(),
        theirs: next(),
    };
    let sleeper = (next(), next());
    let doorbell = DoorbellDescriptors {
        page: next(),
        bell: next(),
    };
    let geometry = |capacity| skink_channel::QueueGeometry::new(64, capacity).expect("sizes");
    let mut requests: Consumer<Numbered> =
        Consumer::attach(requests, geometry(256)).expect("attach");
    let mut replies: Producer<Numbered> = Producer::attach(replies, geometry(64)).expect("attach");
    let mut sleeper =
        Sleeper::attach(sleeper, SpinBudget::for_processors(processors())).expect("attach");
    let mut doorbell = Doorbell::attach(doorbell).expect("attach");
    loop {
        while let Some(message) = requests.peek().expect("not corrupt") {
            number_of(&message);
            while replies.write(&message) == Err(QueueError::Full) {
                replies.publish();
                doorbell.ring();
                std::thread::yield_now();
            }
        }
        // What was released won't come again, so the answers go first.
        replies.publish();
        doorbell.ring();
        requests.release();
        if requests.made_room() {
            doorbell.ring();
        }
        if std::os::unix::process::parent_id() == 1 {
            return;
        }
        let second = Some(Duration::from_secs(1));
        sleeper
            .wait(second, Some(requests.watch()), || requests.is_ready())
            .expect("wait");
    }
}

/// Kills its process in the end, come what may.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends all messages and takes all answers; kills the other process whenever so many answers came as
/// `lifetime` says. Answers how many messages came twice.
fn exchange(lifetime: u64) -> u64 {
    let channels = Channels::new();
    let mut child = Killed(channels.start());
    let producer = channels.requests.producer().expect("descriptors");
    let mut requests: Producer<Numbered> =
        Producer::attach(producer, channels.requests.geometry).expect("attach");
    let consumer = channels.replies.consumer().expect("descriptors");
    let mut replies: Consumer<Numbered> =
        Consumer::attach(consumer, channels.replies.geometry).expect("attach");
    let spin = SpinBudget::for_processors(processors());
    let mut sleeper =
        Sleeper::attach(channels.parent.sleeper().expect("descriptors"), spin).expect("attach");
    let mut doorbell =
        Doorbell::attach(channels.child.doorbell().expect("descriptors")).expect("attach");
    let (mut sent, mut answered, mut again, mut lived) = (0, 0, 0, 0);
    while answered < MESSAGES {
        while sent < MESSAGES && requests.write(&numbered(sent)).is_ok() {
            sent += 1;
        }
        requests.publish();
        doorbell.ring();
        while let Some(message) = replies.peek().expect("not corrupt") {
            let number = number_of(&message);
            assert!(number <= answered, "{answered} is lost");
            if number == answered {
                answered += 1;
            } else {
                // A successor begins where its predecessor released.
                assert!(lifetime < MESSAGES, "{number} came twice");
                again += 1;
            }
            lived += 1;
        }
        replies.release();
        if lived >= lifetime {
            child = {
                drop(child);
                Killed(channels.start())
            };
            lived = 0;
        }
        let minute = Some(Duration::from_secs(60));
        let woken = sleeper.wait(minute, Some(replies.watch()), || {
            let sending = sent < MESSAGES && requests.has_room();
            replies.is_ready() || sending || answered == MESSAGES
        });
        let timed_out = matches!(woken, Ok(skink_channel::Woken::TimedOut));
        assert!(!timed_out, "no answer for a minute: a wake-up was lost");
    }
    again
}

#[test]
fn messages_go_to_another_process_and_back() {
    assert_eq!(exchange(u64::MAX), 0);
}

#[test]
fn a_killed_process_has_a_successor_and_nothing_is_lost() {
    // At most what wasn't released comes twice: a queue's worth for each of the dead.
    let again = exchange(MESSAGES / 20);
    assert!(again <= 20 * 256, "{again} came twice");
}
