//! Programs come and go, and leave nothing behind. The only test of its process, whose descriptors and
//! mappings it counts.

mod common;

use common::{APART, Grouping, HALVES, WHOLE, World, end};
use skink_sockets::{PortOptions, Protocol, SocketCall};

/// Open descriptors and mappings of this process.
fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("procfs");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
    let shared = maps.lines().filter(|line| line.contains("memfd"));
    (descriptors.count(), shared.count())
}

#[test]
fn a_thousand_programs_leave_nothing() {
    for (grouping, rounds) in [(WHOLE, 1000), (HALVES, 200), (APART, 200)] {
        programs_leave_nothing(grouping, rounds);
    }
}

fn programs_leave_nothing(grouping: Grouping, rounds: u32) {
    let mut world = World::new(grouping);
    let mut first = None;
    for round in 0..rounds {
        let number = round % 7;
        let mut program = world.attach(number, 1000 + round);
        let tcp = program.open(Protocol::Tcp);
        let port = end("0.0.0.0", 2000 + number as u16);
        let bound = program.bind(Protocol::Udp, port, PortOptions::default());
        bound.expect("free again");
        if round % 3 == 0 {
            let bound = program.bind(Protocol::Tcp, port, PortOptions::default());
            let (listener, _) = bound.expect("free again");
            program
                .ask(SocketCall::Listen(listener, 5))
                .expect("listens");
        }
        if round % 5 == 0 {
            program.close(tcp);
        }
        drop(program);
        world.detach(number);
        world.finished(number);
        if round == 20 {
            world.settle();
            first = Some(held());
        }
    }
    world.settle();
    assert_eq!(Some(held()), first);
    world.stop();
}
