//! A frame for each frame: the one who asks, the program that answers on a UDP socket, and the one that
//! answers on a NIC itself, without any protocol.

use super::super::measure::Load;
use super::{PORT, percentiles};
use rustix::event::{PollFd, PollFlags, poll};
use skink_memory::Bytes;
use skink_messages::{NicOutput, RxFrame, TxPacket};
use skink_nic::{Budget, Nic, NicSpec, Opener, Sender, Sharing};
use skink_testbed::Datagrams;
use skink_time::Instant as Arrival;
use skink_wire::IpCidr;
use skink_wire::checksum::checksum;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Headers of a frame: Ethernet, IPv4, UDP.
pub const HEADERS: usize = 14 + 20 + 8;
/// So many are under way at a time where nothing else limits them.
const WINDOW: usize = 256;
/// What hasn't been answered for so long is lost.
const LOST: Duration = Duration::from_millis(20);
/// Frames taken from the NIC before answers are sent.
const BATCH: usize = 64;

/// Sends frames of so many bytes, at a rate, or keeps a window full; counts answers, for so long.
pub fn ask(
    server: SocketAddr,
    frame_bytes: u16,
    time: Duration,
    rate: Option<u32>,
) -> io::Result<Load> {
    let payload = usize::from(frame_bytes).saturating_sub(HEADERS);
    let mut datagrams = Datagrams::new(server, payload as u16)?;
    let (start, mut last) = (Instant::now(), Instant::now());
    let (mut sent, mut answered, mut lost) = (0, 0, 0);
    loop {
        let elapsed = start.elapsed();
        if elapsed >= time {
            break;
        }
        let received = datagrams.receive()?;
        answered += received;
        if received > 0 {
            last = Instant::now();
        } else if last.elapsed() > LOST {
            lost = sent - answered;
            last = Instant::now();
        }
        let due = match rate {
            // Late ones are counted as lost, and then come after all.
            None => (answered + lost + WINDOW).saturating_sub(sent),
            Some(rate) => {
                let due = (elapsed.as_secs_f64() * f64::from(rate)) as usize;
                due.saturating_sub(sent)
            }
        };
        if due > 0 {
            sent += datagrams.send(due)?;
        } else if received == 0 {
            idle(&datagrams, rate)?;
        }
    }
    Ok(Load {
        units: answered as f64,
        seconds: start.elapsed().as_secs_f64(),
        latency: None,
        socket_errors: sent.saturating_sub(answered + WINDOW) as u64,
        bad_responses: 0,
    })
}

/// Sends a frame of so many bytes when the last one is back, for so long.
pub fn ask_in_turn(server: SocketAddr, frame_bytes: u16, time: Duration) -> io::Result<Load> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(LOST))?;
    let mut payload = vec![0x5a; usize::from(frame_bytes).saturating_sub(HEADERS)];
    let (mut times, mut lost) = (Vec::with_capacity(1 << 20), 0_u64);
    let start = Instant::now();
    let mut last = start;
    while last.duration_since(start) < time {
        let number = (times.len() as u64 + lost) as u8;
        payload.iter_mut().take(1).for_each(|byte| *byte = number);
        socket.send(&payload)?;
        let came = loop {
            match socket.recv(&mut payload) {
                // One that was given up.
                Ok(_) if payload.first() != Some(&number) => {}
                came => break came,
            }
        };
        let now = Instant::now();
        let taken = now.duration_since(last).as_nanos();
        match came {
            Ok(_) => times.push(u32::try_from(taken).unwrap_or(u32::MAX)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => lost += 1,
            Err(error) => return Err(error),
        }
        last = now;
    }
    times.sort_unstable();
    Ok(Load {
        units: times.len() as f64,
        seconds: start.elapsed().as_secs_f64(),
        latency: percentiles(&times),
        socket_errors: lost,
        bad_responses: 0,
    })
}

