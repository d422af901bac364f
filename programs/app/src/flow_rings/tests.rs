use super::*;
use core::net::Ipv4Addr;
use skink_wire::Endpoint;
use std::os::fd::AsRawFd;

/// What a NIC knows of its rings.
#[derive(Default)]
struct Nic {
    /// By bucket.
    ring_of: std::collections::BTreeMap<u16, u8>,
    reserved: Vec<u8>,
    /// A ring where something has come.
    came: Option<u8>,
}

impl skink_nic::FlowRings for Nic {
    fn count(&self) -> u8 {
        2
    }

    fn begin(&mut self, _sets: Vec<OwnedFd>) -> std::io::Result<()> {
        Ok(())
    }

    fn bucket(&self, flow: &FourTuple) -> u16 {
        flow.remote.port % 100
    }

    fn steer(&mut self, bucket: u16, ring: u8) {
        match ring {
            0 => self.ring_of.remove(&bucket),
            ring => self.ring_of.insert(bucket, ring),
        };
    }

    fn reserve(&mut self, ring: u8) -> bool {
        self.reserved.push(ring);
        self.came == Some(ring)
    }

    fn release(&mut self, ring: u8) {
        self.reserved.retain(|other| *other != ring);
    }

    fn take_all(&mut self) {}
}

/// Rings in use.
fn begun() -> (FlowRings, Nic) {
    let ring = || Ring {
        set: -1,
        bell: -1,
        bucket: None,
        given: false,
        asleep: false,
        used: 0,
    };
    let rings = FlowRings {
        rings: vec![ring(), ring()],
        ring_of: vec![0; usize::from(BUCKETS)],
        ..FlowRings::new()
    };
    (rings, Nic::default())
}

fn flow(port: u16) -> FourTuple {
    let end = |port| Endpoint::new(Ipv4Addr::LOCALHOST.into(), port);
    FourTuple::new(end(80), end(port))
}

const NOW: Instant = Instant::ZERO;

/// A thread sleeps for the flow of this port, and is woken.
fn sleep(rings: &mut FlowRings, nic: &mut Nic, port: u16) -> Option<u8> {
    let (ring, _) = rings.take(nic, NOW, &flow(port))?;
    rings.woke(Some(nic), ring, true);
    Some(ring)
}

#[test]
fn it_takes_many_sleeps_that_others_end_to_begin() {
    let mut rings = FlowRings::new();
    let begins = (0..1000).filter(|_| rings.is_time()).count();
    assert_eq!(begins, 1, "and once");
    let mut nic = Nic::default();
    assert!(rings.take(&mut nic, NOW, &flow(1)).is_none(), "not begun");
}

#[test]
fn a_thread_keeps_the_ring_of_its_flow() {
    let (mut rings, mut nic) = begun();
    let first = sleep(&mut rings, &mut nic, 1).expect("a ring");
    let second = sleep(&mut rings, &mut nic, 2).expect("a ring");
    assert_ne!(first, second);
    assert_eq!(nic.ring_of, [(1, first), (2, second)].into());
    for _ in 0..10 {
        assert_eq!(sleep(&mut rings, &mut nic, 2), Some(second));
        assert_eq!(sleep(&mut rings, &mut nic, 1), Some(first));
    }
    assert!(nic.reserved.is_empty(), "nobody sleeps");
}

#[test]
fn a_thread_without_a_ring_takes_the_one_that_was_unused_for_longest() {
    let (mut rings, mut nic) = begun();
    let first = sleep(&mut rings, &mut nic, 1);
    let second = sleep(&mut rings, &mut nic, 2);
    assert_eq!(sleep(&mut rings, &mut nic, 3), first);
    assert!(
        !nic.ring_of.contains_key(&1),
        "its flow goes where it began"
    );
    assert_eq!(sleep(&mut rings, &mut nic, 1), second);
}

#[test]
fn nobody_takes_a_ring_that_a_thread_sleeps_on() {
    let (mut rings, mut nic) = begun();
    let (first, _) = rings.take(&mut nic, NOW, &flow(1)).expect("a ring");
    let (second, _) = rings.take(&mut nic, NOW, &flow(2)).expect("a ring");
    assert_eq!(nic.reserved, [first, second]);
    assert!(rings.take(&mut nic, NOW, &flow(3)).is_none());
    // Nor does another thread that waits for the same flow, or one of the same bucket.
    rings.woke(Some(&mut nic), second, true);
    assert!(rings.take(&mut nic, NOW, &flow(101)).is_none());
    assert_eq!(sleep(&mut rings, &mut nic, 3), Some(second));
    rings.woke(Some(&mut nic), first, true);
    assert_eq!(sleep(&mut rings, &mut nic, 101), Some(first));
}

