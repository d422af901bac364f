//! Listening sockets whose program doesn't accept, while others listen on the same end.
//!
//! The kernel has one queue for all processes that share a listening socket, and whoever is free takes the next connection. Here
//! each program has a queue of its own (docs/decisions/0025), so one that is busy for long, or inherited the socket and never accepts, would keep its
//! share of the connections. A listener that has taken nothing for [`PATIENCE`], though something waits, is
//! *stalled*: what waits there goes to others, and so do new flows. After a pause it is given one connection, to see whether it
//! accepts again; each time that it doesn't the pause doubles.
//!
//! A program says in shared memory when it *waits*, that is, sleeps until it has a connection. Who does, and has none, is free: new
//! flows go there first, and so does what others leave waiting for [`SHORT`] without waiting themselves. A process that serves
//! one connection for as long as it lasts keeps nobody else's. If nobody is free then, the others' records ask each of them to tell
//! once it is ([`Record::is_wanted`](skink_memory::Record)).
//!
//! Where each process has a stack of its own it is another stack that has it then ([`Tcp::send_away`]).
//!
//! A listener *in reserve*, whose program says that it doesn't wait for connections
//! ([`ConnectionOption::Reserve`](skink_messages::ConnectionOption)), is stalled from the start, and is never tried.

use crate::instance::{Socket, Tcp};
use crate::listener::{LEFT_IN_A_TURN, Listener};
use crate::state::State;
use core::sync::atomic::Ordering::Relaxed;
use skink_memory::SocketId;
use skink_messages::{Counter, Network, Ports, SocketEvents, Waits};
use skink_time::{Duration, Instant};
use skink_wire::{Endpoint, protocol};

/// A program that accepts nothing for so long isn't just slow: most serve a request in less.
const PATIENCE: Duration = Duration::from_millis(250);

/// After so long what waits may go to who is free: a program that was about to accept has done so.
const SHORT: Duration = Duration::from_millis(2);

/// The first pause before a stalled listener is given a connection again, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);

/// Handshakes that are looked at to tell how many are about to be completed.
const LOOKED_AT: usize = 32;

/// Between two turns that give away what waits: those who get it should have accepted some of it.
const NEXT_TURN: Duration = Duration::from_millis(10);

/// Whether a listener's program accepts.
#[derive(Default)]
pub struct Stall {
    /// It has taken a connection since the timer was set.
    takes: bool,
    /// Since then it was seen once that it doesn't wait.
    seen: bool,
    timer: Timer,
    /// When it will be stalled, if it takes nothing.
    ends: Instant,
    /// It is stalled, and gets nothing until then.
    until: Option<Instant>,
    /// It was waiting when it stalled: what it says of that means nothing.
    deaf: bool,
    pause: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Timer {
    #[default]
    Off,
    /// At the next poll it is to be set.
    Due,
    Set,
}

#[cfg(test)]
impl Stall {
    /// Whether a timer runs.
    pub fn is_watched(&self) -> bool {
        self.timer != Timer::Off
    }
}

impl Listener {
    fn has_waiting(&self) -> bool {
        self.waiting() > 0
    }

    /// Connections that wait to be accepted.
    pub(crate) fn waiting(&self) -> usize {
        self.ready.len() + self.offered.len()
    }

    /// Whether it had better get no connection.
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        let until = self.stall.until;
        self.settings.reserve || until.is_some_and(|until| now < until || self.has_waiting())
    }

    /// Whether it may be given what others didn't accept: it has accepted all that it had, or at least some lately.
    fn keeps_up(&self, now: Instant) -> bool {
        !self.is_stalled(now) && (self.stall.takes || !self.has_waiting())
    }
}

impl Tcp {
    /// Whether a listener's program is taken to accept what it gets.
    pub(crate) fn accepts(&self, now: Instant, slot: u32) -> bool {
        self.listener(slot)
            .is_some_and(|listener| !listener.is_stalled(now))
    }

    /// Whether a listener's program waits for a connection, and has none that it could take.
    pub(crate) fn is_free(&self, listener: &Listener) -> bool {
        !listener.has_waiting()
            && !listener.stall.deaf
            && !listener.left
            && !listener.settings.reserve
            && self.is_waiting(listener)
    }

    fn is_waiting(&self, listener: &Listener) -> bool {
        self.table.waits(listener.id) == Some(true)
    }

