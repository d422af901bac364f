//! What each load does. Rates are limited: faults are to be met, and the machine isn't to be.
use super::super::super::peer::{self, BLOCK, GOOD};
use super::super::lab::{CLIENT, Lab, NAMES, SERVER, SSH, page};
use super::{Load, Told, Trouble};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Nothing happens on a connection for so long: it is lost.
const SILENCE: Duration = Duration::from_secs(25);
/// Between two of a load's requests.
const PACE: Duration = Duration::from_millis(25);
/// Bytes at a time through ssh.
const PIECE: usize = 8 << 10;

fn server(port: u16) -> SocketAddr {
    let address = SERVER.parse().unwrap_or(IpAddr::from([0; 4]));
    SocketAddr::new(address, port)
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server(port), SILENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    Ok(stream)
}

/// Asks nginx for the page, and compares what comes.
fn fetch(stream: &mut TcpStream, expected: &[u8], close: bool) -> Result<(), Trouble> {
    let connection = if close { "close" } else { "keep-alive" };
    write!(
        stream,
        "GET /page HTTP/1.1\r\nHost: {SERVER}\r\nConnection: {connection}\r\n\r\n"
    )?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
        if head.len() > 4096 {
            return Err(Trouble::Wrong(
                "a head of an answer without an end".to_owned(),
            ));
        }
    }
    let mut body = vec![0; expected.len()];
    stream.read_exact(&mut body)?;
    match head.starts_with(b"HTTP/1.1 200") && body == expected {
        true => Ok(()),
        false => Err(Trouble::Wrong("the page differs".to_owned())),
    }
}

/// One connection for all requests.
pub fn web(lab: &Lab) -> io::Result<Load> {
    Load::spawn(lab, |told| {
        let expected = page();
        let mut stream = connect(80)?;
        while told.goes_on() {
            fetch(&mut stream, &expected, false)?;
            told.done();
            std::thread::sleep(PACE);
        }
        Ok(())
    })
}

/// One connection for each request. That none can be made is no lost connection: it is tried again.
pub fn fresh(lab: &Lab) -> io::Result<Load> {
    Load::spawn(lab, |told| {
        let expected = page();
        while told.goes_on() {
            if let Ok(mut stream) = connect(80) {
                fetch(&mut stream, &expected, true)?;
                told.done();
            }
            std::thread::sleep(PACE);
        }
        Ok(())
    })
}

/// Blocks from the server.
pub fn down(lab: &Lab) -> io::Result<Load> {
    Load::spawn(lab, |told| {
        let mut stream = connect(peer::BLOCKS)?;
        blocks(&mut stream, told, |stream, number| {
            let mut bytes = vec![0; BLOCK];
            stream.write_all(&[peer::GIVE])?;
            stream.read_exact(&mut bytes)?;
            Ok(bytes == peer::block(number))
        })
    })
}

/// Blocks to the server, which compares them.
pub fn up(lab: &Lab) -> io::Result<Load> {
    Load::spawn(lab, |told| {
        let mut stream = connect(peer::BLOCKS)?;
        blocks(&mut stream, told, |stream, number| {
            stream.write_all(&[peer::TAKE])?;
            stream.write_all(&peer::block(number))?;
            let mut said = [0];
            stream.read_exact(&mut said)?;
            Ok(said == [GOOD])
        })
    })
}

fn blocks(
    stream: &mut TcpStream,
    told: &Told,
    exchange: impl Fn(&mut TcpStream, u64) -> io::Result<bool>,
) -> Result<(), Trouble> {
    for number in 0.. {
        if !told.goes_on() {
            break;
        }
        if !exchange(stream, number)? {
            return Err(Trouble::Wrong(format!("block {number} differs")));
        }
        told.done();
        std::thread::sleep(PACE);
    }
    Ok(())
}

/// A session through which a transfer runs there and back.
pub fn ssh(lab: &Lab) -> io::Result<Load> {
    let mut command = lab.ssh();
    command.arg("cat");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    let missing = || io::Error::other("ssh has no standard input or output");
    let mut input = child.stdin.take().ok_or_else(missing)?;
    let mut output = child.stdout.take().ok_or_else(missing)?;
    let mut load = Load::spawn(lab, move |told| {
        for number in 0.. {
            if !told.goes_on() {
                break;
            }
            let block = peer::block(number);
            let piece = block.get(..PIECE).unwrap_or_default();
            let mut back = vec![0; PIECE];
            input.write_all(piece)?;
            output.read_exact(&mut back)?;
            if back != piece {
                return Err(Trouble::Wrong(format!(
                    "piece {number} through ssh differs"
                )));
            }
            told.done();
            std::thread::sleep(PACE);
        }
        Ok(())
    })?;
    load.child = Some(child);
    Ok(load)
}

