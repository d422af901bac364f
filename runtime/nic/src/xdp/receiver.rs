use super::ring::{Consumer, Producer};
use super::{QueueDescription, Shared, frame};
use crate::{Budget, Receiver};
use skink_messages::{RxChecksum, RxFrame};
use skink_time::Instant;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Largest frame that is put together from a chain.
const LARGEST: usize = 65_550;

/// So often are frames taken in that are left to a thread: one that doesn't get to it mustn't keep the chunks from other
/// flows.
const ALL_EVERY: u32 = 64;

/// A socket on the queue, where frames wait.
pub(super) struct Ring {
    socket: Arc<OwnedFd>,
    rx: Consumer<libc::xdp_desc>,
    /// What the kernel had counted at the last report.
    reported: u64,
}

impl Ring {
    pub(super) fn new(socket: Arc<OwnedFd>, rx: Consumer<libc::xdp_desc>) -> Ring {
        Ring {
            socket,
            rx,
            reported: 0,
        }
    }

    /// Its indices: of the frame that is taken next, and of the one that comes next.
    pub(super) fn indices(&self) -> (u32, u32) {
        (self.rx.next(), self.rx.produced())
    }
}

/// The lowest `count` bits, of 32 at most.
fn bits(count: usize) -> u32 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    1u32.checked_shl(count).map_or(u32::MAX, |bit| bit - 1)
}

/// The bit of a ring.
fn bit(ring: u8) -> u32 {
    1u32.checked_shl(ring.into()).unwrap_or_default()
}

/// The frames of one queue.
pub(super) struct XdpReceiver {
    shared: Arc<Shared>,
    fill: Producer<u64>,
    /// The first is for all frames, the others for flows that were steered there.
    rings: Vec<Ring>,
    /// The rings in use, a bit for each.
    used: u32,
    /// Those of them that aren't left to a thread.
    open: u32,
    /// Batches until all are looked at.
    looks: u32,
    /// The ring to begin with.
    turn: u32,
    local_partner: bool,
    /// A chain's bytes so far; its memory is taken once.
    chain: Vec<u8>,
    /// The rest of the chain is to be left out: it is too long or broken.
    broken: bool,
    /// Descriptors of the chain so far. They stay in the ring until it is whole, so that a successor
    /// begins with the beginning of a frame.
    unfinished: u32,
    /// Chains left out since the last report.
    left_out: u64,
}

impl XdpReceiver {
    pub(super) fn new(
        shared: Arc<Shared>,
        fill: Producer<u64>,
        rings: Vec<Ring>,
        description: &QueueDescription,
    ) -> XdpReceiver {
        // A predecessor's threads may have left something there.
        let steered = rings.iter().skip(1).any(|ring| ring.rx.produced() != 0);
        let used = if steered { bits(rings.len()) } else { 1 };
        XdpReceiver {
            shared,
            fill,
            rings,
            used,
            open: used,
            looks: ALL_EVERY,
            turn: 0,
            local_partner: description.local_partner,
            chain: Vec::with_capacity(if description.chains { LARGEST } else { 0 }),
            broken: false,
            unfinished: 0,
            left_out: 0,
        }
    }

    /// Frames come to the other rings too from now on.
    pub(super) fn steer(&mut self) {
        self.used = bits(self.rings.len());
        self.open = self.used;
    }

    /// What comes to `ring` is left there until [`XdpReceiver::release`], or for not much longer. Answers whether
    /// something has come already.
    pub(super) fn reserve(&mut self, ring: u8) -> bool {
        self.open &= !bit(ring);
        let ring = self.rings.get(usize::from(ring));
        ring.is_some_and(|ring| ring.rx.waiting() > 0)
    }

    /// It is taken in again.
    pub(super) fn release(&mut self, ring: u8) {
        self.open |= bit(ring) & self.used;
    }

    /// The next time everything is taken in.
    pub(super) fn take_all(&mut self) {
        self.looks = 0;
    }

    /// The rings to look at now.
    fn due(&mut self) -> u32 {
        if self.open == self.used {
            return self.used;
        }
        match self.looks.checked_sub(1) {
            Some(looks) => {
                self.looks = looks;
                self.open
            }
            None => {
                self.looks = ALL_EVERY;
                self.used
            }
        }
    }

