use super::*;
use std::os::fd::AsRawFd;

/// A descriptor with an open file description of its own, as a tool gets it.
fn reopen(ring: &CaptureRing) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", ring.fd().as_raw_fd());
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path);
    file.expect("the memfd").into()
}

fn push(ring: &CaptureRing, time: u64, pieces: &[&[u8]]) {
    let pieces: Vec<Bytes<'_>> = pieces.iter().map(|piece| Bytes::from(*piece)).collect();
    let length = pieces.iter().map(Bytes::len).sum();
    ring.push(time, CaptureDirection::Outbound, &pieces, length);
}

#[test]
fn frames_come_out_as_they_went_in_cut_to_the_snap_length() {
    let ring = CaptureRing::create(4096).expect("a ring");
    assert!(!ring.wants());
    let mut reader = CaptureReader::start(reopen(&ring), 10).expect("a reader");
    assert!(ring.wants());
    for round in 0..500u64 {
        push(&ring, round, &[b"abc", b"", b"defg"]);
        push(&ring, round + (1 << 40), &[b"0123456", b"789abc", b"d"]);
        let short = reader.take().expect("the first");
        assert_eq!((short.time_ns, &short.bytes[..]), (round, &b"abcdefg"[..]));
        assert_eq!(short.original_bytes, 7);
        let long = reader.take().expect("the second");
        assert_eq!(&long.bytes, b"0123456789");
        assert_eq!((long.time_ns, long.original_bytes), (round + (1 << 40), 14));
        assert_eq!(reader.take(), None);
    }
    drop(reader);
    assert!(!ring.wants());
}

#[test]
fn a_full_ring_drops_and_counts_and_the_next_reader_starts_afresh() {
    let ring = CaptureRing::create(4096).expect("a ring");
    let reader = CaptureReader::start(reopen(&ring), 65_536).expect("a reader");
    for _ in 0..10 {
        push(&ring, 1, &[&[7; 1000]]);
    }
    // Each takes 1024 bytes.
    assert_eq!(reader.dropped(), 6);
    // The reader dies without a word.
    std::mem::forget(reader);
    assert!(ring.wants());
    push(&ring, 1, &[&[7; 1000]]);
    // Its process would have taken the lock with it; here the descriptor still lives.
    assert!(matches!(
        CaptureReader::start(reopen(&ring), 100),
        Err(CaptureError::Busy)
    ));
}

#[test]
fn a_second_reader_is_told_and_a_later_one_gets_only_what_is_new() {
    let ring = CaptureRing::create(4096).expect("a ring");
    let first = CaptureReader::start(reopen(&ring), 100).expect("a reader");
    let second = CaptureReader::start(reopen(&ring), 100);
    assert!(matches!(second, Err(CaptureError::Busy)));
    push(&ring, 1, &[b"old"]);
    drop(first);
    let mut third = CaptureReader::start(reopen(&ring), 100).expect("a reader");
    push(&ring, 2, &[b"new"]);
    assert_eq!(third.take().map(|frame| frame.bytes), Some(b"new".to_vec()));
}

#[test]
fn nonsense_in_the_ring_is_skipped() {
    let ring = CaptureRing::create(4096).expect("a ring");
    let mut reader = CaptureReader::start(reopen(&ring), 100).expect("a reader");
    let mut header = [0; FRAME_HEADER_BYTES];
    for (length, direction) in [(u32::MAX, 1), (65_600, 2), (8, 2), (0, 0), (0, 255)] {
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[16] = direction;
        ring.ring().write(&header);
        assert_eq!(reader.take(), None, "{length} {direction}");
        assert!(ring.ring().is_empty());
    }
    ring.ring().advance_tail(1 << 50);
    reader.take();
    assert_eq!(reader.take(), None);
    push(&ring, 5, &[b"good again"]);
    assert_eq!(reader.take().map(|frame| frame.time_ns), Some(5));

    let foreign = Mapping::create("test", HEADER_BYTES + 4096).expect("memory");
    let fd = foreign.fd().try_clone_to_owned().expect("a descriptor");
    assert!(matches!(
        CaptureReader::start(fd, 1),
        Err(CaptureError::NotACapture)
    ));
    let small = Mapping::create("test", 100).expect("memory");
    let fd = small.fd().try_clone_to_owned().expect("a descriptor");
    assert!(matches!(
        CaptureReader::start(fd, 1),
        Err(CaptureError::NotACapture)
    ));
}
