use super::*;
use crate::link::LinkEnd;
use crate::packet_down::FrameDown;
use crate::{FromLink, HELD_BACK, ToLink, fixture};
use core::time::Duration;
use skink_channel::{PoolGeometry, PoolReader, PoolSet};
use skink_memory::RingSpan;
use skink_messages::{RxChecksum, RxFrame};
use skink_wire::MacAddr;

const NOW: Instant = Instant::from_millis(1);
const LIMITS: LinkLimits = LinkLimits {
    mac: MacAddr::UNSPECIFIED,
    mtu: 1500,
    cut_bytes: 65_535,
    cuts: true,
};

const NOTHING: [u64; 0] = [];
const NO_FRAMES: [FrameDown; 0] = [];

struct Pair(fixture::Pair);

impl Pair {
    fn new() -> Pair {
        Pair(fixture::Pair::new::<ToLink, FromLink>())
    }

    fn pool(holders: u16) -> Pool {
        // More chunks than a lane has slots.
        let geometry = PoolGeometry::new(2048, 600).expect("sizes");
        Pool::create(1, "test", geometry, holders).expect("a pool")
    }

    fn ip(&self, own: Incarnation, link: Incarnation) -> IpLinkEnd {
        let parts = self.0.upper(own, link);
        IpLinkEnd::attach(parts, Pair::pool(holder::COUNT), LIMITS).expect("a lane")
    }

    fn link(&self, own: Incarnation, ip: Incarnation) -> LinkEnd {
        let parts = self.0.lower(own, ip);
        LinkEnd::attach(parts, Pair::pool(1), LIMITS).expect("a lane")
    }
}

/// A datagram that this restart of `udp` has lent.
fn lender(incarnation: Incarnation, id: u64) -> Lender {
    Lender {
        transport: Transport::Udp,
        incarnation,
        id,
        awaited: true,
    }
}

/// Hands it to `link`.
fn pass_on(ip: &mut IpLinkEnd, lender: Lender) {
    let bytes = [7; 10];
    let payload = [Bytes::from(&bytes[..]), Bytes::EMPTY];
    let span = RingSpan {
        slot: 0,
        generation: 1,
        position: 0,
        bytes: 10,
    };
    let name = Payload::Ring(Transport::Udp, 0, span);
    ip.begin_packet(name, &payload, Some(lender));
    let mut packet = TxPacket::new(payload);
    packet.prepend(54).fill(0);
    packet.transport_bytes = 20;
    ip.send(NOW, &mut packet).expect("room");
    assert!(ip.end_packet());
    ip.flush();
}

fn frames(link: &mut LinkEnd) -> Vec<FrameDown> {
    let frames = std::iter::from_fn(|| link.take_frame()).collect();
    link.flush(NOW);
    frames
}

/// What transports are told of.
fn told(ip: &mut IpLinkEnd) -> Vec<u64> {
    assert!(ip.take_frame().is_none());
    std::iter::from_fn(|| ip.take_sent())
        .map(|it| it.id)
        .collect()
}

/// `link` may be reading what a transport that died has lent, in the same place in the same ring: a successor, which
/// sends it again, may not hear that its own has been dropped before.
#[test]
fn nothing_is_told_while_what_a_predecessor_lent_is_with_the_link() {
    let pair = Pair::new();
    let (mut ip, mut link) = (pair.ip(1, 1), pair.link(1, 1));
    pass_on(&mut ip, lender(1, 5));
    ip.transport_restarted(Transport::Udp, 2);
    ip.done_with(lender(2, 6));
    assert_eq!(told(&mut ip), NOTHING);
    let taken = frames(&mut link);
    assert_eq!(told(&mut ip), NOTHING);
    link.sent(&taken[0]);
    link.flush(NOW);
    assert_eq!(told(&mut ip), [6]);
    pass_on(&mut ip, lender(2, 7));
    assert_eq!(told(&mut ip), NOTHING);
    let left = frames(&mut link);
    link.sent(&left[0]);
    link.flush(NOW);
    assert_eq!(told(&mut ip), [7]);
}