/// At a rate the next one is due too soon for a timer; but what receives for this side may want the processor.
fn idle(datagrams: &Datagrams, rate: Option<u32>) -> io::Result<()> {
    if rate.is_some() {
        std::thread::yield_now();
        return Ok(());
    }
    let limit = LOST.try_into().map_err(io::Error::other)?;
    let mut waiting = [PollFd::new(datagrams.socket(), PollFlags::IN)];
    poll(&mut waiting, Some(&limit))?;
    Ok(())
}

/// Sends each datagram back, with two calls, until it is ended.
pub fn echo() -> io::Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", PORT))?;
    let mut bytes = [0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut bytes)?;
        socket.send_to(bytes.get(..length).unwrap_or_default(), from)?;
    }
}

/// Sends each frame of UDP over IPv4 to this address back to where it came from, until it is ended. Before it sleeps it
/// looks for the next one for so long.
pub fn reflect(spec: &NicSpec, address: IpCidr, look: Duration) -> io::Result<()> {
    let mut opener = Opener::new(spec, Sharing::Sole).map_err(io::Error::other)?;
    opener.set_addresses(&[address]).map_err(io::Error::other)?;
    let parts = opener.open(0).map_err(io::Error::other)?;
    let Nic {
        mut receiver,
        mut sender,
        ..
    } = parts.attach()?;
    let mut descriptors = Vec::new();
    receiver.descriptors(&mut |descriptor| descriptors.push(descriptor.try_clone_to_owned()));
    let descriptors = descriptors.into_iter().collect::<io::Result<Vec<_>>>()?;
    loop {
        let waiting = descriptors
            .iter()
            .map(|one| PollFd::new(one, PollFlags::IN));
        poll(&mut waiting.collect::<Vec<_>>(), None)?;
        // What brings frames shares this processor: let it bring all it has before going to sleep, which
        // would otherwise happen after each one.
        let mut idle: Option<Instant> = None;
        loop {
            let mut answer = |frame: RxFrame<'_>| send_back(&frame, sender.as_mut());
            if receiver.receive(Arrival::ZERO, &mut Budget::frames(BATCH), &mut answer) > 0 {
                idle = None;
            } else {
                sender.flush();
                if look.is_zero() || idle.get_or_insert_with(Instant::now).elapsed() >= look {
                    break;
                }
            }
            std::thread::yield_now();
        }
    }
}

/// Exchanges both ends' addresses and ports. Datagrams that came joined into one frame go back in frames of their
/// own. A frame for which there is no room is dropped.
fn send_back(frame: &RxFrame<'_>, sender: &mut dyn Sender) {
    let Some((header, payload)) = frame.bytes.split_first_chunk::<HEADERS>() else {
        return;
    };
    let mut header = *header;
    // IPv4 without options, and UDP.
    if header.get(12..15) != Some(&[8, 0, 0x45]) || header.get(23) != Some(&17) {
        return;
    }
    for (one, other, length) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
        (0..length).for_each(|at| header.swap(one + at, other + at));
    }
    // No checksum: the sender's may have been left to the cable.
    put(&mut header, 40, 0);
    let each = match usize::from(frame.segment_bytes) {
        0 => payload.len().max(1),
        joined => joined,
    };
    let mut send = |header: &[u8; HEADERS], payload| {
        let mut packet = TxPacket::new([Bytes::from(payload), Bytes::EMPTY]);
        packet.prepend(HEADERS).copy_from_slice(header);
        let _ = NicOutput::send(sender, &packet);
    };
    if payload.len() <= each {
        return send(&header, payload);
    }
    for datagram in payload.chunks(each) {
        put(&mut header, 16, (datagram.len() + HEADERS - 14) as u16);
        put(&mut header, 38, (datagram.len() + 8) as u16);
        put(&mut header, 24, 0);
        let sum = header.get(14..34).map_or(0, |ip| checksum(&[ip]));
        put(&mut header, 24, sum);
        send(&header, datagram);
    }
}

fn put(header: &mut [u8; HEADERS], at: usize, value: u16) {
    if let Some(field) = header.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
