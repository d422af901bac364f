use super::*;
use rustix::fs::{OFlags, fcntl_getfl};

fn program(layout: &Layout) -> (Program, ServedParts) {
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
    let routes = layout.routes();
    let stack = (0..routes.channels()).map(|_| SleeperDescriptors::create("test"));
    let stack: Vec<_> = stack.map(|one| one.expect("memory")).collect();
    let stack: Vec<_> = stack.iter().collect();
    let mut program = Program::make(3, &peer, (size, size), routes, &stack).expect("memory");
    match std::mem::replace(&mut program.stage, Stage::Served) {
        Stage::Attaching(parts) => (program, *parts),
        Stage::Served | Stage::Ending => panic!("it is new"),
    }
}

fn whole() -> Layout {
    Layout::new(vec![Part::ALL.to_vec()])
}

fn apart() -> Layout {
    Layout::new(Part::ALL.map(|part| vec![part]).to_vec())
}

fn writable(descriptor: &OwnedFd) -> bool {
    fcntl_getfl(descriptor)
        .expect("flags")
        .contains(OFlags::RDWR)
}

/// Who says that a program spoilt a channel is believed if that is so.
#[test]
fn what_a_program_wrote_tells_whether_it_spoilt_a_channel() {
    for layout in [whole(), apart()] {
        for (spoilt, place) in layout.channels().into_iter().enumerate() {
            let (program, parts) = program(&layout);
            for other in layout.channels() {
                assert!(program.uses_well(&layout, other));
            }
            // Two descriptors of its own, then six of each channel: its half of the requests is the first.
            let half = parts.channel[2 + 6 * spoilt].try_clone().expect("one");
            let words = skink_memory::Mapping::from_fd(half).expect("writable");
            words.words()[0].store(7, std::sync::atomic::Ordering::Relaxed);
            for other in layout.channels() {
                assert_eq!(program.uses_well(&layout, other), other != place);
            }
        }
    }
    let (program, _) = program(&apart());
    assert!(!program.uses_well(&apart(), usize::MAX));
}

#[test]
fn a_program_can_write_its_send_rings_only_and_the_stack_all() {
    let (program, parts) = program(&whole());
    let attachment = parts.attachment;
    assert_eq!((attachment.program, attachment.tcp_stride), (3, 8));
    for region in [&parts.tcp_region, &parts.udp_region] {
        assert_eq!(region.each_ref().map(writable), [false, true, false]);
    }
    let region = Region::open_for_program(parts.tcp_region).expect("a region");
    assert_eq!(region.config().sockets, 5);
    let orders = program
        .attach(&whole(), whole().front())
        .expect("descriptors");
    let [(0, order, descriptors)] = orders.as_slice() else {
        panic!("there is one process");
    };
    assert!(matches!(
        order,
        Order::Attach {
            pid: 7,
            uid: 33,
            ..
        }
    ));
    assert_eq!(descriptors.len(), 17);
    assert!(descriptors.iter().take(6).all(writable));
}

#[test]
fn each_process_gets_the_regions_of_its_transports_and_a_channel() {
    use Part::{Filter, Ip, Link, Store, Syscall, Tcp, Udp};
    let cases: [(Layout, &[(usize, usize)]); 3] = [
        (apart(), &[(5, 11), (4, 14), (3, 14)]),
        (
            Layout::new(vec![vec![Link, Ip, Filter, Tcp], vec![Udp, Syscall, Store]]),
            &[(1, 14), (0, 14)],
        ),
        (
            Layout::new(vec![vec![Link, Ip, Filter, Syscall, Store], vec![Udp, Tcp]]),
            &[(0, 11), (1, 17)],
        ),
    ];
    for (layout, expected) in cases {
        let (program, parts) = program(&layout);
        let orders = program
            .attach(&layout, layout.front())
            .expect("descriptors");
        let orders: Vec<_> = orders.iter().map(|it| (it.0, it.2.len())).collect();
        assert_eq!(orders, expected, "{layout:?}");
        assert_eq!(parts.attachment.routes, layout.routes());
        let handed = skink_sockets::program_descriptors(expected.len());
        assert_eq!(parts.channel.len(), handed);
    }
}

#[test]
fn regions_are_handed_on_to_who_knows_the_secret() {
    let (program, parts) = program(&whole());
    let secret = parts.attachment.secret;
    let regions = program.regions(secret).expect("the secret is right");
    for files in &regions {
        assert_eq!(files.each_ref().map(writable), [false, true, false]);
    }
    for wrong in [0, !secret, secret ^ 1, secret ^ (1 << 63)] {
        assert!(program.regions(wrong).is_err());
    }
}

/// One that all processes were told of: 3, 4 and 5 must attach it, 0 and 1 read what it sends.
fn introduced() -> Program {
    let (mut program, parts) = program(&apart());
    program.stage = Stage::Attaching(Box::new(parts));
    assert_eq!(program.step(), Step::Wait, "nobody was told");
    program.holders.introduced = true;
    program.holders.attaching = [3, 4, 5].into_iter().collect();
    program.holders.mapping = [0, 1].into_iter().collect();
    program
}

#[test]
fn a_program_begins_when_all_have_it_and_is_forgotten_when_all_transports_say_so() {
    let (layout, mut program) = (apart(), introduced());
    for place in [3, 5, 5, 4] {
        assert_eq!(program.step(), Step::Wait);
        program.attached(&layout, place, None);
    }
    assert_eq!(program.step(), Step::Wait, "two can't read it yet");
    program.holders.mapping = Places::default();
    assert_eq!(program.step(), Step::Grant);
    program.stage = Stage::Served;
    assert_eq!(program.step(), Step::Wait);
    program.stage = Stage::Ending;
    assert_eq!(program.step(), Step::Detach);
    for place in [4, 3] {
        assert_eq!(program.step(), Step::Wait);
        program.holders.holding.remove(place);
    }
    assert_eq!(program.step(), Step::Forget);
}

#[test]
fn what_one_process_refuses_the_others_let_go_of_once_all_have_answered() {
    let (layout, mut program) = (apart(), introduced());
    program.attached(&layout, 4, Some("full".into()));
    program.attached(&layout, 5, Some("full too".into()));
    assert_eq!(program.step(), Step::Wait, "udp hasn't answered");
    program.attached(&layout, 3, None);
    assert_eq!(program.step(), Step::Refuse("full".into()));
    program.stage = Stage::Ending;
    assert_eq!(program.step(), Step::Detach);
    assert_eq!(program.step(), Step::Wait);
    program.holders.holding.remove(3);
    assert_eq!(program.step(), Step::Forget, "tcp never had it");
}

#[test]
fn who_hangs_up_before_it_is_attached_is_detached_after_it() {
    let (layout, mut program) = (apart(), introduced());
    program.stage = Stage::Ending;
    for place in [3, 4, 5] {
        assert_eq!(program.step(), Step::Wait);
        program.attached(&layout, place, None);
    }
    assert_eq!(program.step(), Step::Detach);
}
