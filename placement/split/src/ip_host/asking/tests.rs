use super::*;
use skink_channel::{RichPointer, SleeperDescriptors};
use skink_lanes::{FilterEnd, FrameUp, FromFilter, Lane, ToFilter};
use skink_messages::RxChecksum;
use skink_wire::protocol;

const NOW: Instant = Instant::from_millis(1);
const PASS: u8 = Verdict::Pass as u8;
const ACK: u16 = 0x10;
const FIN_ACK: u16 = 0x11;

fn ends() -> (Asking, FilterEnd) {
    let lane = Lane::create::<ToFilter, FromFilter>("test").expect("a lane");
    let sleeper = SleeperDescriptors::create("test").expect("a sleeper");
    let bell = || sleeper.doorbell().expect("a bell");
    let asking = Asking::new(lane.upper(1, 1, bell()).expect("parts"), 7).expect("an end");
    let filter = FilterEnd::attach(lane.lower(1, 1, bell()).expect("parts")).expect("an end");
    (asking, filter)
}

fn segment(from_port: u8, flags: u16) -> Result<Summary, Malformed> {
    let mut header = [0; 20];
    header[..4].copy_from_slice(&[0, from_port, 0, 90]);
    header[12..14].copy_from_slice(&(0x5000 | flags).to_be_bytes());
    let [to, from] = [1, 2].map(|last| std::net::IpAddr::from([192, 0, 2, last]));
    Summary::of_transport(from, to, protocol::TCP, &header, header.len())
}

/// Whether a segment passes at once.
fn passes(asking: &mut Asking, flags: u16) -> bool {
    passes_from(asking, 80, flags)
}

/// Whether one of another flow does.
fn passes_from(asking: &mut Asking, port: u8, flags: u16) -> bool {
    match judge(asking, Direction::In, port, flags) {
        Judged::Now(verdict, _) => verdict == Verdict::Pass,
        Judged::Later => false,
        Judged::NoRoom(_) => panic!("there is room"),
    }
}

fn judge(asking: &mut Asking, direction: Direction, port: u8, flags: u16) -> Judged {
    let frame = FrameUp {
        pointer: RichPointer::default(),
        arrived: NOW,
        segment_bytes: 0,
        checksum: RxChecksum::Verified,
        again: false,
        first: 0,
    };
    let packet = Parked::Frame(frame);
    let judged = asking.judge(NOW, direction, &segment(port, flags), packet);
    asking.flush();
    judged
}

fn question(filter: &mut FilterEnd) -> u64 {
    match filter.take() {
        Some(ToFilter::Question(question)) => question.id,
        other => panic!("{other:?} isn't a question"),
    }
}

fn take_all(asking: &mut Asking) -> usize {
    asking.begin();
    std::iter::from_fn(|| asking.take_answered(NOW)).count()
}

/// A flow that passes unasked.
fn offloaded() -> (Asking, FilterEnd) {
    let (mut asking, mut filter) = ends();
    assert!(!passes(&mut asking, ACK));
    let id = question(&mut filter);
    filter.offload(id, None);
    filter.flush();
    assert_eq!(take_all(&mut asking), 1);
    assert!(passes(&mut asking, ACK));
    (asking, filter)
}

#[test]
fn the_filter_hears_what_passed_before_it_is_asked_again() {
    let (mut asking, mut filter) = offloaded();
    assert!(!passes(&mut asking, FIN_ACK));
    match filter.take() {
        Some(ToFilter::Account(account)) => assert_eq!(account.packets, [1, 0]),
        other => panic!("{other:?} isn't an account"),
    }
    question(&mut filter);
    assert!(!passes(&mut asking, ACK), "the flow may be another now");
    question(&mut filter);
    assert!(filter.take().is_none(), "nothing passed since");
}

#[test]
fn what_the_filter_said_last_of_a_flow_counts() {
    let (mut asking, mut filter) = ends();
    assert!(!passes(&mut asking, ACK));
    assert!(!passes(&mut asking, FIN_ACK));
    let id = question(&mut filter);
    filter.offload(id, None);
    let id = question(&mut filter);
    filter.answer(id, PASS);
    filter.flush();
    assert_eq!(take_all(&mut asking), 2);
    assert!(!passes(&mut asking, ACK));
}

#[test]
fn flows_go_on_for_their_time_whatever_happens_to_the_filter() {
    let (mut asking, mut filter) = offloaded();
    asking.filter_restarted(2);
    assert!(passes(&mut asking, ACK));
    let end = asking.next_deadline().expect("a flow passes for a while");
    asking.poll(end);
    asking.flush();
    match filter.take() {
        Some(ToFilter::Account(account)) => assert_eq!(account.packets, [2, 0]),
        other => panic!("{other:?} isn't an account"),
    }
    assert!(!passes(&mut asking, ACK));
    assert_eq!(asking.next_deadline(), None);
}

#[test]
fn who_waits_behind_others_isnt_overtaken_by_its_own() {
    let (mut asking, mut filter) = ends();
    // Of the first flow one segment, of the second two, of the third one.
    for port in [1, 2, 2, 3] {
        assert!(!passes_from(&mut asking, port, ACK));
        if port == 2 && asking.end.asked() == 3 {
            let id = question(&mut filter);
            filter.offload(id, None);
            filter.flush();
            assert_eq!(
                take_all(&mut asking),
                1,
                "the first flow passes after three answers"
            );
        }
    }
    let mut answer = |asking: &mut Asking| {
        let id = question(&mut filter);
        filter.offload(id, None);
        filter.flush();
        take_all(asking)
    };
    assert_eq!(answer(&mut asking), 1, "the second after four");
    assert!(!passes_from(&mut asking, 2, ACK));
    assert_eq!(answer(&mut asking), 1, "three are answered");
    assert!(passes_from(&mut asking, 1, ACK), "whoever else waits");
    assert!(
        !passes_from(&mut asking, 2, ACK),
        "one of its flow waits still"
    );
    assert_eq!(answer(&mut asking), 3, "the third's, and all that waited");
    assert!(passes_from(&mut asking, 2, ACK));
}

#[test]
fn what_comes_in_for_a_flow_that_waits_leaves_room_for_what_is_sent() {
    let (mut asking, mut filter) = ends();
    for port in [1, 2] {
        assert!(!passes_from(&mut asking, port, ACK));
    }
    let id = question(&mut filter);
    filter.offload(id, None);
    filter.flush();
    // The filter dies before it has answered about the second.
    assert_eq!(take_all(&mut asking), 1);
    while asking.waiting() < INBOUND {
        assert!(!passes_from(&mut asking, 1, ACK));
    }
    let one_more = judge(&mut asking, Direction::In, 1, ACK);
    assert!(matches!(one_more, Judged::NoRoom(_)));
    assert!(asking.has_room());
    let sent = judge(&mut asking, Direction::Out, 3, ACK);
    assert!(matches!(sent, Judged::Later));
}
