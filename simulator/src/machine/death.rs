//! How components die.

use super::{Machine, Who};
use skink_lanes::EndCounters;
use skink_memory::Mapping;
use skink_nic::Nic;
use skink_time::Instant;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

/// What a neighbour sees of the turn in which a component died. A turn ends with one neighbour after the
/// other: what that one sent is let go of, then what it is sent is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shown {
    /// All: it died after its turn.
    #[default]
    All,
    /// Nothing: a successor takes all messages once more, whose answers were never sent.
    Nothing,
    /// Its messages were taken, and their answers never sent.
    Taken,
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
        let queues = self.queues(who).into_iter();
        queues
            .map(|(sent, taken)| Rewind {
                sent: Snapshot::take(sent.producer().expect("parts").own),
                taken: Snapshot::take(taken.consumer().expect("parts").own),
            })
            .collect()
    }

    /// Ends a component in the midst of the turn that began with `before`.
    pub fn kill_as(&mut self, who: Who, shown: Shown, before: Vec<Rewind>) {
        for (index, Rewind { sent, taken }) in before.into_iter().enumerate() {
            let (answers, released) = match shown {
                Shown::All => (true, true),
                Shown::Nothing => (false, false),
                Shown::Taken => (false, true),
                Shown::Answers => (true, false),
                Shown::AllBy(first) => (index < first, index < first),
            };
            if !answers {
                sent.restore();
            }
            if !released {
                taken.restore();
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
        }
        self.dropped = self.dropped.plus(counted);
    }
}

/// The two halves of a pair of queues that are one component's.
pub struct Rewind {
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
