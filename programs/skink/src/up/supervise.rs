//! The life of a supervisor: one thread that waits for signals, programs, tools and the stack, and uses
//! no CPU while nothing happens.
use super::component::{Component, News};
use super::deputy::Deputy;
use super::served::{End, Served, run_errands};
use crate::failure::Failure;
use crate::stderr::say;
use rustix::event::{PollFd, PollFlags, Timespec};
use skink_control::{Notifier, NotifyError, Server, SignalDescriptor};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Those that end it.
pub const SIGNALS: [i32; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// How long the stack may take to end in good order.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serves until a signal comes; answers the exit code. `announce` answers what to say when the stack,
/// in the process with that id, is ready for the first time.
pub fn supervise(
    server: &mut Server<Served>,
    signals: &SignalDescriptor,
    notifier: Option<&Notifier>,
    announce: impl Fn(Option<u32>) -> Vec<String>,
) -> Result<u8, Failure> {
    let mut deputy = Deputy::new();
    go_on(server, signals, notifier, &mut deputy, Some(&announce))
}

/// What is said when the stack, in the process with that id, is ready for the first time.
pub type Announce<'a> = &'a dyn Fn(Option<u32>) -> Vec<String>;

/// As [`supervise`], with a standby; and without an announcement, if that was made.
pub fn go_on(
    server: &mut Server<Served>,
    signals: &SignalDescriptor,
    notifier: Option<&Notifier>,
    deputy: &mut Deputy,
    mut announce: Option<Announce<'_>>,
) -> Result<u8, Failure> {
    let interval = notifier.and_then(|_| Notifier::watchdog_interval());
    let mut life = Life {
        notifier,
        interval,
        next_sign: Instant::now(),
        status: String::new(),
        is_another: false,
    };
    let mut called = true;
    loop {
        let now = Instant::now();
        deputy.beat();
        let mut next = round(server, signals, now, announce.is_none(), called)?;
        deputy.is_old |= server.take_changed();
        let served = server.owners();
        if served.ready
            && let Some(announce) = announce.take()
        {
            for line in announce(served.front().pid()) {
                say(format_args!("{line}"));
            }
            life.tell(Notifier::ready);
        }
        next = earlier(next, life.live(now, served));
        if announce.is_none() {
            next = earlier(next, deputy.renew(now, server, &mut life));
            server.owners_mut().standby = deputy.standby();
        }
        if server.owners_mut().go_ahead() {
            run_errands(server);
        }
        deputy.hand_over(now, server, &mut life);
        called = wait(server, signals, deputy.ended(), next);
        deputy.is_old |= called;
        if signals.take().is_some() {
            deputy.dismiss();
            life.tell(Notifier::stopping);
            stop(server, signals);
            return Ok(0);
        }
    }
}

/// Does what there is to do; `called` if a process may have said something, or ended: to ask each in each round is most of what an
/// idle stack costs. Answers when to come again at the latest; fails if the stack can't be started for the first time.
fn round(
    server: &mut Server<Served>,
    signals: &SignalDescriptor,
    now: Instant,
    announced: bool,
    called: bool,
) -> Result<Option<Instant>, Failure> {
    let left = server.serve(now);
    let mut next = left.map(|left| now + left);
    let ended = match called {
        true => server.owners_mut().hear(now),
        false => Vec::new(),
    };
    for end in ended {
        say_end(server.owners(), &end, now);
        if !announced {
            return Err(Failure::own(
                "the stack couldn't be started; what it said is above".to_owned(),
            ));
        }
    }
    let (due, failure) = server.owners_mut().drive(now, signals);
    next = earlier(next, due);
    if let Some((name, why)) = failure {
        match announced {
            true => say(format_args!("{name} can't be started: {why}")),
            false => return Err(Failure::own(format!("{name} can't be started: {why}"))),
        }
    }
    run_errands(server);
    for process in &mut server.owners_mut().stack.processes {
        if let Some(news) = process.take_news() {
            say_news(process, news);
        }
    }
    Ok(next)
}

fn say_news(process: &Component, news: News) {
    let name = process.name();
    match news {
        News::Failing => say(format_args!(
            "{name} can't stay up: it has ended again and again soon after its start, the last time: \
             {}; the rest goes on, and {name} is tried again every few seconds. Look above for what it said \
             itself; if that can't be mended, end this `skink up` and start it anew, which ends its connections",
            process.last_end().unwrap_or("for no known reason")
        )),
        News::Steady => say(format_args!("{name} stays up again")),
    }
}

fn say_end(served: &Served, end: &End, now: Instant) {
    let Some(process) = served.stack.processes.get(end.place) else {
        return;
    };
    let again = match process.pause(now) {
        Some(pause) if pause < Duration::from_secs(1) => "; it is started again".to_owned(),
        Some(pause) => format!("; it is started again in {} s", pause.as_secs_f64().ceil()),
        None => String::new(),
    };
    let (name, why) = (process.name(), &end.why);
    say(format_args!(
        "{name} has died: {why}; connections go on when it is back{again}"
    ));
}

/// Signs of life for the service manager.
pub struct Life<'a> {
    notifier: Option<&'a Notifier>,
    interval: Option<Duration>,
    next_sign: Instant,
    status: String,
    /// This process isn't the one that the manager knows, and the manager had no room to be told so.
    pub is_another: bool,
}

