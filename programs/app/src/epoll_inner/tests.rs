use super::*;
use crate::epoll_set::Item;
use crate::socket::{Role, Watch};
use std::time::Duration;

/// A state with one set, in which a socket is that isn't ready.
fn watched(inner: bool) -> (State, u32, u32) {
    let mut state = State::new();
    let socket = state.sockets.add(libc::AF_INET, true);
    let set = state.epolls.add(-1);
    let item = Item {
        socket,
        fd: 0,
        events: libc::EPOLLOUT as u32,
        data: 0,
        queued: false,
        disarmed: false,
    };
    let item = state.epolls[set].add(item);
    state.sockets[socket]
        .watchers
        .push(Watch { epoll: set, item });
    state.sockets[socket].role = Role::Dormant;
    state.epolls[set].doorbell = raw::eventfd().expect("an eventfd");
    state.epolls[set].inner = inner;
    state.begin_inner(set);
    state.settle_bells();
    (state, socket, set)
}

/// (A UDP socket that was neither bound nor connected can be written to.)
fn be_ready(state: &mut State, socket: u32) {
    state.sockets[socket].role = Role::Undecided;
    state.mark_ready(socket);
}

fn is_rung(state: &State, set: u32) -> bool {
    let mut list = [raw::to_poll(state.epolls[set].doorbell, libc::POLLIN)];
    raw::ppoll(&mut list, Some(Duration::ZERO), core::ptr::null()) == Ok(1)
}

/// How often it was rung; it is quiet then.
fn rings(state: &State, set: u32) -> u64 {
    let mut count = [0u8; 8];
    let file = state.epolls[set].doorbell;
    // SAFETY: the bytes are ours.
    let read = unsafe { libc::read(file, count.as_mut_ptr().cast(), 8) };
    if read == 8 {
        u64::from_ne_bytes(count)
    } else {
        0
    }
}

#[test]
fn the_bell_of_an_inner_set_says_whether_a_member_is_ready() {
    let (mut state, socket, set) = watched(true);
    assert!(!is_rung(&state, set));
    for _ in 0..2 {
        be_ready(&mut state, socket);
        state.settle_bells();
        assert!(is_rung(&state, set));
        // It stays so while it is ready, though nobody looks or somebody takes the event.
        state.settle_bells();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
        assert_eq!(state.collect(set, &mut events), 1);
        state.settle_bells();
        assert!(is_rung(&state, set));
        // Whoever makes it not ready, and tells nobody.
        state.sockets[socket].role = Role::Dormant;
        state.settle_bells();
        assert!(!is_rung(&state, set));
        assert!(state.epolls.noted.is_empty());
    }
}

#[test]
fn it_is_rung_once_for_each_event_before_the_lock_is_let_go() {
    let (mut state, socket, set) = watched(true);
    for _ in 0..3 {
        be_ready(&mut state, socket);
        be_ready(&mut state, socket);
        state.settle_bells();
        state.settle_bells();
    }
    assert_eq!(rings(&state, set), 3);
    // What isn't asked for is no event.
    state.sockets[socket].role = Role::Dormant;
    state.mark_ready(socket);
    assert!(!state.epolls[set].news);
}

#[test]
fn one_that_a_sleeper_has_hushed_is_rung_again() {
    let (mut state, socket, set) = watched(true);
    be_ready(&mut state, socket);
    state.settle_bells();
    assert_eq!(rings(&state, set), 1);
    state.epolls[set].rung = false;
    state.settle_bells();
    assert!(is_rung(&state, set));
}

#[test]
fn a_member_that_goes_hushes_it() {
    let (mut state, socket, set) = watched(true);
    be_ready(&mut state, socket);
    state.settle_bells();
    state.unwatch(socket);
    state.settle_bells();
    assert!(!is_rung(&state, set));
}

#[test]
fn a_set_is_looked_after_that_is_put_inside_with_a_ready_member() {
    let (mut state, socket, set) = watched(false);
    be_ready(&mut state, socket);
    state.settle_bells();
    assert!(!is_rung(&state, set), "nobody sleeps");
    assert_eq!(state.epolls.inner, 0);
    state.epolls[set].inner = true;
    state.begin_inner(set);
    assert_eq!(state.epolls.inner, 1);
    state.settle_bells();
    assert!(is_rung(&state, set));
}

#[test]
fn a_child_leaves_the_bells_to_its_parent() {
    let (mut state, socket, set) = watched(true);
    be_ready(&mut state, socket);
    state.settle_bells();
    state.epolls.leave_to_parent();
    state.sockets[socket].role = Role::Dormant;
    state.settle_bells();
    assert!(is_rung(&state, set));
    assert_eq!(rings(&state, set), 1);
    be_ready(&mut state, socket);
    state.settle_bells();
    assert!(!is_rung(&state, set));
    assert_eq!((state.epolls.inner, state.epolls.noted.len()), (0, 0));
}

#[test]
fn nothing_is_left_of_one_that_ends() {
    let (mut state, socket, set) = watched(true);
    be_ready(&mut state, socket);
    state.settle_bells();
    let old = state.epolls.remove(set);
    assert!(old.rung && old.doorbell >= 0);
    assert_eq!((state.epolls.inner, state.epolls.noted.len()), (0, 0));
    assert_eq!(state.epolls.add(7), set, "its place is used again");
    let new = &state.epolls[set];
    assert!(!new.inner && !new.noted && !new.rung && new.items.is_empty());
    // A plain one counts for nothing.
    state.epolls[set].inner = true;
    state.begin_inner(set);
    state.epolls.remove(set);
    assert_eq!((state.epolls.inner, state.epolls.noted.len()), (0, 0));
}
