use super::adopt::Inherited;
use super::memory::Umem;
use super::receiver::statistics;
use super::ring::{Consumer, Producer};
use super::{Geometry, QueueDescription, Shared};
use crate::{Doorbell, Room, Sender};
use skink_memory::Bytes;
use skink_messages::{Full, NicOutput, TxPacket};
use skink_wire::Sum;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// Frames into which the largest packet is cut, and more: with room for so many nothing is refused.
const LARGEST_CUT: u32 = 128;

/// Frames that the kernel takes by copy in one system call, at least (`max_tx_budget`).
const AT_ONCE: u32 = 32;
/// So many system calls empty the largest ring.
const CALLS: u32 = 64;

/// Frames out of one queue.
pub(super) struct XdpSender {
    shared: Arc<Shared>,
    tx: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
    /// Chunks that are ours.
    free: Vec<u64>,
    /// A process that is gone had chunks.
    inherited: Option<Inherited>,
    geometry: Geometry,
    chunk_bytes: usize,
    chunks_of_a_frame: u32,
    /// The kernel has refused to go on for now.
    stuck: bool,
    /// Because the link is down, or gone.
    down: bool,
    said_gone: bool,
    /// The card takes frames from the ring by itself; otherwise the kernel copies them, and has memory for so many.
    zero_copy: bool,
    /// There was room for less than [`LARGEST_CUT`] frames.
    short: bool,
    /// A doorbell that needn't be rung twice is left to the caller.
    deferring: bool,
    /// One was, and isn't taken.
    deferred: bool,
    too_large: u64,
    /// Descriptors that the kernel had called invalid at the last report.
    refused: u64,
}

impl XdpSender {
    pub(super) fn new(
        shared: Arc<Shared>,
        tx: Producer<libc::xdp_desc>,
        completion: Consumer<u64>,
        description: &QueueDescription,
    ) -> XdpSender {
        let geometry = description.geometry;
        XdpSender {
            shared,
            tx,
            completion,
            free: Umem::send_chunks(geometry).collect(),
            inherited: None,
            geometry,
            chunk_bytes: geometry.chunk_bytes as usize,
            chunks_of_a_frame: description.chunks_of_a_frame(),
            stuck: false,
            down: false,
            said_gone: false,
            zero_copy: description.zero_copy,
            short: false,
            deferring: false,
            deferred: false,
            too_large: 0,
            refused: 0,
        }
    }

    /// As it was made, but a process had the rings that is gone: what it handed to the kernel leaves, and
    /// its chunks come back. Fails if the rings make no sense.
    pub(super) fn succeed(mut self) -> io::Result<XdpSender> {
        let refused = statistics(self.shared.socket.as_fd())?.tx_invalid_descs;
        let memory = &self.shared.memory;
        let inherited = Inherited::of(&self.tx, &self.completion, memory, self.geometry, refused)?;
        self.inherited = Some(inherited);
        self.free.clear();
        // It may have written some without telling the kernel.
        self.wake();
        self.reap();
        Ok(self)
    }

    /// Takes back the chunks of frames that have left.
    fn reap(&mut self) {
        let waiting = self.completion.waiting();
        for _ in 0..waiting {
            let chunk = self.completion.take();
            if self.shared.memory.is_send_chunk(chunk) && self.free.len() < self.free.capacity() {
                self.free.push(chunk);
                if let Some(inherited) = &mut self.inherited {
                    inherited.came_back(self.shared.memory.number_of(chunk));
                }
            }
        }
        if waiting > 0 {
            self.completion.release();
        }
        if let Some(inherited) = self.inherited.take_if(|it| it.is_settled()) {
            let chunks = Umem::send_chunks(self.geometry).zip(inherited.others());
            let free = chunks.filter_map(|(chunk, is_free)| is_free.then_some(chunk));
            self.free.extend(free);
        }
    }

    /// Chunks for which there is a slot too, after looking for more if there are fewer than
    /// `wanted`.
    fn available(&mut self, wanted: u32) -> u32 {
        if (self.free.len() as u32) < wanted {
            self.reap();
        }
        self.tx.free(wanted).min(self.free.len() as u32)
    }

    /// Copies `packet` to as many chunks as it needs; the caller has seen that they are there. Its checksum is completed there,
    /// where its program can't change any more what is summed.
    fn copy(&mut self, packet: &TxPacket<'_>) {
        let headers = packet.headers();
        let transport = headers.len().saturating_sub(packet.transport_bytes.into());
        let mut pieces = [Bytes::from(headers), packet.payload[0], packet.payload[1]];
        let mut left = packet.len();
        let mut sum = Sum::new();
        let mut first = None;
        while left > 0 {
            let Some(address) = self.free.pop() else {
                return;
            };
            let len = left.min(self.chunk_bytes);
            left -= len;
            // SAFETY: the chunk was in the list of those that are ours, and isn't any more.
            if let Some(chunk) = unsafe { self.shared.memory.chunk_mut(address) } {
                let chunk = &mut chunk[..len];
                fill(chunk, &mut pieces);
                if packet.checksum_offset.is_some() {
                    let begin = if first.is_none() { transport } else { 0 };
                    sum.add_bytes(chunk.get(begin..).unwrap_or_default());
                }
            }
            first.get_or_insert(address);
            self.tx.write(libc::xdp_desc {
                addr: address,
                len: len as u32,
                options: if left > 0 { libc::XDP_PKT_CONTD } else { 0 },
            });
        }
        if let (Some(offset), Some(first)) = (packet.checksum_offset, first) {
            // SAFETY: still ours, until the descriptor is published.
            let chunk = unsafe { self.shared.memory.chunk_mut(first) }.unwrap_or_default();
            let field = chunk.get_mut(transport + usize::from(offset)..);
            if let Some(field) = field.and_then(|field| field.first_chunk_mut()) {
                *field = sum.finish_at(offset).to_be_bytes();
            }
        }
    }

