use super::*;
use crate::{Consumer, Producer, Queue};

fn pair() -> (Producer<u64>, Consumer<u64>, Doorbell, Sleeper) {
    let queue = Queue::create("test", 16, 16).expect("a queue");
    let sleeper = SleeperDescriptors::create("test").expect("a sleeper");
    (
        Producer::attach(queue.producer().expect("descriptors"), queue.geometry).expect("attach"),
        Consumer::attach(queue.consumer().expect("descriptors"), queue.geometry).expect("attach"),
        Doorbell::attach(sleeper.doorbell().expect("descriptors")).expect("attach"),
        Sleeper::attach(sleeper.sleeper().expect("descriptors"), SpinBudget::new(0))
            .expect("attach"),
    )
}

fn readable(bell: BorrowedFd<'_>) -> bool {
    let mut descriptors = [PollFd::from_borrowed_fd(bell, PollFlags::IN)];
    rustix::event::poll(&mut descriptors, Some(&Timespec::default())).expect("poll") > 0
}

#[test]
fn rings_once_for_each_sleep_and_never_when_awake() {
    let (_, _, mut doorbell, mut sleeper) = pair();
    assert!(!doorbell.ring(), "awake at first");
    for round in 0..3 {
        sleeper.announce();
        assert!(doorbell.ring(), "asleep, round {round}");
        assert!(readable(sleeper.bell()));
        assert!(!doorbell.ring(), "it was rung");
        sleeper.retract();
        assert!(!readable(sleeper.bell()), "quiet again");
        assert!(!doorbell.ring(), "awake");
    }
    assert_eq!(doorbell.rung(), 3);
}

#[test]
fn each_of_two_producers_rings() {
    let descriptors = SleeperDescriptors::create("test").expect("a sleeper");
    let attach = || Doorbell::attach(descriptors.doorbell().expect("descriptors"));
    let (mut one, mut other) = (attach().expect("attach"), attach().expect("attach"));
    let spin = SpinBudget::new(0);
    let mut sleeper = Sleeper::attach(descriptors.sleeper().expect("descriptors"), spin);
    sleeper.as_mut().expect("attach").announce();
    assert!(one.ring() && other.ring());
}

#[test]
fn a_successor_of_one_that_died_asleep_is_awake() {
    let descriptors = SleeperDescriptors::create("test").expect("a sleeper");
    let mut doorbell = Doorbell::attach(descriptors.doorbell().expect("fds")).expect("attach");
    let attach = || Sleeper::attach(descriptors.sleeper().expect("fds"), SpinBudget::new(0));
    let mut first = attach().expect("attach");
    first.announce();
    drop(first);
    let mut second = attach().expect("attach");
    assert!(!doorbell.ring());
    second.announce();
    assert!(doorbell.ring(), "a new sleep");
}

#[test]
fn doesnt_sleep_on_a_message_that_came_before() {
    let (mut producer, consumer, mut doorbell, mut sleeper) = pair();
    producer.push(&1).expect("room");
    doorbell.ring();
    let woken = sleeper.wait(None, None, || consumer.is_ready());
    assert_eq!(woken.expect("wait"), Woken::Ready);
}

#[test]
fn looks_once_more_after_saying_that_it_sleeps() {
    let (mut producer, consumer, _, mut sleeper) = pair();
    let producer = std::cell::RefCell::new(&mut producer);
    let looks = std::cell::Cell::new(0);
    // The message comes between the first look and the announcement, so nobody rings.
    let woken = sleeper.wait(None, None, || {
        let ready = consumer.is_ready();
        if looks.replace(looks.get() + 1) == 0 {
            producer.borrow_mut().push(&1).expect("room");
        }
        ready
    });
    assert_eq!(woken.expect("wait"), Woken::Ready);
    assert_eq!(looks.get(), 2);
}

#[test]
fn sleeps_until_the_time_is_up() {
    let (_, consumer, _, mut sleeper) = pair();
    let woken = sleeper.wait(Some(Duration::from_millis(1)), None, || consumer.is_ready());
    assert_eq!(woken.expect("wait"), Woken::TimedOut);
}

#[test]
fn never_waits_on_a_bell_that_was_made_blocking() {
    let (_, _, _doorbell, mut sleeper) = pair();
    rustix::io::ioctl_fionbio(sleeper.bell(), false).expect("FIONBIO");
    sleeper.retract();
}

#[test]
fn who_may_ring_cant_take_back_what_others_rang() {
    let (_, _, mut doorbell, mut sleeper) = pair();
    sleeper.announce();
    doorbell.ring();
    let taken = rustix::io::read(doorbell.rope(), &mut [0; 8]);
    assert_eq!(taken, Err(Errno::BADF));
    assert!(readable(sleeper.bell()));
}

#[test]
fn refuses_memory_of_another_kind() {
    let descriptors = SleeperDescriptors::create("test").expect("a sleeper");
    let queue = Queue::create("test", 64, 16).expect("a queue");
    let wrong = DoorbellDescriptors {
        page: queue.producer().expect("descriptors").theirs,
        bell: descriptors.doorbell().expect("descriptors").bell,
    };
    assert!(matches!(
        Doorbell::attach(wrong),
        Err(AttachError::OtherLayout)
    ));
}

