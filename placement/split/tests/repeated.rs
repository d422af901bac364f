//! A call that is asked for more than once, since those who carry it out die: it is carried out once.

mod machine;

use machine::{Filtering, Machine, Shown, Who, start};
use skink_memory::{SocketId, SocketKind};
use skink_messages::{PortOptions, Protocol, SocketCall};
use skink_nic::{MemoryConfig, pair};
use skink_sockets::{Client, RequestBody};
use skink_time::{Duration, Instant};
use skink_wire::Endpoint;
use std::net::IpAddr;

const PROGRAM: u32 = 0;

fn open_sockets(machine: &Machine, protocol: Protocol) -> usize {
    let table = machine.table(protocol);
    let used = table.region(PROGRAM).expect("a program").used();
    let slots = (0..used).map(|slot| table.slot_of(PROGRAM, slot));
    slots
        .filter(|slot| table.record(*slot).kind() != SocketKind::Free)
        .count()
}

/// A machine, a program, and the time.
struct World {
    machine: Machine,
    client: Client,
    now: Instant,
}

impl World {
    fn new() -> World {
        let (nic, _) = pair(MemoryConfig::default()).expect("a link");
        let machine = start(nic, &["10.0.0.1/24"], 1, Filtering::None);
        let client = machine.client(PROGRAM);
        let mut world = World {
            machine,
            client,
            now: Instant::from_millis(1),
        };
        world.settle();
        world
    }

    fn poll(&mut self, all: &[Who]) {
        self.now += Duration::from_micros(10);
        for who in all {
            self.machine.poll(*who, self.now);
        }
        self.client.poll().expect("a good channel");
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            self.poll(&Who::ALL);
        }
    }

    /// Asks until there is an answer, and no longer.
    fn finish(&mut self, who: Who) -> Option<SocketId> {
        for _ in 0..20 {
            self.poll(&[Who::Store, who, Who::Syscall]);
            if let Some(answer) = self.client.take_begun() {
                return answer.expect("done").socket;
            }
        }
        panic!("no answer");
    }

    fn die(&mut self, who: Who, shown: Shown) {
        self.poll(&[Who::Syscall, Who::Store, Who::Syscall]);
        self.machine.kill_in_poll(who, self.now, shown);
        self.machine.restart(who, self.now);
    }
}

/// The first of two transports has opened a socket, and the second one did more with it. To the third the word that
/// one is to be opened comes again: a socket that it opened would be one that nobody knows of.
#[test]
fn what_predecessors_were_asked_for_is_done_once() {
    for (who, protocol) in [(Who::Tcp, Protocol::Tcp), (Who::Udp, Protocol::Udp)] {
        for shown in [Shown::All, Shown::Nothing, Shown::Taken, Shown::Answers] {
            for closes in [false, true] {
                let mut world = World::new();
                let begun = world.client.begin(SocketCall::Open(protocol));
                begun.expect("room");
                world.die(who, shown);
                let socket = world.finish(who).expect("a socket");
                let next = match closes {
                    true => {
                        let close = RequestBody::Call(SocketCall::Close(protocol, socket));
                        world.client.tell(close)
                    }
                    false => {
                        let any = Endpoint::new(IpAddr::from([0; 4]), 0);
                        let options = PortOptions::default();
                        let bind = SocketCall::Bind(protocol, socket, any, options);
                        world.client.begin(bind).map(drop)
                    }
                };
                next.expect("room");
                world.client.flush();
                world.die(who, shown);
                if !closes {
                    assert_eq!(world.finish(who), Some(socket));
                }
                world.settle();
                let open = open_sockets(&world.machine, protocol);
                let case = format!("{protocol:?} {shown:?} {closes}");
                assert_eq!(open, usize::from(!closes), "{case}");
            }
        }
    }
}