#[test]
fn what_came_before_a_thread_sleeps_is_told() {
    let (mut rings, mut nic) = begun();
    let ring = sleep(&mut rings, &mut nic, 1).expect("a ring");
    nic.came = Some(ring);
    assert_eq!(rings.take(&mut nic, NOW, &flow(1)), Some((ring, true)));
}

#[test]
fn rings_rest_while_frames_come_another_way() {
    let (mut rings, mut nic) = begun();
    for _ in 0..MISSES - 1 {
        let (ring, _) = rings.take(&mut nic, NOW, &flow(1)).expect("a ring");
        rings.woke(Some(&mut nic), ring, false);
    }
    sleep(&mut rings, &mut nic, 1).expect("one came: it doesn't count");
    for _ in 0..MISSES {
        let (ring, _) = rings.take(&mut nic, NOW, &flow(1)).expect("a ring");
        rings.woke(Some(&mut nic), ring, false);
    }
    let now = raw::now();
    assert!(rings.take(&mut nic, now, &flow(1)).is_none());
    assert!(rings.take(&mut nic, now + PAUSE, &flow(1)).is_some());
}

#[test]
fn who_drives_for_all_finds_everything_in_one_place() {
    let (mut rings, mut nic) = begun();
    let (first, _) = rings.take(&mut nic, NOW, &flow(1)).expect("a ring");
    sleep(&mut rings, &mut nic, 2);
    rings.stop(&mut nic);
    assert!(nic.ring_of.is_empty() && nic.reserved.is_empty());
    // The call that this was for may have failed.
    rings.woke(Some(&mut nic), first, true);
    assert!(sleep(&mut rings, &mut nic, 1).is_some());
}

/// An epoll set, and rings that are there.
fn with_sets() -> (FlowRings, Nic, [OwnedFd; 2]) {
    let (mut rings, nic) = begun();
    let set = || {
        let set = raw::epoll_create().expect("a descriptor");
        // SAFETY: made just now.
        unsafe { OwnedFd::from_raw_fd(set) }
    };
    let made = [set(), set()];
    for (ring, made) in rings.rings.iter_mut().zip(&made) {
        ring.set = made.as_raw_fd();
    }
    (rings, nic, made)
}

#[test]
fn a_sets_ring_is_no_threads() {
    let (mut rings, mut nic, _open) = with_sets();
    let epfd = raw::epoll_create().expect("a descriptor");
    let thread = sleep(&mut rings, &mut nic, 1).expect("a ring");
    let given = rings.give(&mut nic, NOW, epfd).expect("another one");
    assert_ne!(given, thread);
    rings.lead(&mut nic, given, &flow(2));
    assert_eq!(nic.ring_of, [(1, thread), (2, given)].into());
    assert!(
        rings.take(&mut nic, NOW, &flow(2)).is_none(),
        "its frames are the set's"
    );
    // What a thread doesn't sleep for can be led to the set as well; what it does can't.
    rings.lead(&mut nic, given, &flow(1));
    assert_eq!(nic.ring_of, [(1, given), (2, given)].into());
    let (thread, _) = rings.take(&mut nic, NOW, &flow(3)).expect("the other one");
    rings.lead(&mut nic, given, &flow(3));
    assert_eq!(nic.ring_of.get(&3), Some(&thread));
    assert!(rings.give(&mut nic, NOW, epfd).is_none(), "none is left");
    rings.woke(Some(&mut nic), thread, true);
    rings.take_back(Some(&mut nic), given, epfd);
    assert_eq!(nic.ring_of, [(3, thread)].into());
    assert_eq!(sleep(&mut rings, &mut nic, 1), Some(given));
    raw::close(epfd);
}

#[test]
fn a_set_that_cant_be_taken_out_keeps_its_ring() {
    let (mut rings, mut nic, _open) = with_sets();
    let epfd = raw::epoll_create().expect("a descriptor");
    let first = rings.give(&mut nic, NOW, epfd).expect("a ring");
    rings.take_back(Some(&mut nic), first, -1);
    let second = rings.give(&mut nic, NOW, epfd).expect("the other one");
    assert_ne!(first, second);
    raw::close(epfd);
}

#[test]
fn what_comes_to_a_set_is_reserved_while_a_thread_sleeps_there() {
    let (mut rings, mut nic, _open) = with_sets();
    let epfd = raw::epoll_create().expect("a descriptor");
    let ring = rings.give(&mut nic, NOW, epfd).expect("a ring");
    assert!(!rings.sleeps_on(&mut nic, ring));
    assert_eq!(nic.reserved, [ring]);
    rings.rises(Some(&mut nic), ring);
    assert!(nic.reserved.is_empty());
    nic.came = Some(ring);
    assert!(rings.sleeps_on(&mut nic, ring), "it is told");
    raw::close(epfd);
}
