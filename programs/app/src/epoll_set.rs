//! Epoll sets as data: members, and which of them may be ready.
use core::ffi::c_int;
use skink_time::Instant;
use std::collections::VecDeque;

const NO_ITEM: u32 = u32::MAX;

/// See [`Epoll::enough_calls`].
const ENOUGH: u32 = 256;

/// What wakes those that sleep on one set, and nobody else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alone {
    /// A flow ring of the NIC's, on which they sleep instead.
    Ring(u8),
    /// A side bell of the stack in another process, which is a member of the set.
    Bell(u8),
}

/// A member.
pub struct Item {
    pub socket: u32,
    pub fd: c_int,
    /// As the program asked; 0 for a place that is free.
    pub events: u32,
    pub data: u64,
    pub queued: bool,
    /// A one-shot member that has fired.
    pub disarmed: bool,
}

/// One set.
pub struct Epoll {
    /// Descriptors that stand for it; none if the place is free.
    pub fds: Vec<c_int>,
    pub items: Vec<Item>,
    free: Vec<u32>,
    /// Item of each descriptor.
    by_fd: Vec<u32>,
    pub ready: VecDeque<u32>,
    /// Rung when a member becomes ready while a thread sleeps; -1 if there is none.
    pub doorbell: c_int,
    /// It was rung and not yet hushed.
    pub rung: bool,
    /// Threads that sleep on it.
    pub sleepers: u32,
    /// No other set has, or had, this number.
    pub number: u64,
    /// The NIC's descriptors are members.
    pub nic: bool,
    /// What wakes who sleeps on it alone.
    pub alone: Option<Alone>,
    /// The descriptor by which that was arranged.
    pub arranged_by: c_int,
    /// An ordinary descriptor was added by `EPOLLEXCLUSIVE`.
    pub exclusive: bool,
    /// How often another thread has rung the doorbell since that was last decided about.
    pub calls: u32,
    /// How often it must be rung for that; 0 if it is never to be.
    pub enough_calls: u32,
    /// It was made by a parent, and this process hasn't waited on it: who wakes up for the NIC of this process would be the
    /// parent.
    pub inherited: bool,
    /// Ordinary descriptors that were added.
    pub ordinary: u32,
    /// When the kernel's set was last asked.
    pub kernel_asked: Instant,
    /// When a wait last found something.
    pub served: Instant,
    /// When a thread last went to sleep on it.
    pub slept: Instant,
    /// Sleeps in a row that ended for what was another set's; of one that is to be woken alone, that another thread ended.
    pub misses: u32,
    /// It was put into another set: its bell says whether a member is ready, whoever sleeps.
    pub inner: bool,
    /// A member of an inner set has had an event, and its bell wasn't rung for it yet.
    pub news: bool,
    /// It stands in [`Epolls::noted`].
    pub noted: bool,
}

/// All sets.
pub struct Epolls {
    pub list: Vec<Epoll>,
    pub free: Vec<u32>,
    /// How many there ever were.
    made: u64,
    /// Threads that sleep on a set which has left the NIC to others.
    pub resting: u32,
    /// Inner sets that have, or had, sockets of Skink's.
    pub inner: u32,
    /// Those of them whose bell is rung, or must be looked after.
    pub noted: Vec<u32>,
}

impl Epolls {
    /// None.
    pub const fn new() -> Epolls {
        Epolls {
            list: Vec::new(),
            free: Vec::new(),
            made: 0,
            resting: 0,
            inner: 0,
            noted: Vec::new(),
        }
    }

