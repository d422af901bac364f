use super::*;
use crate::{Bytes, DatagramHeader, DatagramRing, Holder};
use skink_wire::{Endpoint, FourTuple};
use std::os::fd::AsFd;

fn config() -> TableConfig {
    TableConfig {
        sockets: 8,
        send_bytes: 4096,
        receive_bytes: 4096,
    }
}

fn region() -> Region {
    Region::create("test", config()).expect("a region")
}

fn files(region: &Region) -> [OwnedFd; 3] {
    region.files().map(own)
}

fn own(fd: BorrowedFd<'_>) -> OwnedFd {
    fd.try_clone_to_owned().expect("a descriptor")
}

fn read_only(region: &Region) -> SendRegion {
    let files = region.sending().files().map(own);
    SendRegion::open_read_only(files).expect("the same region")
}

fn of_program(region: &Region) -> Region {
    let files = region.program_files().expect("descriptors");
    Region::open_for_program(files).expect("the same region")
}

#[test]
fn a_successor_and_tools_see_records_and_rings() {
    let region = region();
    let id = region.open_slot(5, SocketKind::Tcp);
    let tuple = FourTuple {
        local: Endpoint::new("fe80::1:2".parse().expect("an address"), 80),
        remote: Endpoint::new("2001:db8::9".parse().expect("an address"), 50_000),
    };
    region.record(5).set_four_tuple(&tuple);
    region.receive_ring(5).write(b"hello");
    region.send_ring(5).write(b"to whom it may concern");

    let tool = read_only(&region);
    assert_eq!(tool.unread(5), 5);
    assert_eq!(tool.send_ring(5).len(), 22);

    let other = Region::open(files(&region)).expect("the same region");
    drop(region);
    assert_eq!(other.used(), 6);
    let record = other.find(id).expect("the record");
    assert_eq!(record.four_tuple(), tuple);
    let mut bytes = [0; 8];
    assert_eq!(other.receive_ring(5).read(&mut bytes), 5);
    assert_eq!(&bytes[..5], b"hello");
    other.send_ring(5).advance_head(3);
    assert_eq!((tool.unread(5), tool.send_ring(5).head()), (0, 3));
}

#[test]
fn a_program_uses_the_rings_and_only_reads_the_records() {
    let region = region();
    let id = region.open_slot(2, SocketKind::Tcp);
    let program = of_program(&region);
    assert!(program.find(id).is_some());
    assert_eq!(program.send_ring(2).write(b"request"), 7);
    let mut bytes = [0; 7];
    assert_eq!(region.send_ring(2).read(&mut bytes), 7);
    assert_eq!((&bytes, program.send_ring(2).len()), (b"request", 0));
    assert_eq!(region.receive_ring(2).write(b"answer"), 6);
    assert_eq!(program.receive_ring(2).read(&mut bytes), 6);
    assert_eq!(
        (&bytes[..6], region.receive_ring(2).len()),
        (&b"answer"[..], 0)
    );

    // What it was handed can't be mapped for writing, nor opened so by another user.
    let [records, send_rings, receive_rings] = region.program_files().expect("descriptors");
    for file in [&records, &receive_rings] {
        let mode = rustix::fs::fstat(file).expect("a file").st_mode & 0o777;
        assert_eq!(mode, 0o600);
        let flags = rustix::fs::fcntl_getfl(file).expect("a file");
        assert_eq!(flags & OFlags::RWMODE, OFlags::RDONLY);
    }
    // Nor can it take the rings from a successor.
    let sealed = rustix::fs::fcntl_add_seals(&send_rings, SealFlags::FUTURE_WRITE);
    assert_eq!(sealed, Err(rustix::io::Errno::PERM));
    let shrunk = rustix::fs::ftruncate(&send_rings, 0);
    assert_eq!(shrunk, Err(rustix::io::Errno::PERM));
    let [whole, _, _] = files(&region);
    for files in [
        [records, own(send_rings.as_fd()), own(receive_rings.as_fd())],
        [whole, send_rings, receive_rings],
    ] {
        assert!(matches!(Region::open(files), Err(TableError::Memory(_))));
    }
}

