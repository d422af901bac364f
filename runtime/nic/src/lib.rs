//! NICs: how frames get to and from the wire.
//!
//! A [`Nic`] is a receiving and a sending half behind one trait each; the halves need not be of one
//! kind. What it can do is data ([`Capabilities`]). Opening a NIC needs privileges and happens in
//! the process that grants them; the parts (descriptors and a description) are handed to the process
//! that uses the NIC, which needs none.
//!
//! Place on the data path: between the kernel (or the other end of a link in memory) and `link`.
//! [`Opener`] is the privileged side, one for each NIC; what it opens for an owner crosses a Unix
//! socket as [`NicParts`], which [`NicParts::attach`] turns into a [`Nic`].
//!
//! A NIC that is busy, or sends small packets only, is adapted to that ([`Judge`], [`Adaptation`]).
//!
//! What survives the death of a process that has a NIC is the NIC: sockets, rings, and frames in them,
//! which its successor takes over ([`Opener::open_again`]). The place in each ring is told from the ring.
//! A new [`Opener`] doesn't know the owners of its predecessor.
//!
//! Left out: VLANs (a tag that tells a priority only counts as none), links other than Ethernet, and changes of an interface's MTU or address
//! while it is open.

mod adaptation;
mod batch;
mod control;
mod error;
pub mod interface;
mod interrupts;
mod load;
pub mod memory;
mod opener;
mod overtaking;
mod packet;
mod places;
mod segmentation;
mod socket;
mod spec;
mod sysfs;
mod tap;
#[cfg(test)]
mod test_support;
mod virtio;
mod vlan;
mod xdp;

pub use adaptation::Adaptation;
pub use batch::BatchBytes;
pub use error::{Denial, OpenError};
pub use load::{Judge, Load, Traffic, Work};
pub use memory::{MemoryConfig, pair};
pub use opener::{Description, NicParts, Opener, Sharing, open_sole};
pub use packet::PacketDescription;
pub use spec::{NicSpec, SpecError};
pub use tap::TapDescription;
pub use xdp::XdpDescription;
pub use xdp::device::{Device, XDP_MTU, XdpPlace, XdpSupport};

pub use skink_messages::{Capabilities, Steering};
use skink_messages::{NicOutput, RxFrame};
pub use skink_steering::BUCKETS;
use skink_time::{Duration, Instant};
use skink_wire::FourTuple;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// How much may be received at a time.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    frames: usize,
    bytes: usize,
}

impl Budget {
    /// So many frames, and none after so many bytes of them.
    pub fn new(frames: usize, bytes: usize) -> Budget {
        Budget { frames, bytes }
    }

    /// So many frames.
    pub fn frames(frames: usize) -> Budget {
        Budget::new(frames, usize::MAX)
    }

    /// Whether nothing is left: there may be more to receive.
    pub fn is_spent(&self) -> bool {
        self.frames == 0 || self.bytes == 0
    }

