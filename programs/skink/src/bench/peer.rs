//! The benchmark's own server and client, in plain blocking sockets: bytes in bulk, and one byte there and
//! back. The server is a program like any other, which runs on the kernel's stack or under `skink run`.

use super::measure::Load;
use super::results::Latency;
use crate::failure::Failure;
use clap::{Args, Subcommand};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Where the server listens.
pub const PORT: u16 = 5201;
/// Bytes given to one call in bulk, as many as iperf3 gives.
const BULK_BYTES: usize = 128 << 10;
/// A connection on which nothing happens for so long has failed.
const SILENCE: Duration = Duration::from_secs(5);

/// Be the server or the client of a benchmark (for the benchmarks' use)
#[derive(Args, Debug)]
pub struct PeerOptions {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand, Debug)]
enum Part {
    /// Serve so many connections at a time
    Serve { connections: u32 },
    /// Do something for some seconds, and print what was counted
    Ask {
        service: Service,
        server: SocketAddr,
        connections: u32,
        seconds: u32,
    },
}

/// What a client wants of a connection. Its first byte says it.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Every byte back.
    Echo,
    /// Bytes without end.
    Send,
    /// Bytes taken until the client's end, then their count in eight bytes, the most significant first.
    Receive,
}

impl Service {
    const ALL: [Service; 3] = [Service::Echo, Service::Send, Service::Receive];

    /// The word for it on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Service::Echo => "echo",
            Service::Send => "send",
            Service::Receive => "receive",
        }
    }

    fn byte(self) -> u8 {
        self.word().as_bytes().first().copied().unwrap_or(b'?')
    }
}

/// Runs the server until it is ended, or the client.
pub fn peer(options: &PeerOptions) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::tool(format!("the benchmark's peer: {error}"));
    match options.part {
        Part::Serve { connections } => {
            let listener = TcpListener::bind(("0.0.0.0", PORT)).map_err(failed)?;
            serve(&Arc::new(listener), connections).map_err(failed)
        }
        Part::Ask {
            service,
            server,
            connections,
            seconds,
        } => {
            let time = Duration::from_secs(seconds.into());
            let load = ask(service, server, connections, time).map_err(failed)?;
            let line =
                serde_json::to_string(&load).map_err(|error| Failure::tool(error.to_string()))?;
            crate::tools::print(&(line + "\n"))
        }
    }
}

/// Each connection has a thread, and none of the threads ever ends: what they used would be lost.
fn serve(listener: &Arc<TcpListener>, connections: u32) -> io::Result<()> {
    for _ in 1..connections {
        let listener = Arc::clone(listener);
        std::thread::spawn(move || accept(&listener));
    }
    accept(listener)
}

fn accept(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        // That a client goes is nothing to complain about; it says itself what it misses.
        let _ = answer(stream);
    }
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut wish = [0];
    stream.read_exact(&mut wish)?;
    let [wish] = wish;
    let service = Service::ALL
        .into_iter()
        .find(|service| service.byte() == wish);
    match service {
        Some(Service::Echo) => {
            let mut bytes = [0; 4096];
            loop {
                let read = stream.read(&mut bytes)?;
                match bytes.get(..read) {
                    Some(read) if !read.is_empty() => stream.write_all(read)?,
                    _ => return Ok(()),
                }
            }
        }
        Some(Service::Send) => {
            let bytes = vec![0x5a; BULK_BYTES];
            loop {
                stream.write_all(&bytes)?;
            }
        }
        Some(Service::Receive) => {
            let (mut bytes, mut count) = (vec![0; BULK_BYTES], 0_u64);
            loop {
                match stream.read(&mut bytes)? {
                    0 => return stream.write_all(&count.to_be_bytes()),
                    read => count = count.saturating_add(read as u64),
                }
            }
        }
        None => Ok(()),
    }
}

/// Connects and says what for.
fn connect(server: SocketAddr, service: Service) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&server, SILENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    stream.write_all(&[service.byte()])?;
    Ok(stream)
}

