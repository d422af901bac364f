use super::*;

fn list(parts: &mut [Vec<u8>]) -> Vec<iovec> {
    let entry = |part: &mut Vec<u8>| iovec {
        iov_base: part.as_mut_ptr().cast(),
        iov_len: part.len(),
    };
    parts.iter_mut().map(entry).collect()
}

#[test]
fn buffers_are_filled_in_order_and_stop_where_the_source_ends() {
    // (bytes skipped, bytes the source has, what the three buffers hold then)
    let table: [(usize, usize, [&[u8]; 3]); 4] = [
        (0, 9, [b"012", b"", b"34567"]),
        (0, 4, [b"012", b"", b"3...."]),
        (2, 3, [b"..0", b"", b"12..."]),
        (4, 9, [b"...", b"", b".0123"]),
    ];
    for (skip, available, expected) in table {
        let mut parts = [b"...".to_vec(), Vec::new(), b".....".to_vec()];
        let entries = list(&mut parts);
        // SAFETY: the buffers are ours.
        let buffers = unsafe { Buffers::new(&entries) }.expect("good buffers");
        let mut next = 0;
        let done = buffers.fill(skip, |offset, piece| {
            assert_eq!(offset, next);
            let count = piece.len().min(available - next);
            for byte in &mut piece[..count] {
                *byte = b'0' + next as u8;
                next += 1;
            }
            count
        });
        assert_eq!(done, available.min(8 - skip), "skip {skip}");
        assert_eq!(parts.each_ref().map(Vec::as_slice), expected, "skip {skip}");
    }
}

#[test]
fn buffers_are_drained_from_where_the_last_call_ended() {
    let mut parts = [b"abc".to_vec(), b"defgh".to_vec()];
    let entries = list(&mut parts);
    // SAFETY: the buffers are ours.
    let buffers = unsafe { Buffers::new(&entries) }.expect("good buffers");
    let (mut taken, mut room) = (Vec::new(), 4);
    let mut take = |piece: &[u8]| {
        let count = piece.len().min(room);
        taken.extend_from_slice(&piece[..count]);
        room -= count;
        count
    };
    let first = buffers.drain(0, &mut take);
    assert_eq!(first, 4);
    room = 100;
    let mut rest = Vec::new();
    let second = buffers.drain(first, |piece| {
        rest.extend_from_slice(piece);
        piece.len()
    });
    assert_eq!(
        (second, taken.as_slice(), rest.as_slice()),
        (4, &b"abcd"[..], &b"efgh"[..])
    );
    assert_eq!(room, 100);
}

#[test]
fn impossible_lists_are_refused() {
    let null = iovec {
        iov_base: core::ptr::null_mut(),
        iov_len: 1,
    };
    let huge = iovec {
        iov_base: core::ptr::dangling_mut(),
        iov_len: usize::MAX,
    };
    for (entry, errno) in [(null, libc::EFAULT), (huge, libc::EINVAL)] {
        let entries = [entry];
        // SAFETY: refused before anything is touched.
        let answer = unsafe { Buffers::new(&entries) }.map(|_| ());
        assert_eq!(answer, fail(errno));
    }
    // SAFETY: as above.
    let answer = unsafe { Buffers::from_raw(&null, 1025) }.map(|_| ());
    assert_eq!(answer, fail(libc::EINVAL));
}
