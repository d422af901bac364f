use super::*;
use crate::interface;
use crate::test_support::*;

/// A message of `kind` about interface `index`.
fn message(kind: u16, index: u32, flags: u32) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(34_u32.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend([0; 10]);
    message.extend([0; 4]);
    message.extend(index.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Two bytes of the next field, and two to fill up.
    message.resize(36, 0);
    message
}

#[test]
fn messages_are_told_apart() {
    let all = [
        message(NEW_LINK, 7, 1),
        message(NEW_LINK, 8, 1),
        message(17, 7, 1),
        message(NEW_LINK, 7, 0x1_0002),
    ]
    .concat();
    let mut rest = all.as_slice();
    let mut found = Vec::new();
    while let Some((flags, behind)) = link_message(rest, 7) {
        found.push(flags);
        rest = behind;
    }
    assert_eq!(found, [Some(1), None, None, Some(0x1_0002)]);
    // Whatever is cut short says nothing, and the end is reached.
    for length in 0..all.len() {
        let mut rest = &all[..length];
        let mut count = 0;
        while let Some((_, behind)) = link_message(rest, 7) {
            assert!(behind.len() < rest.len());
            rest = behind;
            count += 1;
        }
        assert!(count <= 4);
    }
}

#[test]
fn down_and_up_are_heard_of_and_nothing_else() {
    in_namespace(|| {
        make_veth();
        let index = interface::find("a0").unwrap().unwrap().index;
        let mut watch = LinkWatch::new(index).unwrap();
        assert!(!watch.has_changed());
        for (arguments, changes) in [
            ("link set a0 mtu 1400", false),
            ("link set a0 down", true),
            ("link set a0 mtu 1500", false),
            ("link set a0 up", true),
            ("link set lo up", false),
        ] {
            ip(arguments);
            assert_eq!(watch.has_changed(), changes, "{arguments}");
        }
        ip("link set a0 down");
        ip("link set a0 up");
        assert!(watch.has_changed(), "both at once");
        assert!(!watch.has_changed());
    });
}
