//! How a consumer sleeps and how its producers wake it: a page that says who sleeps ([`crate::sleep`]
//! has its layout) and a pipe.
//!
//! One sleeper serves all queues of one consumer. It is a pipe, whose writing end can't be read: of an eventfd, which
//! all holders share, each could take back what others rang, and make those wait who ring. That takes a fifth of a
//! microsecond more for each time that somebody is woken. Producers still share the flags of the writing end, by which one
//! could make it block once it is full; so one that isn't trusted and may change them (a program) gets a
//! bell of its own, and the consumer polls both.
use crate::memory::{Memory, Ordering, load_acquire, word};
use crate::queue::{AttachError, Watch, duplicate, read_only};
use crate::relax::Relax;
use crate::sleep::{
    Announcer, BERTHS, Beat, Berth, Caller, Fenced, PAGE_BYTES, SIDE_BELLS, number_of,
};
use crate::spin::SpinBudget;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::pipe::PipeFlags;
use rustix::thread::futex;
use serde::{Deserialize, Serialize};
use skink_inherit::{Inherit, lend_borrowed};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// "SKINKSLP" and a version that changes with the layout.
const MAGIC: u64 = 0x534b_494e_4b53_0003;

/// What a consumer and its producers are handed. Keep it, and any of them can have a successor.
#[derive(Debug, Serialize, Deserialize)]
pub struct SleeperDescriptors {
    #[serde(with = "skink_inherit::descriptors")]
    page: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    page_read_only: OwnedFd,
    /// The consumer's: polls readable when it was rung.
    #[serde(with = "skink_inherit::descriptors")]
    bell: OwnedFd,
    /// What producers write to: the other end.
    #[serde(with = "skink_inherit::descriptors")]
    rope: OwnedFd,
}

/// What each producer is handed.
#[derive(Debug)]
pub struct DoorbellDescriptors {
    /// The consumer's page, for reading.
    pub page: OwnedFd,
    /// The pipe, for writing.
    pub bell: OwnedFd,
}

impl SleeperDescriptors {
    /// Makes a sleeper's page, called `name` in `/proc/PID/maps`, and its pipe. Needs `/proc`.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(name: &str) -> io::Result<SleeperDescriptors> {
        let (bell, rope) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let page = Memory::create(name, PAGE_BYTES)?;
        word(&page, 0).store(MAGIC, Ordering::Release);
        Ok(SleeperDescriptors {
            page_read_only: read_only(page.fd())?,
            page: page.fd().try_clone_to_owned()?,
            bell,
            rope,
        })
    }

    /// For the consumer, or its successor once it is dead: its page, to be written, and the pipe, to be read.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn sleeper(&self) -> io::Result<(OwnedFd, OwnedFd)> {
        Ok((duplicate(&self.page)?, duplicate(&self.bell)?))
    }

    /// For who watches whether the consumer goes on.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn pulse(&self) -> io::Result<Pulse> {
        Ok(Pulse {
            page: Memory::from_fd_read_only(duplicate(&self.page_read_only)?)?,
            bell: duplicate(&self.bell)?,
        })
    }

    /// For a producer.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn doorbell(&self) -> io::Result<DoorbellDescriptors> {
        Ok(DoorbellDescriptors {
            page: duplicate(&self.page_read_only)?,
            bell: duplicate(&self.rope)?,
        })
    }
}

/// Makes a side bell: what its consumer reads, and what producers write to.
///
/// # Errors
/// What the system says.
pub fn side_bell() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(
        PipeFlags::CLOEXEC | PipeFlags::NONBLOCK,
    )?)
}

fn check(page: &Memory) -> Result<(), AttachError> {
    match page.len() == PAGE_BYTES && load_acquire(word(page, 0)) == MAGIC {
        true => Ok(()),
        false => Err(AttachError::OtherLayout),
    }
}

/// A watcher's end: shows whether the consumer goes on. It may lie: a beat is no proof of health, only
/// the want of one is of sickness.
pub struct Pulse {
    page: Memory,
    bell: OwnedFd,
}

impl Pulse {
    /// What the consumer shows now.
    pub fn look(&self) -> Beat {
        crate::sleep::look(&self.page)
    }

    /// The consumer's note ([`Sleeper::note`]): any word, as the consumer may lie. 0 if there is none.
    pub fn note(&self) -> u64 {
        crate::sleep::note(&self.page)
    }

    /// Whether somebody has rung that the consumer hasn't heard yet.
    pub fn is_rung(&self) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut bell = [PollFd::new(&self.bell, PollFlags::IN)];
        rustix::event::poll(&mut bell, Some(&now)) == Ok(1)
    }
}

impl Inherit for Pulse {
    type Shape = (RawFd, RawFd);

    fn lend(&self) -> Option<Self::Shape> {
        Some((lend_borrowed(self.page.fd())?, self.bell.lend()?))
    }

