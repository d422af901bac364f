use crate::{MOST_CHANNELS, NoticeMessage, RequestMessage, Routes, ServedBy};
use serde::{Deserialize, Serialize};
use skink_channel::{
    AttachError, Consumer, ConsumerDescriptors, Doorbell, DoorbellDescriptors, Producer,
    ProducerDescriptors, Queue, QueueDescriptors, QueueGeometry, SIDE_BELLS, SleeperDescriptors,
    SpinBudget, side_bell,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

/// Requests that a program may have on their way.
pub const REQUESTS: u32 = 1024;
/// Notices that a stack may have on their way to one program.
pub const NOTICES: u32 = 1024;

const REQUEST_BYTES: u32 = QueueGeometry::slot_bytes_for::<RequestMessage>();
const NOTICE_BYTES: u32 = QueueGeometry::slot_bytes_for::<NoticeMessage>();

/// Descriptors of each channel that a program is handed.
const PROGRAM_DESCRIPTORS: usize = 6;
/// Descriptors of a channel that a process of the stack is handed.
const STACK_DESCRIPTORS: usize = 7 + SIDE_BELLS;

/// How many descriptors a program with `channels` channels is handed: its page and bell, 6 of each channel, and its side bells.
pub const fn program_descriptors(channels: usize) -> usize {
    without_side_bells(channels).saturating_add(SIDE_BELLS)
}

/// The same for who makes calls alone.
const fn without_side_bells(channels: usize) -> usize {
    channels
        .saturating_mul(PROGRAM_DESCRIPTORS)
        .saturating_add(2)
}

/// What a program needs of its descriptors to make [`SocketCall`](crate::SocketCall)s and nothing else, in
/// the order for [`Client::attach`](crate::Client::attach) with [`Routes::SINGLE`]. `None` if they aren't
/// those of a program with these routes.
pub fn for_calls<T: Copy>(descriptors: &[T], routes: Routes) -> Option<[T; without_side_bells(1)]> {
    let channel = routes.channel(ServedBy::Syscall);
    let start = without_side_bells(channel);
    let [page, bell] = *descriptors.first_chunk()?;
    let channel = descriptors
        .get(start..)?
        .first_chunk::<PROGRAM_DESCRIPTORS>()?;
    let [a, b, c, d, e, f] = *channel;
    Some([page, bell, a, b, c, d, e, f])
}

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
    /// Where the program's channels lead.
    pub routes: Routes,
}

/// A pipe that the stack rings for some of a program's sockets, see [`SIDE_BELLS`].
#[derive(Serialize, Deserialize)]
struct SideBell {
    #[serde(with = "skink_inherit::descriptors")]
    bell: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    rope: OwnedFd,
}

/// One channel, to one process.
#[derive(Serialize, Deserialize)]
struct Queues {
    requests: QueueDescriptors,
    notices: QueueDescriptors,
    /// What the program rings: an eventfd of its own, since holders of one could silence each other.
    #[serde(with = "skink_inherit::descriptors")]
    bell: OwnedFd,
}

/// Everything that belongs to one program's channels but the regions, as whoever makes them holds it: so
/// either side can have a successor.
#[derive(Serialize, Deserialize)]
pub struct ChannelParts {
    /// What all processes of the stack ring.
    program: SleeperDescriptors,
    /// As many as [`SIDE_BELLS`] says.
    side_bells: Vec<SideBell>,
    channels: Vec<Queues>,
}

