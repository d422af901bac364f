//! Epoll sets that have Skink's sockets in them.
//!
//! The program's epoll descriptor is a real one. Ordinary descriptors are its members in the kernel;
//! Skink's sockets are members of a set in here, with a list of those that may be ready, as in the
//! kernel. The kernel's set also has the NIC's descriptors and a doorbell, so that one sleep waits for
//! everything; their events carry secret tags and are filtered out. A thread that is woken by the NIC again and again for
//! what is another set's leaves it to that one's thread while it sleeps; and one that is woken by others again and again, for what
//! they have taken in, is woken for that by itself ([`crate::epoll_alone`]).
use crate::epoll_set::{Alone, Item};
use crate::errno::{Answer, fail};
use crate::fd_table::{self, Entry};
use crate::kernel_half::events_for_half;
use crate::provider::Provider;
use crate::raw;
use crate::socket::{Taker, Watch};
use crate::state::State;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use libc::epoll_event;

/// Bits that are conditions, not modes.
const CONDITIONS: u32 = 0x0fff_ffff;
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

pub const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// What may be asked for beside that (epoll_ctl(2)).
const WITH_EXCLUSIVE: u32 = EXCLUSIVE
    | ALWAYS
    | (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLWAKEUP | libc::EPOLLET) as u32;

/// Tags of events that are the library's own: this and the next three.
static TAG: AtomicU64 = AtomicU64::new(0);

/// What is added to a side bell's tag.
pub const SIDE_BELL: u64 = 2;

/// The tag of the NIC's descriptors; the doorbell's is one more.
pub fn tag() -> u64 {
    let tag = TAG.load(Ordering::Relaxed);
    if tag != 0 {
        return tag;
    }
    let mut random = [0u8; 8];
    let arguments = [random.as_mut_ptr() as usize, 8, 0, 0, 0, 0];
    // SAFETY: the bytes are ours.
    let _ = unsafe { raw::syscall(libc::SYS_getrandom, arguments) };
    // No pointer and no small number looks like this.
    let new = u64::from_ne_bytes(random) & !3 | 0x5a00_0000_0000_0100;
    let _ = TAG.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
    TAG.load(Ordering::Relaxed)
}

/// `epoll_ctl` in the kernel.
pub fn kernel_ctl(epfd: c_int, operation: c_int, fd: c_int, events: u32, data: u64) -> Answer {
    let mut event = epoll_event { events, u64: data };
    let at = &raw mut event as usize;
    let arguments = [epfd as usize, operation as usize, fd as usize, at, 0, 0];
    // SAFETY: the event is ours.
    unsafe { raw::call(libc::SYS_epoll_ctl, arguments) }
}

impl State {
    /// The set behind `epfd`, made if `epfd` is an epoll descriptor without one.
    fn epoll_of(&mut self, epfd: c_int) -> Answer<u32> {
        let entry = fd_table::get(epfd);
        if let Entry::Epoll(index) = entry {
            return Ok(index);
        }
        let doorbell = self.parking.take_event_fd()?;
        let events = libc::EPOLLIN as u32;
        // Fails with the right errno if it isn't an epoll descriptor at all.
        if let Err(stop) = kernel_ctl(epfd, libc::EPOLL_CTL_ADD, doorbell, events, tag() + 1) {
            self.parking.give_event_fd(doorbell);
            return Err(stop);
        }
        let index = match entry {
            Entry::Plain(index) => index,
            // It was made where that isn't seen.
            _ => self.epolls.add(epfd),
        };
        let set = &mut self.epolls[index];
        set.doorbell = doorbell;
        // Members that were added before are not known: let there be some.
        set.ordinary = 1;
        for fd in &set.fds {
            fd_table::set(*fd, Entry::Epoll(index));
        }
        self.add_nic(index);
        // A thread may sleep on it that doesn't know.
        self.epolls[index].rung = true;
        raw::ring(doorbell);
        self.begin_inner(index);
        Ok(index)
    }

