use super::{Heard, REMEMBERED, events_for_half};
use skink_time::Instant;
use skink_wire::Endpoint;
use std::time::Duration;

fn peer(port: u16) -> Endpoint {
    Endpoint::new([127, 0, 0, 1].into(), port)
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

#[test]
fn who_sent_is_remembered_until_it_sends_elsewhere_or_for_some_time() {
    let mut heard = Heard::new();
    assert!(!heard.has(at(0), peer(1)));
    heard.note(at(0), peer(1));
    heard.note(at(0), peer(2));
    heard.forget(peer(2));
    assert!(heard.has(at(29), peer(1)) && !heard.has(at(0), peer(2)));
    assert!(!heard.has(at(30), peer(1)));
    heard.note(at(31), peer(1));
    assert!(heard.has(at(60), peer(1)));
}

#[test]
fn strangers_push_nobody_out() {
    let mut heard = Heard::new();
    for port in 0..2 * REMEMBERED as u16 {
        heard.note(at(1), peer(port));
    }
    assert!(heard.has(at(2), peer(0)) && !heard.has(at(2), peer(REMEMBERED as u16)));
    heard.note(at(31), peer(9_000));
    assert!(heard.has(at(31), peer(9_000)));
    assert_eq!(heard.0.len(), 1);
}

/// The kernel's socket always has room: a program that waits for that of Skink's half would find it there at once.
#[test]
fn the_kernel_is_not_asked_for_room() {
    let asked = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32;
    let half = (libc::EPOLLIN | libc::EPOLLET) as u32;
    assert_eq!(events_for_half(asked), half);
}
