use crate::message::{Answer, Notice, Protocol, Request, RequestBody, RequestMessage};
use crate::parts::ProgramEnds;
use skink_channel::{AttachError, QueueError};
use skink_memory::SocketId;
use skink_messages::{Events, SocketError, SocketEvent};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a program waits for a stack that doesn't move: one that was restarted goes on well before.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the stack didn't do what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientError {
    /// Its answer.
    Socket(SocketError),
    /// It hasn't moved for ten seconds.
    Silent,
    /// The channel is spoilt, for good.
    Broken,
    /// Nobody holds the other end any more: the stack has ended and will have no successor.
    Gone,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Socket(error) => write!(f, "the stack refused: {error:?}"),
            ClientError::Silent => f.write_str(
                "the stack hasn't answered for ten seconds: look at `skink ps` and its log",
            ),
            ClientError::Gone => f.write_str("it has ended: look at the log of `skink up`"),
            ClientError::Broken => {
                f.write_str("the channel to the stack is spoilt: start the program again")
            }
        }
    }
}

impl std::error::Error for ClientError {}

/// A program's half of its socket channel.
///
/// Requests that need no answer are gathered and leave with [`Client::flush`]. Notices are taken in by
/// [`Client::poll`], and by every call that waits for an answer.
pub struct Client {
    ends: ProgramEnds,
    serial: u32,
    /// The answer that was waited for last.
    answer: Option<(u32, Result<Answer, SocketError>)>,
    events: VecDeque<(Protocol, SocketEvent)>,
    /// Connections that were established, by the slot of their listening socket.
    offers: HashMap<u32, VecDeque<SocketId>>,
    malformed: u64,
    /// The page says that the program sleeps.
    announced: bool,
}