    /// Makes the NIC's descriptors members of a set, once there is a stack.
    pub fn add_nic(&mut self, index: u32) {
        let Some(engine) = &self.engine else { return };
        let epoll = &mut self.epolls.list[index as usize];
        let on_ring = matches!(epoll.alone, Some(Alone::Ring(_)));
        if epoll.nic || on_ring || epoll.inherited || epoll.doorbell < 0 {
            return;
        }
        let Some(epfd) = epoll.fds.first().copied() else {
            return;
        };
        for fd in &engine.receive_fds {
            let events = (libc::EPOLLIN | libc::EPOLLEXCLUSIVE) as u32;
            let added = kernel_ctl(epfd, libc::EPOLL_CTL_ADD, *fd, events, tag());
            if added.is_err() {
                // One that stands for several queues is itself a set, which can't be added so.
                let events = libc::EPOLLIN as u32;
                let _ = kernel_ctl(epfd, libc::EPOLL_CTL_ADD, *fd, events, tag());
            }
        }
        if matches!(engine.stack, Provider::Library(_)) {
            // Who drives the stack hears of what has left it. Once for each notice: it may be for the helper.
            let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
            let _ = kernel_ctl(
                epfd,
                libc::EPOLL_CTL_ADD,
                engine.notices_fd(),
                events,
                tag(),
            );
        }
        epoll.nic = true;
    }

    /// Takes the NIC's descriptors out of a set, until [`State::add_nic`].
    pub fn leave_nic(&mut self, index: u32) {
        let Some(engine) = &self.engine else { return };
        let epoll = &mut self.epolls.list[index as usize];
        if let Some(epfd) = epoll.fds.first() {
            for fd in &engine.receive_fds {
                let _ = kernel_ctl(*epfd, libc::EPOLL_CTL_DEL, *fd, 0, 0);
            }
            if matches!(engine.stack, Provider::Library(_)) {
                let _ = kernel_ctl(*epfd, libc::EPOLL_CTL_DEL, engine.notices_fd(), 0, 0);
            }
            epoll.nic = false;
        }
    }

    /// The stack has just been made: sets that were made before watch its NIC from now on.
    pub fn adopt_epolls(&mut self) {
        for index in 0..self.epolls.list.len() as u32 {
            self.add_nic(index);
        }
        if self.epolls.inner > 0 {
            // A stack in another process must know that they watch its bell.
            crate::remote::unsettle();
        }
    }

    /// Nobody rings any more, and sets would find that worth waking up for.
    #[cold]
    pub fn unwatch_bell(&mut self) {
        let Some(engine) = self.engine.as_deref_mut() else {
            return;
        };
        for bell in core::mem::take(&mut engine.receive_fds) {
            for epfd in self
                .epolls
                .list
                .iter()
                .filter_map(|epoll| epoll.fds.first())
            {
                let _ = kernel_ctl(*epfd, libc::EPOLL_CTL_DEL, bell, 0, 0);
            }
        }
        for index in 0..self.epolls.list.len() as u32 {
            self.wake_with_others(index);
        }
    }

    /// A thread of this process is about to wait on a set.
    #[inline]
    pub fn begin_wait(&mut self, index: u32) {
        if core::mem::take(&mut self.epolls[index].inherited) {
            self.begin_inherited(index);
        }
    }

    #[cold]
    fn begin_inherited(&mut self, index: u32) {
        self.add_nic(index);
        // The process waits for connections, too, if its parent had put listening sockets in.
        let items = self.epolls[index].items.iter();
        let items = items.filter(|item| item.events != 0);
        for socket in items.map(|item| item.socket).collect::<Vec<u32>>() {
            if self.sockets[socket].taker == Taker::Others {
                // If that fails, who accepts is told.
                let _ = self.activate(socket);
            }
        }
    }

    /// `fd` is about to be closed. If it is the last one of a set, the kernel's may go on to be another process's, and would wake
    /// that for this one's NIC; and what was arranged by it can't be undone by another one.
    pub fn leave_set(&mut self, fd: c_int) {
        let (Entry::Epoll(index) | Entry::Plain(index)) = fd_table::get(fd) else {
            return;
        };
        let set = &self.epolls[index];
        let is_last = set.fds == [fd];
        if is_last || set.alone.is_some() && set.arranged_by == fd {
            self.wake_with_others(index);
        }
        if is_last && crate::fork::has_forked() {
            self.leave_nic(index);
            // If it isn't closed after all.
            self.epolls[index].inherited = true;
        }
    }

    /// A descriptor of the set was closed, or is about to be.
    pub fn epoll_descriptor_closed(&mut self, index: u32, fd: c_int) {
        let fds = &mut self.epolls[index].fds;
        fds.retain(|other| *other != fd);
        if fds.is_empty() {
            self.close_epoll(index);
        }
    }

    /// Another descriptor of the set.
    pub fn epoll_descriptor_added(&mut self, index: u32, fd: c_int) {
        self.epolls[index].fds.push(fd);
    }

