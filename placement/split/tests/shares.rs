//! Sockets that two programs hold, while what serves them dies.

mod machine;

use machine::{Filtering, Machine, Shown, Who, programs, start_for};
use skink_memory::SocketId;
use skink_messages::{Protocol, SocketCall, SocketError};
use skink_nic::{MemoryConfig, pair};
use skink_sockets::{Client, RequestBody};
use skink_time::{Duration, Instant};
use std::collections::BTreeMap;

const OWNER: u32 = 0;
const HEIR: u32 = 1;
const PROGRAMS: u32 = 3;

/// A machine, its programs, and the time.
struct World {
    machine: Machine,
    clients: BTreeMap<u32, Client>,
    now: Instant,
    finished: Vec<(Protocol, u32)>,
    /// What happens to programs that both transports have finished with.
    forgets: bool,
}

impl World {
    fn new() -> World {
        let config = MemoryConfig::default();
        let (nic, _) = pair(config).expect("a link");
        let machine = start_for(PROGRAMS, nic, &["10.0.0.1/24"], 1, Filtering::None);
        let clients = (0..PROGRAMS).map(|program| (program, machine.client(program)));
        let mut world = World {
            clients: clients.collect(),
            machine,
            now: Instant::from_millis(1),
            finished: Vec::new(),
            forgets: true,
        };
        world.settle();
        world
    }

    /// Until nobody has anything to do.
    fn settle(&mut self) {
        for _ in 0..20 {
            self.now += Duration::from_micros(10);
            for who in Who::ALL {
                self.machine.poll(who, self.now);
            }
            for client in self.clients.values_mut() {
                client.poll().expect("a good channel");
            }
            self.take_finished();
        }
    }

    fn take_finished(&mut self) {
        for protocol in Protocol::ALL {
            while let Some(front) = self.machine.front(transport(protocol))
                && let Some(program) = front.take_finished()
            {
                self.finished.push((protocol, program));
                let all = Protocol::ALL.map(|it| (it, program));
                if self.forgets && all.iter().all(|it| self.finished.contains(it)) {
                    self.machine.forget_program(program);
                }
            }
        }
    }

    fn client(&mut self, program: u32) -> &mut Client {
        self.clients.get_mut(&program).expect("a program")
    }

    fn begin(&mut self, program: u32, call: SocketCall) {
        self.client(program).begin(call).expect("room");
    }

    fn ask(&mut self, program: u32, call: SocketCall) -> Result<Option<SocketId>, SocketError> {
        self.begin(program, call);
        self.settle();
        let answer = self.client(program).take_begun();
        answer.expect("an answer").map(|answer| answer.socket)
    }

    fn open(&mut self, protocol: Protocol) -> SocketId {
        let opened = self.ask(OWNER, SocketCall::Open(protocol));
        opened.expect("opened").expect("a socket")
    }

    fn share_call(&self, protocol: Protocol, socket: SocketId) -> SocketCall {
        SocketCall::Share(protocol, socket, self.machine.secret(OWNER))
    }

    fn share(&mut self, program: u32, protocol: Protocol, socket: SocketId) {
        let call = self.share_call(protocol, socket);
        self.ask(program, call).expect("shared");
    }

    fn close(&mut self, program: u32, protocol: Protocol, socket: SocketId) {
        let close = RequestBody::Call(SocketCall::Close(protocol, socket));
        let client = self.client(program);
        client.tell(close).expect("room");
        client.flush();
    }

    fn end(&mut self, program: u32) {
        self.clients.remove(&program);
        self.machine.program_ended(self.now, program);
    }

    fn lives(&self, protocol: Protocol, socket: SocketId) -> bool {
        self.machine.table(protocol).find(socket).is_some()
    }

    /// Nobody holds the owner's sockets any more, and it has ended.
    fn assert_gone(&mut self, protocol: Protocol, socket: SocketId) {
        assert!(!self.lives(protocol, socket), "{protocol:?}");
        for protocol in Protocol::ALL {
            assert!(self.finished.contains(&(protocol, OWNER)), "{protocol:?}");
        }
        assert_eq!(self.machine.leaks(), Vec::<String>::new());
    }
}

fn transport(protocol: Protocol) -> Who {
    match protocol {
        Protocol::Tcp => Who::Tcp,
        Protocol::Udp => Who::Udp,
    }
}

/// Some are told before their owner's end, others after it.
#[test]
fn a_successor_ends_nobody_before_it_knows_who_holds_what() {
    for protocol in Protocol::ALL {
        let mut world = World::new();
        let [first, second, third] = [0; 3].map(|_| world.open(protocol));
        world.share(HEIR, protocol, first);
        world.share(2, protocol, second);
        // The word of the owner's end waits in the lane.
        world.end(OWNER);
        world.machine.kill(transport(protocol));
        world.machine.restart(transport(protocol), world.now);
        world.settle();
        assert!(world.lives(protocol, first) && world.lives(protocol, second));
        assert!(!world.lives(protocol, third));
        world.close(HEIR, protocol, first);
        world.end(2);
        world.settle();
        assert!(!world.lives(protocol, first));
        world.assert_gone(protocol, second);
    }
}

