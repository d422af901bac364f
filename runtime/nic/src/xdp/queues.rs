//! An owner's queues: taken when they are the owner's to have, left when they are another's.

use super::receiver::XdpReceiver;
use super::sender::XdpSender;
use super::shares::Shares;
use super::{QueueDescription, bell};
use crate::opener::Past;
use crate::{Budget, FlowRings, Receiver};
use rustix::event::epoll;
use skink_messages::RxFrame;
use skink_steering::{Owner, QueueOwners};
use skink_time::Instant;
use skink_wire::FourTuple;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long frames may still come that the kernel steered before an owner left the queue: the program in the
/// kernel has run for them, but they aren't in the ring yet. The next owner would answer them with resets.
const GRACE: Duration = Duration::from_millis(50);
/// When to look again whether a queue that another owner has is free.
const AGAIN: Duration = Duration::from_millis(10);
/// So often the bell wakes the owner for that; then it looks when it has other things to do.
const CALLS: u32 = 200;

/// The sending half of the owner's first queue, once it has it.
pub(super) type Coming = Arc<Mutex<Option<XdpSender>>>;

/// A queue that the owner may have.
pub(super) struct Line {
    pub(super) description: QueueDescription,
    pub(super) socket: Arc<OwnedFd>,
    pub(super) memory: OwnedFd,
    /// The queue's other sockets, for flows.
    others: Vec<Arc<OwnedFd>>,
    place: Place,
}

enum Place {
    /// Others may have it.
    Away,
    /// The owner has it.
    Here(Box<XdpReceiver>),
    /// No frame is steered to it any more; at that time it is left.
    Leaving(Box<XdpReceiver>, Instant),
}

impl Line {
    pub(super) fn new(
        description: QueueDescription,
        socket: OwnedFd,
        memory: OwnedFd,
        others: Vec<Arc<OwnedFd>>,
    ) -> Line {
        Line {
            description,
            socket: Arc::new(socket),
            memory,
            others,
            place: Place::Away,
        }
    }

    fn receiver(&mut self) -> Option<&mut XdpReceiver> {
        match &mut self.place {
            Place::Here(receiver) | Place::Leaving(receiver, _) => Some(receiver),
            Place::Away => None,
        }
    }

    /// Has its sockets for flows wake who sleeps on their `sets`, or else whoever looks at `watched`.
    fn watch_flows(&mut self, sets: &[OwnedFd], watched: &OwnedFd) -> io::Result<()> {
        let Some(receiver) = self.receiver().filter(|_| !sets.is_empty()) else {
            return Ok(());
        };
        receiver.steer();
        // An exclusive waiter is woken if none before it was. The sets come first; a predecessor may have left the
        // sockets in `watched`.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        let once = flags | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(FLOWS);
        for (socket, set) in self.others.iter().zip(sets) {
            let _ = epoll::delete(watched, socket);
            epoll::add(set, socket, data, once)?;
            epoll::add(watched, socket, data, flags)?;
        }
        Ok(())
    }

    fn unwatch_flows(&self, sets: &[OwnedFd], watched: &OwnedFd) {
        for (socket, set) in self.others.iter().zip(sets) {
            let _ = epoll::delete(set, socket);
            let _ = epoll::delete(watched, socket);
        }
    }
}

/// What epoll tells of sockets for flows. Nobody reads it.
const FLOWS: u64 = u64::MAX - 1;

/// What an owner needs to have queues with others.
pub(super) struct Common {
    pub(super) owner: Owner,
    pub(super) shares: Shares,
    pub(super) steering: QueueOwners,
    pub(super) flows: skink_steering::FlowRings,
    /// An epoll descriptor with the bell in it, and the sockets of all queues that the owner has but the one of
    /// `direct`.
    pub(super) watched: OwnedFd,
    /// Rung when shares have changed, or something is due.
    pub(super) bell: OwnedFd,
    /// The sending half goes here.
    pub(super) coming: Coming,
}

/// The frames of all queues that the owner has.
pub(super) struct Queues {
    common: Common,
    lines: Vec<Line>,
    /// Where threads sleep that wait for flows, once there are some.
    sets: Vec<OwnedFd>,
    /// The queue that the owner had from the beginning: its socket is polled without a detour.
    direct: Option<usize>,
    seen: u32,
    /// Something is still to be taken or left: look at this time.
    due: Option<Instant>,
    calls: u32,
    /// The queue whose turn it is to be first.
    turn: usize,
}

impl Queues {
    /// With all queues that are free for the owner.
    pub(super) fn new(common: Common, lines: Vec<Line>, past: Past) -> io::Result<Queues> {
        let mut queues = Queues {
            common,
            lines,
            sets: Vec::new(),
            direct: None,
            seen: 0,
            due: None,
            calls: 0,
            turn: 0,
        };
        for index in 0..queues.lines.len() {
            let Some(is_first) = queues.common.shares.is_given(index, queues.common.owner) else {
                continue;
            };
            let own = past == Past::Own && queues.common.shares.is_held(index, queues.common.owner);
            if own || queues.common.shares.take(index, queues.common.owner) {
                queues.direct = queues.direct.or(is_first.then_some(index));
                let past = if own { Past::Own } else { Past::Others };
                let entered = queues.enter(index, past, is_first);
                // What others spoilt costs that queue. What its own predecessor spoilt, it must not go on with.
                match entered {
                    Ok(()) => {}
                    Err(error) if own => return Err(error),
                    Err(error) => queues.goes_without(index, &error),
                }
            }
        }
        queues.settle(Instant::ZERO);
        Ok(queues)
    }

