//! Who takes over if the supervisor dies or hangs.
use super::heart::{self, Heart};
use super::programs::Program;
use super::served::Served;
use super::supervise::Life;
use crate::interfaces::HANDED_VERSION;
use crate::stderr::say;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use skink_channel::{Sleeper, SleeperDescriptors, SpinBudget};
use skink_control::{Executable, KnownConnection, Notifier, Server, Standby, Standing};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// A standby that is newer than this isn't replaced, unless somebody waits for that: much can happen at once.
const FRESH: Duration = Duration::from_millis(50);

/// A look at the supervisor that comes later than this after the one before says nothing: both were stopped, or
/// the machine.
const LATE: Duration = Duration::from_secs(1);

/// How long a build that was executed may take until it has served long enough, and has a standby of its own.
const PROOF: Duration = Duration::from_secs(3);
/// How often it is looked whether the standby is stopped.
const LOOK: Duration = Duration::from_secs(2);
/// When it is tried again to make one, if the system had no room.
const AGAIN: Duration = Duration::from_secs(1);
const HANGS: &str = "it hung: it was executed, and hasn't served for long enough since";

/// The supervisor's standby, and how it sees that the supervisor goes on.
pub struct Deputy {
    /// None: there can be none.
    inner: Option<Inner>,
    /// When the standby was made.
    made: Option<Instant>,
    /// Something has happened since.
    pub is_old: bool,
    /// The last one couldn't be made, and this was said.
    refused: bool,
    /// When it was last looked whether the standby is stopped. (The supervisor comes by many times a second.)
    looked: Option<Instant>,
}

/// What another build that this process executes goes on with.
#[derive(Serialize, Deserialize)]
pub struct Kept {
    standby: Standby,
    /// Both outlive this process: a successor goes on with them.
    descriptors: SleeperDescriptors,
}

struct Inner {
    kept: Kept,
    beats: Sleeper,
}

/// A program that has come since the standby was made.
#[derive(Serialize, Deserialize)]
struct Newcomer<C, P> {
    number: u16,
    connection: C,
    program: P,
}

/// All that another build inherits.
#[derive(Serialize)]
struct Estate<'a> {
    server: &'a Server<Served>,
    kept: &'a Kept,
}

impl Inner {
    fn new() -> io::Result<Inner> {
        Inner::with(Kept {
            standby: Standby::new(),
            descriptors: SleeperDescriptors::create("skink-sleep-supervisor")?,
        })
    }

    fn with(kept: Kept) -> io::Result<Inner> {
        let beats = Sleeper::attach(kept.descriptors.sleeper()?, SpinBudget::new(0));
        Ok(Inner {
            beats: beats.map_err(|error| io::Error::other(error.to_string()))?,
            kept,
        })
    }

    /// With a `limit` the copy kills this process too if it hasn't made another copy within that time.
    fn renew(&mut self, limit: Option<Duration>) -> io::Result<Standing> {
        let original = std::process::id();
        let mut heart = Heart::of_supervisor(self.kept.descriptors.pulse()?);
        let mut last = Instant::now();
        let mut since = last;
        self.kept.standby.renew(move |now| {
            if now.saturating_duration_since(last) > LATE {
                heart.start();
                since = now;
            }
            last = now;
            let stays = limit.is_none_or(|limit| now < since + limit);
            let hangs = heart.check(now, false, || heart::condition(original));
            hangs.or_else(|| (!stays).then(|| HANGS.to_owned()))
        })
    }

    /// Tells the standby of programs that have come, if nothing else waits until it knows: what another copy costs grows with all that there
    /// is. Answers whether it knows now.
    fn tell_of_newcomers(&self, server: &Server<Served>) -> bool {
        let mut told = false;
        for (number, program) in server.owners().newcomers() {
            let newcomer = server.connection_of(number).map(|connection| Newcomer {
                number,
                connection,
                program,
            });
            told = newcomer.is_none_or(|newcomer| self.kept.standby.tell(&newcomer).is_ok());
            if !told {
                break;
            }
        }
        told
    }

