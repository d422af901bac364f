use super::*;

/// A file with the program headers of the given types; the loader is `/ld.so`.
pub fn elf(class: u8, machine: u16, headers: &[u32]) -> Vec<u8> {
    let mut file = vec![0; 64 + headers.len() * PROGRAM_HEADER_BYTES];
    file[..4].copy_from_slice(b"\x7fELF");
    file[4] = class;
    file[5] = LITTLE_ENDIAN;
    file[18..20].copy_from_slice(&machine.to_le_bytes());
    file[32..40].copy_from_slice(&64u64.to_le_bytes());
    file[56..58].copy_from_slice(&(headers.len() as u16).to_le_bytes());
    let name = file.len() as u64;
    for (index, kind) in headers.iter().enumerate() {
        let at = 64 + index * PROGRAM_HEADER_BYTES;
        file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        file[at + 8..at + 16].copy_from_slice(&name.to_le_bytes());
        file[at + 32..at + 40].copy_from_slice(&7u64.to_le_bytes());
    }
    file.extend(b"/ld.so\0");
    file
}

/// A file that no library can be preloaded into.
pub fn static_program() -> Vec<u8> {
    elf(CLASS_64, MACHINE, &[1, 6])
}

#[test]
fn the_head_of_a_file_tells_its_kind() {
    let script = |interpreter: &str, argument: Option<&str>| {
        Kind::Script(interpreter.to_owned(), argument.map(str::to_owned))
    };
    let mut far = elf(CLASS_64, MACHINE, &[3]);
    far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut long = elf(CLASS_64, MACHINE, &[3]);
    long[64 + 32..64 + 40].copy_from_slice(&u64::MAX.to_le_bytes());
    let cases = [
        (
            elf(CLASS_64, MACHINE, &[6, 3, 1]),
            Kind::Dynamic("/ld.so".to_owned()),
        ),
        (static_program(), Kind::Static),
        (elf(1, MACHINE, &[3]), Kind::Foreign),
        (elf(CLASS_64, MACHINE + 1, &[3]), Kind::Foreign),
        (far, Kind::Static),
        (long, Kind::Dynamic(String::new())),
        (b"\x7fELF".to_vec(), Kind::Foreign),
        (b"#!/bin/sh\necho".to_vec(), script("/bin/sh", None)),
        (
            b"#! /usr/bin/env python3 -u \n".to_vec(),
            script("/usr/bin/env", Some("python3 -u")),
        ),
        (b"#!\n".to_vec(), Kind::Unknown),
        (b"echo hello".to_vec(), Kind::Unknown),
        (Vec::new(), Kind::Unknown),
    ];
    for (bytes, expected) in cases {
        assert_eq!(kind(&bytes), expected, "{bytes:?}");
    }
}

#[test]
fn this_very_test_is_a_dynamic_program() {
    let bytes = std::fs::read("/proc/self/exe").expect("readable");
    let Kind::Dynamic(loader) = kind(&bytes[..4096]) else {
        panic!("{:?}", kind(&bytes[..4096]));
    };
    assert!(loader.contains("ld-"), "{loader}");
}
