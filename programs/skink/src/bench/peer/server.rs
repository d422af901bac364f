//! The servers, in plain sockets of the C library, so that they can be on the kernel's stack or on Skink.

use super::PORT;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

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
