use super::*;
use crate::{IpInput, Transports};
use skink_messages::{Component, ErrorKind, NetworkError, RxPacket};

/// A link and transports in one; nobody has any port.
struct Neighbourhood {
    wire: Wire,
    packets: Vec<(u8, Vec<u8>)>,
    errors: Vec<NetworkError>,
}

impl FrameOutput for Neighbourhood {
    fn send(&mut self, now: Instant, packet: &mut TxPacket<'_>) -> Result<(), Full> {
        self.wire.send(now, packet)
    }
    fn limits(&self) -> LinkLimits {
        self.wire.limits()
    }
}

impl Transports for Neighbourhood {
    fn packet(&mut self, _now: Instant, protocol: u8, packet: RxPacket<'_>) -> bool {
        self.packets.push((protocol, packet.payload.to_vec()));
        false
    }
    fn error(&mut self, _now: Instant, error: NetworkError) {
        self.errors.push(error);
    }
}

#[test]
fn messages_go_up_to_the_transports() {
    let Host {
        mut ip, wire, now, ..
    } = Host::acquainted();
    let mut out = Neighbourhood {
        wire,
        packets: Vec::new(),
        errors: Vec::new(),
    };
    let datagram = [0, 7, 0, 9, 0, 8, 0, 0];
    let frame = RxFrame {
        arrived: now,
        bytes: &packet_frame(true, protocol::UDP, &datagram),
        checksum: RxChecksum::Unverified,
        segment_bytes: 0,
    };
    assert_eq!(ip.handle(now, IpInput::Frame(frame), &mut out), Ok(()));
    assert_eq!(out.packets, [(protocol::UDP, datagram.to_vec())]);
    assert_eq!(out.wire.frames.len(), 1, "nobody has the port");

    // To ourselves: the answer that nobody has the port comes back as an error.
    let mut packet = TxPacket::new([Bytes::EMPTY; 2]);
    packet.prepend(8).copy_from_slice(&datagram);
    let to = outbound(US4.into(), US4.into(), false);
    assert_eq!(
        ip.handle(now, IpInput::Packet(to, packet), &mut out),
        Ok(())
    );
    Component::poll(&mut ip, now, &mut out);
    assert_eq!(out.packets.len(), 2);
    let error = out.errors.pop().expect("an error");
    assert_eq!(error.kind, ErrorKind::PortUnreachable);
    assert_eq!((error.local.port, error.remote.port), (7, 9));
    assert_eq!(out.wire.frames.len(), 1);
}
