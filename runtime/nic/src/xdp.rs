//! AF_XDP: frames between the driver and this process's memory, past the kernel's network stack.
//!
//! An AF_XDP socket receives only from the queue that it is bound to, and one queue has one owner. So
//! the queues are shared out among the owners that there are (docs/decisions/0016), and each owner has the
//! sockets of the packet back end beside its queues: what the steering program (skink-steering) can't
//! redirect to the owner's socket, since it came by another's queue, reaches the owner there. No frame is lost;
//! some go the slower way, and all those of an owner for which there is no queue.
//!
//! Every owner is handed the sockets of all queues, and uses those that are its own at the time: by its first it
//! sends, from the others it receives only. When owners come and go, queues are passed on while they live.
//!
//! What leaves goes the way that is cheaper: frames by the queue; packets that the card cuts to frames, or
//! a virtual one never cuts, by the packet socket, in one piece. Some 64 KiB cost one system call there, and 45
//! copied frames here.
//!
//! Memory: 16 MiB for each queue, less where there are more than 8 ([`Geometry::of`]), half to receive and half to
//! send, as a memfd that the opening process registers (which pins it) and the process that has the queue maps.
//!
//! **Threads.** Of a program whose threads each wait for a connection, a frame is to wake the one that it is for. So each
//! queue has more sockets than one: they share its memory, its *fill* and its *completion*, and each has an *rx* ring and
//! sleepers of its own. Which flow goes to which is the owner's to say (`skink_steering::FlowRings`, docs/decisions/0023);
//! until it does, all go to the first.
//!
//! Frames larger than a chunk (4 KiB less 256 bytes) come and go as chains of descriptors, which
//! needs Linux 6.6.
//!
//! **Checksums on links within this machine.** veth hands over frames whose sender, the kernel on
//! the other end, left the transport checksum to a card that never comes: the field holds just the
//! folded sum of the pseudo-header, uncomplemented. A native XDP program changes nothing about that
//! (measured on Linux 6.18), and the other end's offloads can't be turned off from here. Packet
//! sockets tell such frames by a flag; AF_XDP has none. So on drivers whose link may end in this
//! machine, and only there, a frame whose field holds exactly that sum counts as verified. One in
//! 65,536 damaged frames passes that test too, as it passes the checksum itself.
//!
//! Joined (GRO) and oversized (GSO) frames don't come this way: while a program is attached, the
//! kernel cuts them first (veth takes the feature from its peer).

mod adopt;
mod bell;
pub(crate) mod device;
pub(crate) mod driver;
mod frame;
mod halves;
mod memory;
mod open;
mod opener;
mod queues;
mod receiver;
mod ring;
mod sender;
mod shares;

use crate::opener::Past;
use crate::packet::{self, PacketDescription};
use crate::{Capabilities, Nic};
use halves::{Receiving, Sending};
use memory::Umem;
pub(crate) use opener::XdpOpener;
use queues::{Coming, Common, Line, Queues};
use receiver::{Ring, XdpReceiver};
use ring::{Consumer, Offsets, Producer};
use sender::XdpSender;
use serde::{Deserialize, Serialize};
use shares::Shares;
use skink_steering::{FlowRings, Owner, QueueOwners};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Sizes of a socket's memory and rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Geometry {
    /// Bytes of a chunk: a power of two, at most a page.
    chunk_bytes: u32,
    /// Chunks to receive into, and as many again to send from; also the entries of each of the four
    /// rings, so that none can overflow. A power of two.
    chunks: u32,
}

impl Geometry {
    pub(crate) const QUEUE: Geometry = Geometry {
        chunk_bytes: 4096,
        chunks: 2048,
    };

    /// For each of so many queues: 128 MiB for all of them at most.
    pub(crate) fn of(queues: u32) -> Geometry {
        let chunks = Geometry::QUEUE.chunks * 8 / queues.max(8).next_power_of_two();
        Geometry {
            chunks: chunks.max(256),
            ..Geometry::QUEUE
        }
    }

    /// Bytes of the whole memory.
    fn bytes(self) -> usize {
        self.chunk_bytes as usize * self.chunks as usize * 2
    }

    /// Bytes of a frame that a chunk takes: the kernel keeps `XDP_PACKET_HEADROOM` in front.
    const fn room(self) -> u32 {
        self.chunk_bytes - 256
    }

    fn is_valid(self) -> bool {
        self.chunk_bytes.is_power_of_two()
            && (2048..=4096).contains(&self.chunk_bytes)
            && self.chunks.is_power_of_two()
            && self.chunks <= 1 << 16
    }
}

/// What the using process must know of one queue's socket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct QueueDescription {
    queue: u32,
    geometry: Geometry,
    zero_copy: bool,
    /// The program sits behind the driver, not in it.
    generic: bool,
    /// Chains of descriptors are possible.
    chains: bool,
    /// The other end may be in this machine, and leave checksums out.
    local_partner: bool,
    /// The card cuts what leaves by the packet socket.
    cuts: bool,
    mtu: u32,
    /// Sockets beside the first, for flows that threads wait for.
    flow_rings: u8,
}

/// What the using process must know of an open NIC.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct XdpDescription {
    /// Of the sockets beside the queues'.
    packet: PacketDescription,
    owner: Owner,
    past: Past,
    /// All queues of the interface, or none if other programs have them. Their descriptors are the last ones: what
    /// is common to them ([`COMMON`]), then the socket, the memory, and the sockets for flows of each.
    queues: Vec<QueueDescription>,
}