#[test]
fn an_id_that_outlived_its_socket_finds_nothing() {
    let region = region();
    let first = region.open_slot(0, SocketKind::Tcp);
    region.send_ring(0).write(b"left over");
    region.receive_ring(0).write(b"unread");
    let _ = region.close_slot(0);
    assert!(region.find(first).is_none());
    let second = region.open_slot(0, SocketKind::Udp);
    assert!(region.find(first).is_none());
    assert!(region.find(second).is_some());
    assert!(region.send_ring(0).is_empty() && region.receive_ring(0).is_empty());
    let beyond = SocketId {
        slot: 8,
        generation: 1,
    };
    assert!(region.find(beyond).is_none());
}

#[test]
fn memory_that_is_no_region_of_this_version_is_refused() {
    let not_one = |files: [OwnedFd; 3]| match Region::open(files) {
        Err(TableError::NotATable) => true,
        Err(TableError::OtherVersion(version)) => version == LAYOUT_VERSION + 1,
        _ => false,
    };
    let other = || {
        let mapping = Mapping::create("test", 8192).expect("memory");
        own(mapping.fd())
    };
    for (file, what) in [
        "no records",
        "send rings of another size",
        "receive rings of another size",
    ]
    .iter()
    .enumerate()
    {
        let mut files = files(&region());
        files[file] = other();
        assert!(not_one(files), "{what}");
    }
    // (which field, what it says)
    for (field, value) in [(1, LAYOUT_VERSION + 1), (2, 0), (2, u32::MAX), (3, 5000)] {
        let region = region();
        let header = region.sending.header();
        let fields = [
            &header.magic,
            &header.version,
            &header.sockets,
            &header.send_bytes,
        ];
        fields[field].store(value, Ordering::Relaxed);
        assert!(not_one(files(&region)), "field {field} says {value}");
    }
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    let odd = TableConfig {
        send_bytes: 5000,
        ..config()
    };
    assert!(matches!(
        Region::create("test", odd),
        Err(TableError::BadRingSize)
    ));
    let endless = TableConfig {
        sockets: u32::MAX,
        send_bytes: 1 << 31,
        receive_bytes: 1 << 31,
    };
    let none = TableConfig {
        sockets: 0,
        ..config()
    };
    for config in [endless, none] {
        let refused = Region::create("test", config);
        assert!(matches!(refused, Err(TableError::BadSocketCount)));
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Stores something to one of all the words that a program can write: positions for the most part,
/// often values at the edges.
fn scribble(rings: &Mapping, random: &mut Random) {
    let words = rings.words();
    let positions = 8 * size_of::<crate::record::ProgramPositions>() / 8;
    let most = if random.next().is_multiple_of(4) {
        words.len()
    } else {
        positions
    };
    let index = random.next() as usize % most;
    let value = match random.next() % 6 {
        0 => random.next(),
        1 => u64::MAX - random.next() % 5000,
        2 => 1 << 63,
        3 => 0,
        _ => random.next() % 10_000,
    };
    words[index].store(value, Ordering::Relaxed);
}

/// Everything that an owner does with a socket. It must reach nothing but the ring, and move nothing
/// but its own ends.
fn use_as_owner(region: &Region, slot: u32, random: &mut Random) {
    let (send, receive) = (region.send_ring(slot), region.receive_ring(slot));
    let (head, tail) = (send.head(), receive.tail());
    let amount = random.next() as usize % 5000;
    let mut buffer = vec![7; amount];
    let mut moved = [0, 0];
    match random.next() % 9 {
        0 => moved[0] = send.read(&mut buffer) as u64,
        1 => drop(send.peek(amount, &mut [0; 100])),
        2 => {
            let spans = send.spans(amount, usize::MAX);
            let len = spans[0].len() + spans[1].len();
            assert!(len <= send.capacity());
            let mut copy = vec![0; len];
            spans[0].copy_to(&mut copy);
            spans[1].copy_to(&mut copy);
        }
        3 => moved[1] = receive.write(&buffer) as u64,
        4 => drop(receive.write_ahead(amount, &buffer)),
        5 => {
            let ring = DatagramRing::new(send);
            if let Some(datagram) = ring.peek() {
                assert!(datagram.len() <= send.capacity());
                datagram.copy_to(&mut buffer);
                ring.pop(&datagram);
            }
            // What makes no sense is dropped, as far as the program says that there is something.
            moved[0] = send.head().wrapping_sub(head);
        }
        6 => {
            let from = Endpoint::new("10.0.0.1".parse().expect("an address"), 9);
            let header = DatagramHeader::new(from, from.addr);
            let pushed = DatagramRing::new(receive).push_with(&header, &[&buffer]);
            if pushed.is_ok() {
                moved[1] = DatagramRing::bytes_for(amount) as u64;
            }
        }
        7 => {
            let _ = region.close_slot(slot);
            region.open_slot(slot, SocketKind::Udp);
            moved = [head, tail].map(u64::wrapping_neg);
        }
        _ => assert!(send.len() <= send.capacity() && receive.free() <= receive.capacity()),
    }
    let after = (
        send.head().wrapping_sub(head),
        receive.tail().wrapping_sub(tail),
    );
    assert_eq!(after, (moved[0], moved[1]));
}

#[test]
fn whatever_a_program_writes_the_owner_stays_within_the_rings() {
    for seed in 1..50u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let region = region();
        let program = of_program(&region);
        for slot in 0..8 {
            region.open_slot(slot, SocketKind::Tcp);
        }
        for _ in 0..2_000 {
            scribble(&program.sending.send_rings, &mut random);
            use_as_owner(&region, random.next() as u32 % 8, &mut random);
        }
        assert_eq!((region.used(), region.config().sockets), (8, 8));
    }
}

/// The same while the program writes at the very moment.
#[test]
fn a_program_may_write_while_the_owner_reads() {
    let region = region();
    let program = of_program(&region);
    for slot in 0..8 {
        region.open_slot(slot, SocketKind::Tcp);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(1);
            for _ in 0..200_000 {
                scribble(&program.sending.send_rings, &mut random);
            }
        });
        let mut random = Random(2);
        for _ in 0..20_000 {
            use_as_owner(&region, random.next() as u32 % 8, &mut random);
        }
    });
}

