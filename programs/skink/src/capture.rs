mod filter;
mod frame;
mod pcapng;

use crate::cli::CaptureOptions;
use crate::failure::Failure;
use crate::stderr::tell;
use crate::tools::{self, Found};
use filter::Filter;
use frame::Frame;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use skink_control::{ProcessInfo, RegionKind, SignalDescriptor};
use skink_memory::{CaptureDirection, CaptureError, CaptureReader, CapturedFrame};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often to look for new processes.
const RESCAN: Duration = Duration::from_millis(500);
/// Frames taken from one process before the next one's turn.
const BATCH: usize = 256;
/// Bounds of the pause when there was nothing: it grows from one to the other.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// How long what is being written may take when the end has come.
const PATIENCE: Duration = Duration::from_secs(2);

/// A process that is being listened to.
struct Source {
    reader: CaptureReader,
    /// Process ids of its `skink run` and of itself, and its slot.
    key: (u32, u32, u16),
    instance: String,
    pid: u32,
    program: String,
    /// Its number in the file.
    interface: u32,
    dropped_before: u64,
    taken: u64,
    gone: bool,
}

enum Output {
    Lines,
    Json,
    File(BufWriter<Box<dyn Write>>),
}

/// One line of `skink capture --json`.
#[derive(Serialize)]
struct JsonFrame<'a> {
    time_ns: u64,
    instance: &'a str,
    pid: u32,
    program: &'a str,
    direction: &'static str,
    bytes: u32,
    #[serde(flatten)]
    frame: &'a Frame,
    summary: String,
}

/// Shows or records frames until told to stop.
pub fn capture(options: &CaptureOptions) -> Result<(), Failure> {
    let filter = Filter::parse(&options.filter.join(" ")).map_err(Failure::tool)?;
    let limit = match options.duration.map(Duration::try_from_secs_f64) {
        None => None,
        Some(Ok(duration)) => Instant::now().checked_add(duration),
        Some(Err(_)) => {
            return Err(Failure::tool(
                "--duration takes a number of seconds, 0 or more",
            ));
        }
    };
    let found = tools::find(options.instance.as_deref())?;
    if found.is_empty() {
        return Err(Failure::tool(
            "nothing runs here to capture from; start a program with `skink run -- PROGRAM`",
        ));
    }
    let signals = SignalDescriptor::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
        .map_err(|error| Failure::tool(format!("can't wait for signals: {error}")))?;
    let copy = signals.as_fd().try_clone_to_owned();
    let copy = copy.map_err(|error| Failure::tool(format!("can't wait for signals: {error}")))?;
    end_soon_after(move || wait_for(copy.as_fd()))?;
    let output = open(options)?;
    let mut session = Session {
        options,
        filter,
        found,
        sources: Vec::new(),
        refused: BTreeSet::new(),
        interfaces: 0,
        missed: 0,
        output,
        clock_offset: clock_offset(),
        shown: 0,
    };
    session.begin()?;
    let stopped = session.listen(limit, &signals);
    end_soon_after(|| ())?;
    let ended = session.end();
    stopped.and(ended)
}

/// Ends the process soon after `reason`, if it hasn't ended by itself: it may wait for who reads what it writes, such as a pager that
/// shows one page.
fn end_soon_after(reason: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let end = move || {
        reason();
        std::thread::sleep(PATIENCE);
        tell(format_args!("nobody reads the capture: its end is lost"));
        std::process::exit(1);
    };
    let thread = std::thread::Builder::new().spawn(end);
    let failure = |error| Failure::tool(format!("can't begin a thread: {error}"));
    thread.map(drop).map_err(failure)
}

/// Waits for a signal, and leaves it to be taken.
fn wait_for(signals: BorrowedFd<'_>) {
    let mut descriptors = [PollFd::from_borrowed_fd(signals, PollFlags::IN)];
    while !rustix::event::poll(&mut descriptors, None).is_ok_and(|count| count > 0) {}
}

fn open(options: &CaptureOptions) -> Result<Output, Failure> {
    let sink: Box<dyn Write> =
        match options.write.as_deref() {
            None if options.json => return Ok(Output::Json),
            None => return Ok(Output::Lines),
            Some(path) if path == Path::new("-") => Box::new(io::stdout()),
            Some(path) => Box::new(File::create(path).map_err(|error| {
                Failure::tool(format!("can't create {}: {error}", path.display()))
            })?),
        };
    Ok(Output::File(BufWriter::new(sink)))
}

