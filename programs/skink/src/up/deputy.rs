//! Who takes over if the supervisor dies or hangs.
use super::heart::{self, Heart};
use super::served::Served;
use super::supervise::Life;
use skink_channel::{Sleeper, SleeperDescriptors, SpinBudget};
use skink_control::{Server, Standby, Standing};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// A standby that is newer than this isn't replaced, unless somebody waits for that: much can happen at once.
const FRESH: Duration = Duration::from_millis(20);

/// A look at the supervisor that comes later than this after the one before says nothing: both were stopped, or
/// the machine.
const LATE: Duration = Duration::from_secs(1);

/// The supervisor's standby, and how it sees that the supervisor goes on.
pub struct Deputy {
    /// None: there can be none.
    inner: Option<Inner>,
    /// When the standby was made.
    made: Option<Instant>,
    /// Something has happened since.
    pub is_old: bool,
}

struct Inner {
    standby: Standby,
    /// Both outlive this process: a successor goes on with them.
    descriptors: SleeperDescriptors,
    beats: Sleeper,
}

impl Inner {
    fn new() -> io::Result<Inner> {
        let descriptors = SleeperDescriptors::create("skink-supervisor")?;
        let beats = Sleeper::attach(descriptors.sleeper()?, SpinBudget::new(0));
        Ok(Inner {
            standby: Standby::new(),
            beats: beats.map_err(|error| io::Error::other(error.to_string()))?,
            descriptors,
        })
    }

    fn renew(&mut self) -> io::Result<Standing> {
        let original = std::process::id();
        let mut heart = Heart::of_supervisor(self.descriptors.pulse()?);
        let mut last = Instant::now();
        self.standby.renew(move |now| {
            if now.saturating_duration_since(last) > LATE {
                heart.start();
            }
            last = now;
            heart.check(now, || heart::condition(original))
        })
    }
}

impl Deputy {
    /// Without a standby yet.
    pub fn new() -> Deputy {
        let inner = Inner::new().inspect_err(say_refused).ok();
        Deputy {
            inner,
            made: None,
            is_old: false,
        }
    }

    /// The supervisor goes on.
    pub fn beat(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.beats.beat();
        }
    }

    /// Polls readable when the standby has died.
    pub fn ended(&self) -> Option<BorrowedFd<'_>> {
        self.inner.as_ref()?.standby.ended()
    }

    /// Ends it: the supervisor ends in good order.
    pub fn dismiss(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.standby.dismiss();
        }
    }

    /// Makes a new one if it is time to. In the new one itself it returns when the process is dead
    /// which made it. Answers when to come again.
    pub fn renew(
        &mut self,
        now: Instant,
        server: &mut Server<Served>,
        life: &Life<'_>,
    ) -> Option<Instant> {
        let inner = self.inner.as_mut()?;
        let is_awaited = server.owners().awaits_standby();
        if self.made.is_some() && !self.is_old && !is_awaited {
            return None;
        }
        let due = self.made.map(|made| made + FRESH);
        if let Some(due) = due.filter(|due| *due > now && !is_awaited) {
            return Some(due);
        }
        self.made = Some(now);
        self.is_old = false;
        match inner.renew() {
            Ok(Standing::Original) => {}
            Ok(Standing::Successor { verdict }) => {
                self.take_over(server, life, verdict);
                return Some(now);
            }
            Err(error) => {
                self.inner = None;
                say_refused(&error);
            }
        }
        None
    }

    fn take_over(&mut self, server: &mut Server<Served>, life: &Life<'_>, verdict: Option<String>) {
        let pid = std::process::id();
        let what = verdict.map_or_else(
            || "has died".to_owned(),
            |why| format!("has been killed: {why}"),
        );
        eprintln!("skink: the supervisor {what}; process {pid} goes on in its place");
        if let Err(error) = server.take_over() {
            eprintln!("skink: nobody can attach or ask any more: {error}");
        }
        server.owners_mut().take_over();
        life.tell(|notifier| notifier.main_process(pid));
        // It wants one of its own, at once.
        (self.made, self.is_old) = (None, true);
    }
}

fn say_refused(error: &io::Error) {
    eprintln!("skink: this process can have no standby, so nobody takes over if it dies: {error}");
}