/// Questions to the echo server. The socket stays the same.
pub fn datagrams(lab: &Lab) -> io::Result<Load> {
    Load::spawn(lab, |told| {
        let socket = UdpSocket::bind((CLIENT, 0))?;
        socket.connect(server(peer::ECHO))?;
        socket.set_read_timeout(Some(PACE))?;
        for number in 0_u64.. {
            if !told.goes_on() {
                break;
            }
            let block = peer::block(number);
            let question = block.get(..100).unwrap_or_default();
            if echo(&socket, question)? {
                told.done();
            }
            std::thread::sleep(PACE);
        }
        Ok(())
    })
}

/// Whether the answer came. Any datagram may be lost, and an answer to an earlier one may come late.
fn echo(socket: &UdpSocket, question: &[u8]) -> Result<bool, Trouble> {
    let _ = socket.send(question);
    let mut answer = vec![0; 2048];
    while let Ok(length) = socket.recv(&mut answer) {
        match answer.get(..length) {
            Some(answer) if answer == question => return Ok(true),
            Some(answer) if answer.len() != question.len() => {
                return Err(Trouble::Wrong(format!("{length} bytes came back")));
            }
            _ => {}
        }
    }
    Ok(false)
}

/// A name server, which a program on the stack asks.
pub fn names(lab: &Lab) -> io::Result<Load> {
    Load::spawn(lab, |told| {
        let socket = UdpSocket::bind((CLIENT, NAMES))?;
        socket.set_read_timeout(Some(PACE))?;
        let (mut question, mut most) = ([0; 64], 0);
        while told.goes_on() {
            let Ok((length, from)) = socket.recv_from(&mut question) else {
                continue;
            };
            let (number, answered) = question.split_at(8);
            let answered = answered
                .first_chunk()
                .map_or(0, |it| u64::from_be_bytes(*it));
            if length != 16 {
                return Err(Trouble::Wrong(format!("a question of {length} bytes")));
            }
            if answered > most {
                most = answered;
                told.done();
            }
            let _ = socket.send_to(number, from);
        }
        Ok(())
    })
}

/// A service's name, and whether somebody new is served by it.
type Service = (&'static str, fn() -> bool);

/// What of all services can't be reached by somebody new within `limit`.
pub fn unreachable(lab: &Lab, limit: Duration) -> io::Result<Vec<String>> {
    let knock = move || {
        let end = Instant::now() + limit;
        let mut left: Vec<Service> = vec![
            ("nginx", new_page),
            ("sshd", new_banner),
            ("the campaign's program", new_block),
            ("the echo server", new_echo),
        ];
        loop {
            left.retain(|(_, reach)| !reach());
            if left.is_empty() || Instant::now() > end {
                return left.iter().map(|(name, _)| (*name).to_owned()).collect();
            }
        }
    };
    let joined = lab.client.thread(knock)?.join();
    joined.unwrap_or_else(|_| Err(io::Error::other("a client panicked")))
}

fn soon(port: u16) -> io::Result<TcpStream> {
    let patience = Duration::from_secs(3);
    let stream = TcpStream::connect_timeout(&server(port), patience)?;
    stream.set_read_timeout(Some(patience))?;
    Ok(stream)
}

fn new_page() -> bool {
    soon(80).is_ok_and(|mut stream| fetch(&mut stream, &page(), true).is_ok())
}

fn new_banner() -> bool {
    let mut banner = [0; 4];
    soon(SSH).is_ok_and(|mut stream| stream.read_exact(&mut banner).is_ok() && banner == *b"SSH-")
}

fn new_block() -> bool {
    let mut bytes = vec![0; BLOCK];
    soon(peer::BLOCKS).is_ok_and(|mut stream| {
        stream.write_all(&[peer::GIVE]).is_ok()
            && stream.read_exact(&mut bytes).is_ok()
            && bytes == peer::block(0)
    })
}

fn new_echo() -> bool {
    let asked = UdpSocket::bind((CLIENT, 0)).and_then(|socket| {
        socket.set_read_timeout(Some(Duration::from_millis(300)))?;
        socket.connect(server(peer::ECHO))?;
        Ok(matches!(echo(&socket, b"somebody new"), Ok(true)))
    });
    asked.unwrap_or(false)
}
