use crate::message::{Notice, Request, RequestBody, RequestMessage, ServedBy};
use crate::parts::{ProgramChannel, ProgramEnds};
use crate::routes::Routes;
use offers::{Offers, Progress};
use skink_channel::{AttachError, Berth, QueueError};
use skink_memory::SocketId;
use skink_messages::{Answer, Events, Protocol, SocketCall, SocketError, SocketEvent, TcpRequest};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

mod offers;

/// How long a program waits for a stack that doesn't move: one that was restarted goes on well before.
const PATIENCE: Duration = Duration::from_secs(10);
/// Who looks later than this after the time before was stopped meanwhile, as the stack may have been (a container that is paused).
const LATE: Duration = Duration::from_secs(1);

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

/// A program's half of its channels.
///
/// Requests that need no answer are gathered and leave with [`Client::flush`]. Notices are taken in by
/// [`Client::poll`], and by every call that waits for an answer.
///
/// Any part of the stack may die and have a successor meanwhile. What was asked and not answered is seen and
/// answered by the successor; what was told is in a queue or in the regions, or is told again.
pub struct Client {
    ends: ProgramEnds,
    routes: Routes,
    /// The call that is waited for, and its answer.
    asked: (u32, Option<Result<Answer, SocketError>>),
    /// The calls of [`Client::ask_later`] that aren't answered yet, in their order.
    later: VecDeque<u32>,
    /// How many of them were answered by an error.
    refused: usize,
    events: VecDeque<(Protocol, SocketEvent)>,
    offers: Offers,
    /// What a `tcp` that was restarted must be told of connections that it has offered once more.
    repeated: VecDeque<RequestBody>,
    malformed: u64,
    /// The page says that the program sleeps.
    announced: bool,
    batch: u64,
    patience: Duration,
}

impl ProgramChannel {
    /// Lets the stack see what was asked for, and wakes it if it sleeps.
    #[inline]
    fn flush(&mut self) -> bool {
        let some = self.requests.publish() > 0;
        if some {
            self.stack.ring();
        }
        some
    }
}

impl Client {
    /// Takes what [`ChannelParts::for_program`](crate::ChannelParts::for_program) answered, and where the
    /// channels lead.
    ///
    /// # Errors
    /// If they are more or fewer than the routes say, or the memory isn't a channel's.
    pub fn attach(descriptors: Vec<OwnedFd>, routes: Routes) -> Result<Client, AttachError> {
        Ok(Client {
            ends: ProgramEnds::attach(descriptors, routes)?,
            routes,
            asked: (0, None),
            later: VecDeque::new(),
            refused: 0,
            events: VecDeque::new(),
            offers: Offers::default(),
            repeated: VecDeque::new(),
            malformed: 0,
            announced: false,
            batch: 0,
            patience: PATIENCE,
        })
    }

    /// Where the channels lead.
    pub fn routes(&self) -> Routes {
        self.routes
    }

    #[inline]
    fn syscall(&self) -> usize {
        self.routes.channel(ServedBy::Syscall)
    }

    #[inline]
    fn channel(&mut self, channel: usize) -> Result<&mut ProgramChannel, ClientError> {
        let channel = self.ends.channels.get_mut(channel);
        channel.ok_or(ClientError::Broken)
    }

    /// Asks, and waits for the answer. Not for calls that have none (see [`SocketCall::is_answered`]).
    ///
    /// # Errors
    /// What the stack says, or that it says nothing.
    pub fn ask(&mut self, call: SocketCall) -> Result<Answer, ClientError> {
        self.begin(call)?;
        let answer = self.wait(self.syscall(), |client| client.asked.1.take())?;
        answer.map_err(ClientError::Socket)
    }

