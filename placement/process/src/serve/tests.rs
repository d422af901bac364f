//! Processes that are driven by hand, one round of one of them after the other.

use super::*;
use crate::common::{ByHand, Files, Grouping, Raw, Runner, Step, World};
use skink_control::Part;
use skink_memory::{SocketId, SocketKind, SocketTable};
use skink_messages::SocketError;
use skink_sockets::{Answer, Protocol, SocketCall};

mod flows;
mod harm;
mod idle;
mod order;
mod restart;

struct Hand(EventLoop);

impl ByHand for Hand {
    fn round(&mut self) -> Step {
        self.0.wait(Some(Duration::ZERO));
        self.0.orders_wait = true;
        match self.0.round(clock::now()) {
            Round::Busy => Step::Busy,
            Round::Idle => Step::Idle,
            Round::Over(ended) => Step::Over(ended),
        }
    }

    fn would_sleep(&self) -> bool {
        let timeout = self.0.timeout(clock::now());
        !self.0.host.has_work() && timeout.is_none_or(|timeout| !timeout.is_zero())
    }

    fn is_woken(&self) -> bool {
        let mut set = [PollFd::new(&self.0.host.set, PollFlags::IN)];
        rustix::event::poll(&mut set, Some(&Timespec::default())) == Ok(1)
    }
}

fn by_hand(host: Host, link: ComponentLink) -> Runner {
    let process = EventLoop {
        host,
        link: Some(link),
        orders_wait: true,
        is_called: false,
        stops_by: None,
        events: Vec::with_capacity(64),
    };
    process.watch_link();
    Runner::ByHand(Box::new(Hand(process)))
}

/// Rounds in which whatever can be done is done.
const MANY: usize = 10_000;

impl World {
    fn of(grouping: Grouping) -> World {
        World::run_by(grouping, "", by_hand)
    }

    fn raw(&mut self, program: u32, uid: u32) -> Raw {
        let files: Files = self.files(program, uid);
        Raw::new(files)
    }

    /// One round of the process that has this part.
    fn step(&mut self, part: Part) -> Step {
        match self.split.runner(part) {
            Runner::ByHand(process) => process.round(),
            Runner::Thread(_) => panic!("it isn't driven by hand"),
        }
    }

    fn would_sleep(&mut self, part: Part) -> bool {
        match self.split.runner(part) {
            Runner::ByHand(process) => process.would_sleep(),
            Runner::Thread(_) => panic!("it isn't driven by hand"),
        }
    }

    fn is_woken(&mut self, part: Part) -> bool {
        match self.split.runner(part) {
            Runner::ByHand(process) => process.is_woken(),
            Runner::Thread(_) => panic!("it isn't driven by hand"),
        }
    }

    /// Drives all until nobody has anything to do.
    fn calm(&mut self) {
        let mut idle = 0;
        for _ in 0..MANY {
            self.peer.drive();
            idle = match self.run() {
                true => 0,
                false => idle + 1,
            };
            if idle > 3 {
                return;
            }
        }
        panic!("somebody is always busy");
    }

    /// Calls, and drives all until there is an answer.
    fn ask(&mut self, program: &mut Raw, call: SocketCall) -> Result<Answer, SocketError> {
        let serial = program.call(call);
        self.answer(program, serial)
    }

    fn answer(&mut self, program: &mut Raw, serial: u32) -> Result<Answer, SocketError> {
        let mut answer = None;
        self.until("an answer", |_| {
            answer = program.answers(serial).first().copied();
            answer.is_some()
        });
        answer.expect("just heard")
    }

    fn open(&mut self, program: &mut Raw, protocol: Protocol) -> SocketId {
        let answer = self.ask(program, SocketCall::Open(protocol));
        answer.expect("room").socket.expect("a socket")
    }
}

/// A program's open sockets.
fn open_sockets(table: &SocketTable, program: u32) -> usize {
    let region = table.region(program).expect("its region");
    let slots = (0..region.used()).map(|slot| table.slot_of(program, slot));
    let open = slots.filter(|slot| table.record(*slot).kind() != SocketKind::Free);
    open.count()
}
