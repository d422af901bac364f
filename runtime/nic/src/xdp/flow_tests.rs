//! Sockets for flows that threads wait for, beside a queue's first.

use super::ring::Consumer;
use super::tests::{NEAR, frames, on_a_link, owner};
use super::*;
use crate::packet::usable_interface;
use crate::test_support::{opener_that_steers, wait_until};
use crate::{Budget, Description, NicParts, NicSpec, Opener, Receiver, Sharing};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use skink_messages::Ports;
use skink_steering::PortTable;
use skink_time::Instant;
use skink_wire::{Endpoint, FourTuple};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

const FAR: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const PORT: u16 = 7000;
const TCP: u8 = 6;

/// What is at the other end of the wire: a packet socket.
struct Far(OwnedFd);

impl Far {
    fn new() -> Far {
        let socket = crate::socket::packet_socket().expect("a packet socket");
        let (interface, _) = usable_interface("far").expect("there");
        crate::socket::bind_to_interface(socket.as_fd(), interface.index).expect("bound");
        Far(socket)
    }

    /// Sends TCP segments from `port`, each with one of `numbers`.
    fn send(&self, port: u16, numbers: std::ops::Range<u32>) {
        for number in numbers {
            let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
            frame.extend([0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, TCP, 0, 0]);
            frame.extend(FAR.octets());
            frame.extend(NEAR.octets());
            frame.extend(port.to_be_bytes());
            frame.extend(PORT.to_be_bytes());
            frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
            frame.extend(number.to_be_bytes());
            rustix::io::write(&self.0, &frame).expect("sent");
        }
    }
}

fn numbers(receiver: &mut dyn Receiver, wanted: usize) -> Vec<u32> {
    let number = |frame: &[u8]| u32::from_be_bytes(frame[54..58].try_into().expect("four bytes"));
    let came = frames(receiver, wanted);
    came.iter().map(|(frame, _)| number(frame)).collect()
}

fn bucket(nic: &mut Nic, port: u16) -> u16 {
    let rings = nic.receiver.flow_rings().expect("it has some");
    rings.bucket(&FourTuple {
        local: Endpoint::new(NEAR.into(), PORT),
        remote: Endpoint::new(FAR.into(), port),
    })
}

fn steer(nic: &mut Nic, port: u16, ring: u8) {
    let bucket = bucket(nic, port);
    let rings = nic.receiver.flow_rings().expect("it has some");
    rings.steer(bucket, ring);
}

/// Begins with all flow rings; answers copies of the sets.
fn begin(nic: &mut Nic) -> Vec<OwnedFd> {
    let rings = nic.receiver.flow_rings().expect("it has some");
    let sets = || epoll::create(epoll::CreateFlags::CLOEXEC).expect("a set");
    let sets: Vec<OwnedFd> = (0..rings.count()).map(|_| sets()).collect();
    let copies = sets.iter().map(|set| set.try_clone().expect("a duplicate"));
    let copies = copies.collect();
    rings.begin(sets).expect("begun");
    copies
}

/// Whether what everybody looks at is readable.
fn is_told_to_all(nic: &Nic) -> bool {
    let mut all = Vec::new();
    let each = &mut |fd: BorrowedFd<'_>| all.push(fd.try_clone_to_owned().expect("a duplicate"));
    nic.receiver.descriptors(each);
    let fds = all.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
    let mut fds: Vec<PollFd<'_>> = fds.collect();
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).expect("polled") > 0
}

/// Waits on `set` as a thread of a program does.
fn sleep_on(set: &OwnedFd) -> bool {
    let mut events = Vec::with_capacity(4);
    let long = Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    let spare = rustix::buffer::spare_capacity(&mut events);
    epoll::wait(set, spare, Some(&long)).expect("waited") > 0
}

/// Runs `wake` once another thread sleeps on `set`; answers whether that one was woken.
fn while_one_sleeps(set: &OwnedFd, wake: impl FnOnce()) -> bool {
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let sleeper = scope.spawn(move || {
            tell.send(rustix::thread::gettid()).expect("told");
            sleep_on(set)
        });
        let thread = told.recv().expect("told").as_raw_nonzero();
        wait_until(|| {
            let path = format!("/proc/self/task/{thread}/syscall");
            let call = std::fs::read_to_string(path).unwrap_or_default();
            let call = call.split(' ').next().and_then(|call| call.parse().ok());
            call.is_some_and(|call: i64| {
                let sleeps = [libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];
                sleeps.contains(&call)
            })
        });
        wake();
        sleeper.join().expect("no panic")
    })
}

/// An opener, and what is handed over to the owner, who has the port.
fn open(queues: u32, test: impl FnOnce(&mut Opener, NicParts, Far) + Send) {
    on_a_link(1500, queues, || {
        let spec = NicSpec::Xdp("near".to_owned());
        let Some(mut opener) = opener_that_steers(&spec, Sharing::Several) else {
            return;
        };
        let parts = opener.open(0).expect("opened");
        let steering = opener.steering().expect("steers");
        let address = "10.1.0.1/24".parse().expect("an address");
        steering.set_addresses(&[address]).expect("set");
        let maps = steering.port_maps().expect("maps");
        let mut table = PortTable::map(owner(0), Some(maps.tcp), Some(maps.udp)).expect("mapped");
        assert!(table.use_port(TCP, PORT, true));
        test(&mut opener, parts, Far::new());
    });
}