    /// As [`Sender::flush`], and leaves no doorbell to anybody.
    pub(super) fn flush_now(&mut self) {
        let deferring = std::mem::take(&mut self.deferring);
        self.flush();
        self.deferring = deferring;
    }

    /// Lets the kernel take what is in the ring, as far as it can.
    fn wake(&mut self) {
        (self.stuck, self.down) = (false, false);
        for _ in 0..CALLS {
            let before = self.tx.pending();
            if before == 0 {
                return;
            }
            // SAFETY: no memory is handed over.
            let answer = crate::socket::check(unsafe {
                libc::sendto(
                    self.shared.socket.as_raw_fd(),
                    std::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null(),
                    0,
                ) as libc::c_int
            });
            match answer.map_err(|error| error.raw_os_error()) {
                // With zero copy the driver goes on by itself.
                Ok(_) => return,
                // It stops after each 32 frames, and when the card is full or memory is short.
                Err(Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR))
                    if self.tx.pending() != before => {}
                // Otherwise frames wait for the next flush.
                Err(error) => {
                    self.stuck = true;
                    self.down = matches!(error, Some(libc::ENETDOWN | libc::ENXIO));
                    if error == Some(libc::ENXIO) {
                        crate::socket::say_gone(&mut self.said_gone);
                    }
                    return;
                }
            }
            self.reap();
        }
    }
}

/// Fills `chunk` from the front of the pieces, and takes off what it took.
fn fill(chunk: &mut [u8], pieces: &mut [Bytes<'_>; 3]) {
    let mut at = 0;
    for piece in pieces {
        let (now, later) = piece.split_at(chunk.len() - at);
        now.copy_to(&mut chunk[at..]);
        at += now.len();
        *piece = later;
    }
}

impl NicOutput for XdpSender {
    fn room(&mut self) -> usize {
        let frame = self.chunks_of_a_frame;
        let wanted = LARGEST_CUT * frame;
        let mut available = self.available(wanted);
        if available < wanted {
            // What was written so far must leave before there can be more room.
            self.tx.publish();
            self.wake();
            available = self.available(wanted);
        }
        self.short = available < wanted;
        (available / frame) as usize
    }

    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        let chunks = packet.len().div_ceil(self.chunk_bytes);
        if chunks > self.chunks_of_a_frame as usize || packet.is_empty() {
            // It will never go: a counted drop.
            self.too_large += 1;
            return Ok(());
        }
        if (self.available(chunks as u32) as usize) < chunks {
            self.short = true;
            return Err(Full);
        }
        self.copy(packet);
        Ok(())
    }
}

impl Sender for XdpSender {
    fn flush(&mut self) {
        // The chunks that came back last are used next; otherwise all of them would go round, through the processor's caches.
        self.reap();
        self.tx.publish();
        if self.stuck || self.tx.needs_wakeup() {
            let pending = self.tx.pending();
            if self.deferring && !self.stuck && pending <= AT_ONCE {
                self.deferred = pending > 0;
            } else {
                self.deferred = false;
                self.wake();
            }
        }
        if self.short {
            let wanted = LARGEST_CUT * self.chunks_of_a_frame;
            self.short = self.available(wanted) < wanted;
        }
    }

    fn blocked_on(&self) -> Option<Room<'_>> {
        let blocked = self.short || self.stuck;
        blocked.then(|| {
            if self.down {
                Room::Untold(Room::LATER)
            } else if self.zero_copy {
                // Polling it for room also makes the kernel try again (`xsk_poll`).
                Room::At(self.shared.socket.as_fd())
            } else {
                // It polls writable while there is room in the ring, whether or not the kernel goes on.
                Room::Untold(Room::SOON)
            }
        })
    }

    fn set_deferring(&mut self, deferring: bool) {
        self.deferring = deferring;
    }

    fn take_doorbell(&mut self) -> Option<Doorbell> {
        let due = std::mem::take(&mut self.deferred);
        due.then(|| Doorbell(Arc::clone(&self.shared.socket)))
    }

    fn take_dropped(&mut self) -> u64 {
        let refused = statistics(self.shared.socket.as_fd())
            .map_or(self.refused, |statistics| statistics.tx_invalid_descs);
        let new = refused.saturating_sub(self.refused);
        self.refused = refused;
        new + std::mem::take(&mut self.too_large)
    }
}