#[test]
fn a_hostile_consumer_blocks_nobody() {
    let descriptors = SleeperDescriptors::create("test").expect("a sleeper");
    let mut doorbell = Doorbell::attach(descriptors.doorbell().expect("descriptors"));
    let doorbell = doorbell.as_mut().expect("attach");
    let ends = descriptors.sleeper().expect("descriptors");
    let mut sleeper = Sleeper::attach(ends, SpinBudget::new(0)).expect("attach");
    // It waits for ever when it reads, and fills its bell from behind.
    rustix::fs::fcntl_setfl(sleeper.bell(), rustix::fs::OFlags::empty()).expect("its own flags");
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let number = std::os::fd::AsRawFd::as_raw_fd(&sleeper.bell());
    let path = format!("/proc/self/fd/{number}");
    let behind = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).expect("the pipe");
    while rustix::io::write(&behind, &[1; 4096]).is_ok() {}
    for _ in 0..3 {
        sleeper.announce();
        assert!(doorbell.ring(), "asleep");
        assert!(readable(sleeper.bell()));
        sleeper.awake();
    }
    drop((sleeper, descriptors, behind));
    doorbell.ring();
}

#[test]
fn a_note_is_seen_until_another_has_the_page() {
    let descriptors = SleeperDescriptors::create("test").expect("a sleeper");
    let attach = || Sleeper::attach(descriptors.sleeper().expect("fds"), SpinBudget::new(0));
    let pulse = descriptors.pulse().expect("descriptors");
    let mut first = attach().expect("attach");
    assert_eq!(pulse.note(), 0);
    first.note(3);
    first.announce();
    assert_eq!(pulse.note(), 3, "asleep or not");
    drop(first);
    assert_eq!(pulse.note(), 3, "also of one that is dead");
    let _second = attach().expect("attach");
    assert_eq!(pulse.note(), 0);
}

/// Sleeps on a berth until it is woken, in a thread of its own.
fn sleeping(berth: &Berth) -> std::thread::JoinHandle<()> {
    let berth = berth.clone();
    std::thread::spawn(move || {
        let (word, asleep) = berth.futex();
        while berth.is_occupied() {
            match futex::wait(word, futex::Flags::empty(), asleep, None) {
                Ok(()) => return,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
}

#[test]
fn a_thread_is_woken_for_its_own_subject_alone() {
    let (_, _, mut doorbell, mut sleeper) = pair();
    let berth = sleeper.lie_down(7).expect("a berth");
    assert!(!doorbell.wake_for(8, &Fenced::now()), "nobody's");
    assert!(
        !doorbell.wake_for(7 + BERTHS as u32, &Fenced::now()),
        "nobody's"
    );
    assert!(sleeper.lie_down(7).is_none(), "it is taken");
    let thread = sleeping(&berth);
    while !doorbell.wake_for(7, &Fenced::now()) {
        // It isn't asleep yet.
        std::thread::yield_now();
    }
    assert!(doorbell.wake_for(7, &Fenced::now()), "it is on its way");
    thread.join().expect("woken");
    berth.rise();
    assert!(!doorbell.wake_for(7, &Fenced::now()), "awake");
    // The next sleep has another number.
    let berth = sleeper.lie_down(7).expect("a berth");
    assert!(!doorbell.wake_for(7, &Fenced::now()), "nobody is asleep");
    berth.rouse();
    assert!(!berth.is_occupied());
    assert!(!doorbell.wake_for(7, &Fenced::now()), "roused");
    berth.rise();
}

#[test]
fn no_two_sleeps_on_a_berth_have_one_number() {
    let (_, _, mut doorbell, mut sleeper) = pair();
    let first = sleeper.lie_down(7).expect("a berth");
    first.rouse();
    // It is on its way, and hasn't risen.
    let other = 7 + BERTHS as u32;
    assert!(sleeper.lie_down(other).is_none());
    first.rise();
    for _ in 0..3 {
        let berth = sleeper.lie_down(other).expect("a berth");
        let thread = sleeping(&berth);
        while !doorbell.wake_for(other, &Fenced::now()) {
            std::thread::yield_now();
        }
        thread.join().expect("woken");
        berth.rise();
    }
}

#[test]
fn the_berths_of_one_that_died_are_free() {
    let descriptors = SleeperDescriptors::create("test").expect("a sleeper");
    let doorbell = Doorbell::attach(descriptors.doorbell().expect("fds"));
    let mut doorbell = doorbell.expect("attach");
    let attach = || Sleeper::attach(descriptors.sleeper().expect("fds"), SpinBudget::new(0));
    let mut first = attach().expect("attach");
    let _berth = first.lie_down(7).expect("a berth");
    drop(first);
    let mut second = attach().expect("attach");
    assert!(doorbell.caller.berth_of(7, &Fenced::now()).is_none());
    let berth = second.lie_down(7).expect("a berth");
    let thread = sleeping(&berth);
    while !doorbell.wake_for(7, &Fenced::now()) {
        std::thread::yield_now();
    }
    thread.join().expect("woken");
}