impl Client {
    /// Takes what [`ChannelParts::for_program`](crate::ChannelParts::for_program) answered.
    ///
    /// # Errors
    /// If the memory isn't a channel's.
    pub fn attach(descriptors: [OwnedFd; 8]) -> Result<Client, AttachError> {
        Ok(Client {
            ends: ProgramEnds::attach(descriptors)?,
            serial: 0,
            answer: None,
            events: VecDeque::new(),
            offers: HashMap::new(),
            malformed: 0,
            announced: false,
        })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// What the stack says, or that it says nothing.
    pub fn ask(&mut self, body: RequestBody) -> Result<Answer, ClientError> {
        // 0 stands for no answer.
        self.serial = self.serial.wrapping_add(1).max(1);
        let serial = self.serial;
        self.put(Request { serial, body })?;
        self.flush();
        self.answer = None;
        self.wait(|client| {
            let answer = client.answer.take_if(|(number, _)| *number == serial);
            answer.map(|(_, answer)| answer)
        })?
        .map_err(ClientError::Socket)
    }

    /// Tells the stack something that it doesn't answer. It leaves with the next [`Client::flush`].
    ///
    /// # Errors
    /// If the queue is full and the stack doesn't empty it.
    pub fn tell(&mut self, body: RequestBody) -> Result<(), ClientError> {
        self.put(Request { serial: 0, body })
    }

    fn put(&mut self, request: Request) -> Result<(), ClientError> {
        let message = RequestMessage::from(&request);
        loop {
            match self.ends.requests.write(&message) {
                Ok(()) => return Ok(()),
                Err(QueueError::Corrupt) => return Err(ClientError::Broken),
                Err(QueueError::Full) => {
                    self.flush();
                    self.wait(|client| client.ends.requests.reserve(1).is_ok().then_some(()))?;
                }
            }
        }
    }

    /// Lets the stack see what was asked for, and wakes it if it sleeps. Answers whether there was
    /// anything.
    pub fn flush(&mut self) -> bool {
        let some = self.ends.requests.publish() > 0;
        if some {
            self.ends.stack.ring();
        }
        some
    }

    /// Takes in what the stack has said.
    ///
    /// # Errors
    /// [`ClientError::Broken`].
    pub fn poll(&mut self) -> Result<(), ClientError> {
        loop {
            match self.ends.notices.peek() {
                Ok(Some(message)) => match message.decode() {
                    Some(notice) => self.take_in(notice),
                    None => self.malformed = self.malformed.wrapping_add(1),
                },
                Ok(None) => break,
                Err(_) => return Err(ClientError::Broken),
            }
        }
        if self.ends.notices.release() > 0 && self.ends.notices.made_room() {
            // The stack may have more to say than there was room for.
            self.ends.stack.ring();
        }
        Ok(())
    }

    fn take_in(&mut self, notice: Notice) {
        match notice {
            Notice::Answer(serial, answer) => self.answer = Some((serial, answer)),
            Notice::Event(protocol, event) => self.events.push_back((protocol, event)),
            Notice::Offered {
                listener,
                connection,
            } => {
                self.restore_offer(listener, connection);
                let events = Events::READABLE;
                let socket = listener;
                let event = SocketEvent { socket, events };
                self.events.push_back((Protocol::Tcp, event));
            }
        }
    }

    /// Waits for the stack until `done` has an answer.
    fn wait<T>(
        &mut self,
        mut done: impl FnMut(&mut Client) -> Option<T>,
    ) -> Result<T, ClientError> {
        let mut moved = Instant::now();
        loop {
            self.poll()?;
            if let Some(answer) = done(self) {
                return Ok(answer);
            }
            let left = PATIENCE.checked_sub(moved.elapsed());
            let left = left.ok_or(ClientError::Silent)?;
            // A successor of the stack that died with our request rings nobody: look by ourselves.
            let nap = left.min(Duration::from_millis(20));
            self.announced = false;
            let ends = &mut self.ends;
            let (notices, watch) = (&ends.notices, ends.notices.watch());
            let woken = ends
                .sleeper
                .wait(Some(nap), Some(watch), || notices.is_ready());
            if matches!(woken, Ok(skink_channel::Woken::Rung)) && self.is_alone() {
                self.poll()?;
                return done(self).ok_or(ClientError::Gone);
            }
            if !matches!(woken, Ok(skink_channel::Woken::TimedOut)) {
                moved = moved.max(Instant::now());
            }
        }
    }

    /// Whether nobody holds the other end of the bell, so that it can't be rung any more.
    pub fn is_alone(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut bell = [PollFd::from_borrowed_fd(self.bell(), PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut bell, Some(&now)).is_ok() && bell[0].revents().contains(PollFlags::HUP)
    }

    /// Takes the next event. A listening socket has one for each connection that was offered on it.
    pub fn take_event(&mut self) -> Option<(Protocol, SocketEvent)> {
        self.events.pop_front()
    }

    /// Takes the connection that was offered first on a listening socket.
    ///
    /// # Errors
    /// As [`Client::tell`].
    pub fn accept(&mut self, listener: SocketId) -> Result<Option<SocketId>, ClientError> {
        let offers = self.offers.get_mut(&listener.slot);
        let Some(connection) = offers.and_then(VecDeque::pop_front) else {
            return Ok(None);
        };
        self.tell(RequestBody::Accepted(listener))?;
        Ok(Some(connection))
    }

    /// Connections that wait to be taken.
    pub fn acceptable(&self, listener: SocketId) -> usize {
        self.offers.get(&listener.slot).map_or(0, VecDeque::len)
    }

    /// The listening socket is closed: answers what was offered on it and not taken, which must be
    /// closed as well.
    pub fn refuse_offers(&mut self, listener: SocketId) -> VecDeque<SocketId> {
        self.offers.remove(&listener.slot).unwrap_or_default()
    }

    /// Connections that were offered on a listening socket and not taken, for a successor.
    pub fn offers(&self, listener: SocketId) -> impl Iterator<Item = SocketId> {
        let offers = self.offers.get(&listener.slot);
        offers.into_iter().flatten().copied()
    }

    /// Puts in a connection that a predecessor was offered and hadn't taken.
    pub fn restore_offer(&mut self, listener: SocketId, connection: SocketId) {
        let offers = self.offers.entry(listener.slot).or_default();
        offers.push_back(connection);
    }

    /// Readable when the stack has rung; see [`Client::announce`].
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.ends.sleeper.bell()
    }

    /// Says that the program is about to sleep on [`Client::bell`]. Answers `false` if there is
    /// something to do first.
    pub fn announce(&mut self) -> bool {
        self.announced = true;
        self.ends.sleeper.announce();
        !self.ends.notices.is_ready()
    }

    /// Whether the last announcement stands: waiting for an answer ends it as well.
    pub fn is_announced(&self) -> bool {
        self.announced
    }

    /// Says that the program is awake, and makes the bell quiet.
    pub fn retract(&mut self) {
        self.announced = false;
        self.ends.sleeper.retract();
    }

    /// Says that the program is awake, and leaves the bell as it is.
    pub fn awake(&mut self) {
        self.announced = false;
        self.ends.sleeper.awake();
    }

    /// Notices that made no sense.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }
}

#[cfg(test)]
mod tests;
