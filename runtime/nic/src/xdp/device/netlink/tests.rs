use super::{attribute, number};

/// Attributes in the kernel's form, each filled up to four bytes.
fn attributes(all: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in all {
        bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(*value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

#[test]
fn attributes_are_found_by_kind() {
    let bytes = attributes(&[(3, b"a"), (43 | 0x8000, b"nested"), (9, b"")]);
    assert_eq!(attribute(&bytes, 43), Some(&b"nested"[..]));
    assert_eq!(attribute(&bytes, 9), Some(&b""[..]));
    assert_eq!(attribute(&bytes, 4), None);
    // An end within one, and lengths that can't be.
    for length in 0..bytes.len() {
        let _ = attribute(&bytes[..length], 9);
    }
    assert_eq!(attribute(&[0, 0, 1, 0, 0, 0, 2, 0], 2), None);
    assert_eq!(attribute(&[255, 255, 1, 0], 1), None);
}

#[test]
fn numbers_have_two_or_eight_bytes() {
    let mut answer = vec![0; 4];
    let (short, long) = (7u16.to_ne_bytes(), 9u64.to_ne_bytes());
    answer.extend(attributes(&[(1, &short), (2, &long), (3, b"odd")]));
    assert_eq!(number(&answer, 1).expect("there"), 7);
    assert_eq!(number(&answer, 2).expect("there"), 9);
    assert!(number(&answer, 3).is_err() && number(&answer, 4).is_err());
}
