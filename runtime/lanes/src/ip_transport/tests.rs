use super::*;
use crate::transport::Arrival;
use crate::{Fate, FromTransport, ToTransport, Transport, TransportEnd, fixture};
use core::time::Duration;
use skink_channel::RichPointer;
use skink_messages::RxChecksum;

const NOW: Instant = Instant::from_millis(1);

struct Pair(fixture::Pair);

impl Pair {
    fn new() -> Pair {
        Pair(fixture::Pair::new::<FromTransport, ToTransport>())
    }

    fn ip(&self) -> IpTransportEnd {
        IpTransportEnd::attach(self.0.lower(1, 1)).expect("a lane")
    }

    fn transport(&self, own: Incarnation) -> TransportEnd {
        TransportEnd::attach(self.0.upper(own, 1), Transport::Tcp).expect("a lane")
    }
}

/// A packet that is known by its length.
fn packet(length: u32, arrived: Instant) -> PacketUp {
    let address = "192.0.2.1".parse().expect("an address");
    PacketUp {
        id: 0,
        pointer: RichPointer {
            length,
            ..RichPointer::default()
        },
        arrived,
        source: address,
        destination: address,
        protocol: 6,
        traffic_class: 0,
        hop_limit: 64,
        checksum: RxChecksum::Verified,
        segment_bytes: 0,
        fate: Fate::Deliver,
        first: 0,
    }
}

fn deliver(ip: &mut IpTransportEnd, lengths: impl IntoIterator<Item = u32>, arrived: Instant) {
    for length in lengths {
        ip.deliver(packet(length, arrived)).expect("room");
    }
    ip.flush(NOW);
}

fn take(transport: &mut TransportEnd) -> Option<PacketUp> {
    match transport.take_arrival()? {
        Arrival::Packet(packet) => Some(packet),
        Arrival::Error(error) => panic!("{error:?}"),
    }
}

fn lengths(packets: impl IntoIterator<Item = PacketUp>) -> Vec<u32> {
    let lengths = packets.into_iter().map(|packet| packet.pointer.length);
    lengths.collect()
}

fn returned(ip: &mut IpTransportEnd) -> Vec<u32> {
    lengths(std::iter::from_fn(|| ip.take_returned()).map(|(packet, _)| packet))
}

/// A successor gets what its predecessor hadn't taken, as it is. What that had taken it gets again, if that does no harm, or it comes back; what is
/// old comes back. Each is given back once.
#[test]
fn what_a_transport_that_died_had_is_its_successors_or_comes_back() {
    for repeatable in [true, false] {
        let pair = Pair::new();
        let mut ip = pair.ip();
        let mut first = pair.transport(1);
        let late = Instant::from_millis(500);
        deliver(&mut ip, [1], NOW);
        deliver(&mut ip, [2, 3], late);
        assert_eq!(lengths(std::iter::from_fn(|| take(&mut first))), [1, 2, 3]);
        first.flush();
        deliver(&mut ip, [4], late);
        drop(first);
        ip.transport_restarted(NOW + Duration::from_secs(1), 2, repeatable);
        ip.flush(NOW);
        let mut second = pair.transport(2);
        let taken: Vec<PacketUp> = std::iter::from_fn(|| take(&mut second)).collect();
        match repeatable {
            true => {
                assert_eq!(lengths(taken.clone()), [4, 2, 3]);
                assert_eq!(returned(&mut ip), [1]);
            }
            false => {
                assert_eq!(lengths(taken.clone()), [4]);
                assert_eq!(returned(&mut ip), [1, 2, 3]);
            }
        }
        taken.iter().for_each(|packet| second.done(packet, true));
        second.flush();
        assert!(ip.take_packet().is_none());
        assert_eq!(returned(&mut ip), lengths(taken));
        assert_eq!((ip.lent(), ip.counters().unasked), (0, 0));
    }
}

/// A segment that a transport dies of, in the midst of a batch, kills two and not all.
#[test]
fn a_packet_that_two_have_died_of_comes_back() {
    let pair = Pair::new();
    let mut ip = pair.ip();
    deliver(&mut ip, [1], NOW);
    assert!(take(&mut pair.transport(1)).is_some());
    ip.transport_restarted(NOW, 2, true);
    assert_eq!((returned(&mut ip), ip.lent()), (vec![], 1));
    assert!(take(&mut pair.transport(2)).is_some());
    ip.transport_restarted(NOW, 3, true);
    assert_eq!((returned(&mut ip), ip.lent()), (vec![1], 0));
    // Whether its bytes are still there or not.
    assert!(take(&mut pair.transport(3)).is_none());
}