fn ask(service: Service, server: SocketAddr, connections: u32, time: Duration) -> io::Result<Load> {
    match service {
        Service::Echo => round_trips(server, connections, time),
        Service::Send => {
            let stream = connect(server, service)?;
            let start = Instant::now();
            Ok(bulk(take(stream, start, time)?, start))
        }
        Service::Receive => {
            let stream = connect(server, service)?;
            let start = Instant::now();
            Ok(bulk(give(stream, start, time)?, start))
        }
    }
}

fn bulk(bytes: u64, start: Instant) -> Load {
    Load {
        units: bytes as f64 / f64::from(1 << 30),
        seconds: start.elapsed().as_secs_f64(),
        latency: None,
        socket_errors: 0,
        bad_responses: 0,
    }
}

fn take(mut stream: TcpStream, start: Instant, time: Duration) -> io::Result<u64> {
    let (mut bytes, mut count) = (vec![0; BULK_BYTES], 0_u64);
    while start.elapsed() < time {
        match stream.read(&mut bytes)? {
            0 => return Err(io::Error::other("the server ended the connection")),
            read => count = count.saturating_add(read as u64),
        }
    }
    Ok(count)
}

/// Answers how much the server says that it got, which must be all.
fn give(mut stream: TcpStream, start: Instant, time: Duration) -> io::Result<u64> {
    let (bytes, mut count) = (vec![0x5a; BULK_BYTES], 0_u64);
    while start.elapsed() < time {
        stream.write_all(&bytes)?;
        count = count.saturating_add(BULK_BYTES as u64);
    }
    stream.shutdown(Shutdown::Write)?;
    let mut arrived = [0; 8];
    stream.read_exact(&mut arrived)?;
    match u64::from_be_bytes(arrived) {
        arrived if arrived == count => Ok(count),
        arrived => Err(io::Error::other(format!(
            "{count} bytes were sent, and {arrived} arrived"
        ))),
    }
}

/// One byte there and back on each connection, again and again.
fn round_trips(server: SocketAddr, connections: u32, time: Duration) -> io::Result<Load> {
    let streams = (0..connections).map(|_| connect(server, Service::Echo));
    let streams = streams.collect::<io::Result<Vec<_>>>()?;
    let barrier = Arc::new(Barrier::new(streams.len()));
    let start = Instant::now();
    let threads = streams.into_iter().map(|stream| {
        let barrier = Arc::clone(&barrier);
        std::thread::spawn(move || {
            barrier.wait();
            ping(stream, time)
        })
    });
    let threads: Vec<_> = threads.collect();
    let mut times = Vec::new();
    for thread in threads {
        let joined = thread.join();
        times.extend(joined.map_err(|_| io::Error::other("a thread panicked"))??);
    }
    times.sort_unstable();
    Ok(Load {
        units: times.len() as f64,
        seconds: start.elapsed().as_secs_f64(),
        latency: percentiles(&times),
        socket_errors: 0,
        bad_responses: 0,
    })
}

/// Times of round trips in nanoseconds.
fn ping(mut stream: TcpStream, time: Duration) -> io::Result<Vec<u32>> {
    let mut times = Vec::with_capacity(1 << 20);
    let start = Instant::now();
    let mut last = start;
    while last.duration_since(start) < time {
        let mut byte = [times.len() as u8];
        let sent = byte;
        stream.write_all(&sent)?;
        stream.read_exact(&mut byte)?;
        if byte != sent {
            return Err(io::Error::other("another byte came back"));
        }
        let now = Instant::now();
        let taken = now.duration_since(last).as_nanos();
        times.push(u32::try_from(taken).unwrap_or(u32::MAX));
        last = now;
    }
    Ok(times)
}

/// Of times in nanoseconds, in order; `None` if there are none. Every time counts as it is, in no classes.
fn percentiles(sorted: &[u32]) -> Option<Latency> {
    let at = |thousandths: usize| {
        // The least time that so many aren't above.
        let rank = (sorted.len() * thousandths).div_ceil(1000).max(1);
        sorted.get(rank - 1).map(|ns| f64::from(*ns) / 1000.0)
    };
    Some(Latency {
        p50_us: at(500)?,
        p75_us: at(750)?,
        p90_us: at(900)?,
        p99_us: at(990)?,
        p999_us: Some(at(999)?),
    })
}

#[cfg(test)]
mod tests;