    /// Whether a new flow is accepted at once by this listener's program, as far as that can be told. Of a program that never says
    /// when it waits it can't: it has its share with those that wait.
    pub(crate) fn is_free_for_flow(&self, now: Instant, slot: u32) -> bool {
        let Some(listener) = self.listener(slot) else {
            return false;
        };
        match self.table.waits(listener.id) {
            Some(_) => self.is_free(listener) && self.coming(listener) == 0,
            None => !listener.is_stalled(now),
        }
    }

    /// Handshakes under way that will be completed soon, as far as that can be told: the peer hasn't let our answer be repeated. Of
    /// very many some are looked at.
    fn coming(&self, listener: &Listener) -> usize {
        let list = listener.handshakes.iter().take(LOOKED_AT);
        let coming = list.filter(|id| {
            matches!(self.sockets.get(id.slot as usize), Some(Socket::Connection(child))
                if child.id == **id && child.state() == State::SynReceived && child.retries == 0)
        });
        coming.count()
    }

    /// Something waits at a listener: it is looked after if there are others that could take it.
    pub(crate) fn watch(&mut self, now: Instant, slot: u32) {
        if let Some(Socket::Listener(listener)) = self.sockets.get_mut(slot as usize)
            && listener.stall.timer == Timer::Off
            && !listener.left
            && (listener.lent
                || self
                    .demux
                    .is_shared(listener.local, listener.settings.reserve))
        {
            listener.stall.timer = Timer::Set;
            listener.stall.takes = false;
            listener.stall.seen = false;
            listener.stall.ends = now + PATIENCE;
            self.wheel.set(slot, now + SHORT);
            if self.listener(slot).is_some_and(|it| !self.is_waiting(it)) {
                self.want(slot);
            }
        }
    }

    /// The program of the listener in `slot` has taken a connection.
    pub(crate) fn note_taken(&mut self, slot: u32) {
        let Some(listener) = self.listener_mut(slot) else {
            return;
        };
        let stall = &mut listener.stall;
        stall.takes = true;
        stall.pause = None;
        stall.deaf = false;
        if stall.until.take().is_some() {
            let local = listener.local;
            self.look_again(local, slot);
        }
    }

    /// The listener in this slot accepts from now on: what waits at others on its end may go there.
    pub(crate) fn look_again(&mut self, local: Endpoint, slot: u32) {
        let others = self.demux.listeners_beside(local, slot);
        let others = others.filter(|slot| self.listener(*slot).is_some_and(Listener::has_waiting));
        for slot in others.collect::<Vec<_>>() {
            self.look_soon(slot);
        }
    }

    /// What waits at the listener in this slot is looked after at the next poll.
    fn look_soon(&mut self, slot: u32) {
        if let Some(listener) = self.listener_mut(slot)
            && listener.stall.timer == Timer::Off
        {
            listener.stall.timer = Timer::Due;
        }
        self.wheel.set(slot, Instant::ZERO);
    }

    /// How the program that has this stack for itself waits until one of these listeners, which are one socket of its, has a
    /// connection. If there are more threads than connections for them, other stacks' owners hear of it: of all that it listens on at
    /// the port, as that is what they see.
    pub fn show_waiting(
        &mut self,
        ids: impl Iterator<Item = SocketId>,
        waits: Waits,
        ports: &mut dyn Ports,
    ) {
        let mut port = None;
        for id in ids {
            if let Some(listener) = self.listener_mut(id.slot).filter(|it| it.id == id) {
                listener.waits = waits;
                port = Some(listener.local.port);
                let begins = !core::mem::replace(&mut listener.lent, true);
                if begins && listener.has_waiting() {
                    self.look_soon(id.slot);
                }
            }
        }
        if let Some(port) = port {
            self.show_port(port, ports);
        }
    }

    /// A handshake at this listener, given to who waits, doesn't complete, or not soon: whoever waits, waits still.
    pub(crate) fn comes_to_nothing(&mut self, parent: u32) {
        if let Some(listener) = self.listener(parent)
            && listener.lent
            && listener.waits.threads > 0
        {
            self.shown_due.push(listener.local.port);
        }
    }