/// The transport has taken the share and nobody knows; then the owner ends.
#[test]
fn a_holder_whose_share_is_not_answered_yet_holds_on() {
    for protocol in Protocol::ALL {
        let mut world = World::new();
        let socket = world.open(protocol);
        let share = world.share_call(protocol, socket);
        world.begin(HEIR, share);
        world.machine.poll(Who::Syscall, world.now);
        let who = transport(protocol);
        world.machine.kill_in_poll(who, world.now, Shown::Taken);
        world.end(OWNER);
        world.machine.restart(who, world.now);
        world.settle();
        assert!(world.client(HEIR).take_begun().expect("an answer").is_ok());
        assert!(world.lives(protocol, socket));
        world.close(HEIR, protocol, socket);
        world.settle();
        world.assert_gone(protocol, socket);
    }
}

/// A supervisor died after it had heard that a program was finished; another takes its place, and didn't hear it.
#[test]
fn a_program_that_is_introduced_once_more_after_its_end_leaves_nothing() {
    for protocol in Protocol::ALL {
        let mut world = World::new();
        world.open(protocol);
        world.forgets = false;
        world.end(OWNER);
        world.settle();
        assert!(world.finished.contains(&(protocol, OWNER)));
        world.finished.clear();
        let who = transport(protocol);
        for who in [who, Who::Syscall] {
            world.machine.attach(world.now, who, OWNER);
        }
        world.settle();
        world.machine.program_ended(world.now, OWNER);
        world.settle();
        assert_eq!(world.finished, [(protocol, OWNER)]);
        let front = world.machine.front(who).expect("it runs");
        assert!(front.programs.get(OWNER).is_none(), "{protocol:?}");
    }
}

/// That a program has ended, and then that nobody holds its sockets, waits in the lane. Its number is another's before
/// `syscall` says who holds what.
#[test]
fn a_successor_does_not_end_who_has_the_number_of_an_ended_program() {
    for protocol in Protocol::ALL {
        let mut world = World::new();
        let socket = world.open(protocol);
        world.share(HEIR, protocol, socket);
        world.end(OWNER);
        world.close(HEIR, protocol, socket);
        world.machine.poll(Who::Syscall, world.now);
        world.machine.kill(transport(protocol));
        world.machine.restart(transport(protocol), world.now);
        for protocol in Protocol::ALL {
            world.machine.poll(transport(protocol), world.now);
        }
        world.take_finished();
        assert!(!world.lives(protocol, socket), "{protocol:?}");
        assert_eq!(world.finished, Protocol::ALL.map(|it| (it, OWNER)));
        world.finished.clear();
        world.machine.introduce(world.now, OWNER);
        let client = world.machine.client(OWNER);
        world.clients.insert(OWNER, client);
        world.settle();
        assert_eq!(world.finished, []);
        let socket = world.open(protocol);
        assert!(world.lives(protocol, socket), "{protocol:?}");
    }
}

/// Its peer hasn't ended the connection yet.
#[test]
fn what_its_last_holder_has_closed_is_nobodys_to_share() {
    let filtering = [Filtering::None, Filtering::None];
    let mut world = programs::World::new(1, MemoryConfig::default(), filtering);
    let [talker, _] = world.connect(0);
    let socket = talker.socket;
    let mut client = world.machines[0].client(OWNER);
    let secret = world.machines[0].secret(OWNER);
    let mut share = |world: &mut programs::World| {
        let call = SocketCall::Share(Protocol::Tcp, socket, secret);
        client.begin(call).expect("room");
        world.settle();
        client.poll().expect("a good channel");
        let answer = client.take_begun().expect("an answer");
        let close = RequestBody::Call(SocketCall::Close(Protocol::Tcp, socket));
        client.tell(close).expect("room");
        client.flush();
        world.settle();
        answer.map(|answer| answer.socket)
    };
    assert_eq!(share(&mut world), Ok(Some(socket)));
    let table = world.machines[0].table(Protocol::Tcp);
    assert!(table.find(socket).is_some(), "it is being ended");
    assert_eq!(share(&mut world), Err(SocketError::Invalid));
}

/// `syscall` has written down that nobody holds the socket, and dies before it says so.
#[test]
fn what_its_last_holder_let_go_of_is_closed_by_whoever_comes_next() {
    for protocol in Protocol::ALL {
        for shown in [Shown::AllBy(1), Shown::AllBy(2), Shown::AllBy(3)] {
            for case in 0..8 {
                let [ends, both, late] = [1, 2, 4].map(|bit| case & bit != 0);
                let mut world = World::new();
                let socket = world.open(protocol);
                world.share(HEIR, protocol, socket);
                world.end(OWNER);
                world.settle();
                let before = world.machine.rewind_point(Who::Syscall);
                if ends {
                    world.end(HEIR);
                } else {
                    world.close(HEIR, protocol, socket);
                    world.machine.poll(Who::Syscall, world.now);
                }
                world.machine.kill_as(Who::Syscall, shown, before);
                if both {
                    world.machine.kill(transport(protocol));
                    world.machine.restart(transport(protocol), world.now);
                }
                if late {
                    world.settle();
                }
                world.machine.restart(Who::Syscall, world.now);
                world.settle();
                world.assert_gone(protocol, socket);
            }
        }
    }
}

/// That nobody holds the socket waits in the lane.
#[test]
fn a_successor_ends_what_was_ended_before_it_began() {
    for protocol in Protocol::ALL {
        let mut world = World::new();
        let socket = world.open(protocol);
        world.share(HEIR, protocol, socket);
        world.end(OWNER);
        world.settle();
        world.close(HEIR, protocol, socket);
        world.machine.poll(Who::Syscall, world.now);
        world.machine.kill(transport(protocol));
        world.machine.restart(transport(protocol), world.now);
        world.settle();
        world.assert_gone(protocol, socket);
    }
}