    /// Begins with a queue that the owner has taken.
    fn enter(&mut self, index: usize, past: Past, is_first: bool) -> io::Result<()> {
        let line = &mut self.lines[index];
        let memory = line.memory.as_fd();
        let socket = Arc::clone(&line.socket);
        let attached = line.description.attach(socket, &line.others, memory, past);
        let (receiver, sender) = attached?;
        line.place = Place::Here(Box::new(receiver));
        line.watch_flows(&self.sets, &self.common.watched)?;
        if self.direct != Some(index) {
            let data = epoll::EventData::new_u64(index as u64);
            match epoll::add(
                &self.common.watched,
                &line.socket,
                data,
                epoll::EventFlags::IN,
            ) {
                // A predecessor had it there.
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if is_first {
            let coming = self.common.coming.lock();
            *coming.unwrap_or_else(PoisonError::into_inner) = Some(sender);
        }
        let queue = line.description.queue;
        let taken = self.common.steering.take(queue);
        taken.map_err(io::Error::other)
    }

    #[cold]
    fn goes_without(&self, index: usize, error: &io::Error) {
        let queue = self.lines.get(index).map(|line| line.description.queue);
        tracing::warn!(
            queue,
            %error,
            "can't go on with an AF_XDP queue: its frames take the slower way, by a packet socket"
        );
    }

    /// Takes and leaves what is to be taken and left.
    #[cold]
    fn settle(&mut self, now: Instant) {
        self.seen = self.common.shares.changes();
        let mut waits = false;
        for index in 0..self.lines.len() {
            waits |= !self.settle_one(index, now);
        }
        self.calls = if waits { self.calls + 1 } else { 0 };
        self.due = waits.then(|| now + AGAIN);
        let rings = waits && self.calls < CALLS;
        bell::set(
            &self.common.bell,
            if rings { AGAIN } else { Duration::ZERO },
        );
    }

    /// Answers whether nothing is left to be done about the queue.
    fn settle_one(&mut self, index: usize, now: Instant) -> bool {
        let owner = self.common.owner;
        let given = self.common.shares.is_given(index, owner);
        let line = &mut self.lines[index];
        let queue = line.description.queue;
        match (std::mem::replace(&mut line.place, Place::Away), given) {
            (Place::Away, None) => true,
            (Place::Away, Some(is_first)) => {
                if self.common.shares.is_held(index, owner) {
                    // Its rings make no sense: nobody can have it, and its frames take the slow way.
                    return true;
                }
                if !self.common.shares.take(index, owner) {
                    return false;
                }
                if let Err(error) = self.enter(index, Past::Others, is_first) {
                    self.goes_without(index, &error);
                }
                true
            }
            (Place::Here(receiver), Some(_)) => {
                line.place = Place::Here(receiver);
                true
            }
            (Place::Here(receiver), None) => {
                let _ = self.common.steering.leave(queue);
                line.place = Place::Leaving(receiver, now + GRACE);
                false
            }
            (Place::Leaving(receiver, _), Some(_)) => {
                let _ = self.common.steering.take(queue);
                line.place = Place::Here(receiver);
                true
            }
            (Place::Leaving(receiver, until), None) if now < until => {
                line.place = Place::Leaving(receiver, until);
                false
            }
            (Place::Leaving(receiver, _), None) => {
                let _ = epoll::delete(&self.common.watched, &line.socket);
                line.unwatch_flows(&self.sets, &self.common.watched);
                drop(receiver);
                self.common.shares.release(index, owner);
                true
            }
        }
    }
}

impl Receiver for Queues {
    fn receive(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        let changed = self.common.shares.changes() != self.seen;
        let mut frames = 0;
        // A batch that has nothing left for the queues is nobody's turn.
        let is_turn = !budget.is_spent();
        let (later, sooner) = self.lines.split_at_mut(self.turn);
        for line in sooner.iter_mut().chain(later) {
            if let Some(receiver) = line.receiver() {
                frames += receiver.receive(now, budget, each);
            }
        }
        if is_turn {
            self.turn = (self.turn + 1) % self.lines.len().max(1);
        }
        // After what has come was taken in: a queue is left empty.
        if changed || self.due.is_some_and(|due| now >= due) {
            self.settle(now);
        }
        frames
    }

    fn descriptors(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        if let Some(line) = self.direct.and_then(|index| self.lines.get(index)) {
            each(line.socket.as_fd());
        }
        each(self.common.watched.as_fd());
    }

    fn take_dropped(&mut self) -> u64 {
        let receivers = self.lines.iter_mut().filter_map(Line::receiver);
        receivers.map(Receiver::take_dropped).sum()
    }
}

impl FlowRings for Queues {
    fn count(&self) -> u8 {
        let lines = self.lines.iter().map(|line| line.description.flow_rings);
        lines.min().unwrap_or(0)
    }

    fn begin(&mut self, sets: Vec<OwnedFd>) -> io::Result<()> {
        for line in &mut self.lines {
            line.watch_flows(&sets, &self.common.watched)?;
        }
        self.sets = sets;
        self.common.flows.begin();
        Ok(())
    }

    fn bucket(&self, flow: &FourTuple) -> u16 {
        skink_steering::FlowRings::bucket(flow)
    }

    fn steer(&mut self, bucket: u16, ring: u8) {
        self.common.flows.steer(bucket, ring);
    }

    fn reserve(&mut self, ring: u8) -> bool {
        let receivers = self.lines.iter_mut().filter_map(Line::receiver);
        receivers.fold(false, |came, receiver| receiver.reserve(ring) | came)
    }

    fn release(&mut self, ring: u8) {
        for receiver in self.lines.iter_mut().filter_map(Line::receiver) {
            receiver.release(ring);
        }
    }

    fn take_all(&mut self) {
        for receiver in self.lines.iter_mut().filter_map(Line::receiver) {
            receiver.take_all();
        }
    }
}

#[cfg(test)]
mod tests;