#[test]
fn bytes_of_a_send_ring_are_found_by_name_until_they_are_dropped() {
    let region = region();
    let id = region.open_slot(3, SocketKind::Tcp);
    let ring = region.send_ring(3);
    // So that what follows wraps around the ring's end.
    ring.write(&[0; 4000]);
    ring.advance_head(4000);
    let text: Vec<u8> = (0..200).collect();
    ring.write(&text);
    let span = region
        .sending()
        .name_span(&ring.spans(20, 150))
        .expect("a name");
    let named = RingSpan {
        slot: 3,
        generation: id.generation,
        position: 4020,
        bytes: 150,
    };
    assert_eq!(span, named);

    let other = read_only(&region);
    let read = |span: RingSpan| {
        let [first, second] = other.find_span(span)?;
        let mut bytes = vec![0; first.len() + second.len()];
        let (front, back) = bytes.split_at_mut(first.len());
        first.copy_to(front);
        second.copy_to(back);
        Some(bytes)
    };
    assert_eq!(read(span).as_deref(), text.get(20..170));
    let none = [
        RingSpan { slot: 4, ..span },
        RingSpan { slot: 8, ..span },
        RingSpan {
            slot: u32::MAX,
            ..span
        },
        RingSpan {
            generation: 0,
            ..span
        },
        RingSpan {
            position: 3999,
            ..span
        },
        RingSpan {
            position: u64::MAX,
            ..span
        },
        RingSpan {
            position: 4000 + 4096,
            bytes: 1,
            ..span
        },
        RingSpan {
            bytes: 4090,
            ..span
        },
        RingSpan {
            bytes: u32::MAX,
            ..span
        },
    ];
    for span in none {
        assert_eq!(read(span), None, "{span:?}");
    }
    ring.advance_head(20);
    assert!(read(span).is_some(), "all are there");
    ring.advance_head(1);
    assert_eq!(read(span), None, "one was acknowledged");
    let _ = region.close_slot(3);
    let rest = RingSpan {
        position: 4021,
        bytes: 9,
        ..span
    };
    assert_eq!(read(rest), None, "the socket is gone");
    region.open_slot(3, SocketKind::Tcp);
    assert_eq!(read(rest), None, "another has the slot");
}