    fn take((page, bell): Self::Shape) -> Option<Pulse> {
        Some(Pulse {
            page: Memory::from_fd_read_only(OwnedFd::take(page)?).ok()?,
            bell: OwnedFd::take(bell)?,
        })
    }
}

/// Why a consumer woke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// There was something before it slept.
    Ready,
    /// A producer rang, or a signal came: there may be something.
    Rung,
    /// The time is up.
    TimedOut,
}

/// The consumer's end: spins for a while, then sleeps until a producer rings.
///
/// [`Sleeper::wait`] is all that a consumer needs which waits for its queues alone. One that waits for
/// other descriptors too adds [`Sleeper::bell`] to those that it polls, and encloses that in
/// [`Sleeper::announce`], one more look at its queues, and [`Sleeper::retract`].
pub struct Sleeper {
    announcer: Announcer,
    bell: OwnedFd,
    side_bells: Vec<OwnedFd>,
    spin: SpinBudget,
    relax: Relax,
    plainly: bool,
}

impl Sleeper {
    /// Takes what [`SleeperDescriptors::sleeper`] answered.
    ///
    /// # Errors
    /// If the memory isn't a sleeper's page.
    pub fn attach(
        (page, bell): (OwnedFd, OwnedFd),
        spin: SpinBudget,
    ) -> Result<Sleeper, AttachError> {
        let page = Memory::from_fd(page)?;
        check(&page)?;
        Ok(Sleeper {
            announcer: Announcer::new(page),
            bell,
            side_bells: Vec::new(),
            spin,
            relax: Relax::detect(),
            plainly: false,
        })
    }

    /// The pipe is emptied by read(2) alone: for a program, which may have forbidden itself calls that few make. Whoever else holds this
    /// end is then trusted to leave its O_NONBLOCK alone.
    pub fn reading_plainly(self) -> Sleeper {
        Sleeper {
            plainly: true,
            ..self
        }
    }

    /// With these reading ends of [`side_bell`]s.
    pub fn with_side_bells(self, side_bells: [OwnedFd; SIDE_BELLS]) -> Sleeper {
        Sleeper {
            side_bells: side_bells.into(),
            ..self
        }
    }

    /// The side bell of this number, if there are some.
    pub fn side_bell(&self, number: usize) -> Option<BorrowedFd<'_>> {
        self.side_bells.get(number).map(AsFd::as_fd)
    }

    /// See [`Announcer::announce_beside`].
    pub fn announce_beside(&mut self, number: usize) {
        self.announcer.announce_beside(number);
    }

    /// See [`Announcer::retract_beside`].
    pub fn retract_beside(&mut self, number: usize) {
        self.announcer.retract_beside(number);
    }

    /// See [`Announcer::lead`].
    pub fn lead(&mut self, subject: u32, number: usize) {
        self.announcer.lead(subject, number);
    }

    /// The pipe: readable when a producer rang; of one whose producers are all gone, `POLLHUP` tells.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Says that the consumer is about to sleep. It must look at all its queues once more after this,
    /// and sleep only if there is nothing in any.
    pub fn announce(&mut self) {
        self.announcer.announce();
    }

    /// See [`Announcer::lie_down`].
    pub fn lie_down(&mut self, subject: u32) -> Option<Berth> {
        self.announcer.lie_down(subject)
    }

    /// Says that the consumer is awake, and leaves the pipe as it is: for one that empties it by
    /// itself, or knows that nobody rang.
    pub fn awake(&mut self) {
        self.announcer.retract();
    }

    /// Shows a [`Pulse`] that the consumer goes on: once in each round of its loop.
    pub fn beat(&mut self) {
        self.announcer.beat();
    }

    /// Shows a [`Pulse`] this word, until it is replaced or another consumer has taken the page.
    pub fn note(&mut self, note: u64) {
        self.announcer.note(note);
    }

    /// Says that the consumer is awake, and empties the pipe. Then look at the queues.
    pub fn retract(&mut self) {
        self.awake();
        // What is more than that is read in the next round: it stays readable.
        let mut rung = [0; 256];
        if self.plainly {
            let _ = rustix::io::read(&self.bell, &mut rung);
            return;
        }
        // Without waiting, whatever who else holds this end has done to its O_NONBLOCK.
        let answer = rustix::io::preadv2(
            &self.bell,
            &mut [IoSliceMut::new(&mut rung)],
            u64::MAX,
            ReadWriteFlags::NOWAIT,
        );
        if answer == Err(Errno::OPNOTSUPP) {
            // A pipe before Linux 6.4.
            let _ = rustix::io::read(&self.bell, &mut rung);
        }
    }

    /// Waits until `ready` is true (it looks at all queues, by [`Consumer::is_ready`]), a producer
    /// rings, or `timeout` is over: first awake, for as long as that has lately paid, then asleep.
    /// `watch` is the word that tells of a message, if there is just one queue: some processors can
    /// wait for it at less cost. The time is read from `CLOCK_MONOTONIC` here.
    ///
    /// # Errors
    /// What poll(2) says.
    ///
    /// [`Consumer::is_ready`]: crate::Consumer::is_ready
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        watch: Option<Watch<'_>>,
        ready: impl Fn() -> bool,
    ) -> io::Result<Woken> {
        if ready() {
            return Ok(Woken::Ready);
        }
        let start = Instant::now();
        let left = |start: Instant| timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        let budget = Duration::from_nanos(self.spin.budget_ns());
        let budget = timeout.map_or(budget, |timeout| budget.min(timeout));
        while start.elapsed() < budget {
            self.relax.relax(watch);
            if ready() {
                self.spin.on_paid();
                return Ok(Woken::Ready);
            }
        }
        self.announce();
        if ready() {
            self.announcer.retract();
            return Ok(Woken::Ready);
        }
        let asleep = Instant::now();
        let woken = sleep(&self.bell, left(start));
        self.retract();
        let slept = asleep.elapsed().as_nanos();
        self.spin.on_slept(u64::try_from(slept).unwrap_or(u64::MAX));
        woken
    }
}

