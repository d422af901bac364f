use super::*;
use crate::judge::{FromFilter, ToFilter};
use crate::{Few, FrameDown, FromLink, Headers, Lane, Payload, SmallMessage, ToLink};
use skink_channel::{Producer, SleeperDescriptors};
use skink_messages::{CallBody, CallOutcome, TransportCall};
use std::collections::VecDeque;

type Upper = Exchange<FromFilter, ToFilter>;
type Lower = Exchange<ToFilter, FromFilter>;

fn lane() -> (Lane, SleeperDescriptors) {
    let lane = Lane::create::<ToFilter, FromFilter>("test").expect("a lane");
    (lane, SleeperDescriptors::create("test").expect("a sleeper"))
}

fn upper((lane, sleeper): &(Lane, SleeperDescriptors), own: u32, neighbour: u32) -> Upper {
    let bell = sleeper.doorbell().expect("a bell");
    Exchange::attach(lane.upper(own, neighbour, bell).expect("parts")).expect("a side")
}

fn lower((lane, sleeper): &(Lane, SleeperDescriptors), own: u32, neighbour: u32) -> Lower {
    let bell = sleeper.doorbell().expect("a bell");
    Exchange::attach(lane.lower(own, neighbour, bell).expect("parts")).expect("a side")
}

fn verdicts(ids: &[u64]) -> FromFilter {
    let mut pairs: VecDeque<_> = ids.iter().map(|id| (*id, 1)).collect();
    FromFilter::Verdicts(Few::take(&mut pairs, (0, 0)))
}

fn ids(message: Option<FromFilter>) -> Vec<u64> {
    match message {
        Some(FromFilter::Verdicts(few)) => few.as_slice().iter().map(|(id, _)| *id).collect(),
        other => panic!("{other:?} isn't a list of verdicts"),
    }
}

#[test]
fn answers_count_only_from_the_incarnation_that_was_asked() {
    let lane = lane();
    let mut asks = upper(&lane, 1, 1);
    let mut answers = lower(&lane, 1, 1);
    answers.send(&verdicts(&[1])).expect("room");
    answers.flush();
    let mut successor = lower(&lane, 2, 1);
    successor.send(&verdicts(&[2])).expect("room");
    successor.flush();
    assert_eq!(ids(asks.take()), [1]);
    assert!(asks.take().is_none(), "we don't know of it yet");
    assert_eq!(asks.counters.foreign, 1);
    asks.restarted(2);
    successor.send(&verdicts(&[3])).expect("room");
    successor.flush();
    assert_eq!(ids(asks.take()), [3]);
}

#[test]
fn nonsense_is_counted_and_what_follows_is_heard() {
    let lane = lane();
    let mut asks = upper(&lane, 1, 1);
    let queue = &lane.0.up;
    let mut raw =
        Producer::<SmallMessage>::attach(queue.producer().expect("parts"), queue.geometry)
            .expect("a producer");
    for kind in [0, 4, u32::MAX] {
        raw.push(&SmallMessage::new(kind, 1, &[0u8; 48]))
            .expect("room");
    }
    raw.push(&verdicts(&[7]).encode(1)).expect("room");
    assert_eq!(ids(asks.take()), [7]);
    assert_eq!(asks.counters.malformed, 3);
    assert!(!asks.is_broken());
}

#[test]
fn what_is_given_back_waits_for_company() {
    let lane = lane();
    let mut speaks = lower(&lane, 1, 1);
    assert!(!speaks.gives_back(HELD_BACK) && speaks.gives_back(HELD_BACK + 1));
    speaks.send(&verdicts(&[1])).expect("room");
    assert!(speaks.gives_back(1) && !speaks.gives_back(0));
    speaks.flush();
    assert!(!speaks.gives_back(1));
}

#[test]
fn who_found_no_room_is_ready_once_there_is() {
    let lane = lane();
    let mut sends = lower(&lane, 1, 1);
    let mut takes = upper(&lane, 1, 1);
    sends.begin();
    let mut sent = 0;
    while sends.send(&verdicts(&[sent])).is_ok() {
        sent += 1;
    }
    sends.flush();
    assert!(sends.was_full() && !sends.is_ready());
    assert_eq!(sends.room(64), 0);
    for _ in 0..10 {
        assert!(takes.take().is_some());
    }
    assert!(!sends.is_ready(), "nothing was released");
    takes.flush();
    assert!(sends.is_ready());
    sends.begin();
    assert_eq!(sends.room(64), 8, "halves, down to what there is");
    assert!(!sends.was_full());
}

