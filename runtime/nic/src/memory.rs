//! A link in memory: two NICs in one process, each of which receives what the other sends.
//!
//! For tests, the simulator, and two stacks in one process. Frames are copied into bounded queues;
//! allocation stops when the queues have seen their largest load.

use crate::{Budget, Capabilities, Nic, Receiver, Room, Sender, Steering};
use rustix::event::{EventfdFlags, eventfd};
use skink_messages::{Full, NicOutput, RxChecksum, RxFrame, TxPacket};
use skink_time::Instant;
use skink_wire::MacAddr;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a link in memory can do; both of its ends alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryConfig {
    /// Addresses of the two ends.
    pub macs: [MacAddr; 2],
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Largest IP packet that may be sent to be cut, or 0. It arrives joined, as on a veth pair.
    pub cut_bytes: u32,
    /// Whether checksums may be left out, and count as verified then.
    pub checksum: bool,
    /// Frames that wait in each direction.
    pub frames: usize,
}

impl Default for MemoryConfig {
    fn default() -> MemoryConfig {
        MemoryConfig {
            macs: [
                MacAddr([0x02, 0, 0, 0, 0, 1]),
                MacAddr([0x02, 0, 0, 0, 0, 2]),
            ],
            mtu: 1500,
            cut_bytes: 0,
            checksum: false,
            frames: 256,
        }
    }
}

/// The two ends of a new link. Fails if the process is out of descriptors: each direction has two.
pub fn pair(config: MemoryConfig) -> io::Result<(Nic, Nic)> {
    let there = Arc::new(Direction::new(config.frames)?);
    let back = Arc::new(Direction::new(config.frames)?);
    let [first, second] = config.macs;
    let end = |mac, inbound: &Arc<Direction>, outbound: &Arc<Direction>| Nic {
        capabilities: capabilities(&config, mac),
        receiver: Box::new(MemoryReceiver {
            direction: inbound.clone(),
            spare: Vec::new(),
        }),
        sender: Box::new(MemorySender {
            direction: outbound.clone(),
            config,
            blocked: false,
            dropped: 0,
        }),
    };
    Ok((end(first, &back, &there), end(second, &there, &back)))
}

fn capabilities(config: &MemoryConfig, mac: MacAddr) -> Capabilities {
    Capabilities {
        kind: "memory",
        mac,
        mtu: config.mtu,
        tx_checksum: config.checksum,
        rx_checksum: config.checksum,
        cut_bytes: config.cut_bytes,
        joins: config.cut_bytes != 0,
        queues: 1,
        steering: Steering::Sole,
        zero_copy: false,
    }
}

struct Frame {
    bytes: Vec<u8>,
    checksum: RxChecksum,
    segment_bytes: u16,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Frame>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
}

/// One direction of the link.
struct Direction {
    queue: Mutex<Queue>,
    limit: usize,
    /// Polls readable while frames wait.
    arrived: OwnedFd,
    /// Polls writable while there is room.
    room: OwnedFd,
}

impl Direction {
    fn new(limit: usize) -> io::Result<Direction> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Direction {
            queue: Mutex::new(Queue::default()),
            limit,
            arrived: eventfd(0, flags)?,
            room: eventfd(0, flags)?,
        })
    }

    /// A panic of the other end's user doesn't spoil the queue: frames go in and out whole.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes an eventfd poll readable.
fn raise(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Makes an eventfd poll writable, and no longer readable.
fn clear(event: &OwnedFd) {
    let _ = rustix::io::read(event, &mut [0; 8]);
}

/// Makes an eventfd not poll writable: its counter can't grow further (eventfd(2)).
fn fill(event: &OwnedFd) {
    let _ = rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes());
}

struct MemoryReceiver {
    direction: Arc<Direction>,
    spare: Vec<Vec<u8>>,
}

impl Receiver for MemoryReceiver {
    fn receive(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        let mut taken = 0;
        while !budget.is_spent() {
            // Not held across `each`, which may send an answer.
            let Some(frame) = self.take() else { break };
            each(RxFrame {
                arrived: now,
                bytes: &frame.bytes,
                checksum: frame.checksum,
                segment_bytes: frame.segment_bytes,
            });
            budget.spend(frame.bytes.len());
            self.spare.push(frame.bytes);
            taken += 1;
        }
        self.direction.lock().spare.append(&mut self.spare);
        taken
    }

    fn descriptors(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        each(self.direction.arrived.as_fd());
    }
}

impl MemoryReceiver {
    fn take(&self) -> Option<Frame> {
        let mut queue = self.direction.lock();
        let was_full = queue.waiting.len() >= self.direction.limit;
        let frame = queue.waiting.pop_front()?;
        if queue.waiting.is_empty() {
            clear(&self.direction.arrived);
        }
        if was_full {
            clear(&self.direction.room);
        }
        Some(frame)
    }
}

struct MemorySender {
    direction: Arc<Direction>,
    config: MemoryConfig,
    blocked: bool,
    dropped: u64,
}

impl MemorySender {
    /// Whether the packet is one that [`Capabilities`] allows.
    fn takes(&self, packet: &TxPacket<'_>) -> bool {
        let largest = match packet.segment_bytes {
            0 => self.config.mtu,
            _ => self.config.cut_bytes,
        };
        let left_out = packet.checksum_offset.is_some() && !self.config.checksum;
        packet.len() <= largest as usize + skink_wire::ethernet::LEN && !left_out
    }
}

impl NicOutput for MemorySender {
    fn room(&mut self) -> usize {
        let waiting = self.direction.lock().waiting.len();
        let room = self.direction.limit.saturating_sub(waiting);
        self.blocked = room == 0;
        room
    }

    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        if !self.takes(packet) {
            self.dropped += 1;
            return Ok(());
        }
        let mut queue = self.direction.lock();
        self.blocked = queue.waiting.len() >= self.direction.limit;
        if self.blocked {
            return Err(Full);
        }
        let mut bytes = queue.spare.pop().unwrap_or_default();
        bytes.resize(packet.len(), 0);
        packet.copy_to(&mut bytes);
        queue.waiting.push_back(Frame {
            bytes,
            checksum: match packet.checksum_offset {
                Some(_) => RxChecksum::Verified,
                None => RxChecksum::Unverified,
            },
            segment_bytes: packet.segment_bytes,
        });
        if queue.waiting.len() == 1 {
            raise(&self.direction.arrived);
        }
        if queue.waiting.len() >= self.direction.limit {
            fill(&self.direction.room);
        }
        Ok(())
    }
}

impl Sender for MemorySender {
    fn flush(&mut self) {
        if self.blocked {
            self.room();
        }
    }

    fn blocked_on(&self) -> Option<Room<'_>> {
        self.blocked.then(|| Room::At(self.direction.room.as_fd()))
    }

    fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

#[cfg(test)]
mod tests;
