//! The event loop of a process that no program knows of.
use crate::clock;
use crate::part::{Hosted, Inner};
use crate::serve::Ended;
use rustix::event::{PollFd, PollFlags, Timespec};
use skink_control::{ComponentLink, LinkError, Report};
use skink_messages::Progress;
use skink_split::sleep_also_on;
use skink_time::{Duration, Instant};
use std::os::fd::AsFd;

/// Orders taken at one time.
const ORDERS: usize = 16;
/// A loop that is never idle looks at the supervisor's link this often, in rounds.
const LOOK_EVERY: u32 = 32;
/// How long the process sleeps at most while a report waits, or nobody would wake it.
const RETRY: Duration = Duration::from_millis(10);
/// While the supervisor is gone: how often to look whether the stack is needed.
const LOOK: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(3600);

/// Runs a part until the supervisor says to stop; without a supervisor, until no transport needs it.
pub fn serve_part(inner: Box<Inner>, link: ComponentLink) -> Ended {
    let mut process = Process {
        inner,
        link: Some(link),
    };
    let mut rounds = 0u32;
    let mut look = true;
    loop {
        let now = clock::now();
        if look && let Some(ended) = process.look(now) {
            return ended;
        }
        let progress = process.poll(now);
        if process.is_broken() {
            process.inner.reports.push_back(Report::Broken {});
            process.report();
            return Ended::Broken;
        }
        process.report();
        rounds = rounds.wrapping_add(1);
        look = match progress {
            Progress::More => rounds.is_multiple_of(LOOK_EVERY),
            Progress::Idle => process.sleep(now),
        };
    }
}

struct Process {
    inner: Box<Inner>,
    link: Option<ComponentLink>,
}

impl Process {
    /// Takes orders. Answers why the process ends, if it does.
    fn look(&mut self, now: Instant) -> Option<Ended> {
        for _ in 0..ORDERS {
            let Some(link) = &self.link else {
                return is_over(&self.inner).then_some(Ended::Deserted);
            };
            match link.receive() {
                Ok(Some((order, descriptors))) => {
                    if !self.inner.order(now, order, descriptors) {
                        return Some(Ended::Stopped);
                    }
                }
                Ok(None) => return None,
                Err(LinkError::Failed(_) | LinkError::Closed) => {
                    tracing::warn!("the supervisor is gone; this goes on while programs need it");
                    self.link = None;
                    // Nobody else would say so.
                    self.inner.held = false;
                }
            }
        }
        None
    }

    fn poll(&mut self, now: Instant) -> Progress {
        if self.inner.held {
            return Progress::Idle;
        }
        let progress = self.inner.hosted.host().poll(now);
        if let Hosted::Ip(ip) = &mut self.inner.hosted {
            while let Some((address, mac)) = ip.take_conflict() {
                tracing::warn!(
                    "{mac} on the link has {address} too: give one of the two another address"
                );
            }
        }
        progress
    }

    fn is_broken(&mut self) -> bool {
        let broken = self.inner.hosted.host().broken();
        if let Some(neighbour) = broken {
            tracing::error!("{neighbour:?} has spoilt its queue to this process, which ends");
        }
        broken.is_some()
    }

    fn report(&mut self) {
        let Some(link) = &self.link else {
            self.inner.reports.clear();
            return;
        };
        while let Some(report) = self.inner.reports.front() {
            match link.send(report, &[]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => tracing::warn!("a report to the supervisor is lost: {error}"),
                Ok(()) => {}
            }
            self.inner.reports.pop_front();
        }
    }

    /// Sleeps until there may be something to do. Answers whether there may be orders.
    fn sleep(&mut self, now: Instant) -> bool {
        let mut most = match (&self.link, self.inner.reports.is_empty()) {
            (_, false) => RETRY,
            (None, true) => LOOK,
            (Some(_), true) => LONG,
        };
        let link = self.link.as_ref().map(AsFd::as_fd);
        let slept = if self.inner.held {
            match link {
                Some(link) => wait(link, most),
                None => Ok(true),
            }
        } else {
            let host = self.inner.hosted.host();
            if let Some(due) = host.next_deadline() {
                most = most.min(due.since(now));
            }
            sleep_also_on(host, most, link)
        };
        match slept {
            Ok(readable) => readable || self.link.is_none(),
            Err(error) => {
                tracing::error!("waiting failed: {error}");
                true
            }
        }
    }
}

fn wait(fd: std::os::fd::BorrowedFd<'_>, most: Duration) -> std::io::Result<bool> {
    let mut all = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: most.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: most.subsec_nanos().into(),
    };
    match rustix::event::poll(&mut all, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether supervisor and transports are gone: nobody holds the other end of the pipe.
fn is_over(inner: &Inner) -> bool {
    let mut all = [PollFd::from_borrowed_fd(
        inner.life.as_fd(),
        PollFlags::empty(),
    )];
    let none = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let polled = rustix::event::poll(&mut all, Some(&none));
    polled.is_ok() && all.iter().any(|fd| fd.revents().contains(PollFlags::HUP))
}