impl Queues {
    fn create() -> io::Result<Queues> {
        use rustix::event::EventfdFlags;
        Ok(Queues {
            requests: Queue::create("skink-requests", REQUEST_BYTES, REQUESTS)?,
            notices: Queue::create("skink-notices", NOTICE_BYTES, NOTICES)?,
            bell: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }
}

impl ChannelParts {
    /// Makes `count` channels of one program, as many as [`Routes::channels`] says. Needs `/proc`.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::InvalidInput`] if it is none, or more than
    /// [`MOST_CHANNELS`].
    pub fn create(count: usize) -> io::Result<ChannelParts> {
        if !(1..=MOST_CHANNELS).contains(&count) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(ChannelParts {
            program: SleeperDescriptors::create("skink-sleep-program")?,
            side_bells: (0..SIDE_BELLS)
                .map(|_| side_bell().map(|(bell, rope)| SideBell { bell, rope }))
                .collect::<Result<_, _>>()?,
            channels: (0..count)
                .map(|_| Queues::create())
                .collect::<Result<_, _>>()?,
        })
    }

    /// Requests that wait in a channel, for tools; at most [`REQUESTS`].
    ///
    /// # Errors
    /// If its memory can't be read; [`io::ErrorKind::InvalidInput`] if there is no such channel.
    pub fn requests(&self, channel: usize) -> io::Result<u32> {
        let channel = self.channels.get(channel);
        channel.ok_or(io::ErrorKind::InvalidInput)?.requests.depth()
    }

    /// Notices that wait in a channel, for tools; at most [`NOTICES`].
    ///
    /// # Errors
    /// As [`ChannelParts::requests`].
    pub fn notices(&self, channel: usize) -> io::Result<u32> {
        let channel = self.channels.get(channel);
        channel.ok_or(io::ErrorKind::InvalidInput)?.notices.depth()
    }

    /// Whether the program can have written all that it has in a channel without breaking any rule: if so, whoever
    /// says that it spoilt the channel is wrong.
    ///
    /// # Errors
    /// As [`ChannelParts::requests`].
    pub fn is_used_well(&self, channel: usize) -> io::Result<bool> {
        let channel = self.channels.get(channel);
        let channel = channel.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(channel.requests.is_produced_well()? && channel.notices.is_consumed_well()?)
    }

    /// The queues of a channel, for tools: that of notices, and that of requests.
    pub fn queues(&self, channel: usize) -> Option<(&QueueDescriptors, &QueueDescriptors)> {
        let channel = self.channels.get(channel)?;
        Some((&channel.notices, &channel.requests))
    }

    /// How many channels there are.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// For the program, which rings `stacks`, each by its channel (what they ring each other by stays out of it):
    /// as many as [`program_descriptors`] says.
    ///
    /// # Errors
    /// If there are no descriptors left; [`io::ErrorKind::InvalidInput`] if there are more or fewer
    /// stacks than channels.
    pub fn for_program(&self, stacks: &[&SleeperDescriptors]) -> io::Result<Vec<OwnedFd>> {
        if stacks.len() != self.channels.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (page, bell) = self.program.sleeper()?;
        let mut all = vec![page, bell];
        for (channel, stack) in self.channels.iter().zip(stacks) {
            let requests = channel.requests.producer()?;
            let notices = channel.notices.consumer()?;
            let each: [OwnedFd; PROGRAM_DESCRIPTORS] = [
                requests.own,
                requests.theirs,
                notices.own,
                notices.theirs,
                stack.doorbell()?.page,
                channel.bell.try_clone()?,
            ];
            all.extend(each);
        }
        for side in &self.side_bells {
            all.push(side.bell.try_clone()?);
        }
        Ok(all)
    }

    /// For the process of the stack that one channel leads to: a fixed number.
    ///
    /// # Errors
    /// If there are no descriptors left; [`io::ErrorKind::InvalidInput`] if there is no such channel.
    pub fn for_stack(&self, channel: usize) -> io::Result<Vec<OwnedFd>> {
        let channel = self.channels.get(channel);
        let channel = channel.ok_or(io::ErrorKind::InvalidInput)?;
        let requests = channel.requests.consumer()?;
        let notices = channel.notices.producer()?;
        let program = self.program.doorbell()?;
        let mut all = vec![
            requests.own,
            requests.theirs,
            notices.own,
            notices.theirs,
            program.page,
            program.bell,
            channel.bell.try_clone()?,
        ];
        for side in &self.side_bells {
            all.push(side.rope.try_clone()?);
        }
        Ok(all)
    }
}

fn geometry(slot_bytes: u32, capacity: u32) -> Result<QueueGeometry, AttachError> {
    QueueGeometry::new(slot_bytes, capacity).ok_or(AttachError::OtherLayout)
}

/// The program's ends of all its channels.
pub(crate) struct ProgramEnds {
    pub sleeper: skink_channel::Sleeper,
    /// As many as the routes say.
    pub channels: Vec<ProgramChannel>,
}

/// The program's ends of one channel.
pub(crate) struct ProgramChannel {
    pub requests: Producer<RequestMessage>,
    pub notices: Consumer<NoticeMessage>,
    pub stack: Doorbell,
}

impl ProgramEnds {
    pub(crate) fn attach(
        descriptors: Vec<OwnedFd>,
        routes: Routes,
    ) -> Result<ProgramEnds, AttachError> {
        let count = routes.channels();
        let with_side_bells = descriptors.len() == program_descriptors(count);
        if !with_side_bells && descriptors.len() != without_side_bells(count) {
            return Err(AttachError::OtherLayout);
        }
        let mut descriptors = descriptors.into_iter();
        let [page, bell] = take(&mut descriptors)?;
        let mut channels = Vec::with_capacity(count);
        for _ in 0..count {
            channels.push(ProgramChannel::attach(take(&mut descriptors)?)?);
        }
        let mut sleeper =
            skink_channel::Sleeper::attach((page, bell), spin_budget())?.reading_plainly();
        if with_side_bells {
            sleeper = sleeper.with_side_bells(take(&mut descriptors)?);
        }
        Ok(ProgramEnds { sleeper, channels })
    }
}

impl ProgramChannel {
    fn attach(descriptors: [OwnedFd; PROGRAM_DESCRIPTORS]) -> Result<ProgramChannel, AttachError> {
        let [
            request_own,
            request_theirs,
            notice_own,
            notice_theirs,
            page,
            bell,
        ] = descriptors;
        let requests = ProducerDescriptors {
            own: request_own,
            theirs: request_theirs,
        };
        let notices = ConsumerDescriptors {
            own: notice_own,
            theirs: notice_theirs,
        };
        Ok(ProgramChannel {
            requests: Producer::attach(requests, geometry(REQUEST_BYTES, REQUESTS)?)?,
            notices: Consumer::attach(notices, geometry(NOTICE_BYTES, NOTICES)?)?,
            stack: Doorbell::attach(DoorbellDescriptors { page, bell })?,
        })
    }
}

/// The next `N` descriptors.
fn take<const N: usize>(
    descriptors: &mut impl Iterator<Item = OwnedFd>,
) -> Result<[OwnedFd; N], AttachError> {
    let next: Vec<OwnedFd> = descriptors.take(N).collect();
    next.try_into().map_err(|_| AttachError::OtherLayout)
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
    pub(crate) fn attach(descriptors: Vec<OwnedFd>) -> Result<StackEnds, AttachError> {
        if descriptors.len() != STACK_DESCRIPTORS {
            return Err(AttachError::OtherLayout);
        }
        let mut descriptors = descriptors.into_iter();
        let [
            request_own,
            request_theirs,
            notice_own,
            notice_theirs,
            page,
            bell,
            own,
        ] = take(&mut descriptors)?;
        let side_bells = take(&mut descriptors)?;
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
            program: Doorbell::attach(DoorbellDescriptors { page, bell })?
                .with_side_bells(side_bells),
            bell: own,
        })
    }
}

fn spin_budget() -> SpinBudget {
    /// What a control group leaves of them takes 0.15 ms to find out, which each child after `fork` needn't do again.
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    let counted = || std::thread::available_parallelism().map_or(1, usize::from);
    SpinBudget::for_processors(*PROCESSORS.get_or_init(counted))
}