/// The same if `link`, which has taken it, dies with it.
#[test]
fn what_a_predecessor_lent_is_back_when_the_link_has_died() {
    let pair = Pair::new();
    let (mut ip, mut link) = (pair.ip(1, 1), pair.link(1, 1));
    pass_on(&mut ip, lender(1, 5));
    ip.transport_restarted(Transport::Udp, 2);
    pass_on(&mut ip, lender(2, 6));
    assert_eq!(frames(&mut link).len(), 2);
    ip.link_restarted(2);
    assert_eq!(told(&mut ip), [6]);
}

/// A datagram that `link` had taken when it died has left or is lost; its successor sends those that it hadn't taken, once.
#[test]
fn what_a_link_that_died_had_not_taken_leaves() {
    let pair = Pair::new();
    let (mut ip, mut link) = (pair.ip(1, 1), pair.link(1, 1));
    pass_on(&mut ip, lender(1, 5));
    assert_eq!(frames(&mut link).len(), 1);
    pass_on(&mut ip, lender(1, 6));
    // It has looked at that one, too, and its batch never ended.
    assert!(link.take_frame().is_some());
    drop(link);
    let mut link = pair.link(2, 1);
    ip.link_restarted(2);
    assert_eq!(told(&mut ip), [5]);
    pass_on(&mut ip, lender(1, 7));
    let taken = frames(&mut link);
    assert_eq!(taken.len(), 2);
    taken.iter().for_each(|frame| link.sent(frame));
    link.flush(NOW);
    assert_eq!(told(&mut ip), [6, 7]);
    assert_eq!(ip.counters().unasked, 0);
}

fn received(link: &mut LinkEnd, byte: u8, arrived: Instant) {
    let frame = RxFrame {
        arrived,
        bytes: &[byte; 60],
        checksum: RxChecksum::Verified,
        segment_bytes: 1448,
    };
    assert!(link.frame(&frame));
    link.publish();
}

/// Frames that an `ip` that died had taken are handed up again, in their order and marked, with what is known of them; those that it hadn't
/// taken as they are. Nothing is there for a third one, or handed up late.
#[test]
fn what_an_ip_that_died_had_not_given_back_is_handed_up_again() {
    let pair = Pair::new();
    let (mut ip, mut link) = (pair.ip(1, 1), pair.link(1, 1));
    let all = link.pool().available();
    let late = Instant::from_millis(500);
    for byte in 0..4 {
        received(&mut link, byte, if byte == 0 { NOW } else { late });
    }
    let given_back = std::iter::from_fn(|| ip.take_frame()).nth(2);
    ip.done(given_back.expect("the third").pointer);
    // Which goes along with that.
    pass_on(&mut ip, lender(1, 5));
    assert_eq!(frames(&mut link).len(), 1);
    received(&mut link, 4, late);
    drop(ip);
    let now = NOW + Duration::from_secs(1);
    for restart in 2..4 {
        let mut ip = pair.ip(restart, 1);
        link.ip_restarted(now, restart);
        link.flush(now);
        let frames: Vec<FrameUp> = std::iter::from_fn(|| ip.take_frame()).collect();
        let mut readers = PoolSet::new();
        let pool = link.pool().descriptors().expect("descriptors");
        readers.insert(PoolReader::attach(pool).expect("a pool"));
        let shown = frames.iter().map(|frame| {
            let mut space = [0; 60];
            readers.copy_out(frame.pointer, &mut space).expect("bytes");
            assert_eq!(
                (frame.segment_bytes, frame.checksum),
                (1448, RxChecksum::Verified)
            );
            (space[0], frame.again)
        });
        let shown: Vec<(u8, bool)> = shown.collect();
        match restart {
            2 => assert_eq!(shown, [(3, false), (4, false), (1, true)]),
            _ => assert_eq!(shown, []),
        }
        ip.flush();
        if restart == 3 {
            frames.iter().for_each(|frame| ip.done(frame.pointer));
            for _ in 0..=HELD_BACK {
                received(&mut link, 9, now);
                let frame = ip.take_frame().expect("a frame");
                ip.done(frame.pointer);
            }
            ip.flush();
            assert!(link.take_frame().is_none());
            assert_eq!(link.pool().available(), all);
            assert_eq!(link.counters().unasked, 0);
        }
    }
}