    fn close_epoll(&mut self, index: u32) {
        self.wake_with_others(index);
        let old = self.epolls.remove(index);
        for item in old.items.iter().filter(|item| item.events != 0) {
            self.sockets[item.socket]
                .watchers
                .retain(|watch| watch.epoll != index);
        }
        match old.doorbell {
            ..0 => {}
            // A child may go on with the set, in which the bell is.
            bell if crate::fork::has_forked() => {
                fd_table::set(bell, Entry::Ordinary);
                raw::close(bell);
            }
            bell => self.parking.give_event_fd(bell),
        }
    }

    /// The kernel socket behind this one is listened to as well, from now on: sets watch it too.
    pub fn watch_kernel_half(&mut self, index: u32) {
        self.control_kernel_half(index, libc::EPOLL_CTL_ADD);
    }

    /// What comes to the kernel's half isn't received any more.
    pub fn unwatch_kernel_half(&mut self, index: u32) {
        self.control_kernel_half(index, libc::EPOLL_CTL_DEL);
    }

    fn control_kernel_half(&mut self, index: u32, operation: c_int) {
        let socket = &self.sockets[index];
        if !socket.kernel_listens && !socket.hears_in_kernel() {
            return;
        }
        for Watch { epoll, item } in &socket.watchers {
            let set = &mut self.epolls.list[*epoll as usize];
            let Item {
                fd, events, data, ..
            } = set.items[*item as usize];
            if let Some(epfd) = set.fds.first() {
                let _ = kernel_ctl(*epfd, operation, fd, events_for_half(events), data);
            }
            set.ordinary += u32::from(operation == libc::EPOLL_CTL_ADD);
        }
    }

