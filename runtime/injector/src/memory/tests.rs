use super::*;

fn mapping(range: Range<u64>, permissions: &str, path: &str) -> Mapping {
    Mapping {
        range,
        writable: permissions.contains('w'),
        executable: permissions.contains('x'),
        private: permissions.contains('p'),
        offset: 0,
        path: path.to_owned(),
    }
}

/// Memory that others have too is left alone, and so is what the process can't write.
#[test]
fn only_private_writable_memory() {
    let maps = [
        mapping(0x1000..0x2000, "r-xp", "/usr/bin/skink"),
        mapping(0x2000..0x3000, "rw-p", "/usr/bin/skink"),
        mapping(0x3000..0x4000, "rw-p", "[heap]"),
        mapping(0x4000..0x5000, "rw-s", "/memfd:skink-store (deleted)"),
        mapping(0x5000..0x6000, "rw-p", ""),
        mapping(0x6000..0x7000, "r--p", ""),
        mapping(0x7000..0x9000, "rw-p", "[stack]"),
    ];
    let expected: [Region; 3] = [
        (0x2000..0x3000, "/usr/bin/skink".to_owned()),
        (0x3000..0x4000, "[heap]".to_owned()),
        (0x5000..0x6000, "anonymous memory".to_owned()),
    ];
    assert_eq!(heap(&maps), expected);
    // Below the stack pointer there is nothing that is still needed.
    let used = [(0x8123..0x9000, "the stack".to_owned())];
    assert_eq!(stack(&maps, 0x8123), used);
    assert_eq!(stack(&maps, 0x1_0000), []);
}

#[test]
fn words_are_aligned() {
    assert_eq!(words(&(0x8123..0x8140)), 3);
    assert_eq!(words(&(0x8000..0x8008)), 1);
    assert_eq!(words(&(0x8001..0x8008)), 0);
}
