use super::*;

fn view() -> NetworkView {
    let cidr = |text: &str| text.parse().expect("an address");
    NetworkView {
        addresses: vec![cidr("192.0.2.1/24"), cidr("2001:db8::1/64")],
        gateways: vec!["192.0.2.254".parse().expect("an address")],
        path_mtus: vec![("198.51.100.1".parse().expect("an address"), 1400)],
    }
}

const LIMITS: LinkLimits = LinkLimits {
    mac: MacAddr([2, 3, 4, 5, 6, 7]),
    mtu: 1500,
    cut_bytes: 65_535,
    cuts: true,
};

#[test]
fn a_view_is_read_as_it_was_written() {
    let descriptors = BoardDescriptors::create("test").expect("a board");
    let mut reader = BoardReader::attach(descriptors.reader().expect("fd")).expect("a reader");
    assert_eq!(reader.changed(), None, "nothing is there yet");
    let mut writer = BoardWriter::attach(descriptors.writer().expect("fd")).expect("a writer");
    writer.write(&encode(&view(), &LIMITS));
    assert_eq!(reader.changed().and_then(decode), Some((view(), LIMITS)));
    assert_eq!(reader.changed(), None, "it was read");
    let mut successor = BoardWriter::attach(descriptors.writer().expect("fd")).expect("a writer");
    successor.write(&encode(&NetworkView::default(), &LIMITS));
    let empty = reader.changed().and_then(decode);
    assert_eq!(empty, Some((NetworkView::default(), LIMITS)));
}

#[test]
fn a_board_whose_writer_died_says_what_it_said_until_a_successor_writes() {
    let descriptors = BoardDescriptors::create("test").expect("a board");
    let mut reader = BoardReader::attach(descriptors.reader().expect("fd")).expect("a reader");
    let mut writer = BoardWriter::attach(descriptors.writer().expect("fd")).expect("a writer");
    writer.write(&[1, 2, 3]);
    assert_eq!(reader.changed(), Some(&[1, 2, 3][..]));
    // Dies in the middle.
    let revision = &writer.0.words()[REVISION];
    revision.store(revision.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
    writer.0.words()[WORDS].store(9, Ordering::Relaxed);
    assert_eq!(reader.changed(), None);
    let mut successor = BoardWriter::attach(descriptors.writer().expect("fd")).expect("a writer");
    successor.write(&[4]);
    assert_eq!(reader.changed(), Some(&[4][..]));
}

#[test]
fn what_a_board_claims_is_checked() {
    let good = encode(&view(), &LIMITS);
    assert!(decode(&good).is_some());
    for (at, value) in [
        (2, u64::MAX),
        (2, 3 << 32 | 1),
        (3, u64::MAX),
        (3, 0),
        // No family; a prefix of 33 bits.
        (6, 0),
        (6, 33 << 8 | 4),
    ] {
        let mut words = good.clone();
        words[at] = value;
        assert_eq!(decode(&words), None, "{at}: {value}");
    }
    for length in 0..good.len() {
        assert_eq!(decode(&good[..length]), None, "{length} words");
    }
    let descriptors = BoardDescriptors::create("test").expect("a board");
    let mut reader = BoardReader::attach(descriptors.reader().expect("fd")).expect("a reader");
    let mut writer = BoardWriter::attach(descriptors.writer().expect("fd")).expect("a writer");
    writer.write(&[0; MOST_WORDS + 7]);
    writer.0.words()[LENGTH].store(u64::MAX, Ordering::Relaxed);
    assert_eq!(reader.changed().map(<[u64]>::len), Some(MOST_WORDS));
}
