use super::*;
use core::net::Ipv4Addr;

fn fragment(identification: u32, offset: usize, more: bool, data: &[u8]) -> Fragment<'_> {
    Fragment {
        key: Key {
            source: Ipv4Addr::new(10, 0, 0, 2).into(),
            destination: Ipv4Addr::new(10, 0, 0, 1).into(),
            protocol: 17,
            identification,
        },
        offset,
        more,
        next_header: 17,
        traffic_class: 0,
        hop_limit: 64,
        data,
    }
}

fn add(reassembly: &mut Reassembly, fragment: &Fragment<'_>) -> &'static str {
    match reassembly.add(Instant::ZERO, fragment, || {}) {
        Added::Kept => "kept",
        Added::Refused => "refused",
        Added::Whole(_) => "whole",
    }
}

#[test]
fn what_contradicts_is_refused() {
    let data = [0u8; 64];
    // Each a list of (offset, end, more) and what the last of them leads to.
    type Pieces = &'static [(usize, usize, bool)];
    let cases: [(Pieces, &str); 13] = [
        (&[(0, 8, true), (8, 16, false)], "whole"),
        (&[(8, 16, false), (0, 8, true)], "whole"),
        (&[(0, 8, true), (0, 8, true)], "kept"),
        (&[(0, 16, true), (8, 16, true)], "kept"),
        (&[(0, 16, true), (8, 24, true)], "refused"),
        (&[(8, 24, true), (0, 16, true)], "refused"),
        (&[(0, 8, true), (16, 24, true), (0, 32, false)], "refused"),
        (&[(8, 16, false), (16, 24, true)], "refused"),
        (&[(8, 16, false), (16, 20, false)], "refused"),
        (&[(16, 24, true), (8, 12, false)], "refused"),
        (&[(0, 7, true)], "refused"),
        (&[(0, 0, false)], "refused"),
        (&[(0, 8, true), (16, 20, false), (8, 16, true)], "whole"),
    ];
    for (fragments, expected) in cases {
        let mut reassembly = Reassembly::default();
        let mut last = "";
        for (start, end, more) in fragments {
            let data = &data[*start..*end];
            last = add(&mut reassembly, &fragment(1, *start, *more, data));
        }
        assert_eq!(last, expected, "{fragments:?}");
    }
    let mut reassembly = Reassembly::default();
    assert_eq!(
        add(&mut reassembly, &fragment(1, 65_528, false, &data)),
        "refused"
    );
    // A repetition with other contents is none.
    assert_eq!(add(&mut reassembly, &fragment(2, 0, true, &[0; 8])), "kept");
    assert_eq!(
        add(&mut reassembly, &fragment(2, 0, true, &[1; 8])),
        "refused"
    );
}

#[test]
fn memory_is_bounded() {
    for data in [&[0; 8][..], &[0; 8192]] {
        let mut reassembly = Reassembly::default();
        let mut evicted = 0;
        for identification in 0..1000 {
            let far = fragment(identification, 56_000, true, data);
            let _ = reassembly.add(Instant::ZERO, &far, || evicted += 1);
            let (datagrams, bytes) = reassembly.size();
            assert!(datagrams <= DATAGRAMS && bytes <= BYTES);
        }
        let (left, bytes) = reassembly.size();
        assert_eq!(left + evicted, 1000);
        assert_eq!(bytes, left * data.len());
    }
    // A datagram outlives some hundred that say much of themselves.
    let mut reassembly = Reassembly::default();
    add(&mut reassembly, &fragment(1000, 0, true, &[0; 8]));
    for identification in 0..500 {
        add(
            &mut reassembly,
            &fragment(identification, 65_520, true, &[0; 8]),
        );
    }
    let last = fragment(1000, 8, false, &[0; 8]);
    assert_eq!(add(&mut reassembly, &last), "whole");
    // Very many gaps spoil a datagram.
    let mut reassembly = Reassembly::default();
    let spoilt = (0..1000).position(|index| {
        add(&mut reassembly, &fragment(1, index * 16, true, &[0; 8])) == "refused"
    });
    assert_eq!(spoilt, Some(STRETCHES));
    assert_eq!(reassembly.size(), (1, 0));
}

#[test]
fn congestion_experienced_by_any_fragment_is_kept() {
    for marked in [0, 8] {
        let mut reassembly = Reassembly::default();
        let mut whole = None;
        for offset in [8, 0] {
            let mut fragment = fragment(1, offset, offset == 0, &[0; 8]);
            fragment.traffic_class = if offset == marked { 3 } else { 2 };
            if let Added::Whole(datagram) = reassembly.add(Instant::ZERO, &fragment, || {}) {
                whole = Some(datagram.traffic_class);
            }
        }
        assert_eq!(whole, Some(3));
    }
}
