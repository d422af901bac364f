use super::*;
use skink_messages::{Full, RxChecksum};

/// Keeps what is sent.
#[derive(Default)]
struct Kept(Vec<Vec<u8>>);

impl NicOutput for Kept {
    fn room(&mut self) -> usize {
        1
    }

    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        let mut frame = vec![0; packet.len()];
        packet.copy_to(&mut frame);
        self.0.push(frame);
        Ok(())
    }
}

impl Sender for Kept {
    fn flush(&mut self) {}
}

fn arrived(bytes: &[u8], segment_bytes: u16) -> RxFrame<'_> {
    RxFrame {
        arrived: Arrival::ZERO,
        bytes,
        checksum: RxChecksum::Verified,
        segment_bytes,
    }
}

#[test]
fn a_frame_goes_back_to_where_it_came_from() {
    let mut frame = Vec::new();
    frame.extend([1; 6]);
    frame.extend([2; 6]);
    frame.extend([8, 0, 0x45, 0]);
    frame.extend([0; 7]);
    frame.extend([17, 3, 4]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x11, 0x11, 0x22, 0x22, 0, 11, 9, 9]);
    frame.extend(b"abc");
    let mut kept = Kept::default();
    send_back(&arrived(&frame, 0), &mut kept);
    let back = kept.0.first().expect("an answer");
    assert_eq!(back.len(), frame.len());
    assert_eq!(back[..12], [[2; 6], [1; 6]].concat());
    assert_eq!(back[12..26], frame[12..26]);
    assert_eq!(back[26..34], [10, 0, 0, 2, 10, 0, 0, 1]);
    assert_eq!(back[34..42], [0x22, 0x22, 0x11, 0x11, 0, 11, 0, 0]);
    assert_eq!(&back[42..], b"abc");

    for (at, other) in [(12, 0x86), (14, 0x46), (23, 6)] {
        let mut bad = frame.clone();
        bad[at] = other;
        send_back(&arrived(&bad, 0), &mut kept);
    }
    send_back(&arrived(&frame[..HEADERS - 1], 0), &mut kept);
    assert_eq!(kept.0.len(), 1, "nothing else is answered");
}

#[test]
fn datagrams_that_came_joined_go_back_one_by_one() {
    let mut frame = vec![0; HEADERS];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[23] = 17;
    frame.extend(b"abcdefgh");
    let mut kept = Kept::default();
    send_back(&arrived(&frame, 3), &mut kept);
    let payloads: Vec<&[u8]> = kept.0.iter().map(|frame| &frame[HEADERS..]).collect();
    assert_eq!(payloads, [&b"abc"[..], b"def", b"gh"]);
    for frame in &kept.0 {
        let payload = (frame.len() - HEADERS) as u8;
        assert_eq!(frame[16..18], [0, 28 + payload], "length of the IP packet");
        assert_eq!(frame[38..40], [0, 8 + payload], "length of the datagram");
        assert_eq!(checksum(&[&frame[14..34]]), 0, "checksum of the header");
    }
}
