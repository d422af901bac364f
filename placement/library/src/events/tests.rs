use super::*;

fn event(slot: u32, generation: u32, events: Events) -> SocketEvent {
    let socket = SocketId { slot, generation };
    SocketEvent { socket, events }
}

/// Queues of programs 0 and 2, with 4 TCP and 2 UDP sockets each.
fn queues() -> EventQueues {
    let mut queues = EventQueues::new(4, 2);
    queues.add(0);
    queues.add(2);
    queues
}

#[test]
fn events_of_one_socket_are_merged_and_others_keep_their_order() {
    let mut queues = queues();
    queues.push(Protocol::Tcp, event(1, 1, Events::READABLE));
    queues.push(Protocol::Udp, event(1, 1, Events::READABLE));
    queues.push(Protocol::Tcp, event(1, 1, Events::READ_CLOSED));
    let both = Events::READABLE | Events::READ_CLOSED;
    assert_eq!(queues.pop(0), Some((Protocol::Tcp, event(1, 1, both))));
    let readable = event(1, 1, Events::READABLE);
    assert_eq!(queues.pop(0), Some((Protocol::Udp, readable)));
    assert_eq!(queues.pop(0), None);
}

#[test]
fn a_slot_given_out_again_forgets_the_earlier_sockets_events() {
    let mut queues = queues();
    queues.push(Protocol::Tcp, event(0, 1, Events::ERROR));
    queues.push(Protocol::Tcp, event(0, 2, Events::WRITABLE));
    let left = event(0, 2, Events::WRITABLE);
    assert_eq!(queues.pop(0), Some((Protocol::Tcp, left)));
    assert!(queues.pop(0).is_none());
}

#[test]
fn events_of_nobody_and_empty_ones_are_ignored() {
    let mut queues = queues();
    queues.push(Protocol::Tcp, event(4, 1, Events::READABLE));
    queues.push(Protocol::Udp, event(u32::MAX, 1, Events::READABLE));
    queues.push(Protocol::Tcp, event(0, 1, Events::empty()));
    assert_eq!([0, 1, 2, 3].map(|program| queues.pop(program)), [None; 4]);
}

#[test]
fn each_program_has_its_own() {
    let mut queues = queues();
    let [first, last] = [(Protocol::Tcp, 3), (Protocol::Udp, 5)];
    queues.push(first.0, event(first.1, 1, Events::READABLE));
    queues.push(last.0, event(last.1, 1, Events::READABLE));
    queues.push(last.0, event(last.1, 1, Events::WRITABLE));
    let eventful: Vec<_> = std::iter::from_fn(|| queues.take_eventful()).collect();
    assert_eq!(eventful, [0, 2], "each once");
    let both = Events::READABLE | Events::WRITABLE;
    assert_eq!(queues.pop(2), Some((Protocol::Udp, event(5, 1, both))));
    assert_eq!(queues.pop(2), None);
    // One whose program is gone isn't kept, one that isn't taken stays.
    queues.push(Protocol::Tcp, event(8, 1, Events::READABLE));
    queues.remove(2);
    assert_eq!((queues.take_eventful(), queues.pop(2)), (None, None));
    assert!(queues.pop(0).is_some());
}
