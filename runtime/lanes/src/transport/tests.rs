use super::*;
use crate::Lane;
use skink_channel::SleeperDescriptors;
use skink_memory::{Bytes, SendRegion};

/// Data fills what `ip` may have before it; a reset or an acknowledgement leaves all the same.
#[test]
fn what_has_no_payload_is_not_held_up_by_what_has() {
    let lane = Lane::create::<FromTransport, ToTransport>("test").expect("a lane");
    let sleeper = SleeperDescriptors::create("test").expect("a sleeper");
    let bell = sleeper.doorbell().expect("a bell");
    let parts = lane.upper(1, 1, bell).expect("parts");
    let mut tcp = TransportEnd::attach(parts, Transport::Tcp).expect("a side");
    let config = skink_memory::TableConfig {
        sockets: 1,
        send_bytes: 1 << 16,
        receive_bytes: 1 << 16,
    };
    let region = skink_memory::Region::create("test", config).expect("a region");
    region.open_slot(0, skink_memory::SocketKind::Tcp);
    region.send_ring(0).write(&[7; 60_000]);
    tcp.add_region(0, SendRegion::clone(region.sending()));
    let to = Outbound {
        source: "192.0.2.1".parse().expect("an address"),
        destination: "192.0.2.2".parse().expect("an address"),
        protocol: 6,
        hop_limit: None,
        traffic_class: 0,
        dont_fragment: true,
    };
    let mut send = |payload: [Bytes<'_>; 2]| {
        let mut packet = TxPacket::new(payload);
        packet.prepend(20).fill(0);
        packet.transport_bytes = 20;
        tcp.send(&to, &packet, None)
    };
    let data = region.send_ring(0).spans(0, 60_000);
    let sent = (0..100).take_while(|_| send(data).is_ok()).count();
    assert!((5..20).contains(&sent), "{sent}");
    assert_eq!(send([Bytes::EMPTY; 2]), Ok(Sent::Done));
}
