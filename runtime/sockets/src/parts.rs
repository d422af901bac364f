use crate::{NoticeMessage, RequestMessage};
use serde::{Deserialize, Serialize};
use skink_channel::{
    AttachError, Consumer, ConsumerDescriptors, Doorbell, DoorbellDescriptors, Producer,
    ProducerDescriptors, Queue, QueueGeometry, SleeperDescriptors, SpinBudget,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Requests that a program may have on their way.
pub const REQUESTS: u32 = 1024;
/// Notices that a stack may have on their way to one program.
pub const NOTICES: u32 = 1024;

const REQUEST_BYTES: u32 = QueueGeometry::slot_bytes_for::<RequestMessage>();
const NOTICE_BYTES: u32 = QueueGeometry::slot_bytes_for::<NoticeMessage>();

/// What both sides of a socket channel are told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attachment {
    /// The stack's number for the program, and the index of its two regions.
    pub program: u32,
    /// Slots of each region of the TCP table: a power of two.
    pub tcp_stride: u32,
    /// Slots of each region of the UDP table.
    pub udp_stride: u32,
    /// Who knows it may use the program's sockets: its children, and whom it hands a socket to.
    pub secret: u64,
}

/// Everything that belongs to one channel but the regions, as whoever makes it holds it: so either side
/// can have a successor.
pub struct ChannelParts {
    requests: skink_channel::QueueDescriptors,
    notices: skink_channel::QueueDescriptors,
    program: SleeperDescriptors,
    /// What the program rings: an eventfd of its own, since holders of one could silence each other.
    bell: OwnedFd,
}

impl ChannelParts {
    /// Makes a channel. Needs `/proc`.
    ///
    /// # Errors
    /// What the system says.
    pub fn create() -> io::Result<ChannelParts> {
        use rustix::event::EventfdFlags;
        Ok(ChannelParts {
            requests: Queue::create("skink-requests", REQUEST_BYTES, REQUESTS)?,
            notices: Queue::create("skink-notices", NOTICE_BYTES, NOTICES)?,
            program: SleeperDescriptors::create_for_untrusted("skink-program")?,
            bell: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// For the program, which rings `stack` (whose own eventfd stays out of it).
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn for_program(&self, stack: &SleeperDescriptors) -> io::Result<[OwnedFd; 8]> {
        let requests = self.requests.producer()?;
        let notices = self.notices.consumer()?;
        let (page, bell) = self.program.sleeper()?;
        Ok([
            requests.own,
            requests.theirs,
            notices.own,
            notices.theirs,
            page,
            bell,
            stack.doorbell()?.page,
            self.bell.try_clone()?,
        ])
    }

    /// For the stack.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn for_stack(&self) -> io::Result<[OwnedFd; 7]> {
        let requests = self.requests.consumer()?;
        let notices = self.notices.producer()?;
        let program = self.program.doorbell()?;
        Ok([
            requests.own,
            requests.theirs,
            notices.own,
            notices.theirs,
            program.page,
            program.bell,
            self.bell.try_clone()?,
        ])
    }
}

fn geometry(slot_bytes: u32, capacity: u32) -> Result<QueueGeometry, AttachError> {
    QueueGeometry::new(slot_bytes, capacity).ok_or(AttachError::OtherLayout)
}

/// The program's ends.
pub(crate) struct ProgramEnds {
    pub requests: Producer<RequestMessage>,
    pub notices: Consumer<NoticeMessage>,
    pub sleeper: skink_channel::Sleeper,
    pub stack: Doorbell,
}

impl ProgramEnds {
    pub(crate) fn attach(descriptors: [OwnedFd; 8]) -> Result<ProgramEnds, AttachError> {
        let [
            request_own,
            request_theirs,
            notice_own,
            notice_theirs,
            page,
            bell,
            stack,
            ring,
        ] = descriptors;
        let requests = ProducerDescriptors {
            own: request_own,
            theirs: request_theirs,
        };
        let notices = ConsumerDescriptors {
            own: notice_own,
            theirs: notice_theirs,
        };
        let stack = DoorbellDescriptors {
            page: stack,
            bell: ring,
        };
        Ok(ProgramEnds {
            requests: Producer::attach(requests, geometry(REQUEST_BYTES, REQUESTS)?)?,
            notices: Consumer::attach(notices, geometry(NOTICE_BYTES, NOTICES)?)?,
            sleeper: skink_channel::Sleeper::attach((page, bell), spin_budget())?,
            stack: Doorbell::attach(stack)?,
        })
    }
}

/// The stack's ends.
pub(crate) struct StackEnds {
    pub requests: Consumer<RequestMessage>,
    pub notices: Producer<NoticeMessage>,
    pub program: Doorbell,
    /// What the program rings.
    pub bell: OwnedFd,
}

impl StackEnds {
    pub(crate) fn attach(descriptors: [OwnedFd; 7]) -> Result<StackEnds, AttachError> {
        let [
            request_own,
            request_theirs,
            notice_own,
            notice_theirs,
            page,
            bell,
            own,
        ] = descriptors;
        let requests = ConsumerDescriptors {
            own: request_own,
            theirs: request_theirs,
        };
        let notices = ProducerDescriptors {
            own: notice_own,
            theirs: notice_theirs,
        };
        // The program could make it block, and with it whoever reads it.
        rustix::fs::fcntl_setfl(own.as_fd(), rustix::fs::OFlags::NONBLOCK)
            .map_err(|error| AttachError::Memory(error.into()))?;
        Ok(StackEnds {
            requests: Consumer::attach(requests, geometry(REQUEST_BYTES, REQUESTS)?)?,
            notices: Producer::attach(notices, geometry(NOTICE_BYTES, NOTICES)?)?,
            program: Doorbell::attach(DoorbellDescriptors { page, bell })?,
            bell: own,
        })
    }
}

fn spin_budget() -> SpinBudget {
    SpinBudget::for_processors(std::thread::available_parallelism().map_or(1, usize::from))
}
