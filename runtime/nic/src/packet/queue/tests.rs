use crate::opener::Description;
use crate::packet::Geometry;
use crate::test_support::*;
use crate::{NicSpec, open_sole};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

#[test]
fn large_frames_beyond_the_queue_are_counted_and_it_goes_on() {
    in_namespace(|| {
        make_veth();
        let (mut a, mut b) = (open_packet("a0"), open_packet("b0"));
        let payload = pattern(64_000);
        let sent = Geometry::FLOWS.queue_bytes as usize / payload.len() + 20;
        for number in 0..sent {
            let mut packet = stream([&payload, &[]], 1448, false);
            packet.headers_mut()[40..42].copy_from_slice(&(number as u16).to_be_bytes());
            send(&mut a, &packet);
        }
        let mut kept = Vec::new();
        while receive_now(&mut *b.receiver, &mut kept, is_ours) > 0 {}
        assert!(kept.len() < sent && kept.len() > 100, "{}", kept.len());
        for (number, frame) in kept.iter().enumerate() {
            assert_eq!(frame.bytes[40..42], (number as u16).to_be_bytes());
            assert_eq!(frame.bytes[54..], payload);
        }
        assert_eq!(b.receiver.take_dropped() as usize, sent - kept.len());
        // Small ones had room all the time, and large ones have again.
        send(&mut a, &stream([&payload, &[]], 1448, false));
        let last = receive(&mut *b.receiver, 1, is_ours);
        assert_eq!(last[0].bytes[54..], payload);
    });
}

#[test]
fn who_may_not_have_a_long_queue_gets_large_frames_too() {
    in_namespace(|| {
        make_veth();
        let mut a = open_packet("a0");
        let mut sets = capabilities(None).unwrap();
        sets.effective = CapabilitySet::NET_RAW;
        set_capabilities(None, sets).unwrap();
        let parts = open_sole(&NicSpec::Packet("b0".into())).unwrap();
        let Description::Packet(description) = &parts.description else {
            panic!("another back end");
        };
        // Where the system's limit is high, the queue may be long enough.
        let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
        if most.trim().parse::<u32>().unwrap() < Geometry::FLOWS.queue_bytes / 2 {
            assert_eq!(description.ring, Geometry::WHOLE);
        }
        let mut b = parts.attach().unwrap();
        let payload = pattern(65_000);
        send(&mut a, &stream([&payload, &[]], 1448, false));
        let frames = receive(&mut *b.receiver, 1, is_ours);
        assert_eq!(frames[0].bytes[54..], payload);
    });
}
