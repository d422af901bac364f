//! Whether a server is there, and answers rightly: asked from the client's host, before anything is measured.

use super::super::lab::Lab;
use super::super::measure::failed;
use super::super::server::Server;
use crate::failure::Failure;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one answer may take of a server that may not be there yet.
const EARLY: Duration = Duration::from_millis(500);

/// Waits until the question is answered well.
pub fn wait(
    lab: &Lab,
    server: &Server,
    question: impl Fn() -> io::Result<()> + Clone + Send + 'static,
) -> Result<(), Failure> {
    let answers = || {
        let thread = lab.client.thread(question.clone());
        thread.is_ok_and(|thread| matches!(thread.join(), Ok(Ok(Ok(())))))
    };
    let waited = server.program().wait_until("it answers", answers);
    waited.map_err(failed)
}

/// A connection can be made.
pub fn connects(target: SocketAddr) -> io::Result<()> {
    TcpStream::connect_timeout(&target, EARLY).map(drop)
}

/// A datagram comes back.
pub fn datagram(target: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(EARLY))?;
    socket.connect(target)?;
    socket.send(b"there and back again")?;
    let mut answer = [0; 64];
    let length = socket.recv(&mut answer)?;
    same(
        answer.get(..length).unwrap_or_default(),
        b"there and back again",
    )
}

/// 64 bytes come back.
pub fn block(target: SocketAddr) -> io::Result<()> {
    let mut stream = connect(target)?;
    let block = [0x5a; 64];
    stream.write_all(&block)?;
    let mut answer = [0; 64];
    stream.read_exact(&mut answer)?;
    same(&answer, &block)
}

fn connect(target: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&target, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn same(answer: &[u8], expected: &[u8]) -> io::Result<()> {
    match answer == expected {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{expected:?} came back as {answer:?}"
        ))),
    }
}

/// Nothing comes but the end of the connection.
pub fn end(target: SocketAddr) -> io::Result<()> {
    match connect(target)?.read(&mut [0; 16])? {
        0 => Ok(()),
        count => Err(io::Error::other(format!("{count} bytes came"))),
    }
}

/// What is sent after a wish for that comes back.
pub fn echo(target: SocketAddr) -> io::Result<()> {
    let mut stream = connect(target)?;
    stream.write_all(b"eabc")?;
    let mut answer = [0; 3];
    stream.read_exact(&mut answer)?;
    same(&answer, b"abc")
}

/// Has the client's host hold that the server does what it is to do.
pub fn check(
    lab: &Lab,
    server: &Server,
    question: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<(), Failure> {
    let thread = lab.client.thread(question).map_err(failed)?;
    let answered = match thread.join() {
        Ok(answered) => answered.and_then(|answered| answered),
        Err(_) => Err(io::Error::other("the client panicked")),
    };
    answered.map_err(|error| {
        Failure::tool(format!(
            "the server's answer is wrong: {error}; the server printed: {}",
            server.log()
        ))
    })
}
