use crate::control;
use crate::packet::Ring;
use crate::virtio;
use crate::vlan;
use crate::{Budget, Receiver, Room, Sender, socket};
use rustix::event::epoll;
use rustix::io::Errno;
use skink_messages::{Full, NicOutput, RxFrame, TxPacket};
use skink_time::Instant;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The largest frame with its virtio-net header, and then some.
const BUFFER: usize = 69_632;

/// The receiving half: one system call for each frame (which may be a joined one).
pub(super) struct TapReceiver {
    queue: Arc<OwnedFd>,
    /// An epoll descriptor with the queue in it, as long as the interface is there: without one, a queue polls readable
    /// for ever.
    watched: OwnedFd,
    said_gone: bool,
    /// What all owners see comes from here, where there is one; the queue's share is left out.
    control: Option<Ring>,
    buffer: Box<[u8]>,
    truncated: u64,
}

impl TapReceiver {
    /// `watched` is an epoll descriptor with nothing in it.
    pub(super) fn new(
        queue: Arc<OwnedFd>,
        watched: OwnedFd,
        control: Option<Ring>,
    ) -> io::Result<TapReceiver> {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&watched, &queue, data, epoll::EventFlags::IN)?;
        Ok(TapReceiver {
            queue,
            watched,
            said_gone: false,
            control,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            truncated: 0,
        })
    }

    /// The queue belongs to no interface any more, and never will again.
    #[cold]
    fn lose(&mut self) {
        let _ = epoll::delete(&self.watched, &self.queue);
        socket::say_gone(&mut self.said_gone);
    }
}

impl Receiver for TapReceiver {
    fn receive(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        let mut taken = match &mut self.control {
            Some(ring) => ring.receive(now, budget, each),
            None => 0,
        };
        while !budget.is_spent() {
            let bytes = match rustix::io::read(&self.queue, &mut self.buffer[..]) {
                Ok(bytes) => bytes,
                Err(Errno::BADFD) => {
                    self.lose();
                    break;
                }
                // Nothing there.
                Err(_) => break,
            };
            taken += 1;
            budget.spend(bytes);
            let read = self.buffer.get_mut(..bytes).unwrap_or_default();
            let Some((header, frame)) = read.split_first_chunk_mut() else {
                continue;
            };
            let frame = &*vlan::without_priority(frame);
            if bytes == BUFFER {
                self.truncated += 1;
                continue;
            }
            if self.control.is_some() && control::is_control(frame) {
                continue;
            }
            let (checksum, segment_bytes) = virtio::parse(header);
            each(RxFrame {
                arrived: now,
                bytes: frame,
                checksum,
                segment_bytes,
            });
        }
        taken
    }

    fn descriptors(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        each(self.watched.as_fd());
        if let Some(control) = &self.control {
            each(control.descriptor());
        }
    }

    fn take_dropped(&mut self) -> u64 {
        let control = self.control.as_mut().map_or(0, Ring::take_dropped);
        control + std::mem::take(&mut self.truncated)
    }
}

/// The sending half: one system call for each packet, which the kernel cuts if need be.
pub(super) struct TapSender {
    queue: Arc<OwnedFd>,
    blocked: bool,
    dropped: u64,
}

impl TapSender {
    pub(super) fn new(queue: Arc<OwnedFd>) -> TapSender {
        TapSender {
            queue,
            blocked: false,
            dropped: 0,
        }
    }
}

impl NicOutput for TapSender {
    fn room(&mut self) -> usize {
        if self.blocked {
            self.blocked = !socket::is_writable(self.queue.as_fd());
        }
        usize::from(!self.blocked)
    }

    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        let header = virtio::header_for(packet);
        let parts = virtio::gather(&header, packet);
        loop {
            // SAFETY: the spans live across the call, and the kernel only reads them.
            let written = unsafe {
                libc::writev(
                    self.queue.as_raw_fd(),
                    parts.as_ptr(),
                    parts.len() as libc::c_int,
                )
            };
            if written >= 0 {
                self.blocked = false;
                return Ok(());
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::ENOBUFS) => {
                    self.blocked = true;
                    return Err(Full);
                }
                _ => {
                    self.dropped += 1;
                    return Ok(());
                }
            }
        }
    }
}

impl Sender for TapSender {
    fn flush(&mut self) {
        self.room();
    }

    fn blocked_on(&self) -> Option<Room<'_>> {
        self.blocked.then(|| Room::At(self.queue.as_fd()))
    }

    fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}
