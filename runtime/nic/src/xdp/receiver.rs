use super::ring::{Consumer, Producer};
use super::{QueueDescription, Shared, frame};
use crate::Receiver;
use skink_messages::{RxChecksum, RxFrame};
use skink_time::Instant;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

/// Largest frame that is put together from a chain.
const LARGEST: usize = 65_550;

/// The frames of one queue.
pub(super) struct XdpReceiver {
    shared: Arc<Shared>,
    fill: Producer<u64>,
    rx: Consumer<libc::xdp_desc>,
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
    /// What the kernel had counted at the last report.
    reported: u64,
}

impl XdpReceiver {
    pub(super) fn new(
        shared: Arc<Shared>,
        fill: Producer<u64>,
        rx: Consumer<libc::xdp_desc>,
        description: &QueueDescription,
    ) -> XdpReceiver {
        XdpReceiver {
            shared,
            fill,
            rx,
            local_partner: description.local_partner,
            chain: Vec::with_capacity(if description.chains { LARGEST } else { 0 }),
            broken: false,
            unfinished: 0,
            left_out: 0,
            reported: 0,
        }
    }

    /// Hands in the frame that `descriptor` ends, if it does end one.
    fn accept(
        &mut self,
        now: Instant,
        descriptor: libc::xdp_desc,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> bool {
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
                return true;
            }
            Some(bytes) if chain.len() + bytes.len() <= chain.capacity() => {
                chain.extend_from_slice(bytes);
            }
            _ => *broken = true,
        }
        if more {
            return false;
        }
        if *broken {
            *left_out += 1;
        } else {
            hand_in(chain);
        }
        chain.clear();
        !std::mem::take(broken)
    }
}

impl XdpReceiver {
    /// Gives back the chunks of all frames that wait, unseen.
    pub(super) fn leave_out(&mut self) {
        for _ in 0..self.rx.waiting() {
            let descriptor = self.rx.take();
            self.fill
                .write(self.shared.memory.chunk_of(descriptor.addr));
        }
        self.rx.release();
        self.fill.publish();
    }
}

impl Receiver for XdpReceiver {
    fn receive(&mut self, now: Instant, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let mut frames = 0;
        let mut taken = 0;
        let waiting = self.rx.waiting();
        while taken < waiting && frames < budget {
            taken += 1;
            let descriptor = self.rx.take();
            // There is a slot for every chunk, and this one's is free: the kernel had to take as many as
            // it handed over. One that isn't ours would be refused by the kernel.
            self.fill
                .write(self.shared.memory.chunk_of(descriptor.addr));
            frames += usize::from(self.accept(now, descriptor, each));
            let more = descriptor.options & libc::XDP_PKT_CONTD != 0;
            self.unfinished = match more && !self.broken {
                true => self.unfinished + 1,
                false => 0,
            };
        }
        if taken > 0 {
            // In this order, with the chunks written down before: `adopt` relies on it.
            self.rx.release_all_but(self.unfinished);
            self.fill.publish_all_but(self.unfinished);
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
        let counted = dropped(self.shared.socket.as_fd()).unwrap_or(self.reported);
        let new = counted.saturating_sub(self.reported);
        self.reported = counted;
        new + std::mem::take(&mut self.left_out)
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
