//! AF_XDP: frames between the driver and this process's memory, past the kernel's network stack.
//!
//! An AF_XDP socket receives only from the queue that it is bound to, and one queue has one owner. So
//! an owner gets a queue to itself if one is free, and in any case the sockets of the packet back end
//! beside it: what the steering program (skink-steering) can't redirect to the owner's socket, since
//! it came by another queue, reaches the owner there. No frame is lost; some go the slower way. An
//! owner without a queue of its own has the packet back end's halves alone, and its NIC's kind says
//! so.
//!
//! What leaves goes the way that is cheaper: frames by the queue; packets that the card cuts to frames, or
//! a virtual one never cuts, by the packet socket, in one piece. Some 64 KiB cost one system call there, and 45
//! copied frames here.
//!
//! Memory: 16 MiB for each queue ([`Geometry::QUEUE`]), half to receive and half to send, as a memfd
//! that the opening process registers (which pins it) and the using process maps.
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
pub(crate) mod device;
mod driver;
mod frame;
mod halves;
mod memory;
mod open;
mod receiver;
mod ring;
mod sender;

use crate::error::OpenError;
use crate::opener::{Description, NicParts, Past, Sharing};
use crate::packet::{self, PacketDescription, PacketOpener, usable_interface};
use crate::{Capabilities, Nic};
use halves::{Receiving, Sending};
use memory::Umem;
use open::OpenError as QueueError;
use receiver::XdpReceiver;
use ring::{Consumer, Offsets, Producer};
use sender::XdpSender;
use serde::{Deserialize, Serialize};
use skink_steering::{AttachMode, Owner, Steering};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

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
    past: Past,
}

/// What the using process must know of an open NIC.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct XdpDescription {
    /// Of the sockets beside the queue's.
    packet: PacketDescription,
    /// Its descriptors, socket and memory, are the last two.
    queue: Option<QueueDescription>,
}

/// The privileged side: opens queues of one interface.
pub(crate) struct XdpOpener {
    name: String,
    sharing: Sharing,
    packet: PacketOpener,
    mode: AttachMode,
    /// Each owner's queue.
    queues: BTreeMap<Owner, u32>,
    /// Queues whose owner is gone.
    left: BTreeSet<u32>,
    /// How many queues the interface has, once we have tried one too many: an attempt takes 30 ms.
    count: Option<u32>,
}

/// The kernel unbinds the socket of a process that ended a little later, from a work queue. It takes
/// about 20 ms; after this long somebody else has the queue.
const UNBINDING: Duration = Duration::from_millis(500);

impl XdpOpener {
    /// Puts the steering program in front of the interface; it stays as long as `steering`.
    pub(crate) fn new(
        name: &str,
        sharing: Sharing,
        steering: &mut Steering,
    ) -> Result<XdpOpener, OpenError> {
        let packet = PacketOpener::new(name)?;
        open::probe(name)?;
        Ok(XdpOpener {
            name: name.to_owned(),
            sharing,
            packet,
            mode: steering.attach_xdp(name)?,
            queues: BTreeMap::new(),
            left: BTreeSet::new(),
            count: None,
        })
    }

    pub(crate) fn open(
        &mut self,
        owner: Owner,
        steering: Option<&mut Steering>,
    ) -> Result<NicParts, OpenError> {
        let name = self.name.clone();
        let missing = || OpenError::Unavailable {
            what: format!("a part of xdp:{name}"),
            advice: format!("this is a fault in Skink; use packet:{name}"),
        };
        let steering = steering.ok_or_else(missing)?;
        // The queue first: should something fail, it goes by itself.
        let opened = self.open_queue()?;
        if let Some(parts) = &opened {
            steering.set_queue(owner, parts.description.queue, parts.socket.as_fd())?;
        }
        let NicParts {
            description,
            mut descriptors,
        } = match self.sharing {
            Sharing::Sole => self.packet.open(owner, None)?,
            Sharing::Several => self.packet.open(owner, Some(steering))?,
        };
        let Description::Packet(packet) = description else {
            return Err(missing());
        };
        let mut queue = None;
        if let Some(parts) = opened {
            self.left.remove(&parts.description.queue);
            self.queues.insert(owner, parts.description.queue);
            descriptors.extend([parts.socket, parts.memory]);
            queue = Some(parts.description);
        }
        Ok(NicParts {
            description: Description::Xdp(XdpDescription { packet, queue }),
            descriptors,
        })
    }