#[test]
fn a_frame_wakes_the_thread_that_waits_for_its_flow_and_otherwise_whoever_looks() {
    open(1, |_, parts, far| {
        let mut nic = parts.attach().expect("attached");
        far.send(1, 0..1);
        assert_eq!(numbers(nic.receiver.as_mut(), 1), [0]);
        let sets = begin(&mut nic);
        assert_eq!(sets.len(), 16);
        for (port, ring) in [(1, 1), (2, 2), (3, 16)] {
            steer(&mut nic, port, ring);
        }
        for (port, ring) in [(1, 1), (2, 2), (3, 16), (1, 1)] {
            let rings = nic.receiver.flow_rings().expect("it has some");
            assert!(!rings.reserve(ring));
            let set = &sets[usize::from(ring) - 1];
            assert!(while_one_sleeps(set, || far.send(port, 7..8)));
            assert!(!is_told_to_all(&nic), "port {port}: nobody else is woken");
            // It is left to the thread that was woken.
            let mut others = 0;
            nic.receiver
                .receive(Instant::ZERO, &mut Budget::frames(64), &mut |_| others += 1);
            assert_eq!(others, 0);
            let rings = nic.receiver.flow_rings().expect("it has some");
            rings.release(ring);
            assert_eq!(numbers(nic.receiver.as_mut(), 1), [7]);
        }
        // A thread that was woken and doesn't come doesn't keep it from the others.
        for all in [false, true] {
            let rings = nic.receiver.flow_rings().expect("it has some");
            rings.reserve(1);
            far.send(1, 3..4);
            assert!(sleep_on(&sets[0]));
            let rings = nic.receiver.flow_rings().expect("it has some");
            if all {
                rings.take_all();
            }
            let mut looks = 0;
            let mut came = 0;
            while came == 0 {
                looks += 1;
                assert!(looks <= if all { 1 } else { 100 });
                nic.receiver
                    .receive(Instant::ZERO, &mut Budget::frames(64), &mut |_| came += 1);
            }
            let rings = nic.receiver.flow_rings().expect("it has some");
            rings.release(1);
        }
        // Nobody sleeps for it: whoever looks finds it.
        far.send(2, 8..9);
        assert!(is_told_to_all(&nic));
        assert_eq!(numbers(nic.receiver.as_mut(), 1), [8]);
        assert!(!is_told_to_all(&nic));
        // Other flows, and those steered back, go where they went before.
        steer(&mut nic, 2, 0);
        for port in [2, 9] {
            far.send(port, 10..12);
            assert!(is_told_to_all(&nic));
            assert_eq!(numbers(nic.receiver.as_mut(), 2), [10, 11]);
        }
    });
}

#[test]
fn no_frame_waits_behind_those_of_another_flow_for_ever() {
    open(1, |_, parts, far| {
        let mut nic = parts.attach().expect("attached");
        begin(&mut nic);
        steer(&mut nic, 1, 1);
        far.send(2, 0..100);
        far.send(1, 100..110);
        let mut came = Vec::new();
        for _ in 0..2 {
            nic.receiver
                .receive(Instant::ZERO, &mut Budget::frames(10), &mut |frame| {
                    came.push(frame.bytes.get(57).copied().unwrap_or_default());
                });
        }
        assert!(came.iter().any(|number| *number >= 100), "{came:?}");
    });
}

/// Looks `looks` times, each second time with no budget, since others have used it up; answers the ports that frames came from.
fn seen_by_looks(nic: &mut Nic, looks: usize) -> BTreeSet<u8> {
    let mut ports = BTreeSet::new();
    for look in 0..looks {
        let mut budget = Budget::frames([10, 0][look % 2]);
        nic.receiver
            .receive(Instant::ZERO, &mut budget, &mut |frame| {
                if let Some(&[0, port]) = frame.bytes.get(34..36) {
                    ports.insert(port);
                }
            });
    }
    ports
}

#[test]
fn no_ring_loses_its_turn_to_a_batch_that_others_have_used_up() {
    open(1, |_, parts, far| {
        let mut nic = parts.attach().expect("attached");
        begin(&mut nic);
        for port in [1, 2] {
            steer(&mut nic, port, port as u8);
            far.send(port, 0..100);
        }
        assert_eq!(seen_by_looks(&mut nic, 8), BTreeSet::from([1, 2]));
    });
}

#[test]
fn no_queue_loses_its_turn_to_a_batch_that_others_have_used_up() {
    open(2, |_, parts, far| {
        let mut nic = parts.attach().expect("attached");
        // The kernel chooses the queue by the flow.
        let ports = 1..=20;
        for number in 0..30 {
            for port in ports.clone() {
                far.send(port.into(), number..number + 1);
            }
        }
        assert_eq!(seen_by_looks(&mut nic, 40), ports.collect());
    });
}

