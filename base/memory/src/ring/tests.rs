use crate::{SocketKind, SocketTable, TableConfig};
use std::collections::VecDeque;

fn table() -> SocketTable {
    let config = TableConfig {
        sockets: 4,
        send_bytes: 4096,
        receive_bytes: 8192,
    };
    SocketTable::create("test", config).expect("a small table")
}

/// The obviously right oracle: a queue of bytes.
#[test]
fn random_use_agrees_with_a_queue() {
    let table = table();
    table.open_slot(1, SocketKind::Tcp);
    let ring = table.send_ring(1);
    let mut oracle: VecDeque<u8> = VecDeque::new();
    let mut random = 1u32;
    let mut next = |bound: usize| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) as usize % bound
    };
    for round in 0..20_000usize {
        let amount = next(5_000);
        if next(2) == 0 {
            let bytes: Vec<u8> = (0..amount).map(|i| (i * 7 + round) as u8).collect();
            let taken = ring.write(&bytes);
            assert_eq!(taken, amount.min(4096 - oracle.len()));
            oracle.extend(&bytes[..taken]);
        } else {
            let mut bytes = vec![0; amount];
            let taken = ring.read(&mut bytes);
            let expected: Vec<u8> = oracle.drain(..amount.min(oracle.len())).collect();
            assert_eq!(&bytes[..taken], expected);
        }
        assert_eq!(
            (ring.len(), ring.free()),
            (oracle.len(), 4096 - oracle.len())
        );
    }
}

#[test]
fn an_empty_ring_is_filled_from_its_start_again_and_no_other() {
    let table = table();
    table.open_slot(1, SocketKind::Tcp);
    let ring = table.send_ring(1);
    ring.write(b"one");
    let [start, _] = ring.spans(0, 3);
    ring.restart();
    ring.write(b"two");
    let [there, _] = ring.spans(0, 6);
    assert_eq!((there.as_ptr(), there.len()), (start.as_ptr(), 6));
    ring.advance_head(6);
    // Across the end of the memory, counted from the new start.
    for round in 0..3 {
        ring.restart();
        assert_eq!(ring.write(&[round; 4000]), 4000);
        assert_eq!(ring.spans(0, 1)[0].as_ptr(), start.as_ptr());
        assert_eq!(ring.read(&mut [0; 3990]), 3990);
        ring.restart();
        assert_eq!(ring.write(b"0123456789".repeat(20).as_slice()), 200);
        let [first, second] = ring.spans(0, 210);
        assert_eq!((first.len(), second.len()), (106, 104));
        let mut bytes = [0; 210];
        assert_eq!(ring.read(&mut bytes), 210);
        assert_eq!(bytes[..10], [round; 10]);
        assert_eq!(&bytes[10..], b"0123456789".repeat(20));
    }
}

#[test]
fn bytes_written_ahead_appear_when_the_tail_reaches_them() {
    let table = table();
    table.open_slot(0, SocketKind::Tcp);
    let ring = table.receive_ring(0);
    ring.write(&[0; 8190]);
    ring.read(&mut [0; 8190]);
    assert_eq!(ring.write_ahead(3, b"def"), 3);
    assert_eq!(ring.len(), 0);
    assert_eq!(ring.write(b"abc"), 3);
    ring.advance_tail(3);
    let mut bytes = [0; 6];
    assert_eq!(ring.read(&mut bytes), 6);
    assert_eq!(&bytes, b"abcdef");
    assert_eq!(
        ring.write_ahead(8190, b"12345"),
        2,
        "no further than the ring"
    );
}

#[test]
fn positions_spoilt_by_a_neighbour_reach_nothing_outside_the_ring() {
    let table = table();
    table.open_slot(2, SocketKind::Tcp);
    let ring = table.send_ring(2);
    for tail in [u64::MAX, 1 << 63, 4097, 1 << 32] {
        ring.tail.store(tail);
        assert_eq!((ring.len(), ring.free()), (4096, 0));
        assert_eq!(ring.write(b"x"), 0);
        let [first, second] = ring.spans(0, usize::MAX);
        assert_eq!(first.len() + second.len(), 4096);
        let [first, second] = ring.spans(5000, 10);
        assert!(first.is_empty() && second.is_empty());
    }
    ring.take_back();
    assert!(ring.is_empty() && !ring.is_spoilt());
    assert_eq!(ring.write(b"x"), 1);
}
