//! A client with many connections in one thread, which asks as soon as it has its answer, or at a rate
//! that doesn't depend on the answers.

use super::super::measure::Load;
use super::super::results::Latency;
use super::super::statistics::Spread;
use super::ask::SILENCE;
use super::talk::Talk;
use super::{percentile, percentiles};
use rustix::event::epoll;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// If the next request is due sooner than this, the client doesn't sleep: a timer would be late.
const SPIN: Duration = Duration::from_micros(200);
/// How long a moment is; the requests that were due in it have a 99th percentile of their own.
const MOMENT: Duration = Duration::from_millis(50);
/// Fewer times than these tell no such percentile.
const LEAST_IN_MOMENT: usize = 200;
/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;

/// How much is asked.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    pub connections: u32,
    pub time: Duration,
    /// So many requests in a second; `None`: as soon as a connection has its answer.
    pub rate: Option<u32>,
}

struct Connection {
    stream: TcpStream,
    /// The answer so far, and what it is to be.
    got: Vec<u8>,
    answer: String,
    /// When the request was to be sent; `None` while there is none.
    since: Option<Instant>,
}

/// Moments at which to ask, independent of each other (Poisson), the same ones in every run.
struct Schedule {
    next: Instant,
    /// Mean distance in seconds.
    distance: f64,
    state: u64,
}

impl Schedule {
    fn new(start: Instant, rate: u32) -> Schedule {
        Schedule {
            next: start,
            distance: 1.0 / f64::from(rate.max(1)),
            state: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// The moment of the next request, if that has come.
    fn due(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next;
        if due > now {
            return None;
        }
        // xorshift64; the upper bits make a number between 0 and 1, 0 excluded.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let uniform = ((self.state >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        self.next += Duration::from_secs_f64(self.distance * -uniform.ln());
        Some(due)
    }
}

struct Run<'a> {
    talk: &'a Talk,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Those that wait for no answer, in turn.
    free: VecDeque<usize>,
    /// When requests were due for which there is no connection yet.
    waiting: VecDeque<Instant>,
    schedule: Option<Schedule>,
    asked: u64,
    request: String,
    buffer: Vec<u8>,
    /// Of whole answers, in nanoseconds.
    times: Vec<u32>,
    start: Instant,
    /// At a rate: the same, by the moment in which the request was due, so that one in which the server stalls isn't spared.
    moments: Vec<Vec<u32>>,
}

/// Connects, asks for so long, and counts answers. A time begins when the request was due, whether or not
/// there was a connection on which to send it. What wasn't answered by the end doesn't count as work,
/// but its time until then counts among the latencies of a rate: else a server that stalls would be spared.
pub fn load(talk: &Talk, server: SocketAddr, demand: Demand) -> io::Result<Load> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let connections = (0..demand.connections).map(|token| connect(talk, &epoll, server, token));
    let connections = connections.collect::<io::Result<Vec<_>>>()?;
    let start = Instant::now();
    let mut run = Run {
        talk,
        epoll,
        free: (0..connections.len()).collect(),
        connections,
        waiting: VecDeque::new(),
        schedule: demand.rate.map(|rate| Schedule::new(start, rate)),
        asked: 0,
        request: String::new(),
        buffer: vec![0; READ_BYTES],
        times: Vec::with_capacity(1 << 20),
        start,
        moments: Vec::new(),
    };
    run.run(start + demand.time)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(run.count(seconds))
}

fn connect(talk: &Talk, epoll: &OwnedFd, server: SocketAddr, token: u32) -> io::Result<Connection> {
    let mut stream = TcpStream::connect_timeout(&server, SILENCE)?;
    stream.set_nodelay(true)?;
    stream.write_all(talk.greeting())?;
    stream.set_nonblocking(true)?;
    let data = epoll::EventData::new_u64(token.into());
    epoll::add(epoll, &stream, data, epoll::EventFlags::IN)?;
    Ok(Connection {
        stream,
        got: Vec::new(),
        answer: String::new(),
        since: None,
    })
}