/// A frame that `ip` dies of, in the midst of a batch, kills two and not all.
#[test]
fn a_frame_that_two_have_died_of_is_gone() {
    let pair = Pair::new();
    let mut link = pair.link(1, 1);
    let all = link.pool().available();
    received(&mut link, 1, NOW);
    for restart in 1..4 {
        let mut ip = pair.ip(restart, 1);
        if restart > 1 {
            link.ip_restarted(NOW, restart);
        }
        let expected = if restart < 3 { all - 1 } else { all };
        assert_eq!(link.pool().available(), expected, "{restart}");
        assert_eq!(ip.take_frame().is_some(), restart < 3, "{restart}");
    }
}

/// What an `ip` that died had asked for isn't read any more: its lender lends it again.
#[test]
fn what_one_that_died_had_lent_is_not_read() {
    let pair = Pair::new();
    let (mut ip, mut link) = (pair.ip(1, 1), pair.link(1, 1));
    pass_on(&mut ip, lender(1, 5));
    drop(ip);
    link.ip_restarted(NOW, 2);
    let mut ip = pair.ip(2, 1);
    assert_eq!(frames(&mut link), NO_FRAMES);
    assert_eq!(link.counters().foreign, 1);
    pass_on(&mut ip, lender(1, 6));
    assert_eq!(frames(&mut link).len(), 1);
}

/// A neighbour that waits for it is told at once that something has left, another one soon.
#[test]
fn who_waits_is_told_at_once_and_others_later() {
    for awaited in [true, false] {
        let pair = Pair::new();
        let (mut ip, mut link) = (pair.ip(1, 1), pair.link(1, 1));
        link.flush(NOW);
        assert_eq!(told(&mut ip), NOTHING);
        let lent = Lender {
            awaited,
            ..lender(1, 5)
        };
        pass_on(&mut ip, lent);
        let left = frames(&mut link);
        link.sent(&left[0]);
        link.flush(NOW);
        assert_eq!(told(&mut ip).len(), usize::from(awaited));
        let due = link.next_deadline();
        assert_eq!(due.is_none(), awaited);
        if let Some(due) = due {
            link.flush(due);
            assert_eq!(told(&mut ip), [5]);
            assert_eq!(link.next_deadline(), None);
        }
    }
}

/// Who can't tell that something has left, since `ip` takes nothing, sleeps until it does.
#[test]
fn who_has_no_room_to_tell_sleeps() {
    let pair = Pair::new();
    let (mut ip, mut link) = (pair.ip(1, 1), pair.link(1, 1));
    pass_on(&mut ip, lender(1, 5));
    let left = frames(&mut link);
    let frame = RxFrame {
        arrived: NOW,
        bytes: &[0; 60],
        checksum: RxChecksum::Unverified,
        segment_bytes: 0,
    };
    while link.frame(&frame) {}
    link.begin();
    link.sent(&left[0]);
    let later = NOW + std::time::Duration::from_secs(1);
    link.flush(later);
    assert_eq!(link.next_deadline(), None);
    assert!(!link.is_ready());
    while let Some(frame) = ip.take_frame() {
        ip.done(frame.pointer);
    }
    ip.flush();
    assert!(link.is_ready());
    link.flush(later);
    assert_eq!(told(&mut ip), [5]);
}

/// A transport's packets fill what `link` may have before it; what `ip` has to say itself leaves all the same.
#[test]
fn what_transports_send_holds_up_nothing_of_ips_own() {
    let pair = Pair::new();
    let mut ip = pair.ip(1, 1);
    let bytes = vec![7; 60_000];
    let payload = [Bytes::from(&bytes[..]), Bytes::EMPTY];
    let name = |position| {
        let span = RingSpan {
            slot: 0,
            generation: 1,
            position,
            bytes: 60_000,
        };
        Payload::Ring(Transport::Tcp, 0, span)
    };
    let mut sent = 0;
    loop {
        ip.begin_packet(name(sent * 60_000), &payload, None);
        let mut packet = TxPacket::new(payload);
        packet.prepend(54).fill(0);
        let taken = ip.send(NOW, &mut packet);
        ip.end_packet();
        if taken.is_err() {
            break;
        }
        sent += 1;
    }
    assert!((5..20).contains(&sent), "{sent}");
    assert!(ip.was_full());
    let own = [7; 100];
    for payload in [&own[..], &[]] {
        let mut packet = TxPacket::new([Bytes::from(payload), Bytes::EMPTY]);
        packet.prepend(42).fill(0);
        assert_eq!(ip.send(NOW, &mut packet), Ok(()), "{}", payload.len());
    }
}