#[test]
fn who_sleeps_for_want_of_room_is_woken_once_there_is() {
    let lane = lane();
    let parts = lane.1.sleeper().expect("a sleeper");
    let mut sleeper = skink_channel::Sleeper::attach(parts, skink_channel::SpinBudget::new(0))
        .expect("a sleeper");
    let mut sends = lower(&lane, 1, 1);
    let mut takes = upper(&lane, 1, 1);
    while sends.send(&verdicts(&[1])).is_ok() {}
    sends.flush();
    sleeper.announce();
    assert!(takes.take().is_some());
    takes.flush();
    assert_eq!(takes.rung(), 1, "there is room");
    sleeper.retract();
    sleeper.announce();
    assert!(takes.take().is_some());
    takes.flush();
    assert_eq!(takes.rung(), 1, "the queue wasn't full");
}

#[test]
fn a_doorbell_is_rung_once_for_a_batch_and_only_for_a_sleeper() {
    let lane = lane();
    let parts = lane.1.sleeper().expect("a sleeper");
    let mut sleeper = skink_channel::Sleeper::attach(parts, skink_channel::SpinBudget::new(0))
        .expect("a sleeper");
    let mut sends = lower(&lane, 1, 1);
    let batch = |sends: &mut Lower| {
        for id in 0..5 {
            sends.send(&verdicts(&[id])).expect("room");
        }
        sends.flush();
        sends.rung()
    };
    assert_eq!(batch(&mut sends), 0, "awake");
    sleeper.announce();
    assert_eq!(batch(&mut sends), 1);
    assert_eq!(batch(&mut sends), 1, "it was rung already");
}

#[test]
fn a_successor_is_asked_anew_for_what_is_answered() {
    let lane = Lane::create::<TransportCall, CallOutcome>("test").expect("a lane");
    let sleeper = SleeperDescriptors::create("test").expect("a sleeper");
    let bell = || sleeper.doorbell().expect("a bell");
    let parts = lane.upper(1, 1, bell()).expect("parts");
    let mut syscall = Exchange::<CallOutcome, TransportCall>::attach(parts).expect("a side");
    let parts = lane.lower(2, 1, bell()).expect("parts");
    let mut successor = Exchange::<TransportCall, CallOutcome>::attach(parts).expect("a side");
    let call = |serial, body| TransportCall {
        program: 1,
        serial,
        body,
    };
    let socket = skink_memory::SocketId {
        slot: 5,
        generation: 1,
    };
    let open = call(7, CallBody::Open);
    let close = call(0, CallBody::Close(socket));
    for call in [open, close] {
        syscall.send(&call).expect("room");
    }
    syscall.flush();
    assert_eq!(successor.take(), Some(close), "nobody says it again");
    assert_eq!(successor.take(), None);
    assert_eq!(successor.counters.foreign, 1);
    syscall.restarted(2);
    syscall.send(&open).expect("room");
    syscall.flush();
    assert_eq!(successor.take(), Some(open));
}

fn large_frame(pressing: bool) -> ToLink {
    let packet = skink_messages::TxPacket::new([skink_memory::Bytes::EMPTY; 2]);
    ToLink::Frame(FrameDown {
        id: 0,
        awaited: false,
        pressing,
        payload: Payload::Empty,
        headers: Headers::of(&packet).expect("short"),
    })
}

type Ip = Exchange<FromLink, ToLink>;
type Link = Exchange<ToLink, FromLink>;

/// Both sides of a lane, and who sleeps on that of `ip`.
fn ip_and_link() -> (Ip, Link, skink_channel::Sleeper) {
    let lane = Lane::create::<ToLink, FromLink>("test").expect("a lane");
    let descriptors = SleeperDescriptors::create("test").expect("a sleeper");
    let parts = descriptors.sleeper().expect("a sleeper");
    let budget = skink_channel::SpinBudget::new(0);
    let sleeper = skink_channel::Sleeper::attach(parts, budget).expect("a sleeper");
    let bell = || descriptors.doorbell().expect("a bell");
    let parts = lane.upper(1, 1, bell()).expect("parts");
    let ip = Exchange::<FromLink, ToLink>::attach(parts).expect("a side");
    let parts = lane.lower(1, 1, bell()).expect("parts");
    let link = Exchange::<ToLink, FromLink>::attach(parts).expect("a side");
    (ip, link, sleeper)
}