#[test]
fn rings_are_there_on_every_queue() {
    open(4, |_, parts, far| {
        let mut nic = parts.attach().expect("attached");
        let sets = begin(&mut nic);
        assert_eq!(sets.len(), 8);
        steer(&mut nic, 1, 3);
        assert!(while_one_sleeps(&sets[2], || far.send(1, 5..6)));
        assert_eq!(numbers(nic.receiver.as_mut(), 1), [5]);
    });
}

/// The Nth of the sockets of the first queue, its first being 0.
fn socket_of(parts: &NicParts, ring: usize) -> OwnedFd {
    let Description::Xdp(description) = &parts.description else {
        panic!("it is AF_XDP");
    };
    let last = description.queues.len() * (2 + usize::from(description.queues[0].flow_rings));
    let at = parts.descriptors.len() - last + if ring == 0 { 0 } else { 1 + ring };
    parts.descriptors[at].try_clone().expect("a duplicate")
}

#[test]
fn no_frame_and_no_chunk_is_lost_whenever_a_process_dies_that_had_flow_rings() {
    open(1, |_, parts, far| {
        let Description::Xdp(mut description) = parts.description.clone() else {
            panic!("it is AF_XDP");
        };
        let copies = |parts: &NicParts| {
            let copies = parts.descriptors.iter();
            let copies = copies.map(|fd| fd.try_clone().expect("a duplicate"));
            copies.collect::<Vec<OwnedFd>>()
        };
        let mut nic = description.attach(copies(&parts)).expect("attached");
        description.pass_on();
        let chunks = Geometry::QUEUE.chunks;
        let first = socket_of(&parts, 0);
        let offsets = Offsets::of(first.as_fd()).expect("offsets");
        for step in 0..3 {
            let _sets = begin(&mut nic);
            steer(&mut nic, 1, 1);
            steer(&mut nic, 2, 2);
            let page = libc::XDP_UMEM_PGOFF_FILL_RING;
            let mut fill: Producer<u64> =
                Producer::map(first.as_fd(), &offsets.fill, page, chunks).expect("mapped");
            let mut rings: Vec<Consumer<libc::xdp_desc>> = (0..3)
                .map(|ring| {
                    let socket = socket_of(&parts, ring);
                    let page = libc::XDP_PGOFF_RX_RING as u64;
                    Consumer::map(socket.as_fd(), &offsets.rx, page, chunks).expect("mapped")
                })
                .collect();
            far.send(1, 10..20);
            far.send(2, 20..30);
            far.send(3, 0..10);
            wait_until(|| rings.iter().all(|ring| ring.waiting() >= 10));
            // It dies in the midst of the first flow's ring.
            for _ in 0..4 {
                let frame = rings[1].take();
                fill.write(frame.addr & !(u64::from(Geometry::QUEUE.chunk_bytes) - 1));
            }
            if step >= 1 {
                rings[1].release();
            }
            if step >= 2 {
                fill.publish();
            }
            drop(nic);
            nic = description.attach(copies(&parts)).expect("sound rings");
            let taken = if step == 0 { 0 } else { 4 };
            let mut came = numbers(nic.receiver.as_mut(), 30 - taken);
            came.sort_unstable();
            let taken = 10..10 + taken as u32;
            let expected: Vec<u32> = (0..30).filter(|number| !taken.contains(number)).collect();
            assert_eq!(came, expected, "step {step}");
            // All flows go to the first again, and all chunks are used again.
            for round in 0..chunks / 64 * 2 {
                let all = round * 64..(round + 1) * 64;
                far.send(1, all.clone());
                assert_eq!(
                    numbers(nic.receiver.as_mut(), 64),
                    all.collect::<Vec<u32>>()
                );
            }
            assert_eq!(nic.receiver.take_dropped(), 0);
        }
    });
}

#[test]
fn what_a_dead_owner_left_in_flow_rings_is_left_out_and_its_chunks_are_used() {
    open(1, |opener, parts, far| {
        let mut dead = parts.attach().expect("attached");
        let _sets = begin(&mut dead);
        steer(&mut dead, 1, 1);
        far.send(1, 0..50);
        far.send(2, 50..60);
        let parts = opener.open(1).expect("opened");
        drop(dead);
        opener.close(0);
        let mut nic = parts.attach().expect("attached");
        let steering = opener.steering().expect("steers");
        let maps = steering.port_maps().expect("maps");
        let mut table = PortTable::map(owner(1), Some(maps.tcp), Some(maps.udp)).expect("mapped");
        assert!(table.use_port(TCP, PORT, true));
        let chunks = Geometry::QUEUE.chunks;
        let mut rounds = 0;
        // Beside the queue, until the owner has it.
        while rounds < chunks / 50 * 2 {
            for port in [1, 2] {
                far.send(port, 100..150);
                let came = numbers(nic.receiver.as_mut(), 50);
                assert_eq!(came, (100..150).collect::<Vec<u32>>());
            }
            if nic.receiver.take_beside() == 0 {
                rounds += 1;
            }
        }
        assert_eq!(nic.receiver.take_dropped(), 0);
    });
}