impl Run<'_> {
    fn run(&mut self, end: Instant) -> io::Result<()> {
        let mut events = Vec::with_capacity(self.connections.len());
        loop {
            let now = Instant::now();
            if now >= end {
                // While no connection is free it sleeps, whatever becomes due.
                self.fall_due(end);
                return Ok(());
            }
            self.ask(now)?;
            let wait = self.wait(now, end);
            let limit = wait.try_into().map_err(io::Error::other)?;
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(&self.epoll, room, Some(&limit))?;
            if events.is_empty() && wait.is_zero() {
                // What receives for this side may want the processor.
                std::thread::yield_now();
            }
            for event in &events {
                self.receive(event.data.u64() as usize)?;
            }
        }
    }

    /// For how long nothing is to be done unless answers come.
    fn wait(&self, now: Instant, end: Instant) -> Duration {
        let until_end = end.saturating_duration_since(now);
        match &self.schedule {
            Some(schedule) if !self.free.is_empty() => {
                let wait = schedule.next.saturating_duration_since(now);
                if wait < SPIN {
                    Duration::ZERO
                } else {
                    (wait - SPIN).min(until_end)
                }
            }
            Some(_) | None => until_end,
        }
    }

    /// Has all requests wait for a connection whose moment has come.
    fn fall_due(&mut self, now: Instant) {
        while let Some(due) = self.schedule.as_mut().and_then(|one| one.due(now)) {
            self.waiting.push_back(due);
        }
    }

    /// Sends what is due, as far as there are connections for it.
    fn ask(&mut self, now: Instant) -> io::Result<()> {
        self.fall_due(now);
        while !self.free.is_empty() {
            let due = match &self.schedule {
                None => Some(Instant::now()),
                Some(_) => self.waiting.pop_front(),
            };
            let (Some(due), Some(index)) = (due, self.free.front()) else {
                return Ok(());
            };
            if let Some(connection) = self.connections.get_mut(*index) {
                let answer = &mut connection.answer;
                self.talk.prepare(self.asked, &mut self.request, answer);
                self.asked += 1;
                connection.since = Some(due);
                connection.stream.write_all(self.request.as_bytes())?;
            }
            self.free.pop_front();
        }
        Ok(())
    }

    fn receive(&mut self, index: usize) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(index) else {
            return Ok(());
        };
        let read = match connection.stream.read(&mut self.buffer) {
            Ok(0) => return Err(io::Error::other("the server ended a connection")),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let read = self.buffer.get(..read).unwrap_or_default();
        connection.got.extend_from_slice(read);
        if self.talk.is_complete(&connection.got, &connection.answer)? {
            connection.got.clear();
            let Some(since) = connection.since.take() else {
                return Err(io::Error::other("an answer came that nobody had asked for"));
            };
            self.free.push_back(index);
            self.note(since);
        }
        Ok(())
    }

    /// Notes how long a request has taken until now.
    fn note(&mut self, since: Instant) {
        let time = u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX);
        self.times.push(time);
        if self.schedule.is_some() {
            let moment = since.duration_since(self.start).as_nanos() / MOMENT.as_nanos();
            let moment = moment as usize;
            if moment >= self.moments.len() {
                self.moments.resize_with(moment + 1, Vec::new);
            }
            if let Some(times) = self.moments.get_mut(moment) {
                times.push(time);
            }
        }
    }

    /// The median of all moments' 99th percentiles, in microseconds.
    fn of_moments(&mut self) -> Option<f64> {
        let tell = |times: &&mut Vec<u32>| times.len() >= LEAST_IN_MOMENT;
        let within = self.moments.iter_mut().filter(tell).filter_map(|times| {
            times.sort_unstable();
            percentile(times, 990)
        });
        Spread::of(within).map(|spread| spread.median)
    }

    fn count(mut self, seconds: f64) -> Load {
        let units = self.times.len() as f64;
        if self.schedule.is_some() {
            let asked = self.connections.iter().filter_map(|one| one.since);
            let unanswered: Vec<Instant> = asked.chain(self.waiting.iter().copied()).collect();
            unanswered.into_iter().for_each(|since| self.note(since));
        }
        let moments = self.of_moments();
        self.times.sort_unstable();
        let silent = |one: &&Connection| one.since.is_some_and(|since| since.elapsed() > SILENCE);
        Load {
            units,
            seconds,
            latency: percentiles(&self.times).map(|latency| Latency {
                p99_moments_us: moments,
                ..latency
            }),
            socket_errors: self.connections.iter().filter(silent).count() as u64,
            bad_responses: 0,
        }
    }
}

#[cfg(test)]
mod tests;