    /// Makes room for the set behind `fd`.
    pub fn add(&mut self, fd: c_int) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.list.push(Epoll::new(-1));
            self.list.len() as u32 - 1
        });
        self.made += 1;
        self[index] = Epoll {
            number: self.made,
            ..Epoll::new(fd)
        };
        index
    }

    /// A thread begins to sleep on a set; answers its number.
    pub fn begin_sleep(&mut self, index: u32) -> u64 {
        let set = &mut self[index];
        set.sleepers += 1;
        set.number
    }

    /// A thread has slept on the set of this number. Answers whether that is there still.
    pub fn end_sleep(&mut self, index: u32, number: u64) -> bool {
        let set = &mut self[index];
        let same = set.number == number;
        set.sleepers = set.sleepers.saturating_sub(u32::from(same));
        same
    }

    /// The bell of an inner set must be looked after.
    pub fn look_after(&mut self, index: u32) {
        if !core::mem::replace(&mut self[index].noted, true) {
            self.noted.push(index);
        }
    }

    /// An inner set is none any more: it ends, or isn't this process's.
    fn end_inner(&mut self, index: u32) {
        let set = &mut self[index];
        if core::mem::take(&mut set.inner) && set.doorbell >= 0 {
            set.news = false;
            set.noted = false;
            self.inner -= 1;
            self.noted.retain(|other| *other != index);
        }
    }

    /// Gives the place of a set back, and answers what it was.
    pub fn remove(&mut self, index: u32) -> Epoll {
        self.end_inner(index);
        let old = core::mem::replace(&mut self[index], Epoll::new(-1));
        self[index].fds.clear();
        self.free.push(index);
        old
    }

    /// After `fork`, in the child: nothing here sleeps, and the NIC is the parent's. So are the bells: what is rung there mustn't
    /// be hushed here, or the other way round, until the child puts a set into another one by itself.
    pub fn leave_to_parent(&mut self) {
        self.resting = 0;
        for index in 0..self.list.len() as u32 {
            if self[index].inner {
                self[index].rung = false;
            }
            self.end_inner(index);
            self[index].sleepers = 0;
            self[index].nic = false;
            self[index].alone = None;
            self[index].inherited = true;
        }
    }

    /// Whether a wait on another set than `index` that the NIC wakes has found something since `index` was last slept on, or
    /// is about to.
    pub fn others_are_served(&self, index: u32) -> bool {
        let since = self[index].slept;
        let mut others = (0..).zip(&self.list).filter(|(other, _)| *other != index);
        others.any(|(_, set)| set.nic && (set.rung && !set.inner || set.served >= since))
    }
}

impl core::ops::Index<u32> for Epolls {
    type Output = Epoll;
    fn index(&self, index: u32) -> &Epoll {
        &self.list[index as usize]
    }
}

impl core::ops::IndexMut<u32> for Epolls {
    fn index_mut(&mut self, index: u32) -> &mut Epoll {
        &mut self.list[index as usize]
    }
}

impl Epoll {
    pub fn new(fd: c_int) -> Epoll {
        Epoll {
            fds: vec![fd],
            items: Vec::new(),
            free: Vec::new(),
            by_fd: Vec::new(),
            ready: VecDeque::new(),
            doorbell: -1,
            rung: false,
            sleepers: 0,
            number: 0,
            nic: false,
            alone: None,
            arranged_by: -1,
            exclusive: false,
            calls: 0,
            enough_calls: ENOUGH,
            inherited: false,
            ordinary: 0,
            kernel_asked: Instant::ZERO,
            served: Instant::ZERO,
            slept: Instant::ZERO,
            misses: 0,
            inner: false,
            news: false,
            noted: false,
        }
    }

    /// Whether who sleeps on the set is told when a member becomes readable, which it may be `already`.
    pub fn tells(&self, item: u32, already: impl FnOnce() -> bool) -> bool {
        let item = &self.items[item as usize];
        let once = item.events & libc::EPOLLET as u32 != 0;
        item.events & libc::EPOLLIN as u32 != 0 && !item.disarmed && !(once && already())
    }

    pub fn item_of(&self, fd: c_int, socket: u32) -> Option<u32> {
        let item = self
            .by_fd
            .get(fd as usize)
            .copied()
            .filter(|item| *item != NO_ITEM)?;
        (self.items[item as usize].socket == socket).then_some(item)
    }

    pub fn add(&mut self, item: Item) -> u32 {
        let fd = item.fd as usize;
        let place = match self.free.pop() {
            Some(place) => {
                // It may still stand in the ready list from its former life; let it.
                let queued = self.items[place as usize].queued;
                self.items[place as usize] = Item { queued, ..item };
                place
            }
            None => {
                self.items.push(item);
                self.items.len() as u32 - 1
            }
        };
        if fd >= self.by_fd.len() {
            self.by_fd.resize(fd + 1, NO_ITEM);
        }
        self.by_fd[fd] = place;
        place
    }

    pub fn remove(&mut self, place: u32) {
        let item = &mut self.items[place as usize];
        item.events = 0;
        item.socket = u32::MAX;
        let fd = item.fd as usize;
        if self.by_fd.get(fd) == Some(&place) {
            self.by_fd[fd] = NO_ITEM;
        }
        self.free.push(place);
    }

    pub fn queue(&mut self, place: u32) {
        let item = &mut self.items[place as usize];
        if !item.queued && !item.disarmed && item.events != 0 {
            item.queued = true;
            self.ready.push_back(place);
        }
    }
}
