use super::*;

fn example() -> Vec<u8> {
    let mut file = Vec::new();
    section(&mut file, "test").expect("written");
    interface(&mut file, "web nginx/7", 65_600).expect("written");
    for (direction, length) in [
        (CaptureDirection::Inbound, 61),
        (CaptureDirection::Outbound, 64),
    ] {
        let mut bytes = vec![0xff; length];
        bytes[12..14].copy_from_slice(&[8, 6]);
        let frame = CapturedFrame {
            time_ns: 1_700_000_000_123_456_789,
            direction,
            original_bytes: 64,
            bytes,
        };
        packet(&mut file, 0, &frame).expect("written");
    }
    statistics(&mut file, 0, 3, 1).expect("written");
    file
}

#[test]
fn the_bytes_are_those_of_the_specification() {
    let file = example();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    // Block types and their lengths at both ends, to the end of the file.
    let mut at = 0;
    let mut kinds = Vec::new();
    while at < file.len() {
        let length = word(at + 4) as usize;
        assert_eq!(length % 4, 0);
        assert_eq!(word(at + length - 4) as usize, length);
        kinds.push((word(at), length));
        at += length;
    }
    assert_eq!(
        kinds,
        [(0x0a0d_0d0a, 40), (1, 48), (6, 108), (6, 108), (5, 52)]
    );
    assert_eq!(
        &file[8..24],
        b"\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"
    );
    assert_eq!(&file[24..36], b"\x04\0\x04\0test\0\0\0\0");
    let packet = 40 + 48;
    let time = u64::from(word(packet + 12)) << 32 | u64::from(word(packet + 16));
    assert_eq!(time, 1_700_000_000_123_456_789);
    assert_eq!((word(packet + 20), word(packet + 24)), (61, 64));
    // After the padded frame: option 2 of 4 bytes, inbound.
    assert_eq!(
        &file[packet + 28 + 64..packet + 108 - 8],
        b"\x02\0\x04\0\x01\0\0\0"
    );
}

#[test]
fn tcpdump_reads_it() {
    let path = std::env::temp_dir().join(format!("skink-test-{}.pcapng", std::process::id()));
    std::fs::write(&path, example()).expect("a file");
    let output = std::process::Command::new("tcpdump")
        .args(["-tt", "--nano", "-nr"])
        .arg(&path)
        .output();
    let _ = std::fs::remove_file(&path);
    let Ok(output) = output else {
        eprintln!("SKIP: tcpdump isn't installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text.matches("1700000000.123456789").count(), 2, "{text}");
}