/// Descriptors that queues have in common: what watches them, the bell, the shares, and the steering's tables of queues
/// and of flows.
const COMMON: usize = 5;

impl XdpDescription {
    /// See [`Past::Own`].
    pub(crate) fn pass_on(&mut self) {
        self.packet.pass_on();
        self.past = Past::Own;
    }

    /// The unprivileged side: maps the rings.
    pub(crate) fn attach(&self, mut descriptors: Vec<OwnedFd>) -> io::Result<Nic> {
        let Some(first) = self.queues.first() else {
            return self.packet.attach(descriptors);
        };
        let each = |queue: &QueueDescription| 2 + usize::from(queue.flow_rings);
        let its = COMMON + self.queues.iter().map(each).sum::<usize>();
        let mut common = descriptors.split_off(descriptors.len().saturating_sub(its));
        let packet = self.packet.attach(descriptors)?;
        let mut sockets = common.split_off(common.len().min(COMMON)).into_iter();
        let [watched, bell, shares, table, flows] = crate::opener::take_descriptors(common)?;
        let mut lines = Vec::new();
        for description in &self.queues {
            let pair = sockets.by_ref().take(2).collect();
            let [socket, memory] = crate::opener::take_descriptors(pair)?;
            let flow_rings = usize::from(description.flow_rings);
            let others = sockets.by_ref().take(flow_rings).map(Arc::new).collect();
            lines.push(Line::new(description.clone(), socket, memory, others));
        }
        let coming = Coming::default();
        let common = Common {
            owner: self.owner,
            shares: Shares::map(shares)?,
            flows: FlowRings::map(flows, &table, self.owner)?,
            steering: QueueOwners::map(table, self.owner)?,
            watched,
            bell,
            coming: Arc::clone(&coming),
        };
        Ok(Nic {
            capabilities: self.capabilities(first, packet.capabilities),
            receiver: Box::new(Receiving::new(
                Queues::new(common, lines, self.past)?,
                packet.receiver,
            )),
            sender: Box::new(Sending::new(coming, packet.sender)),
        })
    }

    fn capabilities(&self, queue: &QueueDescription, packet: Capabilities) -> Capabilities {
        let kind = match queue.generic {
            true => "xdp-generic",
            false => "xdp",
        };
        Capabilities {
            kind,
            tx_checksum: true,
            cut_bytes: match queue.cuts {
                true => packet::CUT_BYTES,
                false => 0,
            },
            zero_copy: queue.zero_copy,
            ..packet
        }
    }
}

impl QueueDescription {
    /// Maps the rings of a queue that nobody else has: of its first socket, and of the `others`. What waits in another
    /// owner's is left out.
    fn attach(
        &self,
        socket: Arc<OwnedFd>,
        others: &[Arc<OwnedFd>],
        memory: BorrowedFd<'_>,
        past: Past,
    ) -> io::Result<(XdpReceiver, XdpSender)> {
        if !self.geometry.is_valid() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the AF_XDP queue handed over has impossible sizes; are both sides of the same \
                 version?",
            ));
        }
        let entries = self.geometry.chunks;
        let offsets = Offsets::of(socket.as_fd())?;
        let fd = socket.as_fd();
        let mut fill = Producer::map(fd, &offsets.fill, libc::XDP_UMEM_PGOFF_FILL_RING, entries)?;
        let completion = Consumer::map(
            fd,
            &offsets.completion,
            libc::XDP_UMEM_PGOFF_COMPLETION_RING,
            entries,
        )?;
        let mut rings = Vec::with_capacity(1 + others.len());
        for socket in std::iter::once(&socket).chain(others) {
            let page = libc::XDP_PGOFF_RX_RING as u64;
            let rx = Consumer::map(socket.as_fd(), &offsets.rx, page, entries)?;
            rings.push(Ring::new(Arc::clone(socket), rx));
        }
        let tx = Producer::map(fd, &offsets.tx, libc::XDP_PGOFF_TX_RING as u64, entries)?;
        let shared = Arc::new(Shared {
            memory: Umem::map(memory, self.geometry)?,
            socket: Arc::clone(&socket),
        });
        if past != Past::Unused {
            adopt::complete_fill(&mut fill, &rings, &shared.memory, self.geometry)?;
        }
        let sender = XdpSender::new(Arc::clone(&shared), tx, completion, self);
        let sender = match past {
            Past::Unused => sender,
            Past::Others | Past::Own => sender.succeed()?,
        };
        let mut receiver = XdpReceiver::new(shared, fill, rings, self);
        if past == Past::Others {
            receiver.leave_out();
        }
        Ok((receiver, sender))
    }

    /// Chunks that the largest frame takes.
    fn chunks_of_a_frame(&self) -> u32 {
        let largest = self.mtu.saturating_add(skink_wire::ethernet::LEN as u32);
        if self.chains {
            largest.div_ceil(self.geometry.chunk_bytes).max(1)
        } else {
            1
        }
    }
}

/// What both halves hold on to.
struct Shared {
    memory: Umem,
    socket: Arc<OwnedFd>,
}

#[cfg(test)]
mod flow_tests;
#[cfg(test)]
mod tests;