    /// Other stacks' owners hear of the listeners on a port.
    pub(crate) fn show_port(&self, port: u16, ports: &mut dyn Ports) {
        let (mut all, mut coming, mut reserve) = (Waits::UNKNOWN, 0, true);
        for (_, slot) in self.bound.get(&port).into_iter().flatten() {
            if let Some(listener) = self.listener(*slot).filter(|it| !it.left) {
                all.threads = all.threads.max(listener.waits.threads);
                all.only_then &= listener.waits.only_then;
                coming += self.coming(listener) + listener.waiting();
                reserve &= listener.settings.reserve;
            }
        }
        match reserve {
            true => ports.keep_in_reserve(protocol::TCP, port),
            false => {
                ports.set_waiting(protocol::TCP, port, all.threads > coming, all.only_then);
            }
        }
    }

    /// The program of the listener in `slot` has begun to wait, and was asked to tell: it gets what waits where most do, and is asked again
    /// if that isn't all.
    pub(crate) fn note_waiting<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        out: &mut O,
    ) {
        let wanted = self.table.record(slot).is_wanted.swap(0, Relaxed) != 0;
        let Some(listener) = self.listener_mut(slot).filter(|_| wanted) else {
            return;
        };
        // It does mean what it says.
        listener.stall.deaf = false;
        let local = listener.local;
        let beside = self.demux.listeners_beside(local, slot);
        let others = beside.filter_map(|other| Some((other, self.listener(other)?)));
        let others = others.filter(|(other, it)| *other != slot && it.has_waiting());
        let busy = others.filter(|(_, it)| !self.is_waiting(it) && !self.was_moved(it));
        let busy: Vec<(usize, u32)> = busy.map(|(other, it)| (it.waiting(), other)).collect();
        let Some((_, longest)) = busy.iter().copied().max() else {
            return self.look_again(local, slot);
        };
        let all: usize = busy.iter().map(|(waiting, _)| waiting).sum();
        let is_free = self.listener(slot).is_some_and(|it| self.is_free(it)) && self.has_room(slot);
        let mut given = false;
        if is_free && self.given_away < LEFT_IN_A_TURN {
            given = self.hand_over(now, longest, 1, |it| it.id.slot == slot, out);
            self.offer_again(longest);
        }
        let more = all > usize::from(given);
        let wanted = &self.table.record(slot).is_wanted;
        wanted.store(more.into(), Relaxed);
    }

    /// The program of the listener in `slot` has said whether it waits for connections.
    pub(crate) fn note_reserve(&mut self, now: Instant, slot: u32, ports: &mut dyn Ports) {
        let Some(Socket::Listener(listener)) = self.sockets.get_mut(slot as usize) else {
            return;
        };
        if listener.left {
            return;
        }
        listener.stall = Stall::default();
        let (local, waits) = (listener.local, listener.has_waiting());
        let reserve = listener.settings.reserve;
        self.demux.set_reserve(local, slot, reserve);
        if self.hands_over() {
            self.show_port(local.port, ports);
        }
        if reserve {
            // What waits there may go at once.
            self.wheel.set(slot, Instant::ZERO);
        } else {
            self.tell_again(slot);
            self.look_again(local, slot);
            if waits {
                self.watch(now, slot);
            }
        }
    }

    /// The timer of a listener ran out.
    pub(crate) fn look_after<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        out: &mut O,
    ) {
        let Some(Socket::Listener(listener)) = self.sockets.get_mut(slot as usize) else {
            return;
        };
        if listener.left {
            self.left_due = true;
            return;
        }
        let reserve = listener.settings.reserve;
        let timer = core::mem::take(&mut listener.stall.timer);
        if !listener.has_waiting() {
            return;
        }
        if reserve {
            return self.look_after_reserve(now, slot, out);
        }
        let stall = &mut listener.stall;
        if timer != Timer::Set || stall.takes {
            return self.watch(now, slot);
        }
        if now < stall.ends {
            return self.look_for_free(now, slot, out);
        }
        if stall.until.is_none_or(|until| until <= now) {
            let pause = stall.pause.map_or(PAUSE, |last| last * 2);
            let pause = pause.min(LONGEST_PAUSE);
            stall.pause = Some(pause);
            stall.until = Some(now + pause);
            stall.deaf = self.table.waits(listener.id) == Some(true);
            self.counters.count(Counter::TcpStalled);
        }
        let again = stall.until.unwrap_or(now);
        let given = self.give_away(now, slot, out);
        let mut next = self.send_elsewhere(now, slot, out).or(given);
        let Some(listener) = self.listener_mut(slot) else {
            return;
        };
        if listener.lent {
            // When somebody waits elsewhere nobody tells.
            next = next.or(Some(PATIENCE));
        }
        if !listener.has_waiting() {
            return;
        }
        listener.stall.timer = Timer::Set;
        self.want(slot);
        self.wheel.set(slot, next.map_or(again, |next| now + next));
        if next.is_none_or(|next| next > NEXT_TURN) {
            self.offer_again(slot);
        }
    }

    /// Something has waited for a short time: whoever is free gets it, one connection each, unless its own program is just being woken
    /// for it. If not all goes, it is said where others see it before they wait.
    fn look_for_free<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        out: &mut O,
    ) {
        let Some(listener) = self.listener(slot) else {
            return;
        };
        let (local, ends) = (listener.local, listener.stall.ends);
        // What has been moved stays for longer: two programs that feign to wait would have it copied to and fro.
        if !self.is_waiting(listener) && !self.was_moved(listener) {
            let most = LEFT_IN_A_TURN.saturating_sub(self.given_away);
            let others = self.demux.listeners_beside(local, slot);
            let free = others.filter(|slot| {
                let listener = self.listener(*slot);
                listener.is_some_and(|it| self.is_free(it)) && self.has_room(*slot)
            });
            let free: Vec<u32> = free.take(most).collect();
            let is_free = |it: &Listener| free.contains(&it.id.slot) && !it.has_waiting();
            self.hand_over(now, slot, free.len(), is_free, out);
            self.offer_again(slot);
        }
        // Who began to wait meanwhile may not have seen it.
        let next = self.send_elsewhere(now, slot, out).unwrap_or(NEXT_TURN);
        if self.listener(slot).is_some_and(Listener::has_waiting) {
            self.want(slot);
            if let Some(listener) = self.listener_mut(slot) {
                listener.stall.timer = Timer::Set;
            }
            self.wheel.set(slot, ends.min(now + next));
        }
    }

    /// What waits longest at a listener, and whose process doesn't wait, goes to the stack of another one that does, as it can't come
    /// here. Answers when there may be more to do, if that is soon.
    fn send_elsewhere<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        out: &mut O,
    ) -> Option<Duration> {
        let listener = self.listener(slot)?;
        let (home, port) = (listener.id, listener.local.port);
        let is_busy = listener.lent && listener.waits.threads == 0;
        if !is_busy || !out.others_wait(protocol::TCP, port) {
            return None;
        }
        // Who serves many is in the midst of it as a rule: it may just have had no processor for a moment. And what has come from
        // elsewhere shouldn't be on its way all the time.
        let at_once = listener.waits.only_then && !self.was_moved(listener);
        let listener = self.listener_mut(slot)?;
        if !core::mem::replace(&mut listener.stall.seen, true) && !at_once {
            return Some(SHORT);
        }
        let child = listener.ready.pop_front()?;
        let given = self.send_away(now, child, Some(home), out);
        if !given && let Some(listener) = self.listener_mut(slot) {
            listener.ready.push_front(child);
        }
        given.then_some(SHORT)
    }

    /// Something waits at a listener: programs that listen beside it are asked to tell when they wait.
    fn want(&self, slot: u32) {
        if let Some(listener) = self.listener(slot) {
            let beside = self.demux.listeners_beside(listener.local, slot);
            for other in beside.filter(|other| *other != slot) {
                self.table.record(other).is_wanted.store(1, Relaxed);
            }
        }
    }

    /// Whether the connection that waits for longest at a listener has waited at another program's before.
    fn was_moved(&self, listener: &Listener) -> bool {
        let offered = listener.offered.front().map(|id| id.slot);
        let first = offered.or_else(|| listener.ready.front().copied());
        first.is_some_and(|slot| {
            matches!(self.sockets.get(slot as usize), Some(Socket::Connection(child)) if child.moved)
        })
    }

    /// What waits at a listener in reserve goes to others on its end, as long as some are in use.
    fn look_after_reserve<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        out: &mut O,
    ) {
        let given = self.give_away(now, slot, out);
        let next = self.send_elsewhere(now, slot, out).or(given);
        let Some(Socket::Listener(listener)) = self.sockets.get_mut(slot as usize) else {
            return;
        };
        let is_shared = self.demux.is_shared(listener.local, true);
        if listener.has_waiting() && (listener.lent || is_shared) {
            let soon = listener.lent && now < listener.stall.ends;
            let next = next.unwrap_or(if soon { NEXT_TURN } else { PATIENCE });
            listener.stall.timer = Timer::Set;
            self.wheel.set(slot, now + next);
            self.want(slot);
        }
    }

    /// What stays at a stalled listener may have been withdrawn from its program: it is offered once more. (Nothing is, where the
    /// program has the stack for itself.)
    fn offer_again(&mut self, slot: u32) {
        if self.listener(slot).is_some_and(|listener| !listener.lent) {
            self.tell_again(slot);
        }
    }

    /// The listener's program is told once more that something waits there.
    pub(crate) fn tell_again(&mut self, slot: u32) {
        if let Some(listener) = self.listener_mut(slot)
            && !listener.ready.is_empty()
            && !listener.settings.reserve
            && !core::mem::replace(&mut listener.notify, true)
        {
            self.notices.push_back(slot);
        }
    }

    /// What waits at a stalled listener goes to others on its end that accept, as far as they have room. Answers
    /// when there may be more to give; `None` if not before the pause is over.
    fn give_away<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        out: &mut O,
    ) -> Option<Duration> {
        let mut most = LEFT_IN_A_TURN.saturating_sub(self.given_away);
        if most == 0 {
            return Some(PATIENCE);
        }
        let local = self.listener(slot)?.local;
        let others = self.demux.listeners_beside(local, slot);
        let others = others.filter_map(|slot| Some((slot, self.listener(slot)?)));
        let (mut others, mut may_keep_up) = (others.collect::<Vec<_>>(), false);
        others.retain(|(slot, it)| {
            // They accept what they have, or turn out to be stalled too.
            may_keep_up |= !it.is_stalled(now) && it.has_waiting();
            (it.keeps_up(now) || self.is_free(it)) && self.has_room(*slot)
        });
        let later = may_keep_up.then_some(PATIENCE);
        // As they are now: they don't accept what they get in this turn.
        let proven = others.iter().filter(|(_, it)| it.stall.until.is_none());
        let mut heirs: Vec<u32> = proven.map(|(slot, _)| *slot).collect();
        if heirs.is_empty() {
            // To see whether one of them accepts again.
            heirs = others.iter().map(|(slot, _)| *slot).collect();
            most = 1;
        }
        if heirs.is_empty() {
            return later;
        }
        let given = self.hand_over(now, slot, most, |it| heirs.contains(&it.id.slot), out);
        match given && !self.listener(slot)?.ready.is_empty() {
            true => Some(NEXT_TURN),
            false => later,
        }
    }

    /// Up to `most` of those that wait at a listener go to others on its end which are `willing`. Answers whether some did.
    fn hand_over<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        slot: u32,
        most: usize,
        willing: impl Fn(&Listener) -> bool,
        out: &mut O,
    ) -> bool {
        let Some(listener) = self.listener(slot) else {
            return false;
        };
        let (local, offered) = (listener.local, &listener.offered);
        let offered: Vec<SocketId> = offered.iter().take(most).copied().collect();
        for id in offered.into_iter().rev() {
            // Unless the program is just taking it.
            if self.table.withdraw(id) {
                self.take_off_offered(id);
                self.take_back(now, slot, id);
            }
        }
        let (mut given, mut kept) = (false, Vec::new());
        for _ in 0..most {
            let listener = self.listener_mut(slot);
            let Some(child) = listener.and_then(|listener| listener.ready.pop_front()) else {
                break;
            };
            match self.pass_on(now, child, local, &willing, out) {
                true => {
                    self.given_away += 1;
                    given = true;
                }
                false => kept.push(child),
            }
        }
        if let Some(listener) = self.listener_mut(slot) {
            for child in kept.into_iter().rev() {
                listener.ready.push_front(child);
            }
        }
        given
    }

    pub(crate) fn listener(&self, slot: u32) -> Option<&Listener> {
        match self.sockets.get(slot as usize) {
            Some(Socket::Listener(listener)) => Some(listener),
            _ => None,
        }
    }

    pub(crate) fn listener_mut(&mut self, slot: u32) -> Option<&mut Listener> {
        match self.sockets.get_mut(slot as usize) {
            Some(Socket::Listener(listener)) => Some(listener),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