#[test]
fn what_isnt_in_one_send_ring_has_no_name() {
    let region = region();
    region.open_slot(0, SocketKind::Tcp);
    region.open_slot(1, SocketKind::Tcp);
    let (first, second) = (region.send_ring(0), region.send_ring(1));
    first.write(&[1; 64]);
    second.write(&[2; 64]);
    region.receive_ring(0).write(&[3; 64]);
    let outside = [4; 64];
    let [a, _] = first.spans(0, 64);
    let [b, _] = second.spans(0, 64);
    let [c, _] = region.receive_ring(0).spans(0, 64);
    let none = [
        [Bytes::from(&outside[..]), Bytes::EMPTY],
        [c, Bytes::EMPTY],
        [a, b],
        [a, Bytes::from(&outside[..])],
    ];
    for (index, payload) in none.iter().enumerate() {
        assert_eq!(region.sending().name_span(payload), None, "{index}");
    }
}

#[test]
fn a_record_says_who_holds_it_and_whether_it_was_damaged() {
    let region = region();
    let id = region.open_slot(1, SocketKind::Tcp);
    let record = region.record(1);
    assert_eq!(record.holder(), None, "nobody knows of it yet");
    for holder in [Holder::Attached, Holder::Awaited, Holder::Gone] {
        record.set_holder(holder);
        assert_eq!(record.holder(), Some(holder));
    }
    record.seal.store(record.seal(), Ordering::Relaxed);
    let fields = [&record.iss, &record.irs, &record.ts_offset];
    for field in fields.into_iter().chain(&record.remote_address) {
        let before = field.load(Ordering::Relaxed);
        for bit in [0, 7, 31] {
            field.store(before ^ 1 << bit, Ordering::Relaxed);
            assert_ne!(record.seal.load(Ordering::Relaxed), record.seal());
        }
        field.store(before, Ordering::Relaxed);
    }
    assert_eq!(record.seal.load(Ordering::Relaxed), record.seal());
    record.holder.store(200, Ordering::Relaxed);
    assert_eq!(record.holder(), None);
    record.set_holder(Holder::Gone);
    let _ = region.close_slot(id.slot);
    assert_eq!(record.holder(), None, "a free slot has no holder");
}

#[test]
fn a_region_tells_that_its_program_is_gone() {
    let region = region();
    assert!(!region.is_abandoned());
    region.abandon();
    let successor = Region::open(files(&region)).expect("a region");
    assert!(successor.is_abandoned());
}

/// A region that gets the index of another one: no name of a socket of that one leads anywhere in it.
#[test]
fn generations_count_on_from_where_they_are_told() {
    let config = TableConfig {
        sockets: 2,
        send_bytes: 4096,
        receive_bytes: 4096,
    };
    let open = |before_first| {
        let region = Region::create("test", config).expect("a region");
        region.count_generations_from(before_first);
        let ids = [0, 0, 1].map(|slot| {
            let id = region.open_slot(slot, SocketKind::Udp);
            if slot == 0 {
                let _ = region.close_slot(slot);
            }
            id.generation
        });
        (region, ids)
    };
    let (old, first) = open(0);
    let (new, second) = open(7_000);
    assert_eq!((first, second), ([1, 2, 1], [7_001, 7_002, 7_001]));
    old.send_ring(1).write(b"theirs");
    new.send_ring(1).write(b"others");
    let name = old
        .sending()
        .name_span(&old.send_ring(1).spans(0, 6))
        .expect("a name");
    assert!(old.sending().find_span(name).is_some());
    assert!(new.sending().find_span(name).is_none());
}