    /// The steering has forgotten the owner and its queue already.
    pub(crate) fn close(&mut self, owner: Owner) {
        self.left.extend(self.queues.remove(&owner));
        self.packet.close(owner);
    }

    /// The first queue that nobody has, if there is one.
    fn open_queue(&mut self) -> Result<Option<open::QueueParts>, OpenError> {
        let (interface, _) = usable_interface(&self.name)?;
        for queue in 0..self.count.unwrap_or(open::QUEUES) {
            if self.queues.values().any(|taken| *taken == queue) {
                continue;
            }
            let begun = std::time::Instant::now();
            let left = self.left.contains(&queue);
            let opened = loop {
                match open::queue(&interface, queue, Geometry::QUEUE) {
                    Err(QueueError::Taken) if left && begun.elapsed() < UNBINDING => {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    opened => break opened,
                }
            };
            match opened {
                Ok(mut parts) => {
                    parts.description.generic = self.mode == AttachMode::Generic;
                    return Ok(Some(parts));
                }
                // Another program's.
                Err(QueueError::Taken) => {}
                Err(QueueError::NoSuchQueue) if queue > 0 => {
                    self.count = Some(queue);
                    return Ok(None);
                }
                Err(error) => return Err(error.about(&self.name)),
            }
        }
        Ok(None)
    }
}

impl XdpDescription {
    /// See [`Past::Own`].
    pub(crate) fn pass_on(&mut self) {
        self.packet.pass_on();
        if let Some(queue) = &mut self.queue {
            queue.past = Past::Own;
        }
    }

    /// The unprivileged side: maps the rings.
    pub(crate) fn attach(&self, mut descriptors: Vec<OwnedFd>) -> io::Result<Nic> {
        let Some(description) = &self.queue else {
            return self.packet.attach(descriptors);
        };
        let split = descriptors.len().saturating_sub(2);
        let [socket, memory] = crate::opener::take_descriptors(descriptors.split_off(split))?;
        let packet = self.packet.attach(descriptors)?;
        let (receiver, sender) = description.attach(socket, memory)?;
        Ok(Nic {
            capabilities: Capabilities {
                kind: if description.generic {
                    "xdp-generic"
                } else {
                    "xdp"
                },
                tx_checksum: false,
                cut_bytes: match description.cuts {
                    true => packet::CUT_BYTES,
                    false => 0,
                },
                zero_copy: description.zero_copy,
                ..packet.capabilities
            },
            receiver: Box::new(Receiving::new(receiver, packet.receiver)),
            sender: Box::new(Sending::new(sender, packet.sender)),
        })
    }
}

impl QueueDescription {
    fn attach(&self, socket: OwnedFd, memory: OwnedFd) -> io::Result<(XdpReceiver, XdpSender)> {
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
        let rx = Consumer::map(fd, &offsets.rx, libc::XDP_PGOFF_RX_RING as u64, entries)?;
        let tx = Producer::map(fd, &offsets.tx, libc::XDP_PGOFF_TX_RING as u64, entries)?;
        let shared = Arc::new(Shared {
            memory: Umem::map(memory.as_fd(), self.geometry)?,
            socket,
        });
        let succeeds = self.past == Past::Own;
        if succeeds {
            adopt::complete_fill(&mut fill, &rx, &shared.memory, self.geometry)?;
        }
        let sender = XdpSender::new(Arc::clone(&shared), tx, completion, self);
        Ok((
            XdpReceiver::new(shared, fill, rx, self),
            if succeeds { sender.succeed()? } else { sender },
        ))
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
    socket: OwnedFd,
}

#[cfg(test)]
mod tests;