    /// Hands in the frame that `descriptor` ends, if it does end one; answers its length in bytes.
    fn accept(
        &mut self,
        now: Instant,
        descriptor: libc::xdp_desc,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> Option<usize> {
        let XdpReceiver {
            shared,
            local_partner,
            chain,
            broken,
            left_out,
            ..
        } = self;
        // SAFETY: the kernel put the descriptor into the rx ring, and the chunk goes back to it by
        // the fill ring after this function.
        let bytes = unsafe { shared.memory.received(descriptor.addr, descriptor.len) };
        let more = descriptor.options & libc::XDP_PKT_CONTD != 0;
        let mut hand_in = |bytes: &[u8]| {
            let checksum = if *local_partner && frame::checksum_was_left_out(bytes) {
                RxChecksum::Verified
            } else {
                RxChecksum::Unverified
            };
            each(RxFrame {
                arrived: now,
                bytes,
                checksum,
                segment_bytes: 0,
            });
        };
        match bytes {
            Some(bytes) if !more && chain.is_empty() && !*broken => {
                hand_in(bytes);
                return Some(bytes.len());
            }
            Some(bytes) if chain.len() + bytes.len() <= chain.capacity() => {
                chain.extend_from_slice(bytes);
            }
            _ => *broken = true,
        }
        if more {
            return None;
        }
        if *broken {
            *left_out += 1;
        } else {
            hand_in(chain);
        }
        let bytes = chain.len();
        chain.clear();
        (!std::mem::take(broken)).then_some(bytes)
    }
}

impl XdpReceiver {
    /// Gives back the chunks of all frames that wait, unseen.
    pub(super) fn leave_out(&mut self) {
        for ring in &mut self.rings {
            for _ in 0..ring.rx.waiting() {
                let descriptor = ring.rx.take();
                let chunk = self.shared.memory.chunk_of(descriptor.addr);
                self.fill.write(chunk);
            }
            // In this order, for each ring: `adopt` relies on it.
            ring.rx.release();
            self.fill.publish();
        }
    }

    /// The frames of one ring.
    fn take_in(
        &mut self,
        at: usize,
        now: Instant,
        budget: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        let mut frames = 0;
        let mut taken = 0;
        let waiting = self.rings.get(at).map_or(0, |ring| ring.rx.waiting());
        while taken < waiting && !budget.is_spent() {
            taken += 1;
            let descriptor = self.rings[at].rx.take();
            // There is a slot for every chunk, and this one's is free: the kernel had to take as many as
            // it handed over. One that isn't ours would be refused by the kernel.
            self.fill
                .write(self.shared.memory.chunk_of(descriptor.addr));
            if let Some(bytes) = self.accept(now, descriptor, each) {
                frames += 1;
                budget.spend(bytes);
            }
            let more = descriptor.options & libc::XDP_PKT_CONTD != 0;
            self.unfinished = match more && !self.broken {
                true => self.unfinished + 1,
                false => 0,
            };
        }
        if taken > 0 {
            // In this order, with the chunks written down before: `adopt` relies on it.
            self.rings[at].rx.release_all_but(self.unfinished);
            self.fill.publish_all_but(self.unfinished);
        }
        frames
    }
}

impl Receiver for XdpReceiver {
    fn receive(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        let mut frames = 0;
        // A batch that has nothing left for the rings is nobody's turn.
        let due = match budget.is_spent() {
            true => 0,
            false => self.due(),
        };
        // The others first, if the last batch didn't get to them.
        let before = bits(self.turn as usize);
        'batch: for mut rings in [due & !before, due & before] {
            while rings != 0 {
                let ring = rings.trailing_zeros();
                rings &= rings - 1;
                frames += self.take_in(ring as usize, now, budget, each);
                if budget.is_spent() {
                    self.turn = ring + 1;
                    break 'batch;
                }
            }
        }
        if self.fill.needs_wakeup() {
            wake(self.shared.socket.as_fd());
        }
        frames
    }

    fn descriptors(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        each(self.shared.socket.as_fd());
    }

    fn take_dropped(&mut self) -> u64 {
        let in_use = self.used.count_ones() as usize;
        let mut new = std::mem::take(&mut self.left_out);
        for ring in self.rings.iter_mut().take(in_use) {
            let counted = dropped(ring.socket.as_fd()).unwrap_or(ring.reported);
            new += counted.saturating_sub(ring.reported);
            ring.reported = counted;
        }
        new
    }
}

/// Tells a driver that ran out of chunks that there are some again.
fn wake(socket: BorrowedFd<'_>) {
    // SAFETY: no memory is handed over.
    unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    // What it answers doesn't matter: the flag stays until the driver has seen the chunks.
}

/// Frames that the kernel has dropped at this socket.
fn dropped(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let statistics = statistics(socket)?;
    // `rx_dropped` has those for which the fill ring was empty too.
    Ok(statistics
        .rx_dropped
        .saturating_add(statistics.rx_ring_full))
}

/// The kernel's counters of this socket.
pub(super) fn statistics(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_statistics> {
    // SAFETY: all zeros is a valid value of these plain integers.
    let mut value: libc::xdp_statistics = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::xdp_statistics>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `value`.
    crate::socket::check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_STATISTICS,
            (&raw mut value).cast(),
            &raw mut bytes,
        )
    })?;
    Ok(value)
}
