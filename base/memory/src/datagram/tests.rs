use crate::{DatagramHeader, DatagramRing, PushError, SocketKind, SocketTable, TableConfig};
use core::net::IpAddr;
use skink_wire::Endpoint;
use std::collections::VecDeque;

fn table() -> SocketTable {
    let config = TableConfig {
        sockets: 1,
        send_bytes: 4096,
        receive_bytes: 4096,
    };
    let table = SocketTable::create("test", config).expect("a small table");
    table.open_slot(0, SocketKind::Udp);
    table
}

struct Random(u32);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % bound
    }
}

fn header(random: &mut Random) -> DatagramHeader {
    let address = |random: &mut Random| -> IpAddr {
        if random.below(2) == 0 {
            [10, 0, random.below(256) as u8, 1].into()
        } else {
            [0xfd00, 0, 0, 0, 0, 0, 1, random.below(65536) as u16].into()
        }
    };
    DatagramHeader {
        remote: Endpoint::new(address(random), random.below(65536) as u16),
        local: address(random),
        traffic_class: random.below(256) as u8,
        hop_limit: random.below(256) as u8,
        segment_bytes: random.below(65536) as u16,
        dont_fragment: random.below(2) == 0,
    }
}

/// The obviously right oracle: a queue of headers and payloads.
#[test]
fn random_use_agrees_with_a_queue() {
    let table = table();
    let ring = DatagramRing::new(table.send_ring(0));
    let mut oracle: VecDeque<(DatagramHeader, Vec<u8>)> = VecDeque::new();
    let mut random = Random(7);
    let mut used = 0;
    for round in 0..20_000usize {
        if random.below(2) == 0 {
            let len = match random.below(3) {
                0 => random.below(20),
                1 => random.below(600),
                _ => random.below(4096),
            };
            let payload: Vec<u8> = (0..len).map(|i| (i * 3 + round) as u8).collect();
            let (front, back) = payload.split_at(random.below(len + 1));
            let header = header(&mut random);
            let fits = DatagramRing::bytes_for(len) + used <= 4096;
            assert_eq!(ring.room().is_some_and(|room| room >= len), fits);
            let expected = if len > 4096 - 48 {
                Err(PushError::TooLarge)
            } else if fits {
                used += DatagramRing::bytes_for(len);
                oracle.push_back((header, payload.clone()));
                Ok(())
            } else {
                Err(PushError::Full)
            };
            assert_eq!(ring.push_with(&header, &[front, back]), expected);
        } else if let Some((header, payload)) = oracle.pop_front() {
            let datagram = ring.peek().expect("as many as in the oracle");
            let mut bytes = vec![0; payload.len()];
            assert_eq!(datagram.copy_to(&mut bytes), payload.len());
            assert_eq!((datagram.header, datagram.len()), (header, payload.len()));
            assert_eq!(bytes, payload);
            let mut short = vec![0; random.below(payload.len() + 1)];
            assert_eq!(datagram.copy_to(&mut short), short.len());
            assert_eq!(short, payload[..short.len()]);
            ring.pop(&datagram);
            used -= DatagramRing::bytes_for(payload.len());
        } else {
            assert!(ring.peek().is_none() && ring.is_empty());
        }
    }
}

#[test]
fn push_sets_what_it_is_told_and_defaults_for_the_rest() {
    let table = table();
    let ring = DatagramRing::new(table.receive_ring(0));
    let remote = Endpoint::new([192, 0, 2, 1].into(), 53);
    let local: IpAddr = [192, 0, 2, 2].into();
    assert_eq!(ring.push(remote, local, 0xb8, &[]), Ok(()));
    let datagram = ring.peek().expect("an empty datagram is one");
    let expected = DatagramHeader {
        traffic_class: 0xb8,
        ..DatagramHeader::new(remote, local)
    };
    assert_eq!(datagram.header, expected);
    assert!(datagram.is_empty());
    assert_eq!(
        ring.push(remote, local, 0, &[&[0; 4096 - 47]]),
        Err(PushError::TooLarge)
    );
}

/// Writes a header whose length and families are these, and `follow` more bytes.
fn spoil(table: &SocketTable, length: u32, families: [u8; 2], follow: usize) {
    let mut bytes = [0; 48];
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&families);
    let ring = table.send_ring(0);
    ring.write(&bytes);
    ring.write(&vec![1; follow]);
}

#[test]
fn a_header_that_cannot_be_one_empties_the_ring() {
    for (length, families, follow) in [
        (9, [4, 4], 8),
        (1, [4, 4], 0),
        (4096, [4, 6], 2000),
        (u32::MAX, [6, 6], 100),
        (u32::MAX - 48, [6, 6], 100),
        (8, [0, 4], 8),
        (8, [4, 5], 8),
    ] {
        let table = table();
        let ring = DatagramRing::new(table.send_ring(0));
        spoil(&table, length, families, follow);
        assert!(ring.peek().is_none(), "{length} {families:?} {follow}");
        assert!(ring.is_empty());
        let remote = Endpoint::new([10, 0, 0, 1].into(), 1);
        assert_eq!(ring.push(remote, remote.addr, 0, &[b"again"]), Ok(()));
        assert_eq!(ring.peek().expect("works again").len(), 5);
    }
}

#[test]
fn fewer_bytes_than_a_header_empty_the_ring() {
    let table = table();
    table.send_ring(0).write(&[4; 47]);
    let ring = DatagramRing::new(table.send_ring(0));
    assert!(ring.peek().is_none());
    assert!(ring.is_empty());
}

#[test]
fn random_contents_and_positions_neither_panic_nor_hang() {
    let table = table();
    let mut random = Random(3);
    let ring = table.send_ring(0);
    let datagrams = DatagramRing::new(ring);
    for _ in 0..2_000 {
        let bytes: Vec<u8> = (0..random.below(4096))
            .map(|_| [0, 0, 4, 6, random.below(256) as u8][random.below(5)])
            .collect();
        ring.write(&bytes);
        if random.below(4) == 0 {
            ring.advance_tail(random.below(1 << 40));
        }
        let mut rounds = 0;
        while let Some(datagram) = datagrams.peek() {
            datagrams.pop(&datagram);
            rounds += 1;
            assert!(rounds <= 4096 / 48);
        }
        assert!(ring.is_empty());
    }
}

#[test]
fn what_is_popped_is_what_was_checked() {
    let table = table();
    let ring = DatagramRing::new(table.send_ring(0));
    let remote = Endpoint::new([10, 0, 0, 1].into(), 1);
    ring.push(remote, remote.addr, 0, &[b"first"])
        .expect("room");
    ring.push(remote, remote.addr, 0, &[b"second"])
        .expect("room");
    let datagram = ring.peek().expect("two");
    // The producer goes back and rewrites the length of what is being read.
    let view = table.send_ring(0);
    let filled = view.len();
    view.advance_tail(filled.wrapping_neg());
    view.write_ahead(0, &4000u32.to_ne_bytes());
    view.advance_tail(filled);
    assert!(ring.ring.len() == filled && datagram.len() == 5);
    ring.pop(&datagram);
    assert_eq!(ring.peek().expect("one left").len(), 6);
}
