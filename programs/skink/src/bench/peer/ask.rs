//! The clients that block: bytes in bulk, and one byte there and back with a thread for each connection.

use super::super::measure::Load;
use super::files::Operation;
use super::percentiles;
use super::server::{BULK_BYTES, Service};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// A connection on which nothing happens for so long has failed.
pub const SILENCE: Duration = Duration::from_secs(5);

/// Connects and says what for.
fn connect(server: SocketAddr, service: Service) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&server, SILENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    stream.write_all(&[service.byte()])?;
    Ok(stream)
}

/// Asks for the service for so long.
pub fn ask(
    service: Service,
    server: SocketAddr,
    connections: u32,
    time: Duration,
) -> io::Result<Load> {
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

/// Has the server do something that isn't for the client, and is told how often it did.
pub fn local(operation: Operation, server: SocketAddr, time: Duration) -> io::Result<Load> {
    let seconds = u8::try_from(time.as_secs()).unwrap_or(u8::MAX);
    let mut stream = TcpStream::connect_timeout(&server, SILENCE)?;
    stream.set_read_timeout(Some(time + SILENCE))?;
    stream.write_all(&[operation.byte(), seconds])?;
    let (mut count, mut taken) = ([0; 8], [0; 8]);
    stream.read_exact(&mut count)?;
    stream.read_exact(&mut taken)?;
    Ok(Load {
        units: u64::from_be_bytes(count) as f64,
        seconds: u64::from_be_bytes(taken) as f64 / 1e9,
        latency: None,
        socket_errors: 0,
        bad_responses: 0,
    })
}