    /// `epoll_ctl` for one of Skink's sockets.
    pub fn control(
        &mut self,
        epfd: c_int,
        operation: c_int,
        fd: c_int,
        event: Option<epoll_event>,
    ) -> Answer {
        let socket = self.socket_of(fd)?;
        let asked = event.map_or(0, |event| event.events);
        if asked & EXCLUSIVE != 0 {
            match operation {
                libc::EPOLL_CTL_MOD => return fail(libc::EINVAL),
                libc::EPOLL_CTL_ADD if asked & !WITH_EXCLUSIVE != 0 => return fail(libc::EINVAL),
                _ => {}
            }
        }
        if operation == libc::EPOLL_CTL_ADD {
            self.activate(socket)?;
            let entry = &self.sockets[socket];
            if entry.datagram && !entry.is_decided() && entry.bound.is_some() {
                self.make_datagram(socket)?;
            }
        }
        let index = self.epoll_of(epfd)?;
        let half = &self.sockets[socket];
        if half.kernel_listens || half.hears_in_kernel() {
            // The kernel's half says what is ready by itself.
            let asked = event.unwrap_or(epoll_event { events: 0, u64: 0 });
            let events = events_for_half(asked.events);
            if events & EXCLUSIVE != 0 {
                self.wakes_one(index);
            }
            kernel_ctl(epfd, operation, fd, events, asked.u64)?;
            self.epolls[index].ordinary += u32::from(operation == libc::EPOLL_CTL_ADD);
        }
        let known = self.epolls[index].item_of(fd, socket);
        match (operation, known, event) {
            (libc::EPOLL_CTL_ADD, Some(_), _) => fail(libc::EEXIST),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None, _) => fail(libc::ENOENT),
            (libc::EPOLL_CTL_DEL, Some(item), _) => {
                self.epolls[index].remove(item);
                let watch = Watch { epoll: index, item };
                self.sockets[socket]
                    .watchers
                    .retain(|other| *other != watch);
                self.show_waiting(socket);
                Ok(0)
            }
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _, None) => fail(libc::EFAULT),
            (libc::EPOLL_CTL_ADD, None, Some(event)) => {
                let events = event.events | ALWAYS;
                let data = event.u64;
                let item = Item {
                    socket,
                    fd,
                    events,
                    data,
                    queued: false,
                    disarmed: false,
                };
                let item = self.epolls[index].add(item);
                self.sockets[socket]
                    .watchers
                    .push(Watch { epoll: index, item });
                self.show_waiting(socket);
                self.check(index, item);
                Ok(0)
            }
            (libc::EPOLL_CTL_MOD, Some(place), Some(event)) => {
                let item = &mut self.epolls[index].items[place as usize];
                if item.events & EXCLUSIVE != 0 {
                    return fail(libc::EINVAL);
                }
                item.events = event.events | ALWAYS;
                item.data = event.u64;
                item.disarmed = false;
                self.show_waiting(socket);
                self.check(index, place);
                Ok(0)
            }
            _ => fail(libc::EINVAL),
        }
    }

    /// Queues a member whose condition holds.
    fn check(&mut self, index: u32, place: u32) {
        if self.is_due(index, place) {
            self.queue(index, place);
        }
    }

    /// Whether the condition of a member holds.
    pub fn is_due(&self, index: u32, place: u32) -> bool {
        let item = &self.epolls[index].items[place as usize];
        item.events != 0
            && !item.disarmed
            && self.readiness(item.socket) & item.events & CONDITIONS != 0
    }

    /// Queues a member, and wakes a thread that sleeps on the set.
    fn queue(&mut self, index: u32, place: u32) {
        self.epolls[index].queue(place);
        if self.epolls[index].inner {
            self.tell_outer(index, place);
        }
        if self.ring(index) {
            self.lead(index, place);
        }
    }

    /// Wakes a thread that sleeps on the set; answers whether that took a call. The bell of an inner one is another matter.
    fn ring(&mut self, index: u32) -> bool {
        let epoll = &mut self.epolls[index];
        let rings = epoll.sleepers > 0 && !epoll.inner && !epoll.rung && epoll.doorbell >= 0;
        if rings {
            epoll.rung = true;
            epoll.calls = epoll.calls.saturating_add(1);
            raw::ring(epoll.doorbell);
        }
        rings
    }

    /// Something happened to socket `index`: the sets that watch it look at it again.
    pub fn mark_ready(&mut self, index: u32) {
        for at in 0..self.sockets[index].watchers.len() {
            let Watch { epoll, item } = self.sockets[index].watchers[at];
            self.queue(epoll, item);
        }
    }

    /// The socket goes: it is no set's member any more.
    pub fn unwatch(&mut self, index: u32) {
        for Watch { epoll, item } in core::mem::take(&mut self.sockets[index].watchers) {
            self.epolls[epoll].remove(item);
        }
    }

    /// The socket is the kernel's from now on, and so is its membership in sets.
    pub fn watchers_to_kernel(&mut self, index: u32) {
        for Watch { epoll, item } in core::mem::take(&mut self.sockets[index].watchers) {
            let set = &mut self.epolls[epoll];
            let Item {
                fd, events, data, ..
            } = set.items[item as usize];
            set.remove(item);
            set.ordinary += 1;
            if let Some(epfd) = set.fds.first() {
                let added = kernel_ctl(*epfd, libc::EPOLL_CTL_ADD, fd, events, data);
                if added == fail(libc::EEXIST) {
                    // The kernel's half was a member.
                    let _ = kernel_ctl(*epfd, libc::EPOLL_CTL_MOD, fd, events, data);
                }
            }
        }
    }

    /// Takes events of members that are ready into `events`, as far as there is room.
    pub fn collect(&mut self, index: u32, events: &mut [epoll_event]) -> usize {
        let mut count = 0;
        // A level-triggered member goes to the back of the queue: one round only.
        for _ in 0..self.epolls[index].ready.len() {
            if count == events.len() {
                // The bell was rung once, whatever was ready: the next thread that sleeps on the set takes what is left.
                self.ring(index);
                break;
            }
            let Some(place) = self.epolls[index].ready.pop_front() else {
                break;
            };
            let item = &mut self.epolls[index].items[place as usize];
            item.queued = false;
            if item.events == 0 || item.disarmed {
                continue;
            }
            let (socket, wanted, data) = (item.socket, item.events, item.data);
            let bits = self.readiness(socket) & wanted & CONDITIONS;
            if bits == 0 {
                continue;
            }
            events[count] = epoll_event {
                events: bits,
                u64: data,
            };
            count += 1;
            let set = &mut self.epolls[index];
            if wanted & libc::EPOLLONESHOT as u32 != 0 {
                set.items[place as usize].disarmed = true;
            } else if wanted & libc::EPOLLET as u32 == 0 {
                set.queue(place);
            }
        }
        count
    }

    /// Whether a member is ready, without taking its event.
    pub fn has_ready(&self, index: u32) -> bool {
        let mut ready = self.epolls[index].ready.iter();
        ready.any(|place| self.is_due(index, *place))
    }
}

/// Drops the library's own events from what the kernel answered; answers how many are left, and
/// whether the doorbell was among them.
pub fn filter(events: &mut [epoll_event]) -> (usize, bool) {
    let (mut kept, mut rung) = (0, false);
    for at in 0..events.len() {
        let event = events[at];
        let data = event.u64;
        if data & !3 == tag() {
            rung |= data & 1 != 0;
        } else {
            events[kept] = event;
            kept += 1;
        }
    }
    (kept, rung)
}
