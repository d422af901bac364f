use crate::{Region, SocketId, SocketKind, SocketTable, TableConfig};
use std::sync::atomic::Ordering;

fn region() -> Region {
    let config = TableConfig {
        sockets: 4,
        send_bytes: 4096,
        receive_bytes: 4096,
    };
    Region::create("test", config).expect("a region")
}

/// The program's own mapping.
fn of_program(region: &Region) -> Region {
    let files = region.program_files().expect("descriptors");
    Region::open_for_program(files).expect("the same region")
}

#[test]
fn a_connection_is_the_programs_once_if_it_was_offered_and_not_withdrawn() {
    let region = region();
    let program = of_program(&region);
    let id = region.open_slot(2, SocketKind::Tcp);
    assert!(
        !program.take_offer(id) && !region.withdraw(id),
        "it wasn't offered"
    );
    region.offer(id);
    assert!(program.take_offer(id));
    assert!(!program.take_offer(id) && !region.withdraw(id));
    // A successor of the owner doesn't know, and offers it again.
    region.offer(id);
    assert!(!program.take_offer(id) && !region.withdraw(id));

    let id = region.open_slot(1, SocketKind::Tcp);
    region.offer(id);
    assert!(region.withdraw(id) && !region.withdraw(id));
    assert!(!program.take_offer(id));
    region.offer(id);
    assert!(program.take_offer(id));
}

#[test]
fn an_offer_ends_with_its_socket() {
    let region = region();
    let program = SocketTable::from(of_program(&region));
    let old = region.open_slot(0, SocketKind::Tcp);
    region.offer(old);
    let _ = region.close_slot(0);
    assert!(!program.take_offer(old));
    let new = region.open_slot(0, SocketKind::Tcp);
    assert!(!program.take_offer(new));
    region.offer(new);
    assert!(!program.take_offer(old) && !region.withdraw(old));
    let beyond = SocketId { slot: 9, ..new };
    assert!(!program.take_offer(beyond));
    assert!(program.take_offer(new));
}

/// Each offer is one side's, whenever each of them tries.
#[test]
fn of_two_who_want_it_at_once_one_has_it() {
    let region = region();
    let program = of_program(&region);
    for _ in 0..200 {
        let id = region.open_slot(0, SocketKind::Tcp);
        region.offer(id);
        let start = std::sync::Barrier::new(2);
        let (taken, withdrawn) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                start.wait();
                program.take_offer(id)
            });
            start.wait();
            let withdrawn = region.withdraw(id);
            (other.join().expect("no panic"), withdrawn)
        });
        assert_ne!(taken, withdrawn);
    }
}

/// What a program may store there is its own harm.
#[test]
fn whatever_the_program_stores_nothing_is_taken_twice_by_the_owner() {
    let region = region();
    let program = of_program(&region);
    let id = region.open_slot(0, SocketKind::Tcp);
    let place = &program.sending.program_positions(0).receive_head.offer;
    for value in [0, 1, 2, u64::MAX, u64::from(id.generation) << 32 | 9] {
        place.store(value, Ordering::Relaxed);
        assert!(!region.withdraw(id), "{value:x}");
        region.offer(id);
        assert!(region.withdraw(id), "{value:x}");
    }
}

#[test]
fn a_program_says_of_a_listener_that_it_waits_and_of_no_newer_socket_in_its_slot() {
    let region = region();
    let program = of_program(&region);
    let id = region.open_slot(0, SocketKind::TcpListener);
    assert_eq!(region.waits(id), None);
    program.set_waiting(id, false);
    assert_eq!(region.waits(id), None, "it hasn't said that it does");
    program.set_waiting(id, true);
    assert_eq!(region.waits(id), Some(true));
    program.set_waiting(id, false);
    assert_eq!(region.waits(id), Some(false));
    program.set_waiting(id, true);
    let _ = region.close_slot(0);
    let newer = region.open_slot(0, SocketKind::Tcp);
    assert_eq!(region.waits(newer), None);
    region.offer(newer);
    program.set_waiting(id, false);
    assert!(program.take_offer(newer), "it is still offered");
}