    /// Becomes the other build. Returns only if that fails.
    fn execute(
        &self,
        server: &Server<Served>,
        life: &Life<'_>,
        executable: &Executable,
    ) -> io::Error {
        let kept = &self.kept;
        match skink_inherit::lend(HANDED_VERSION, &Estate { server, kept }) {
            Ok(lent) => {
                let mut words = std::env::args_os();
                let mut command = Command::new(executable.path());
                command.arg0(words.next().unwrap_or_default()).args(words);
                if life.is_watched() {
                    Notifier::watch(&mut command);
                }
                lent.execute(&mut command)
            }
            Err(error) => error,
        }
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
            refused: false,
            looked: None,
        }
    }

    /// That of the build before, whose place this program has taken.
    pub fn inherited(kept: Kept) -> io::Result<Deputy> {
        die_of_panics();
        Ok(Deputy {
            inner: Some(Inner::with(kept)?),
            made: None,
            is_old: true,
            refused: false,
            looked: None,
        })
    }

    /// The supervisor goes on.
    pub fn beat(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.beats.beat();
        }
    }

    /// Polls readable when the standby has died.
    pub fn ended(&self) -> Option<BorrowedFd<'_>> {
        self.inner.as_ref()?.kept.standby.ended()
    }

    /// The standby's process id.
    pub fn standby(&self) -> Option<u32> {
        self.inner.as_ref()?.kept.standby.pid()
    }

    /// Ends it: the supervisor ends in good order.
    pub fn dismiss(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.kept.standby.dismiss();
        }
    }

    /// Makes a new one if it is time to. In the new one itself it returns when the process is dead
    /// which made it. Answers when to come again.
    pub fn renew(
        &mut self,
        now: Instant,
        server: &mut Server<Served>,
        life: &mut Life<'_>,
    ) -> Option<Instant> {
        let inner = self.inner.as_mut()?;
        // Until then the standby is of the build before.
        if server.owners().is_on_trial() && !inner.kept.standby.has_ended() {
            return None;
        }
        let is_awaited = server.owners().awaits_standby();
        if self.made.is_none() {
            die_of_panics();
        }
        if self.looked.is_none_or(|looked| now >= looked + LOOK) {
            self.looked = Some(now);
            self.is_old |= inner.kept.standby.is_stopped();
        }
        if self.made.is_some() && !self.is_old && !is_awaited {
            return Some(now + LOOK);
        }
        if is_awaited && self.made.is_some() && !self.refused && inner.tell_of_newcomers(server) {
            self.is_old = true;
            return Some(now + FRESH);
        }
        let pause = if self.refused { AGAIN } else { FRESH };
        let due = self.made.map(|made| made + pause);
        if let Some(due) = due.filter(|due| *due > now && !is_awaited) {
            return Some(due);
        }
        self.made = Some(now);
        self.is_old = false;
        match inner.renew(None) {
            Ok(Standing::Original) => {
                self.refused = false;
                Some(now + LOOK)
            }
            Ok(Standing::Successor { verdict }) => {
                self.take_over(server, life, verdict);
                Some(now)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.refused, true) {
                    say_refused(&error);
                }
                // One that doesn't know all would do harm. What the system has no room for now, it may have later.
                inner.kept.standby.dismiss();
                self.is_old = error.raw_os_error().is_some();
                self.is_old.then(|| now + AGAIN)
            }
        }
    }

    /// Executes another build in the place of this one, with a standby that knows of it. Returns if that fails, and in
    /// the standby when the other build has ended.
    pub fn hand_over(&mut self, now: Instant, server: &mut Server<Served>, life: &mut Life<'_>) {
        let Some(executable) = server.owners().heir().cloned() else {
            return;
        };
        server.owners_mut().executing(now);
        server.prepare_to_execute();
        let why = match &mut self.inner {
            None => io::Error::other("the supervisor can have no standby"),
            Some(inner) => match inner.renew(Some(PROOF)) {
                Ok(Standing::Original) => inner.execute(server, life, &executable),
                Ok(Standing::Successor { verdict }) => {
                    return self.take_over(server, life, verdict);
                }
                Err(error) => error,
            },
        };
        let why = format!("it can't be executed: {why}");
        server.owners_mut().not_executed(&why);
        (self.made, self.is_old) = (None, true);
    }

    /// In the standby that goes on: a program that had come after it was made.
    fn next_newcomer(&mut self) -> Option<Newcomer<KnownConnection, Program>> {
        let told = self.inner.as_mut()?.kept.standby.next_told();
        told.unwrap_or_else(|error| {
            say(format_args!(
                "programs that came a moment before aren't known, and may not be served on: {error}"
            ));
            None
        })
    }

    fn take_over(
        &mut self,
        server: &mut Server<Served>,
        life: &mut Life<'_>,
        verdict: Option<String>,
    ) {
        let pid = std::process::id();
        let what = verdict.as_deref().map_or_else(
            || "has died".to_owned(),
            |why| format!("has been killed: {why}"),
        );
        say(format_args!(
            "the supervisor {what}; process {pid} goes on in its place"
        ));
        if let Err(error) = server.take_over() {
            say(format_args!("nobody can attach or ask any more: {error}"));
        }
        while let Some(newcomer) = self.next_newcomer() {
            let Newcomer {
                number,
                connection,
                program,
            } = newcomer;
            match server.remember(connection) {
                Ok(()) => server.owners_mut().remember(number, program),
                Err(error) => say(format_args!("program {number} isn't served on: {error}")),
            }
        }
        server.dismiss_strangers();
        server.owners_mut().take_over(verdict.as_deref());
        life.is_another = true;
        // It wants one of its own, at once.
        (self.made, self.is_old) = (None, true);
    }
}

/// A supervisor that panics ends at once, as if somebody had killed it: its standby goes on, and nothing is dropped on the way,
/// which would end the stack.
fn die_of_panics() {
    std::panic::set_hook(Box::new(|panic| {
        say(format_args!("{panic}"));
        loop {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }));
}

fn say_refused(error: &io::Error) {
    say(format_args!(
        "this process can have no standby, so nobody takes over if it dies: {error}"
    ));
}
