use super::*;
use crate::{FilterEnd, Lane};
use skink_channel::SleeperDescriptors;
use zerocopy::FromZeros;

type Asks = IpFilterEnd<&'static str>;

fn ends() -> (Asks, FilterEnd, impl Fn(u32) -> FilterEnd) {
    let lane = Lane::create::<ToFilter, FromFilter>("test").expect("a lane");
    let sleeper = SleeperDescriptors::create("test").expect("a sleeper");
    let bell = sleeper.doorbell().expect("a bell");
    let ip = IpFilterEnd::attach(lane.upper(1, 1, bell).expect("parts")).expect("an end");
    let filter = move |own| {
        let bell = sleeper.doorbell().expect("a bell");
        FilterEnd::attach(lane.lower(own, 1, bell).expect("parts")).expect("an end")
    };
    (ip, filter(1), filter)
}

fn ask(ip: &mut Asks, packet: &'static str) {
    assert_eq!(ip.ask(Question::new_zeroed(), packet), Ok(()));
    ip.flush();
}

fn hold(ip: &mut Asks, from: u64, packet: &'static str) -> Result<(), &'static str> {
    ip.hold(from, Question::new_zeroed(), packet)
}

/// The next question's id.
fn asked(filter: &mut FilterEnd) -> u64 {
    match filter.take() {
        Some(ToFilter::Question(question)) => question.id,
        other => panic!("{other:?} isn't a question"),
    }
}

fn taken(ip: &mut Asks) -> Vec<(&'static str, Answer)> {
    ip.begin();
    let all = std::iter::from_fn(|| ip.take_answered());
    all.map(|(_, packet, answer)| (packet, answer)).collect()
}

#[test]
fn what_passes_unasked_stays_behind_what_waits() {
    let (mut ip, mut filter, _) = ends();
    ask(&mut ip, "first");
    ask(&mut ip, "second");
    let ids = [asked(&mut filter), asked(&mut filter)];
    filter.offload(ids[0], Some([1, 2]));
    filter.flush();
    assert_eq!(taken(&mut ip), [("first", Answer::Offload(Some([1, 2])))]);
    // Its flow may pass, but a packet of it waits still.
    let from = ip.asked();
    assert!(!ip.is_open(from));
    assert_eq!(hold(&mut ip, from, "third"), Ok(()));
    ask(&mut ip, "another flow's");
    assert_eq!(taken(&mut ip), []);
    filter.offload(ids[1], None);
    filter.flush();
    assert!(ip.is_ready());
    ip.begin();
    // One by one: what comes meanwhile mustn't overtake the third.
    let (_, packet, _) = ip.take_answered().expect("the second");
    assert_eq!(packet, "second");
    assert!(!ip.is_open(from) && ip.is_ready());
    assert_eq!(hold(&mut ip, from, "fourth"), Ok(()));
    let passed = [("third", Answer::Passed), ("fourth", Answer::Passed)];
    assert_eq!(taken(&mut ip), passed, "whatever later questions wait");
    assert!(ip.is_open(from) && ip.waiting() == 1);
}

#[test]
fn who_isnt_asked_says_so_and_takes_it_back() {
    let (mut ip, mut filter, successor) = ends();
    assert_eq!(ip.passes_from(), None);
    ask(&mut ip, "before");
    filter.set_asked(false);
    filter.flush();
    assert_eq!(taken(&mut ip), []);
    let from = ip.passes_from().expect("all pass");
    assert!(!ip.is_open(from), "one waits for its verdict");
    let id = asked(&mut filter);
    filter.answer(id, 3);
    filter.flush();
    assert_eq!(taken(&mut ip), [("before", Answer::Verdict(3))]);
    assert!(ip.is_open(from));
    filter.set_asked(true);
    filter.flush();
    assert_eq!((taken(&mut ip), ip.passes_from()), (vec![], None));
    // A successor is asked until it says otherwise, and says so to each `ip` anew.
    filter.set_asked(false);
    filter.flush();
    assert_eq!(taken(&mut ip), []);
    assert!(ip.passes_from().is_some());
    let mut filter = successor(2);
    ip.filter_restarted(2);
    assert_eq!(ip.passes_from(), None);
    filter.set_asked(false);
    filter.flush();
    assert_eq!(taken(&mut ip), []);
    assert!(ip.passes_from().is_some());
    ip.filter_restarted(2);
    filter.flush();
    assert_eq!((taken(&mut ip), ip.passes_from()), (vec![], None));
    filter.ip_restarted(1);
    filter.flush();
    assert_eq!(taken(&mut ip), []);
    assert!(ip.passes_from().is_some());
}

#[test]
fn what_a_filter_said_before_new_rules_is_heard_before_them() {
    let (mut ip, mut filter, _) = ends();
    filter.set_asked(false);
    filter.flush();
    // It dies now, or is stopped, and nobody has heard of that yet.
    ip.ask_all();
    assert_eq!((taken(&mut ip), ip.passes_from()), (vec![], None));
}

#[test]
fn what_was_held_outlives_the_filter_in_its_order() {
    let (mut ip, mut filter, successor) = ends();
    ask(&mut ip, "first");
    let id = asked(&mut filter);
    assert_eq!(hold(&mut ip, 1, "second"), Ok(()));
    filter.answer(id, 1);
    filter.flush();
    let mut second = successor(2);
    ip.filter_restarted(2);
    assert_eq!(ip.waiting(), 2, "both still do");
    assert_eq!(taken(&mut ip), [], "that one is dead");
    ip.flush();
    let id = asked(&mut second);
    second.answer(id, 1);
    second.flush();
    let all = [("first", Answer::Verdict(1)), ("second", Answer::Passed)];
    assert_eq!(taken(&mut ip), all);
}

#[test]
fn answers_come_in_the_order_of_questions_whatever_they_are() {
    let (mut ip, mut filter, _) = ends();
    (0..12).for_each(|_| ask(&mut ip, "packet"));
    for number in 0..12 {
        let id = asked(&mut filter);
        match number % 4 {
            3 => filter.offload(id, Some([number, 0])),
            _ => filter.answer(id, number as u8 + 1),
        }
    }
    filter.flush();
    let answers: Vec<Answer> = taken(&mut ip).into_iter().map(|(_, it)| it).collect();
    let expected = (0..12).map(|number| match number % 4 {
        3 => Answer::Offload(Some([number, 0])),
        _ => Answer::Verdict(number as u8 + 1),
    });
    assert_eq!(answers, expected.collect::<Vec<_>>());
}

#[test]
fn no_more_wait_than_there_is_room_for() {
    let (mut ip, _, _) = ends();
    (0..PARKED / 2).for_each(|_| ask(&mut ip, "asked"));
    for _ in 0..PARKED / 2 {
        assert!(hold(&mut ip, u64::from(PARKED), "held").is_ok());
    }
    assert!(!ip.has_room() && !ip.takes());
    assert_eq!(hold(&mut ip, 0, "one more"), Err("one more"));
    assert_eq!(ip.ask(Question::new_zeroed(), "one more"), Err("one more"));
}

#[test]
fn flows_dont_wait_for_each_other() {
    let (mut ip, mut filter, _) = ends();
    ask(&mut ip, "known since long");
    let id = asked(&mut filter);
    filter.offload(id, None);
    filter.flush();
    assert_eq!(taken(&mut ip).len(), 1);
    let known = ip.asked();
    ask(&mut ip, "another");
    let other = ip.asked();
    assert_eq!(hold(&mut ip, other, "the other's"), Ok(()));
    assert!(ip.is_open(known) && !ip.is_open(other));
    // A third one needn't wait for the newest question since others do.
    ask(&mut ip, "a third");
    let third = ip.asked();
    assert_eq!(hold(&mut ip, third, "the third's"), Ok(()));
    assert_eq!(hold(&mut ip, other, "the other's again"), Ok(()));
    let id = asked(&mut filter);
    filter.answer(id, 1);
    filter.flush();
    let all = [
        ("another", Answer::Verdict(1)),
        ("the other's", Answer::Passed),
        ("the other's again", Answer::Passed),
    ];
    assert_eq!(taken(&mut ip), all);
    assert!(ip.is_open(other) && !ip.is_open(third));
    assert_eq!(ip.waiting(), 2);
}

#[test]
fn an_answer_that_never_comes_holds_nobody_up_for_ever() {
    let (mut ip, mut filter, _) = ends();
    for _ in 0..2 {
        ask(&mut ip, "lost");
        asked(&mut filter);
    }
    assert_eq!(hold(&mut ip, 2, "held"), Ok(()));
    ask(&mut ip, "later");
    let id = asked(&mut filter);
    filter.answer(id, 1);
    filter.flush();
    let all = [("later", Answer::Verdict(1)), ("held", Answer::Passed)];
    assert_eq!(taken(&mut ip), all);
}

/// What must be said before a question has room beside it, and who waits for two slots isn't woken for one.
#[test]
fn there_is_room_for_an_account_and_a_question() {
    let (mut ip, mut filter, _) = ends();
    let account = FlowAccount {
        protocol: 6,
        tuple: skink_wire::FourTuple::new(
            skink_wire::Endpoint::new([192, 0, 2, 1].into(), 80),
            skink_wire::Endpoint::new([192, 0, 2, 2].into(), 90),
        ),
        packets: [1, 0],
        bytes: [40, 0],
        expected: None,
        last: skink_time::Instant::ZERO,
    };
    for _ in 0..crate::CAPACITY - 2 {
        ip.tell(account).expect("room");
    }
    assert!(ip.has_room());
    ip.tell(account).expect("room");
    ask(&mut ip, "the last");
    ip.begin();
    assert!(!ip.has_room() && !ip.is_ready());
    assert!(filter.take().is_some());
    filter.flush();
    assert!(ip.is_ready(), "something has moved");
    ip.begin();
    assert!(!ip.has_room() && !ip.is_ready(), "one slot is too few");
    assert!(filter.take().is_some());
    filter.flush();
    assert!(ip.is_ready() && ip.has_room());
}
