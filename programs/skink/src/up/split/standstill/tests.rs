use super::*;
use skink_channel::{Consumer, Message, Producer};
use skink_lanes::{Coded, FromFilter, FromTransport, ToFilter, ToLink, ToTransport};

/// Both ends of a queue.
type Ends<M> = (Producer<<M as Coded>::Wire>, Consumer<<M as Coded>::Wire>);

fn ends<M: Coded>(lanes: &Lanes, from: Part, to: Part) -> Ends<M> {
    let mut all = lanes.queues();
    let found = all.find(|(one, other, _)| (*one, *other) == (from, to));
    let (_, _, queue) = found.expect("a queue");
    let producer = Producer::attach(queue.producer().expect("descriptors"), queue.geometry);
    let consumer = Consumer::attach(queue.consumer().expect("descriptors"), queue.geometry);
    (producer.expect("attach"), consumer.expect("attach"))
}

fn push<M: Message>(producer: &mut Producer<M>) {
    producer.push(&M::new_zeroed()).expect("room");
}

/// Looks every second from the first to the last, while `each` happens before. Answers the first second in
/// which something was stuck, and what.
fn watch(
    lanes: &Lanes,
    seconds: u64,
    goes_on: impl Fn(Part) -> bool,
    mut each: impl FnMut(u64),
) -> Option<(u64, Stuck)> {
    let start = Instant::now();
    let mut standstill = Standstill::default();
    (0..seconds).find_map(|second| {
        each(second);
        let now = start + Duration::from_secs(second);
        assert!(standstill.is_due(now));
        let stuck = standstill.look(now, lanes, &goes_on)?;
        Some((second, stuck))
    })
}

#[test]
fn who_takes_nothing_that_waits_is_stuck() {
    let lanes = Lanes::create().expect("memory");
    let (mut filter, _) = ends::<FromFilter>(&lanes, Part::Filter, Part::Ip);
    let (mut link, mut ip) = ends::<skink_lanes::FromLink>(&lanes, Part::Link, Part::Ip);
    (0..3).for_each(|_| push(&mut filter));
    // It hears `link` meanwhile, and more comes from `filter`.
    let stuck = watch(
        &lanes,
        20,
        |_| true,
        |second| {
            push(&mut link);
            assert!(ip.pop().is_ok_and(|it| it.is_some()));
            if second == 2 {
                push(&mut filter);
            }
        },
    );
    let (from, to, waiting) = (Part::Filter, Part::Ip, 4);
    assert_eq!(stuck, Some((5, Stuck { from, to, waiting })));
}

#[test]
fn who_is_slow_or_starves_or_was_stopped_is_well() {
    let lanes = Lanes::create().expect("memory");
    let (mut ip, mut filter) = ends::<ToFilter>(&lanes, Part::Ip, Part::Filter);
    (0..20).for_each(|_| push(&mut ip));
    let slow = watch(
        &lanes,
        20,
        |_| true,
        |second| {
            if second % 4 == 0 {
                assert!(filter.pop().is_ok_and(|it| it.is_some()));
            }
        },
    );
    assert_eq!(slow, None);
    assert_eq!(watch(&lanes, 20, |part| part != Part::Filter, |_| {}), None);
    let start = Instant::now();
    let mut standstill = Standstill::default();
    for seconds in [0, 1, 2, 60, 61, 62] {
        let now = start + Duration::from_secs(seconds);
        assert_eq!(standstill.look(now, &lanes, |_| true), None, "{seconds}");
    }
    // While somebody doesn't work it doesn't count.
    standstill.forget();
    for seconds in 63..68 {
        let now = start + Duration::from_secs(seconds);
        assert_eq!(standstill.look(now, &lanes, |_| true), None, "{seconds}");
    }
    let now = start + Duration::from_secs(68);
    assert!(standstill.look(now, &lanes, |_| true).is_some());
}

#[test]
fn who_waits_for_another_is_not_to_blame() {
    let lanes = Lanes::create().expect("memory");
    let (mut tcp, _) = ends::<FromTransport>(&lanes, Part::Tcp, Part::Ip);
    let (mut down, mut link) = ends::<ToLink>(&lanes, Part::Ip, Part::Link);
    push(&mut tcp);
    // The NIC has no room, for as long as it likes.
    push(&mut down);
    assert_eq!(watch(&lanes, 20, |_| true, |_| {}), None);
    // `udp` sleeps over what it has: it alone is stuck.
    assert!(link.pop().is_ok_and(|it| it.is_some()));
    let (mut up, _) = ends::<ToTransport>(&lanes, Part::Ip, Part::Udp);
    push(&mut up);
    let stuck = watch(&lanes, 20, |_| true, |_| {});
    let (from, to, waiting) = (Part::Ip, Part::Udp, 1);
    assert_eq!(stuck, Some((5, Stuck { from, to, waiting })));
}
