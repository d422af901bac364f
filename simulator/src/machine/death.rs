//! How components die.

use super::{Machine, Who};
use skink_lanes::EndCounters;
use skink_memory::Mapping;
use skink_nic::Nic;
use skink_time::Instant;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

/// What a neighbour sees of the turn in which a component died. A turn ends with one neighbour after the
/// other: what it is sent is shown, then what that one sent is let go of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shown {
    /// All: it died after its turn.
    #[default]
    All,
    /// Nothing: a successor takes all messages once more, whose answers were never sent.
    Nothing,
    /// Its messages were taken, and their answers never sent.
    Taken,
    /// As `Taken` of packets, in the midst of it. Requests leave their queues once they are carried out.
    PacketsTaken,
    /// Answers, to messages that a successor takes once more.
    Answers,
    /// All by the first so many neighbours, nothing by the others.
    AllBy(usize),
}

impl Machine {
    /// Polls a component and ends it before that is over. `shown` says what its neighbours saw.
    pub fn kill_in_poll(&mut self, who: Who, now: Instant, shown: Shown) {
        self.kill_while(who, shown, |machine| {
            machine.poll(who, now);
        });
    }

    /// As [`Machine::kill_in_poll`], with whatever happens in that turn.
    pub fn kill_while(&mut self, who: Who, shown: Shown, turn: impl FnOnce(&mut Machine)) {
        let rewind = self.rewind_point(who);
        turn(self);
        self.kill_as(who, shown, rewind);
    }

    /// What of its queues is its own, as it is now.
    pub fn rewind_point(&self, who: Who) -> Vec<Rewind> {
        let lanes = self.queues(who);
        let last = lanes.len();
        let lanes = lanes.into_iter().enumerate();
        let neighbours = who.neighbours();
        let requests = |by: usize| {
            let ends = [who, neighbours[by]];
            ends.contains(&Who::Syscall) || ends.contains(&Who::Store)
        };
        let kind = |by| match requests(by) {
            true => Kind::Requests,
            false => Kind::Packets,
        };
        let lanes = lanes.map(|(by, (sent, taken))| (by, kind(by), sent, taken));
        let programs = self.program_queues(who).into_iter();
        let programs = programs.map(|(sent, taken)| (last, Kind::Program, sent, taken));
        lanes
            .chain(programs)
            .map(|(by, kind, sent, taken)| Rewind {
                by,
                kind,
                sent: Snapshot::take(sent.producer().expect("parts").own),
                taken: Snapshot::take(taken.consumer().expect("parts").own),
            })
            .collect()
    }

    /// Ends a component in the midst of the turn that began with `before`.
    pub fn kill_as(&mut self, who: Who, shown: Shown, before: Vec<Rewind>) {
        for rewind in before {
            let (answers, released) = match shown {
                Shown::All => (true, true),
                Shown::Nothing => (false, false),
                // What a program asks for leaves its queue last.
                Shown::Taken => (false, rewind.kind != Kind::Program),
                Shown::PacketsTaken => (false, rewind.kind == Kind::Packets),
                Shown::Answers => (true, false),
                Shown::AllBy(first) => (rewind.by < first, rewind.by < first),
            };
            if !answers {
                rewind.sent.restore();
            }
            if !released {
                rewind.taken.restore();
            }
        }
        self.kill(who);
    }

    /// Ends a component as `kill -9` does.
    pub fn kill(&mut self, who: Who) {
        if self.dead[who as usize] || !self.has(who) {
            return;
        }
        self.dead[who as usize] = true;
        let mut counted = EndCounters::default();
        match who {
            Who::Link => {
                if let Some(link) = self.link.take() {
                    counted = link.end_counters();
                    let (receiver, sender) = link.into_nic();
                    self.spare_nic = Some(Nic {
                        capabilities: self.capabilities,
                        receiver,
                        sender,
                    });
                }
            }
            Who::Ip => {
                let ends = self.ip.take().map(|mut ip| ip.end_counters());
                let ends = ends.into_iter().flatten();
                counted = ends.fold(counted, EndCounters::plus);
            }
            Who::Filter => {
                let end = self.filter.take().map(|filter| filter.end_counters());
                counted = end.unwrap_or_default();
            }
            // It stays for those who look at its tables.
            Who::Tcp | Who::Udp => {}
            Who::Syscall => {
                let end = self.syscall.take().map(|mut syscall| syscall.dropped());
                counted = end.unwrap_or_default();
            }
            Who::Store => {
                let end = self.store.take().map(|store| store.end_counters());
                counted = end.unwrap_or_default();
            }
        }
        self.dropped = self.dropped.plus(counted);
    }
}

/// What is in a pair of queues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Packets,
    Requests,
    Program,
}

/// The two halves of a pair of queues that are one component's.
pub struct Rewind {
    /// The place of the neighbour among those that it tells; programs come last.
    by: usize,
    kind: Kind,
    sent: Snapshot,
    taken: Snapshot,
}

/// What was in shared memory before a component did something.
struct Snapshot(Mapping, Vec<u64>);

impl Snapshot {
    fn take(memory: OwnedFd) -> Snapshot {
        let memory = Mapping::from_fd(memory).expect("memory");
        let words = memory.words().iter();
        let words = words.map(|word| word.load(Relaxed)).collect();
        Snapshot(memory, words)
    }

    fn restore(self) {
        for (word, value) in self.0.words().iter().zip(self.1) {
            word.store(value, Relaxed);
        }
    }
}
