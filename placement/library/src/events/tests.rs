use super::*;

fn event(slot: u32, generation: u32, events: Events) -> SocketEvent {
    let socket = SocketId { slot, generation };
    SocketEvent { socket, events }
}

#[test]
fn events_of_one_socket_are_merged_and_others_keep_their_order() {
    let mut queue = EventQueue::new(4, 4);
    queue.push(Protocol::Tcp, event(1, 1, Events::READABLE));
    queue.push(Protocol::Udp, event(1, 1, Events::READABLE));
    queue.push(Protocol::Tcp, event(1, 1, Events::READ_CLOSED));
    let both = Events::READABLE | Events::READ_CLOSED;
    assert_eq!(queue.pop(), Some((Protocol::Tcp, event(1, 1, both))));
    let readable = event(1, 1, Events::READABLE);
    assert_eq!(queue.pop(), Some((Protocol::Udp, readable)));
    assert_eq!(queue.pop(), None);
}

#[test]
fn a_slot_given_out_again_forgets_the_earlier_sockets_events() {
    let mut queue = EventQueue::new(2, 0);
    queue.push(Protocol::Tcp, event(0, 1, Events::ERROR));
    queue.push(Protocol::Tcp, event(0, 2, Events::WRITABLE));
    let left = event(0, 2, Events::WRITABLE);
    assert_eq!(queue.pop(), Some((Protocol::Tcp, left)));
    assert!(queue.pop().is_none());
}

#[test]
fn slots_beyond_the_table_and_empty_events_are_ignored() {
    let mut queue = EventQueue::new(1, 0);
    queue.push(Protocol::Tcp, event(1, 1, Events::READABLE));
    queue.push(Protocol::Udp, event(0, 1, Events::READABLE));
    queue.push(Protocol::Tcp, event(0, 1, Events::empty()));
    assert_eq!(queue.pop(), None);
}
