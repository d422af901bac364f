//! Connections that are made, and ended by the server at once, again and again.

use super::super::measure::Load;
use super::percentiles;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// One of the connections that are under way.
struct Attempt {
    socket: OwnedFd,
    since: Instant,
}

/// Keeps so many connections under way, for so long: each is made, waits for the server's end, and is closed.
/// The server being first to close, its side remembers the connection (TIME-WAIT), and the port can be
/// used again at once. Counts connections; the time of each is from before `connect` until after the end.
pub fn connect(server: SocketAddr, at_a_time: u32, time: Duration) -> io::Result<Load> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let attempts = (0..u64::from(at_a_time)).map(|token| attempt(&epoll, server, token));
    let mut attempts = attempts.collect::<io::Result<Vec<_>>>()?;
    let (start, mut times) = (Instant::now(), Vec::with_capacity(1 << 20));
    let mut events = Vec::with_capacity(attempts.len());
    while start.elapsed() < time {
        events.clear();
        let limit = time.saturating_sub(start.elapsed());
        let limit = limit.try_into().map_err(io::Error::other)?;
        let room = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&epoll, room, Some(&limit))?;
        for event in &events {
            let token = event.data.u64();
            let Some(slot) = attempts.get_mut(token as usize) else {
                continue;
            };
            if has_ended(&slot.socket)? {
                let taken = slot.since.elapsed().as_nanos();
                times.push(u32::try_from(taken).unwrap_or(u32::MAX));
                *slot = attempt(&epoll, server, token)?;
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    times.sort_unstable();
    Ok(Load {
        units: times.len() as f64,
        seconds,
        latency: percentiles(&times),
        socket_errors: 0,
        bad_responses: 0,
    })
}

fn attempt(epoll: &OwnedFd, server: SocketAddr, token: u64) -> io::Result<Attempt> {
    let since = Instant::now();
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let data = epoll::EventData::new_u64(token);
    epoll::add(epoll, &socket, data, epoll::EventFlags::IN)?;
    Ok(Attempt { socket, since })
}

/// Whether the server has ended the connection, as it is to do without a word.
fn has_ended(socket: &OwnedFd) -> io::Result<bool> {
    match rustix::net::recv(socket, &mut [0; 16], RecvFlags::empty()) {
        Ok((0, _)) => Ok(true),
        Ok(_) => Err(io::Error::other("the server said something")),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(io::Error::other(format!(
            "a connection wasn't made, or was broken off: {error}"
        ))),
    }
}
