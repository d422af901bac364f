use super::{Heard, REMEMBERED, events_for_half};
use skink_wire::Endpoint;

fn peer(port: u16) -> Endpoint {
    Endpoint::new([127, 0, 0, 1].into(), port)
}

#[test]
fn the_latest_who_sent_are_remembered() {
    let mut heard = Heard::new();
    assert!(!heard.has(peer(1)));
    for port in 0..REMEMBERED as u16 {
        heard.note(peer(port));
        heard.note(peer(port));
    }
    assert!(heard.has(peer(0)));
    heard.note(peer(1000));
    heard.note(peer(1001));
    let known = |port: &u16| heard.has(peer(*port));
    let forgotten: Vec<u16> = (0..REMEMBERED as u16).filter(|it| !known(it)).collect();
    assert_eq!(forgotten, [0, 1]);
    assert!(known(&1000) && known(&1001));
}

/// The kernel's socket always has room: a program that waits for that of Skink's half would find it there at once.
#[test]
fn the_kernel_is_not_asked_for_room() {
    let asked = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32;
    let half = (libc::EPOLLIN | libc::EPOLLET) as u32;
    assert_eq!(events_for_half(asked), half);
}