    /// A frame of so many bytes was received.
    pub fn spend(&mut self, bytes: usize) {
        self.frames = self.frames.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// The receiving half.
pub trait Receiver: Send {
    /// Hands waiting frames to `each` until the budget is spent, and gives their buffers back; answers how many there were.
    /// `now` is their time of arrival where the NIC doesn't know better. The frames of a flow come in their order, if all or none
    /// of them are fragments; where many wait, those of others may overtake them.
    fn receive(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize;

    /// The descriptors that poll readable while frames wait. They don't change.
    fn descriptors(&self, each: &mut dyn FnMut(BorrowedFd<'_>));

    /// Frames that the kernel or the NIC dropped for want of room since the last call.
    fn take_dropped(&mut self) -> u64 {
        0
    }

    /// Frames since the last call that came by a socket beside the NIC's queues, the slower way.
    fn take_beside(&mut self) -> u64 {
        0
    }

    /// Frames since the last call that were taken before others which had come first.
    fn take_overtaken(&mut self) -> u64 {
        0
    }

    /// What brings frames to the threads that wait for them, if the NIC has that.
    fn flow_rings(&mut self) -> Option<&mut dyn FlowRings> {
        None
    }
}

/// Places beside the one where frames are taken in by whoever looks: each is for the TCP flows that were steered
/// there, and wakes its own sleeper. They are numbered from 1; until the first call of [`FlowRings::begin`] nothing
/// comes to them.
pub trait FlowRings {
    /// How many there are.
    fn count(&self) -> u8;

    /// From now on the Nth of the epoll `sets` tells, once, when something has come to ring N. Unless a thread sleeps in
    /// `epoll_wait` on it (in `poll` doesn't count), what [`Receiver::descriptors`] tells is readable too. The sets are
    /// kept.
    fn begin(&mut self, sets: Vec<OwnedFd>) -> io::Result<()>;

    /// The bucket of a flow, less than [`BUCKETS`]: those of one bucket go the same way.
    fn bucket(&self, flow: &FourTuple) -> u16;

    /// The flows of `bucket` go to `ring` from now on, 0 being the one place for all others. Frames on their way may
    /// still go where they went before.
    fn steer(&mut self, bucket: u16, ring: u8);

    /// What comes to `ring` is left there, for a thread that is going to sleep until something does:
    /// [`Receiver::receive`] takes it in now and then only. Answers whether something has come already: then its set
    /// mayn't tell.
    fn reserve(&mut self, ring: u8) -> bool;

    /// The thread doesn't sleep any more.
    fn release(&mut self, ring: u8);

    /// The next [`Receiver::receive`] takes in everything.
    fn take_all(&mut self);
}

/// The sending half.
pub trait Sender: NicOutput + Send {
    /// Makes sure that all frames taken so far leave: one doorbell for a batch. If there was no room, looks again.
    fn flush(&mut self);

    /// If there was no room, or not all frames could leave: what tells that [`Sender::flush`] helps.
    fn blocked_on(&self) -> Option<Room<'_>> {
        None
    }

    /// From now on a [`Sender::flush`] may leave its doorbell to who calls it, or not any more.
    fn set_deferring(&mut self, _deferring: bool) {}

    /// A doorbell that was left to the caller: it takes longer than everything else, and others needn't wait for that.
    fn take_doorbell(&mut self) -> Option<Doorbell> {
        None
    }

    /// From now on frames leave by system calls alone that can't name an address: by `sendmsg` and `sendmmsg` on a packet
    /// socket, whoever has taken over a confined process could send to any interface. It may be a call for each frame then.
    fn name_no_address(&mut self) {}

    /// Frames that the kernel refused for good since the last call.
    fn take_dropped(&mut self) -> u64 {
        0
    }
}

/// What makes frames leave that a [`Sender`] has handed over: an empty `sendto` on this socket that doesn't wait. If that
/// fails, not all have left, and [`Sender::flush`] must be called again.
#[derive(Debug)]
pub struct Doorbell(pub(crate) Arc<OwnedFd>);

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What tells that a NIC has room again.
#[derive(Clone, Copy, Debug)]
pub enum Room<'a> {
    /// This descriptor polls writable.
    At(BorrowedFd<'a>),
    /// Nothing does. Try again when frames have come, which may be for those that have left, and after this long at the
    /// latest.
    Untold(Duration),
}

impl<'a> Room<'a> {
    /// When to try again where a queue is full. The other end of a veth takes in what one call hands over in about as
    /// long; a millisecond cost a tenth of the throughput of large answers in frames.
    pub const SOON: Duration = Duration::from_micros(50);

    /// When to try again while the link is down. Nobody notices the rest of so long, and trying costs next to nothing.
    pub const LATER: Duration = Duration::from_millis(10);

    /// The descriptor to poll, if there is one.
    pub fn descriptor(self) -> Option<BorrowedFd<'a>> {
        match self {
            Room::At(descriptor) => Some(descriptor),
            Room::Untold(_) => None,
        }
    }
}

/// A NIC ready for use.
pub struct Nic {
    /// What it can do.
    pub capabilities: Capabilities,
    /// Its receiving half.
    pub receiver: Box<dyn Receiver>,
    /// Its sending half.
    pub sender: Box<dyn Sender>,
}