    /// Who has no time any more waits no longer than this for a stack that doesn't move.
    pub fn hurry(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Asks, for who doesn't wait here: [`Client::take_begun`] has the answer once it was heard. One such
    /// call at a time.
    ///
    /// # Errors
    /// As [`Client::tell`].
    pub fn begin(&mut self, call: SocketCall) -> Result<(), ClientError> {
        let serial = self.next_serial();
        let syscall = self.syscall();
        let body = RequestBody::Call(call);
        self.put(syscall, Request { serial, body })?;
        self.flush();
        self.asked = (serial, None);
        Ok(())
    }

    /// The answer to the call that was begun, if [`Client::poll`] has heard it.
    pub fn take_begun(&mut self) -> Option<Result<Answer, SocketError>> {
        self.asked.1.take()
    }

    /// Whether something of this kind can be told, or asked, without waiting for room.
    pub fn has_room(&mut self, body: RequestBody) -> bool {
        let channel = self.routes.channel(body.server());
        let channel = self.channel(channel);
        channel.is_ok_and(|channel| channel.requests.reserve(1).is_ok())
    }

    /// Asks, and goes on: [`Client::settle_answers`] waits for the answer. The call leaves with the next
    /// [`Client::flush`], and what `tcp` and `udp` are told afterwards doesn't overtake it.
    ///
    /// # Errors
    /// As [`Client::tell`].
    pub fn ask_later(&mut self, call: SocketCall) -> Result<(), ClientError> {
        let serial = self.next_serial();
        let body = RequestBody::Call(call);
        self.put(self.syscall(), Request { serial, body })?;
        self.later.push_back(serial);
        Ok(())
    }

    /// Waits for the answers of all calls of [`Client::ask_later`], and answers how many of those since
    /// the last time were refused.
    ///
    /// # Errors
    /// If the stack says nothing.
    pub fn settle_answers(&mut self) -> Result<usize, ClientError> {
        self.wait_for_later()?;
        Ok(std::mem::take(&mut self.refused))
    }

    fn wait_for_later(&mut self) -> Result<(), ClientError> {
        if self.later.is_empty() {
            return Ok(());
        }
        self.flush();
        self.wait(self.syscall(), |client| {
            client.later.is_empty().then_some(())
        })
    }

    /// The place of the next call in its queue: no successor of this client gives the number of another
    /// call again, which the stack would take for the same call.
    fn next_serial(&self) -> u32 {
        let channel = self.ends.channels.get(self.syscall());
        let position = channel.map_or(0, |channel| channel.requests.position());
        // 0 stands for no answer.
        (position as u32).wrapping_add(1).max(1)
    }

    /// Tells the stack something that it doesn't answer. It leaves with the next [`Client::flush`].
    ///
    /// # Errors
    /// If the queue is full and the stack doesn't empty it.
    #[inline]
    pub fn tell(&mut self, body: RequestBody) -> Result<(), ClientError> {
        let channel = self.routes.channel(body.server());
        if !self.later.is_empty() && channel != self.syscall() {
            // It may be about a socket that isn't the program's before they are answered.
            self.wait_for_later()?;
        }
        if let RequestBody::Call(SocketCall::Close(Protocol::Tcp, socket))
        | RequestBody::Tcp(TcpRequest::Close(socket)) = body
        {
            self.offers.note(socket, Progress::Closed);
        }
        self.put(channel, Request { serial: 0, body })
    }

    /// Whether one more call can be told without waiting.
    pub fn has_room_for_calls(&mut self) -> bool {
        let channel = self.channel(self.syscall());
        channel.is_ok_and(|channel| channel.requests.reserve(1).is_ok())
    }

    fn put(&mut self, channel: usize, request: Request) -> Result<(), ClientError> {
        let message = RequestMessage::from(&request);
        loop {
            match self.channel(channel)?.requests.write(&message) {
                Ok(()) => return Ok(()),
                Err(QueueError::Corrupt) => return Err(ClientError::Broken),
                Err(QueueError::Full) => {
                    self.flush();
                    self.wait(channel, |client| {
                        let requests = &mut client.channel(channel).ok()?.requests;
                        // What is spoilt meanwhile is told by the next write.
                        (requests.reserve(1) != Err(QueueError::Full)).then_some(())
                    })?;
                }
            }
        }
    }

    /// Lets the stack see what was asked for, and wakes it where it sleeps. Answers whether there was
    /// anything.
    pub fn flush(&mut self) -> bool {
        let syscall = self.syscall();
        let mut some = false;
        // What `tcp` and `udp` were told comes first, so that `syscall` can't make them do anything
        // before they can see it.
        for (index, channel) in self.ends.channels.iter_mut().enumerate() {
            if index != syscall {
                some |= channel.flush();
            }
        }
        if let Some(channel) = self.ends.channels.get_mut(syscall) {
            some |= channel.flush();
        }
        self.batch = self.batch.wrapping_add(1);
        some
    }

    /// Another number after each [`Client::flush`], also of those that other calls make: what was told
    /// under this one the stack hasn't seen.
    #[inline]
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// Takes in what the stack has said.
    ///
    /// # Errors
    /// [`ClientError::Broken`] if one of the channels is; what the others said is taken in.
    pub fn poll(&mut self) -> Result<(), ClientError> {
        let mut result = Ok(());
        for index in 0..self.ends.channels.len() {
            result = result.and(self.hear(index));
        }
        result
    }

    /// Takes in what was said on one channel.
    #[inline]
    fn hear(&mut self, index: usize) -> Result<(), ClientError> {
        loop {
            match self.channel(index)?.notices.peek() {
                Ok(Some(message)) => match message.decode() {
                    Some(notice) => self.take_in(index, notice),
                    None => self.malformed = self.malformed.wrapping_add(1),
                },
                Ok(None) => break,
                Err(_) => return Err(ClientError::Broken),
            }
        }
        let channel = self.channel(index)?;
        if channel.notices.release() > 0 && channel.notices.made_room() {
            // The stack may have more to say than there was room for.
            channel.stack.ring();
        }
        Ok(())
    }

    fn take_in(&mut self, index: usize, notice: Notice) {
        let speaker = match notice {
            Notice::Answer(..) => ServedBy::Syscall,
            Notice::Event(protocol, _) => protocol.into(),
            Notice::Offered { .. } => ServedBy::Tcp,
        };
        if self.routes.channel(speaker) != index {
            self.malformed = self.malformed.wrapping_add(1);
            return;
        }
        match notice {
            Notice::Answer(serial, answer) => self.take_answer(serial, answer),
            Notice::Event(protocol, event) => self.events.push_back((protocol, event)),
            Notice::Offered {
                listener,
                connection,
            } => self.take_offer(listener, connection),
        }
    }

    /// A restarted `tcp` offers again whatever its predecessor may have offered.
    fn take_offer(&mut self, listener: SocketId, connection: SocketId) {
        let accepted = RequestBody::Accepted {
            listener,
            connection,
        };
        match self.offers.put(listener, connection) {
            None => {
                let events = Events::READABLE;
                let socket = listener;
                let event = SocketEvent { socket, events };
                self.events.push_back((Protocol::Tcp, event));
            }
            Some(Progress::Waits(_)) => {}
            Some(Progress::Taken) => self.repeated.push_back(accepted),
            Some(Progress::Closed) => {
                let close = SocketCall::Close(Protocol::Tcp, connection);
                self.repeated.extend([accepted, RequestBody::Call(close)]);
            }
        }
    }

    /// Whether [`Client::settle_offers`] has something to tell.
    #[inline]
    pub fn has_repeated_offers(&self) -> bool {
        !self.repeated.is_empty()
    }

    /// Tells a `tcp` that was restarted which of the connections that it has offered again the program has
    /// taken already, and which it has closed since. It leaves with the next [`Client::flush`].
    ///
    /// # Errors
    /// As [`Client::tell`].
    pub fn settle_offers(&mut self) -> Result<(), ClientError> {
        while let Some(body) = self.repeated.pop_front() {
            self.tell(body)?;
        }
        Ok(())
    }

    /// A successor of the `syscall` that answered may answer once more: it isn't waited for then.
    fn take_answer(&mut self, serial: u32, answer: Result<Answer, SocketError>) {
        if self.asked.0 == serial {
            self.asked = (0, Some(answer));
        } else if let Some(at) = self.later.iter().position(|later| *later == serial) {
            self.later.remove(at);
            self.refused = self.refused.saturating_add(answer.is_err().into());
        }
    }

    /// Waits for the stack at the other end of a channel until `done` has an answer.
    fn wait<T>(
        &mut self,
        channel: usize,
        mut done: impl FnMut(&mut Client) -> Option<T>,
    ) -> Result<T, ClientError> {
        let (mut moved, mut heard) = (Instant::now(), self.heard(channel));
        let mut looked = moved;
        loop {
            self.poll()?;
            if let Some(answer) = done(self) {
                return Ok(answer);
            }
            if heard != self.heard(channel) {
                (moved, heard) = (Instant::now(), self.heard(channel));
            }
            let before = core::mem::replace(&mut looked, Instant::now());
            if looked - before > LATE {
                moved = looked;
            }
            let left = self.patience.checked_sub(moved.elapsed());
            let left = left.ok_or(ClientError::Silent)?;
            // A successor of the stack that died with our request rings nobody: look by ourselves.
            let nap = left.min(Duration::from_millis(20));
            self.announced = false;
            let channels = &self.ends.channels;
            let watch = channels.get(channel).map(|channel| channel.notices.watch());
            let ready = || channels.iter().any(|channel| channel.notices.is_ready());
            let woken = self.ends.sleeper.wait(Some(nap), watch, ready);
            if !matches!(woken, Ok(skink_channel::Woken::Ready)) && self.is_alone() {
                self.poll()?;
                return done(self).ok_or(ClientError::Gone);
            }
        }
    }

    /// How much was said on a channel: one whose stack moves says more.
    fn heard(&self, channel: usize) -> u64 {
        let channel = self.ends.channels.get(channel);
        channel.map_or(0, |channel| channel.notices.counters().messages)
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

    /// Whether the stack has said something that wasn't taken in, or of which nobody was told yet.
    #[inline]
    pub fn has_news(&self) -> bool {
        let mut channels = self.ends.channels.iter();
        !self.events.is_empty() || channels.any(|channel| channel.notices.is_ready())
    }

    /// Takes the next event. A listening socket has one for each connection that was offered on it.
    pub fn take_event(&mut self) -> Option<(Protocol, SocketEvent)> {
        self.events.pop_front()
    }

    /// Takes the connection that was offered first on a listening socket, of those that `is_ours` says the program has now: see
    /// [`skink_memory::SocketTable::take_offer`].
    ///
    /// # Errors
    /// As [`Client::tell`].
    pub fn accept(
        &mut self,
        listener: SocketId,
        is_ours: impl Fn(SocketId) -> bool,
    ) -> Result<Option<SocketId>, ClientError> {
        let Some(connection) = self.offers.take(listener, is_ours) else {
            return Ok(None);
        };
        self.tell(RequestBody::Accepted {
            listener,
            connection,
        })?;
        Ok(Some(connection))
    }

    /// Connections that wait to be taken.
    pub fn acceptable(&self, listener: SocketId) -> usize {
        self.offers.of(listener).map_or(0, VecDeque::len)
    }

    /// The listening socket is about to be closed: what was offered on it and not taken is the stack's business.
    pub fn forget_offers(&mut self, listener: SocketId) {
        self.offers.remove(listener);
    }

    /// Connections that were offered on a listening socket and not taken, for a successor.
    pub fn offers(&self, listener: SocketId) -> impl Iterator<Item = SocketId> {
        self.offers.of(listener).into_iter().flatten().copied()
    }

    /// Puts in a connection that a predecessor was offered and hadn't taken.
    pub fn restore_offer(&mut self, listener: SocketId, connection: SocketId) {
        self.offers.put(listener, connection);
    }

    /// Notes that a predecessor had taken this connection, and that it is still open.
    pub fn restore_taken(&mut self, connection: SocketId) {
        self.offers.note(connection, Progress::Taken);
    }

    /// Readable when the stack has rung; see [`Client::announce`].
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.ends.sleeper.bell()
    }

    /// Says that the program is about to sleep on [`Client::bell`]. Answers `false` if there is
    /// something to do first: the stack has said more, or an event was taken in by a call that waited for an
    /// answer, and by nobody whom it wakes.
    pub fn announce(&mut self) -> bool {
        self.announced = true;
        self.ends.sleeper.announce();
        let mut channels = self.ends.channels.iter();
        self.events.is_empty() && !channels.any(|channel| channel.notices.is_ready())
    }

    /// A thread is about to sleep until something happens to a TCP socket. As long as it does, another one must sleep on
    /// [`Client::bell`] or be about to [`Client::poll`]. `None` if it can't sleep so: then that one must wake it.
    pub fn lie_down(&mut self, socket: SocketId) -> Option<Berth> {
        let berth = self.ends.sleeper.lie_down(socket.slot)?;
        if self.has_news() {
            // That other one sees it.
            berth.rise();
            return None;
        }
        Some(berth)
    }

    /// The side bell of this number: readable when the stack has rung it, see [`Client::announce_beside`].
    pub fn side_bell(&self, number: usize) -> Option<BorrowedFd<'_>> {
        self.ends.sleeper.side_bell(number)
    }

    /// A thread is about to sleep on this side bell and on [`Client::bell`], of which [`Client::announce`] must tell, too.
    pub fn announce_beside(&mut self, number: usize) {
        self.ends.sleeper.announce_beside(number);
    }

    /// The thread that slept on this side bell is awake.
    pub fn retract_beside(&mut self, number: usize) {
        self.ends.sleeper.retract_beside(number);
    }

    /// What happens to a TCP socket is for who sleeps on this side bell.
    pub fn lead(&mut self, socket: SocketId, number: usize) {
        self.ends.sleeper.lead(socket.slot, number);
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