/// How long a manager has to make room for a message.
const NO_ROOM: Duration = Duration::from_millis(100);

impl Life<'_> {
    pub fn tell(&self, what: impl FnOnce(&Notifier) -> Result<(), NotifyError>) {
        if let Some(Err(error)) = self.notifier.map(what) {
            tracing::warn!("{error}");
        }
    }

    /// Whether the manager ends a service that gives no sign of life.
    pub fn is_watched(&self) -> bool {
        self.interval.is_some()
    }

    /// Answers when the next sign is due.
    fn live(&mut self, now: Instant, served: &Served) -> Option<Instant> {
        let notifier = self.notifier?;
        if self.is_another {
            let told = notifier.main_process(std::process::id());
            let has_no_room = |error: &std::io::Error| error.kind() == ErrorKind::WouldBlock;
            self.is_another = matches!(&told, Err(NotifyError::Send(error)) if has_no_room(error));
            if !self.is_another {
                self.tell(|_| told);
            }
        }
        let programs = match served.live() {
            1 => "1 program".to_owned(),
            count => format!("{count} programs"),
        };
        let status = format!("{programs}; {}", state(served));
        if status != self.status {
            self.tell(|notifier| notifier.status(&status));
            self.status = status;
        }
        let again = self.is_another.then(|| now + NO_ROOM);
        let Some(interval) = self.interval else {
            return again;
        };
        if now >= self.next_sign {
            self.tell(Notifier::watchdog);
            self.next_sign = now + interval;
        }
        earlier(again, Some(self.next_sign))
    }
}

/// Of the processes together.
fn state(served: &Served) -> String {
    let processes = &served.stack.processes;
    let others = processes.iter().filter(|it| it.state() != "running");
    let others = others.map(|it| match (it.state(), it.last_end()) {
        ("failing", Some(why)) => format!("{} can't stay up ({why}): see its log", it.name()),
        (state, _) => format!("{} is {state}", it.name()),
    });
    let others: Vec<String> = others.collect();
    match (others.as_slice(), processes.len()) {
        ([], 1) => format!("{} is running", served.front().name()),
        ([], count) => format!("all {count} processes are running"),
        (others, _) => others.join(", "),
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Sleeps until something happens or the time has come. Answers whether something has, but for what the broker hears:
/// it knows best what that means.
fn wait(
    server: &Server<Served>,
    signals: &SignalDescriptor,
    standby: Option<BorrowedFd<'_>>,
    until: Option<Instant>,
) -> bool {
    let mut descriptors = vec![
        PollFd::from_borrowed_fd(server.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
    ];
    descriptors.extend(standby.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    if let Some(met) = server.owners().met() {
        for descriptor in [met.link.as_fd(), met.ended.as_fd()] {
            descriptors.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        }
    }
    let processes = &server.owners().stack.processes;
    for (link, room, ended) in processes.iter().flat_map(Component::descriptors) {
        let wanted = match room {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        };
        descriptors.push(PollFd::from_borrowed_fd(link, wanted));
        descriptors.push(PollFd::from_borrowed_fd(ended, PollFlags::IN));
    }
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let left = left.map(|left| Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let ready = rustix::event::poll(&mut descriptors, left.as_ref());
    let mut others = descriptors.iter().skip(1);
    ready.is_ok() && others.any(|descriptor| !descriptor.revents().is_empty())
}

/// Ends the stack: in good order if it does so in time, and at once at a second signal.
fn stop(server: &mut Server<Served>, signals: &SignalDescriptor) {
    let limit = Instant::now() + FAREWELL;
    let mut killed = false;
    for group in server.owners().stack.plant.layout.stopping_order() {
        let tell = |server: &mut Server<Served>, each: fn(&mut Component)| {
            for place in group.iter() {
                let process = server.owners_mut().stack.processes.get_mut(place);
                process.into_iter().for_each(each);
            }
        };
        tell(server, Component::stop);
        while group.iter().any(|place| lives(server, place)) {
            let now = Instant::now();
            if !killed && (now >= limit || signals.take().is_some()) {
                say(format_args!(
                    "the stack doesn't end by itself, and is killed"
                ));
                killed = true;
            }
            if killed {
                tell(server, Component::kill);
            }
            wait_for_end(server, signals, (!killed).then_some(limit));
            server.owners_mut().hear(Instant::now());
        }
    }
}

fn lives(server: &Server<Served>, place: usize) -> bool {
    let process = server.owners().stack.processes.get(place);
    process.is_some_and(|process| process.pid().is_some())
}

fn wait_for_end(server: &Server<Served>, signals: &SignalDescriptor, until: Option<Instant>) {
    let mut descriptors = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    let processes = &server.owners().stack.processes;
    for (link, room, ended) in processes.iter().flat_map(Component::descriptors) {
        descriptors.push(PollFd::from_borrowed_fd(ended, PollFlags::IN));
        if room {
            descriptors.push(PollFd::from_borrowed_fd(link, PollFlags::OUT));
        }
    }
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let left = left.map(|left| Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let _ = rustix::event::poll(&mut descriptors, left.as_ref());
}