/// Sends frames with so many bytes of payload each, as long as there is room; answers how many.
fn send_payloads(ip: &mut Ip, sizes: &mut dyn Iterator<Item = u32>) -> usize {
    ip.begin();
    let mut sent = 0;
    while ip.reserve_payload().is_ok()
        && let Some(bytes) = sizes.next()
    {
        let pressing = ip.note_payload(bytes, 1);
        ip.send(&large_frame(pressing)).expect("room");
        sent += 1;
    }
    ip.flush();
    sent
}

fn take_frames(link: &mut Link, count: usize) {
    for _ in 0..count {
        assert!(link.take().is_some());
    }
    link.flush();
}

/// What pressed first is small: once it was taken, there is still no room.
#[test]
fn the_last_one_before_there_is_no_room_presses() {
    let (mut ip, mut link, mut sleeper) = ip_and_link();
    let first = [57_344, 57_344, 57_344, 57_344, 15_000];
    assert_eq!(send_payloads(&mut ip, &mut first.into_iter()), 5);
    take_frames(&mut link, 4);
    let more = send_payloads(&mut ip, &mut std::iter::repeat(61_440));
    sleeper.announce();
    take_frames(&mut link, 1);
    assert_eq!(link.rung(), 1);
    sleeper.retract();
    assert_eq!(send_payloads(&mut ip, &mut std::iter::repeat(61_440)), 0);
    sleeper.announce();
    (0..more).for_each(|_| take_frames(&mut link, 1));
    assert_eq!(link.rung(), 2, "all was taken, and nobody was told");
}

/// Small packets take longer than as many bytes in large ones; so do those that `link` must cut.
#[test]
fn packets_count_besides_their_bytes() {
    let most = |bytes, packets| {
        let (mut ip, _link, _) = ip_and_link();
        let mut sent = 0;
        while ip.reserve_payload().is_ok() {
            let pressing = ip.note_payload(bytes, packets);
            ip.send(&large_frame(pressing)).expect("room");
            sent += 1;
        }
        sent
    };
    assert_eq!(
        [most(60_000, 1), most(60_000, 42), most(1_400, 1)],
        [9, 3, 96]
    );
}

#[test]
fn a_neighbour_has_so_many_bytes_before_it_and_no_more() {
    let (mut ip, mut link, mut sleeper) = ip_and_link();
    // Payloads aren't looked at; sizes are all the same at first.
    let sizes = [60_000; 40]
        .into_iter()
        .chain([61_440, 61_440, 8_192, 61_440, 61_440, 61_440, 1, 30_000].repeat(40));
    let mut sizes = sizes.cycle();
    let mut fill = |ip: &mut Ip, most| send_payloads(ip, &mut sizes.by_ref().take(most));
    let all = fill(&mut ip, usize::MAX);
    assert_eq!(all as u64, AHEAD.div_ceil(60_000 + FairQueue::PACKET));
    // However little is taken at a time, and whatever was sent between: who sleeps for want of room is woken when there is some.
    let mut waiting = all;
    for (taken, before) in [1, 2, 3, 5, 8, 100]
        .into_iter()
        .cycle()
        .zip([0, 3, 1, 5, 2].into_iter().cycle())
        .take(2000)
    {
        // While it was awake.
        let some = (waiting / 2).min(before);
        take_frames(&mut link, some);
        waiting = waiting - some + fill(&mut ip, usize::MAX);
        assert!(
            ip.was_full() && !ip.is_ready(),
            "nothing was released since"
        );
        let rung = link.rung();
        sleeper.announce();
        while link.rung() == rung {
            assert!(waiting > 0, "nobody rang, and all was taken");
            take_frames(&mut link, taken.min(waiting));
            waiting -= taken.min(waiting);
        }
        assert!(ip.is_ready());
        sleeper.retract();
        waiting += fill(&mut ip, before);
    }
    // There is room, also after somebody has looked.
    fill(&mut ip, usize::MAX);
    while link.take().is_some() {}
    link.flush();
    assert!(ip.was_full() || ip.reserve_payload().is_ok());
    assert!(!ip.was_full() && ip.is_ready());
    // What has no payload counts as none, as far as there are slots.
    let mut sent = 0;
    while link.take().is_some() {}
    link.flush();
    ip.begin();
    while ip.reserve_payload().is_ok() {
        assert!(!ip.note_payload(0, 1));
        ip.send(&large_frame(false)).expect("room");
        sent += 1;
    }
    assert_eq!(sent, crate::CAPACITY);
}