fn sleep(bell: &OwnedFd, timeout: Option<Duration>) -> io::Result<Woken> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let mut descriptors = [PollFd::new(bell, PollFlags::IN)];
    let mut polled = rustix::event::poll(&mut descriptors, timeout.as_ref());
    let [bell] = &descriptors;
    if polled == Ok(1) && !bell.revents().contains(PollFlags::IN) {
        // Nobody is left who could ring.
        polled = rustix::event::poll(&mut [], timeout.as_ref());
    }
    match polled {
        Ok(0) => Ok(Woken::TimedOut),
        Ok(_) | Err(Errno::INTR) => Ok(Woken::Rung),
        Err(error) => Err(error.into()),
    }
}

/// A producer's end: wakes the consumer if it sleeps.
pub struct Doorbell {
    caller: Caller,
    bell: OwnedFd,
    side_bells: Vec<OwnedFd>,
    rung: u64,
    /// The sleeps on berths that were ended, once there is one.
    woken: Vec<u32>,
}

impl Doorbell {
    /// Takes what [`SleeperDescriptors::doorbell`] answered.
    ///
    /// # Errors
    /// If the memory isn't a sleeper's page.
    pub fn attach(descriptors: DoorbellDescriptors) -> Result<Doorbell, AttachError> {
        let page = Memory::from_fd_read_only(descriptors.page)?;
        check(&page)?;
        Ok(Doorbell {
            caller: Caller::new(page),
            bell: descriptors.bell,
            side_bells: Vec::new(),
            rung: 0,
            woken: Vec::new(),
        })
    }

    /// With these writing ends of [`side_bell`]s.
    pub fn with_side_bells(self, side_bells: [OwnedFd; SIDE_BELLS]) -> Doorbell {
        Doorbell {
            side_bells: side_bells.into(),
            ..self
        }
    }

    /// After publishing, once per batch and for all queues of this consumer: wakes it if it sleeps.
    /// Answers whether that took a system call. It costs a fence if not.
    #[inline]
    pub fn ring(&mut self) -> bool {
        self.ring_after(&Fenced::now())
    }

    /// As [`Doorbell::ring`], for what was published or released before that fence.
    #[inline]
    pub fn ring_after(&mut self, fenced: &Fenced) -> bool {
        let must = self.caller.must_ring_after(fenced);
        if must {
            self.wake();
        }
        must
    }

    /// After publishing one thing, about `subject`, before that fence: wakes the thread that sleeps until there is something about
    /// it. Answers whether one will look: if not, ring.
    #[inline]
    pub fn wake_for(&mut self, subject: u32, fenced: &Fenced) -> bool {
        if let Some(side) = self.caller.side_bell_of(subject, fenced)
            && let Some(bell) = self.side_bells.get(side.number)
        {
            if side.must_ring {
                self.rung = self.rung.wrapping_add(1);
                let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
            }
            return true;
        }
        let Some((berth, nap)) = self.caller.berth_of(subject, fenced) else {
            return false;
        };
        self.woken.resize(BERTHS, 0);
        let woken = &mut self.woken[number_of(subject)];
        if *woken == nap {
            return true;
        }
        let found = futex::wake(crate::sleep::futex(berth), futex::Flags::empty(), 1);
        let found = found.is_ok_and(|count| count > 0);
        if found {
            *woken = nap;
        }
        found
    }

    /// The pipe doesn't block, and one that is full is readable: nothing is lost.
    #[cold]
    fn wake(&mut self) {
        self.rung = self.rung.wrapping_add(1);
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// What is written to in order to ring. It polls with an error once nobody holds the consumer's end any more.
    pub fn rope(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// How often it was rung.
    pub fn rung(&self) -> u64 {
        self.rung
    }
}

#[cfg(test)]
mod tests;
