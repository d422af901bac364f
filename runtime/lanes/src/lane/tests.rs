use super::*;
use crate::{Envelope, Exchange, SmallMessage};
use skink_channel::SleeperDescriptors;
use skink_memory::{Mapping, SocketId};
use skink_messages::{CallBody, CallOutcome, TransportCall};
use std::sync::atomic::Ordering;

type Syscall = Exchange<CallOutcome, TransportCall>;
type Transport = Exchange<TransportCall, CallOutcome>;

fn lane() -> Lane {
    Lane::create::<TransportCall, CallOutcome>("test").expect("a lane")
}

fn renew(lane: &Lane) -> Lane {
    lane.renew::<TransportCall, CallOutcome>("test")
        .expect("another lane")
}

fn bell() -> DoorbellDescriptors {
    let sleeper = SleeperDescriptors::create("test").expect("a sleeper");
    sleeper.doorbell().expect("a bell")
}

fn syscall(lane: &Lane) -> Syscall {
    Exchange::attach(lane.upper(1, 1, bell()).expect("parts")).expect("a side")
}

fn transport(lane: &Lane) -> Transport {
    Exchange::attach(lane.lower(1, 1, bell()).expect("parts")).expect("a side")
}

fn close(slot: u32) -> TransportCall {
    TransportCall {
        program: 1,
        serial: 0,
        body: CallBody::Close(SocketId {
            slot,
            generation: 1,
        }),
    }
}

fn ask(lane: &Lane, slots: std::ops::Range<u32>) {
    let mut syscall = syscall(lane);
    for slot in slots {
        syscall.send(&close(slot)).expect("room");
    }
    syscall.flush();
}

/// All that waits, which is all closes.
fn waiting(lane: &Lane) -> Vec<u32> {
    let mut transport = transport(lane);
    let calls = std::iter::from_fn(|| transport.take());
    let slots = calls.map(|call| match call.body {
        CallBody::Close(socket) => socket.slot,
        other => panic!("{other:?}"),
    });
    slots.collect()
}

#[test]
fn what_nobody_had_taken_is_in_the_next_lane() {
    // More than fit, taken in two batches: so the queue has gone round.
    let old = lane();
    ask(&old, 0..300);
    let mut lower = transport(&old);
    for _ in 0..300 {
        lower.take().expect("a call");
    }
    lower.flush();
    ask(&old, 300..700);
    // Taken by one who died before it was done: not released.
    for _ in 0..7 {
        lower.take().expect("a call");
    }
    drop(lower);
    let all: Vec<u32> = (300..700).collect();
    let new = renew(&old);
    // Whoever dies meanwhile: the old one is as it was.
    let again = renew(&old);
    assert_eq!(waiting(&new), all);
    assert_eq!(waiting(&again), all);
    ask(&again, 1..3);
    assert_eq!(waiting(&again), [1, 2]);
    assert!(waiting(&renew(&again)).is_empty());
}

#[test]
fn all_that_a_lane_holds_is_passed_on() {
    let old = lane();
    ask(&old, 0..CAPACITY);
    let all: Vec<u32> = (0..CAPACITY).collect();
    assert_eq!(waiting(&renew(&renew(&old))), all);
}

#[test]
fn what_makes_no_sense_is_left_out() {
    let old = lane();
    ask(&old, 0..2);
    let nonsense = SmallMessage::new(77, 1, &[0_u8; 48]);
    let mut raw = Producer::<SmallMessage>::attach(
        old.down.producer().expect("descriptors"),
        old.down.geometry,
    )
    .expect("a queue");
    raw.push(&nonsense).expect("room");
    drop(raw);
    ask(&old, 2..4);
    let new = renew(&old);
    assert_eq!(new.down.depth().expect("readable"), 4);
    assert_eq!(waiting(&new), [0, 1, 2, 3]);
}

#[test]
fn queues_that_are_spoilt_are_replaced_too() {
    // The head, which is beyond all that was sent; and what says that it is a queue.
    for word in [16, 0] {
        let old = lane();
        ask(&old, 0..2);
        let own = old.down.consumer().expect("descriptors").own;
        let half = Mapping::from_fd(own).expect("writable");
        half.words()[word].store(1000, Ordering::Relaxed);
        let new = renew(&old);
        assert!(waiting(&new).is_empty());
        ask(&new, 5..6);
        assert_eq!(waiting(&new), [5]);
    }
}