/// What to add to `CLOCK_MONOTONIC` to get nanoseconds since 1970.
fn clock_offset() -> u64 {
    let nanoseconds = |clock| {
        let time = clock_gettime(clock);
        (time.tv_sec as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(time.tv_nsec as u64)
    };
    nanoseconds(ClockId::Realtime).wrapping_sub(nanoseconds(ClockId::Monotonic))
}

struct Session<'a> {
    options: &'a CaptureOptions,
    filter: Filter,
    found: Vec<Found>,
    sources: Vec<Source>,
    /// Sources that couldn't be had, which was said.
    refused: BTreeSet<(u32, u32, u16)>,
    interfaces: u32,
    missed: u64,
    output: Output,
    clock_offset: u64,
    shown: u64,
}

impl Session<'_> {
    fn begin(&mut self) -> Result<(), Failure> {
        if let Output::File(file) = &mut self.output {
            let program = concat!("skink ", env!("CARGO_PKG_VERSION"));
            pcapng::section(file, program).map_err(|error| Failure::output(&error))?;
        }
        let refused = self.scan()?;
        match refused {
            Some(error) if self.sources.is_empty() => Err(Failure::tool(error.to_string())),
            _ => Ok(()),
        }
    }

    fn listen(
        &mut self,
        limit: Option<Instant>,
        signals: &SignalDescriptor,
    ) -> Result<(), Failure> {
        let mut pause = SHORTEST_PAUSE;
        let mut scanned = Instant::now();
        loop {
            let taken = self.drain()?;
            self.flush()?;
            let now = Instant::now();
            let late = limit.is_some_and(|limit| now >= limit);
            if self.has_enough() || late || self.found.is_empty() || signals.take().is_some() {
                return Ok(());
            }
            if now.duration_since(scanned) >= RESCAN {
                self.scan()?;
                scanned = now;
            }
            pause = if taken {
                SHORTEST_PAUSE
            } else {
                (pause * 2).min(LONGEST_PAUSE)
            };
            let left = limit.map_or(pause, |limit| limit.saturating_duration_since(now));
            wait(signals, pause.min(left));
        }
    }

    /// Begins to listen to processes that have come, and ends with those that have gone.
    fn scan(&mut self) -> Result<Option<CaptureError>, Failure> {
        let selector = self.options.instance.as_deref();
        self.found.retain_mut(|found| {
            found.refresh().is_ok() && tools::select(&mut found.info, selector)
        });
        self.sources
            .iter_mut()
            .for_each(|source| source.gone = true);
        let mut refused = None;
        for found in &self.found {
            for process in &found.info.processes {
                let key = (found.info.pid, process.pid, process.owner);
                if let Some(source) = self.sources.iter_mut().find(|source| source.key == key) {
                    source.gone = false;
                    continue;
                }
                match start(found, process, self.options.snap, self.interfaces) {
                    Ok(Some(source)) => {
                        self.interfaces += 1;
                        self.output.begin(&source, self.options.snap)?;
                        self.sources.push(source);
                    }
                    Ok(None) => {}
                    Err(error) => {
                        if self.refused.insert(key) {
                            tracing::warn!("process {}: {error}", process.pid);
                        }
                        refused = Some(error);
                    }
                }
            }
        }
        let gone: Vec<Source> = self.sources.extract_if(.., |source| source.gone).collect();
        for mut source in gone {
            while self.drain_source(&mut source)? {}
            self.finish(&source)?;
        }
        Ok(refused)
    }

    /// Takes what has come in. Answers whether there was anything.
    fn drain(&mut self) -> Result<bool, Failure> {
        let mut any = false;
        let mut sources = std::mem::take(&mut self.sources);
        for source in &mut sources {
            any |= self.drain_source(source)?;
        }
        self.sources = sources;
        Ok(any)
    }

    /// Takes a batch from one process. Answers whether there was anything that was still wanted.
    fn drain_source(&mut self, source: &mut Source) -> Result<bool, Failure> {
        let mut any = false;
        for _ in 0..BATCH {
            if self.has_enough() {
                return Ok(false);
            }
            let Some(mut captured) = source.reader.take() else {
                break;
            };
            any = true;
            source.taken += 1;
            captured.time_ns = captured.time_ns.wrapping_add(self.clock_offset);
            let frame = Frame::read(&captured.bytes);
            if self.filter.matches(&frame) {
                self.shown += 1;
                self.output.show(source, &captured, &frame)?;
            }
        }
        Ok(any)
    }

    fn has_enough(&self) -> bool {
        self.options.count.is_some_and(|count| self.shown >= count)
    }

    /// Notes what one process has dropped.
    fn finish(&mut self, source: &Source) -> Result<(), Failure> {
        let dropped = source
            .reader
            .dropped()
            .saturating_sub(source.dropped_before);
        self.missed = self.missed.saturating_add(dropped);
        self.output.finish(source, dropped)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.output {
            Output::File(file) => file.flush().map_err(|error| Failure::output(&error)),
            Output::Lines | Output::Json => Ok(()),
        }
    }

    /// Writes what each process has dropped, and says it.
    fn end(&mut self) -> Result<(), Failure> {
        for source in std::mem::take(&mut self.sources) {
            self.finish(&source)?;
        }
        self.flush()?;
        let (shown, missed) = (self.shown, self.missed);
        tell(format_args!(
            "{shown} frames shown, {missed} missed since the tool was too slow"
        ));
        Ok(())
    }
}

