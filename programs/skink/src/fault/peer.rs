//! The program on the faulty stack: blocks of bytes that are verified both ways, an echo of datagrams, and
//! a client of a name server.

use crate::failure::Failure;
use clap::Args;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Where blocks are asked for.
pub const BLOCKS: u16 = 5201;
/// Where datagrams are sent back.
pub const ECHO: u16 = 5353;
/// Bytes of a block.
pub const BLOCK: usize = 64 << 10;
/// What a client asks for: a block, or that one be taken.
pub const GIVE: u8 = b'g';
pub const TAKE: u8 = b't';
/// What is answered to a block that was as it should be.
pub const GOOD: u8 = b'k';
/// Between two questions to the name server.
const PACE: Duration = Duration::from_millis(50);

/// Be the program that a campaign needs (for its use)
#[derive(Args, Debug)]
pub struct PeerOptions {
    /// The name server
    server: SocketAddr,
}

/// Serves until it is ended.
pub fn peer(options: &PeerOptions) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::tool(format!("the campaign's program: {error}"));
    let listener = TcpListener::bind(("0.0.0.0", BLOCKS)).map_err(failed)?;
    let echo = UdpSocket::bind(("0.0.0.0", ECHO)).map_err(failed)?;
    let asker = UdpSocket::bind(("0.0.0.0", 0)).map_err(failed)?;
    asker.connect(options.server).map_err(failed)?;
    std::thread::spawn(move || send_back(&echo));
    std::thread::spawn(move || ask(&asker));
    eprintln!("skink: the campaign's program is ready");
    loop {
        if let Ok((stream, _)) = listener.accept() {
            // That a client goes is nothing to complain about; it says itself what it misses.
            std::thread::spawn(move || serve(stream));
        }
    }
}

/// Block number `number` of a transfer: every byte depends on where it is.
pub fn block(number: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK);
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while bytes.len() < BLOCK {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = vec![0; BLOCK];
    for number in 0.. {
        let mut wish = [0];
        stream.read_exact(&mut wish)?;
        let expected = block(number);
        match wish {
            [GIVE] => stream.write_all(&expected)?,
            _ => {
                stream.read_exact(&mut bytes)?;
                let good = bytes == expected && wish == [TAKE];
                stream.write_all(&[if good { GOOD } else { b'x' }])?;
            }
        }
    }
    Ok(())
}

/// An error may be that of an earlier datagram. The socket stays the same whatever happens.
fn send_back(socket: &UdpSocket) {
    let mut bytes = vec![0; 2048];
    loop {
        match socket.recv_from(&mut bytes) {
            Ok((length, from)) => {
                let _ = socket.send_to(bytes.get(..length).unwrap_or_default(), from);
            }
            Err(_) => std::thread::sleep(PACE),
        }
    }
}

/// Each question tells how many were answered: the server counts.
fn ask(socket: &UdpSocket) {
    let (mut asked, mut answered) = (0_u64, 0_u64);
    let _ = socket.set_read_timeout(Some(PACE));
    loop {
        asked += 1;
        let question = [asked.to_be_bytes(), answered.to_be_bytes()].concat();
        let _ = socket.send(&question);
        let mut answer = [0; 64];
        while let Ok(length) = socket.recv(&mut answer) {
            if answer.get(..length) == Some(&asked.to_be_bytes()) {
                answered += 1;
                break;
            }
        }
        std::thread::sleep(PACE);
    }
}
