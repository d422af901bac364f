use crate::message::{Notice, NoticeMessage, Request};
use crate::parts::StackEnds;
use skink_channel::{AttachError, Fenced, QueueError};
use skink_messages::Full;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The program spoilt its queues: it must be treated as one that died.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerError;

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the program spoilt its channel to the stack; it is treated as one that died")
    }
}

impl std::error::Error for ServerError {}

/// The half of one process of the stack of one of a program's channels.
///
/// A request stays in the queue until [`Server::advance`], and is seen by a successor until it was
/// released too: so what dies over a request can be asked again.
pub struct Server {
    ends: StackEnds,
    /// The program's next request, copied out and still in the queue.
    current: Option<Request>,
    malformed: u64,
    /// Notices since the last flush.
    told: u32,
    /// What they are about, if it is one.
    subject: Option<u32>,
}

impl Server {
    /// Takes what [`ChannelParts::for_stack`](crate::ChannelParts::for_stack) answered.
    ///
    /// # Errors
    /// If the memory isn't a channel's.
    pub fn attach(descriptors: Vec<OwnedFd>) -> Result<Server, AttachError> {
        Ok(Server {
            ends: StackEnds::attach(descriptors)?,
            current: None,
            malformed: 0,
            told: 0,
            subject: None,
        })
    }

    /// The program's next request, the same until [`Server::advance`]. What makes no sense is counted and
    /// skipped. `None` if there is none, or if so many were taken that [`Server::release`] comes first.
    ///
    /// # Errors
    /// If the queue is spoilt.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Request>, ServerError> {
        // What is in the queue is still the program's to change: it is looked at once.
        while self.current.is_none() {
            let message = self.ends.requests.front().map_err(|_| ServerError)?;
            let Some(message) = message else {
                return Ok(None);
            };
            self.current = message.decode();
            if self.current.is_none() {
                self.malformed = self.malformed.wrapping_add(1);
                self.ends.requests.advance();
            }
        }
        Ok(self.current)
    }

    /// The request that [`Server::peek`] answered is dealt with. Does nothing if it answered none.
    #[inline]
    pub fn advance(&mut self) {
        if self.current.take().is_some() {
            self.ends.requests.advance();
        }
    }

    /// Gives the program the room of all requests that are dealt with: once per batch. A successor sees
    /// those that aren't released.
    pub fn release(&mut self) {
        self.ends.requests.release();
    }

    /// Hands up to `budget` requests to `each`, and releases them; answers how many it took.
    ///
    /// # Errors
    /// If the queue is spoilt.
    pub fn receive(
        &mut self,
        budget: usize,
        mut each: impl FnMut(Request),
    ) -> Result<usize, ServerError> {
        let mut taken = 0;
        while taken < budget
            && let Some(request) = self.peek()?
        {
            each(request);
            self.advance();
            taken += 1;
        }
        self.release();
        Ok(taken)
    }

    /// Tells the program something, which it sees after [`Server::flush`].
    ///
    /// # Errors
    /// [`Full`] if there is no room: tell it later. A spoilt queue is never full: what is told is lost,
    /// and the next [`Server::flush`] says so.
    pub fn tell(&mut self, notice: &Notice) -> Result<(), Full> {
        match self.ends.notices.write(&NoticeMessage::from(notice)) {
            Ok(()) | Err(QueueError::Corrupt) => {
                self.subject = notice.subject().filter(|_| self.told == 0);
                self.told = self.told.saturating_add(1);
                Ok(())
            }
            Err(QueueError::Full) => Err(Full),
        }
    }

    /// Whether the program can be told something. Who finds there is none and sleeps must look again after
    /// having announced that: a program that makes room rings.
    pub fn has_room(&self) -> bool {
        self.ends.notices.has_room()
    }

    /// Shows the program what it was told, and wakes it if it sleeps: the thread that waits for just that, or one that sleeps for
    /// all. The latter too if several wait: it wakes the others, and this process doesn't lose the processor to each of them.
    ///
    /// # Errors
    /// If the queue is spoilt.
    pub fn flush(&mut self) -> Result<(), ServerError> {
        let program = &mut self.ends.program;
        let subject = self.subject.take();
        self.told = 0;
        if self.ends.notices.publish() > 0 {
            let fenced = Fenced::now();
            if !subject.is_some_and(|subject| program.wake_for(subject, &fenced)) {
                program.ring_after(&fenced);
            }
        }
        match self.ends.notices.counters().corrupt {
            0 => Ok(()),
            _ => Err(ServerError),
        }
    }

    /// Wakes the program if it sleeps, though it is told nothing: a predecessor may have died before it rang for
    /// what it had told, and may have freed room in rings that it hadn't told of.
    pub fn ring(&mut self) {
        self.ends.program.ring();
    }

    /// Whether the program has asked for something that [`Server::peek`] hasn't answered yet: a request
    /// that is under way keeps nobody awake.
    pub fn is_ready(&self) -> bool {
        self.current.is_none() && self.ends.requests.is_ready()
    }

    /// Whether [`Server::peek`] has answered a request that isn't dealt with.
    pub fn holds_request(&self) -> bool {
        self.current.is_some()
    }

    /// Readable when the program has rung, which it does when the stack's sleeper has announced a sleep.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.ends.bell.as_fd()
    }

    /// Polls with an error once nobody holds the program's end of the channel any more: neither the
    /// program, nor who keeps it for the stack's successors.
    pub fn rope(&self) -> BorrowedFd<'_> {
        self.ends.program.rope()
    }

    /// Makes the bell quiet.
    pub fn hush(&mut self) {
        let mut count = [0; 8];
        let mut space = [std::io::IoSliceMut::new(&mut count)];
        // Without waiting, whatever the program has done to the description they share.
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        let _ = rustix::io::preadv2(&self.ends.bell, &mut space, u64::MAX, flags);
    }

    /// Requests that made no sense.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }
}
