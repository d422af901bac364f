use super::*;

#[test]
fn lines() {
    let line = "7f10a000-7f10c000 rw-p 00001000 fe:00 1234                       /usr/lib/a b.so";
    let expected = Mapping {
        range: 0x7f10_a000..0x7f10_c000,
        writable: true,
        executable: false,
        private: true,
        offset: 0x1000,
        path: "/usr/lib/a b.so".to_owned(),
    };
    assert_eq!(parse(line), Some(expected));
    let shared = parse("1000-2000 rw-s 00000000 00:05 99 /memfd:skink-store (deleted)");
    assert!(shared.is_some_and(|it| !it.private && it.path.ends_with("(deleted)")));
    let anonymous = parse("1000-2000 r-xp 00000000 00:00 0 ");
    assert!(anonymous.is_some_and(|it| it.executable && it.path.is_empty()));
    assert_eq!(parse("nonsense"), None);
}

#[test]
fn own() {
    let all = read(std::process::id()).expect("the file is there");
    assert!(all.iter().any(|it| it.path == "[stack]" && it.writable));
}
