use crate::{SocketKind, SocketTable, TableConfig};
use std::collections::VecDeque;

fn table_of(send_bytes: u32, receive_bytes: u32) -> SocketTable {
    let config = TableConfig {
        sockets: 4,
        send_bytes,
        receive_bytes,
    };
    SocketTable::create("test", config).expect("a small table")
}

fn table() -> SocketTable {
    table_of(4096, 8192)
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

/// A ring that may grow from 64 to 256 KiB, whose producer wants that at some moment.
fn growing_table() -> SocketTable {
    table_of(262_144, 262_144)
}

/// The same oracle, for rings that grow at some moment, that begin anew when they are empty, and that are written ahead of
/// their tail.
#[test]
fn a_ring_that_grows_in_use_agrees_with_a_queue() {
    let mut grew_while_full = 0;
    for seed in 1..300u32 {
        let table = growing_table();
        table.open_slot(1, SocketKind::Tcp);
        let ring = table.send_ring(1);
        let mut random = seed.wrapping_mul(0x9e37_79b9);
        let mut next = |bound: usize| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) as usize % bound
        };
        let mut oracle: VecDeque<u8> = VecDeque::new();
        let (wanted_after, largest) = (next(60), [2_800, 36_000, 80_000][next(3)]);
        for round in 0..200 {
            assert_eq!(ring.len(), oracle.len());
            assert_eq!(ring.len() + ring.free(), ring.size());
            if next(2) == 0 {
                let bytes: Vec<u8> = (0..next(largest)).map(|i| (i * 7 + round) as u8).collect();
                // The end first, as if it had overtaken the beginning.
                let cut = next(bytes.len() + 1);
                let end = cut + ring.write_ahead(cut, &bytes[cut..]);
                let free = ring.free();
                if round > wanted_after && ring.grow(end) {
                    assert_eq!((ring.size(), ring.free()), (262_144, free + 196_608));
                    grew_while_full += u32::from(free - end.min(free) < 16_384);
                }
                let begun = ring.write(&bytes[..cut]);
                if begun == cut {
                    ring.advance_tail(end - cut);
                }
                oracle.extend(&bytes[..begun.max(if begun == cut { end } else { 0 })]);
            } else {
                let mut bytes = vec![0; next(largest)];
                let spans = ring.spans(0, bytes.len());
                if !spans[0].is_empty() {
                    let region = table.region(0).expect("there is one");
                    let span = region.sending().name_span(&spans);
                    assert_eq!(span.map(|span| span.position), Some(ring.head()));
                }
                let taken = ring.read(&mut bytes);
                let expected: Vec<u8> = oracle.drain(..taken).collect();
                assert!(bytes[..taken] == expected, "seed {seed}, round {round}");
            }
            if next(4) == 0 {
                ring.restart();
            }
        }
    }
    assert!(grew_while_full > 20, "{grew_while_full}");
}

#[test]
fn a_ring_grows_when_what_it_holds_ends_with_its_first_part() {
    let table = growing_table();
    table.open_slot(0, SocketKind::Tcp);
    let ring = table.send_ring(0);
    let begin = ring.spans(0, 0)[0].as_ptr() as usize;
    let place = |offset| ring.spans(offset, 1)[0].as_ptr() as usize - begin;
    assert_eq!((ring.capacity(), ring.size()), (262_144, 65_536));
    assert_eq!(ring.write(&[1; 40_000]), 40_000);
    ring.advance_head(36_000);
    assert_eq!(ring.write(&[2; 40_000]), 40_000);
    // Around the end already: 4,000 bytes more may be dropped before it can grow.
    assert!(!ring.grow(0));
    ring.advance_head(32_000);
    assert!(ring.grow(0) && !ring.grow(0));
    assert_eq!((ring.size(), ring.free()), (262_144, 250_144));
    assert_eq!(ring.write(&[3; 262_144]), 250_144);
    // Nothing was moved, and what follows lies behind the first part.
    assert_eq!((place(0), place(63_068)), (2_464, 65_532));
    assert_eq!((place(63_072), place(259_676)), (65_536, 262_140));
    assert_eq!(place(259_680), 0);
    let mut bytes = vec![0; 262_144];
    assert_eq!(ring.read(&mut bytes), 262_144);
    assert!(bytes[..12_000].iter().all(|byte| *byte == 2));
    assert!(bytes[12_000..].iter().all(|byte| *byte == 3));
}

#[test]
fn a_ring_that_is_empty_grows_at_once_and_stays_grown() {
    let table = growing_table();
    table.open_slot(0, SocketKind::Tcp);
    let ring = table.send_ring(0);
    assert!(ring.grow(0));
    assert_eq!(ring.write(&[1; 280_000]), 262_144);
    ring.advance_head(262_144);
    ring.restart();
    assert_eq!((ring.size(), ring.free()), (262_144, 262_144));
    table.open_slot(0, SocketKind::Tcp);
    assert_eq!(ring.size(), 65_536, "another socket begins anew");
    table.open_slot(0, SocketKind::Udp);
    assert_eq!(ring.size(), 262_144, "datagrams are taken whole");
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