fn start(
    found: &Found,
    process: &ProcessInfo,
    snap_bytes: u32,
    interface: u32,
) -> Result<Option<Source>, CaptureError> {
    let Some(memory) = found.open(process, RegionKind::Capture) else {
        return Ok(None);
    };
    let reader = CaptureReader::start(memory, snap_bytes)?;
    Ok(Some(Source {
        dropped_before: reader.dropped(),
        reader,
        key: (found.info.pid, process.pid, process.owner),
        instance: found.info.name.clone(),
        pid: process.pid,
        program: process.program.clone(),
        interface,
        taken: 0,
        gone: false,
    }))
}

impl Output {
    /// A source begins.
    fn begin(&mut self, source: &Source, snap_bytes: u32) -> Result<(), Failure> {
        let Output::File(file) = self else {
            return Ok(());
        };
        let name = format!("{} {}/{}", source.instance, source.program, source.pid);
        pcapng::interface(file, &name, snap_bytes).map_err(|error| Failure::output(&error))
    }

    /// A source ends.
    fn finish(&mut self, source: &Source, dropped: u64) -> Result<(), Failure> {
        let Output::File(file) = self else {
            return Ok(());
        };
        let seen = source.taken.saturating_add(dropped);
        pcapng::statistics(file, source.interface, seen, dropped)
            .map_err(|error| Failure::output(&error))
    }

    fn show(
        &mut self,
        source: &Source,
        captured: &CapturedFrame,
        frame: &Frame,
    ) -> Result<(), Failure> {
        let direction = match captured.direction {
            CaptureDirection::Inbound => "in",
            CaptureDirection::Outbound => "out",
        };
        match self {
            Output::File(file) => pcapng::packet(file, source.interface, captured)
                .map_err(|error| Failure::output(&error)),
            Output::Json => {
                let line = JsonFrame {
                    time_ns: captured.time_ns,
                    instance: &source.instance,
                    pid: source.pid,
                    program: &source.program,
                    direction,
                    bytes: captured.original_bytes,
                    frame,
                    summary: frame.summary(),
                };
                tools::print_json(&line, false)
            }
            Output::Lines => {
                let time = time_of_day(captured.time_ns);
                let (program, pid) = (&source.program, source.pid);
                let summary = frame.summary();
                tools::print(&format!(
                    "{time} {program}/{pid} {direction:<3} {summary}\n"
                ))
            }
        }
    }
}

/// Hours to microseconds, in UTC.
fn time_of_day(since_1970_ns: u64) -> String {
    let seconds = since_1970_ns / 1_000_000_000;
    let microseconds = since_1970_ns % 1_000_000_000 / 1000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!(
        "{hours:02}:{minutes:02}:{:02}.{microseconds:06}",
        seconds % 60
    )
}

fn wait(signals: &SignalDescriptor, pause: Duration) {
    let mut descriptors = [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    let limit = Timespec {
        tv_sec: i64::try_from(pause.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: pause.subsec_nanos().into(),
    };
    let _ = rustix::event::poll(&mut descriptors, Some(&limit));
}

#[cfg(test)]
mod tests;
