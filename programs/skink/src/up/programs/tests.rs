use super::*;
use rustix::fs::{OFlags, fcntl_getfl};

fn program() -> (Program, ServedParts) {
    let size = TableSize {
        sockets: 5,
        send_bytes: 4096,
        receive_bytes: 8192,
    };
    let peer = Peer {
        pid: 7,
        uid: 33,
        groups: vec![33],
    };
    let stack = SleeperDescriptors::create("test").expect("memory");
    let mut program = Program::make(3, &peer, (size, size), &stack).expect("memory");
    match std::mem::replace(&mut program.stage, Stage::Served) {
        Stage::Attaching(parts) => (program, *parts),
        Stage::Served | Stage::HungUp(_) | Stage::Ending => panic!("it is new"),
    }
}

fn writable(descriptor: &OwnedFd) -> bool {
    fcntl_getfl(descriptor)
        .expect("flags")
        .contains(OFlags::RDWR)
}

#[test]
fn a_program_can_write_its_rings_only_and_the_stack_both() {
    let (program, parts) = program();
    let attachment = parts.attachment;
    assert_eq!((attachment.program, attachment.tcp_stride), (3, 8));
    for region in [&parts.tcp_region, &parts.udp_region] {
        assert_eq!(region.each_ref().map(writable), [false, true]);
    }
    let [records, rings] = parts.tcp_region;
    let region = Region::open_for_program(records, rings).expect("a region");
    assert_eq!(region.config().sockets, 5);
    let (order, descriptors) = program.order().expect("descriptors");
    assert!(matches!(
        order,
        Order::Attach {
            pid: 7,
            uid: 33,
            ..
        }
    ));
    assert_eq!(descriptors.len(), 11);
    assert!(descriptors.iter().take(4).all(writable));
}

#[test]
fn regions_are_handed_on_to_who_knows_the_secret() {
    let (program, parts) = program();
    let secret = parts.attachment.secret;
    let regions = program.regions(secret).expect("the secret is right");
    assert_eq!(regions.each_ref().map(writable), [false, true, false, true]);
    for wrong in [0, !secret, secret ^ 1, secret ^ (1 << 63)] {
        assert!(program.regions(wrong).is_err());
    }
}
