//! The servers, in plain sockets of the C library, so that they can be on the kernel's stack or on Skink.

use super::PORT;
use super::files::{self, Operation};
use skink_testbed::{Epoll, fork_workers};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Bytes given to one call in bulk, as many as iperf3 gives.
pub const BULK_BYTES: usize = 128 << 10;

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
    pub const ALL: [Service; 3] = [Service::Echo, Service::Send, Service::Receive];

    /// The word for it on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Service::Echo => "echo",
            Service::Send => "send",
            Service::Receive => "receive",
        }
    }

    pub fn byte(self) -> u8 {
        self.word().as_bytes().first().copied().unwrap_or(b'?')
    }
}

/// Where to accept connections.
fn listen() -> io::Result<TcpListener> {
    TcpListener::bind(("0.0.0.0", PORT))
}

/// Serves so many connections at a time, until it is ended.
pub fn serve(connections: u32) -> io::Result<()> {
    serve_on(&Arc::new(listen()?), connections)
}

/// Closes each connection that it accepts. So it is the server who has to remember it (TIME-WAIT), as a web
/// server does that answers one request for each connection.
pub fn accept_and_close() -> io::Result<()> {
    let listener = listen()?;
    loop {
        drop(listener.accept()?);
    }
}

/// Connections that are told of at a time.
const EVENTS: usize = 256;
/// What stands for the listening socket.
const LISTENER: u64 = u64::MAX;

/// Sends back what comes, on as many connections as there are, in so many processes of one thread each.
pub fn serve_many(processes: u32) -> io::Result<()> {
    let listener = listen()?;
    listener.set_nonblocking(true)?;
    fork_workers(processes.saturating_sub(1))?;
    let mut epoll = Epoll::new(EVENTS)?;
    epoll.add(&listener, LISTENER)?;
    // Tokens are places. That of one who went isn't used again: it is others that come, and few go.
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    let mut ready = Vec::new();
    loop {
        ready.clear();
        ready.extend(epoll.wait()?);
        for token in &ready {
            if *token == LISTENER {
                accept_all(&listener, &epoll, &mut streams)?;
            } else if let Some(slot) = streams.get_mut(*token as usize)
                && !slot.as_ref().is_some_and(send_back)
            {
                *slot = None;
            }
        }
    }
}

fn accept_all(
    listener: &TcpListener,
    epoll: &Epoll,
    streams: &mut Vec<Option<TcpStream>>,
) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nodelay(true)?;
                epoll.add(&stream, streams.len() as u64)?;
                streams.push(Some(stream));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            // Another process has to take the rest.
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                return epoll.remove(listener);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Answers whether the connection lasts.
fn send_back(mut stream: &TcpStream) -> bool {
    let mut bytes = [0; 4096];
    match stream.read(&mut bytes) {
        Ok(read @ 1..) => stream
            .write_all(bytes.get(..read).unwrap_or_default())
            .is_ok(),
        Ok(0) | Err(_) => false,
    }
}

/// Each connection has a thread, and none of the threads ever ends: what they used would be lost.
pub fn serve_on(listener: &Arc<TcpListener>, connections: u32) -> io::Result<()> {
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
    let mut operations = Operation::ALL.into_iter();
    if let Some(operation) = operations.find(|operation| operation.byte() == wish) {
        return work(operation, stream);
    }
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

/// For as many seconds as the next byte says; then tells how often, and in how many nanoseconds.
fn work(operation: Operation, mut stream: TcpStream) -> io::Result<()> {
    let mut seconds = [0];
    stream.read_exact(&mut seconds)?;
    let [seconds] = seconds;
    let (count, time) = files::work(operation, Duration::from_secs(seconds.into()))?;
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    stream.write_all(&[count.to_be_bytes(), time.to_be_bytes()].concat())
}
