use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use skink_channel::Sleeper;
use skink_messages::Progress;
use skink_time::{Duration, Instant};
use std::io;
use std::os::fd::BorrowedFd;

/// Who a component talks to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Neighbour {
    /// `link`
    Link,
    /// `ip`
    Ip,
    /// `filter`
    Filter,
    /// `tcp`
    Tcp,
    /// `udp`
    Udp,
}

/// A component with its ends. All calls come from one thread.
pub trait Host {
    /// Takes a batch from each neighbour, does what is due, and shows neighbours what came of it.
    /// [`Progress::More`] if there is more to do at once.
    fn poll(&mut self, now: Instant) -> Progress;

    /// When to poll at the latest, if nothing else happens.
    fn next_deadline(&self) -> Option<Instant>;

    /// Whether a neighbour has sent something, or made room for what there was none for.
    fn is_ready(&self) -> bool;

    /// What to sleep on besides [`Host::sleeper`], and what to wait for there.
    fn descriptors<'a>(&'a self, each: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        let _ = each;
    }

    /// Rung by neighbours.
    fn sleeper(&mut self) -> &mut Sleeper;

    /// As [`Host::sleeper`], to look at.
    fn bell(&self) -> BorrowedFd<'_>;

    /// A neighbour that has spoilt its queues, and must be restarted with new ones.
    fn broken(&self) -> Option<Neighbour>;
}

/// Descriptors that a host sleeps on at the most.
const DESCRIPTORS: usize = 16;

/// Sleeps until a neighbour rings, a descriptor is ready, or `most` is over. Returns at once if there is
/// something to do.
///
/// # Errors
/// What poll(2) says.
pub fn sleep(host: &mut impl Host, most: Duration) -> io::Result<()> {
    sleep_also_on(host, most, None).map(drop)
}

/// As [`sleep`], and wakes as well when `other` can be read. Answers whether it can.
///
/// # Errors
/// What poll(2) says.
pub fn sleep_also_on<H: Host + ?Sized>(
    host: &mut H,
    most: Duration,
    other: Option<BorrowedFd<'_>>,
) -> io::Result<bool> {
    host.sleeper().announce();
    let slept = match host.is_ready() {
        true => Ok(false),
        false => wait(host, most, other),
    };
    host.sleeper().retract();
    slept
}

fn wait<H: Host + ?Sized>(
    host: &H,
    most: Duration,
    other: Option<BorrowedFd<'_>>,
) -> io::Result<bool> {
    let bell = host.bell();
    let mut all =
        std::array::from_fn::<_, DESCRIPTORS, _>(|_| PollFd::from_borrowed_fd(bell, PollFlags::IN));
    let mut count = 1;
    if let (Some(other), Some(place)) = (other, all.get_mut(count)) {
        *place = PollFd::from_borrowed_fd(other, PollFlags::IN);
        count += 1;
    }
    host.descriptors(&mut |fd, flags| {
        if let Some(place) = all.get_mut(count) {
            *place = PollFd::from_borrowed_fd(fd, flags);
            count += 1;
        }
    });
    let timeout = Timespec {
        tv_sec: most.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: most.subsec_nanos().into(),
    };
    match rustix::event::poll(all.get_mut(..count).unwrap_or_default(), Some(&timeout)) {
        Ok(_) => {
            let second = all.get(1).filter(|_| other.is_some());
            Ok(second.is_some_and(|second| !second.revents().is_empty()))
        }
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
