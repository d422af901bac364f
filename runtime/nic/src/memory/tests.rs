use super::{MemoryConfig, pair};
use crate::test_support::{
    Kept, MAC_A, MAC_B, becomes_readable, datagram, pattern, receive_now, stream,
};
use crate::{Budget, Room};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skink_messages::{Full, RxChecksum};
use std::os::fd::BorrowedFd;
use std::time::Duration;

const MACS: (skink_wire::MacAddr, skink_wire::MacAddr) = (MAC_A, MAC_B);

fn config() -> MemoryConfig {
    MemoryConfig {
        macs: [MAC_A, MAC_B],
        cut_bytes: 65_535,
        checksum: true,
        frames: 3,
        ..MemoryConfig::default()
    }
}

fn is_writable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).unwrap() == 1
}

#[test]
fn each_end_gets_what_the_other_sends() {
    let (mut a, mut b) = pair(config()).unwrap();
    assert_eq!([a.capabilities.mac, b.capabilities.mac], [MAC_A, MAC_B]);
    let payload = pattern(30_000);
    let large = stream([&payload[..100], &payload[100..]], 1448, false);
    a.sender.send(&large).unwrap();
    b.sender.send(&datagram(b"back", (1, 2), MACS, 0)).unwrap();
    let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
    assert_eq!(receive_now(&mut *a.receiver, &mut at_a, |_| true), 1);
    assert_eq!(receive_now(&mut *b.receiver, &mut at_b, |_| true), 1);
    assert_eq!(at_a[0].bytes[42..], *b"back");
    let mut bytes = vec![0; large.len()];
    large.copy_to(&mut bytes);
    let expected = Kept {
        bytes,
        checksum: RxChecksum::Verified,
        segment_bytes: 1448,
    };
    assert_eq!(at_b, [expected]);
}

#[test]
fn a_full_queue_refuses_until_a_frame_is_taken() {
    let (mut a, mut b) = pair(config()).unwrap();
    let packet = datagram(b"x", (1, 2), MACS, 0);
    assert!(!becomes_readable(&*b.receiver, Duration::ZERO));
    for room in [3, 2, 1] {
        assert_eq!(a.sender.room(), room);
        assert!(a.sender.blocked_on().is_none());
        a.sender.send(&packet).unwrap();
        assert!(becomes_readable(&*b.receiver, Duration::ZERO));
    }
    assert_eq!(a.sender.room(), 0);
    assert_eq!(a.sender.send(&packet), Err(Full));
    assert!(!is_writable(
        a.sender.blocked_on().and_then(Room::descriptor).unwrap()
    ));
    let taken = b.receiver.receive(
        skink_time::Instant::ZERO,
        &mut Budget::frames(1),
        &mut |_| {},
    );
    assert_eq!(taken, 1);
    assert!(is_writable(
        a.sender.blocked_on().and_then(Room::descriptor).unwrap()
    ));
    assert_eq!(a.sender.room(), 1);
    a.sender.send(&packet).unwrap();
    let mut kept = Vec::new();
    assert_eq!(receive_now(&mut *b.receiver, &mut kept, |_| true), 3);
    assert!(!becomes_readable(&*b.receiver, Duration::ZERO));
}

#[test]
fn what_the_link_cannot_do_is_dropped_and_counted() {
    let strict = MemoryConfig {
        cut_bytes: 2000,
        ..config()
    };
    let plain = MemoryConfig {
        checksum: false,
        ..config()
    };
    let payload = pattern(3000);
    let fits = 1500 - 28;
    for (config, bytes, segment_bytes, dropped) in [
        (strict, fits, 0, 0),
        (strict, fits + 1, 0, 1),
        (strict, 1900, 1000, 0),
        (strict, 2000, 1000, 1),
        (plain, 100, 0, 1),
    ] {
        let (mut a, _b) = pair(config).unwrap();
        let packet = datagram(&payload[..bytes], (1, 2), MACS, segment_bytes);
        a.sender.send(&packet).unwrap();
        assert_eq!(a.sender.take_dropped(), dropped, "{bytes} {segment_bytes}");
    }
}
