//! The program at one end of a connection: it writes, reads, checks every byte, and ends as its
//! script says. It acts on events only, so an event that is never sent shows as a run that hangs.

use crate::context::Context;
use crate::listener::REUSE;
use crate::pattern::{NAME_BYTES, Pattern};
use crate::place::{SocketPlan, Then};
use crate::scenario::{ConnectionPlan, EndPlan, Ending};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_library::{Protocol, State};
use skink_memory::SocketId;
use skink_messages::{ConnectionOption, Events, Shutdown, SocketError, TcpRequest};
use skink_time::Duration;
use skink_wire::Endpoint;

/// How one end of a connection fared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All bytes both ways.
    Complete,
    /// It left as its script said, before the end.
    Left,
    /// The stack reported an error.
    Failed(SocketError),
    /// The peer had gone without a word that arrived.
    Forsaken,
}

/// Which end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// It connected.
    Client = 0,
    /// It was accepted.
    Server = 1,
}

impl Side {
    /// The one at the other end.
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// A timer of a connection's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// The pause between two writes is over.
    Write,
    /// The pause between two reads is over.
    Read,
    /// Time to look whether the peer still exists.
    Patience,
}

/// Pauses of each kind that a program makes at most.
const PAUSES: u32 = 50;
const PATIENCE: Duration = Duration::from_secs(120);

/// What an end that knows its script does.
struct Script {
    plan: usize,
    end: EndPlan,
    outgoing: Pattern,
    incoming: Pattern,
    /// Bytes that the peer sends.
    expected: u64,
    /// Whether the peer sees it through to the end.
    peer_is_graceful: bool,
    /// The peer's program may be killed.
    peer_is_mortal: bool,
    echo: bool,
}

/// The program.
pub struct Connection {
    number: usize,
    side: Side,
    socket: SocketId,
    script: Option<Script>,
    connected: bool,
    name: Vec<u8>,
    written: u64,
    received: u64,
    readable: bool,
    writable: bool,
    reading_paused: bool,
    writing_paused: bool,
    /// Pauses that it may still make: its own leisure must not look like a run that hangs.
    read_pauses: u32,
    write_pauses: u32,
    read_closed: bool,
    saw_end: bool,
    finished_writing: bool,
    progress_at_last_look: u64,
    outcome: Option<Outcome>,
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

impl Connection {
    /// The socket of a client.
    pub fn plan_socket(context: &Context<'_>, plan: usize) -> SocketPlan {
        let remote = context.target_of(plan);
        let ConnectionPlan {
            client_port: port,
            program,
            ..
        } = context.connection_plan(plan);
        SocketPlan {
            protocol: Protocol::Tcp,
            program,
            local: port.map(|port| (Endpoint::new(unspecified(remote.addr), port), REUSE)),
            then: Then::Connects(remote),
        }
    }

    /// The program of a client, which connects or has failed at once.
    pub fn connect(
        context: &mut Context<'_>,
        number: usize,
        plan: usize,
        made: Result<SocketId, SocketError>,
    ) -> Option<Connection> {
        match made {
            Ok(socket) => {
                let mut this = Connection::new(number, Side::Client, socket);
                this.take_script(context, plan);
                context.wake(PATIENCE, number, Wake::Patience);
                Some(this)
            }
            Err(error) => {
                context.conclude(plan, Side::Client, Outcome::Failed(error));
                None
            }
        }
    }

    /// The program for an accepted connection, which doesn't know yet which one it is.
    pub fn accepted(context: &mut Context<'_>, number: usize, socket: SocketId) -> Connection {
        let mut this = Connection::new(number, Side::Server, socket);
        this.connected = true;
        this.readable = true;
        this.writable = true;
        if let Some(record) = context.stack().tcp_table().find(socket) {
            let state = record.state.load(std::sync::atomic::Ordering::Acquire);
            this.read_closed = State::from_number(state).is_some_and(|state| {
                matches!(
                    state,
                    State::CloseWait | State::LastAck | State::Closing | State::TimeWait
                )
            });
        }
        context.wake(PATIENCE, number, Wake::Patience);
        this
    }

    fn new(number: usize, side: Side, socket: SocketId) -> Connection {
        Connection {
            number,
            side,
            socket,
            script: None,
            connected: false,
            name: Vec::new(),
            written: 0,
            received: 0,
            readable: false,
            writable: false,
            reading_paused: false,
            writing_paused: false,
            read_pauses: PAUSES,
            write_pauses: PAUSES,
            read_closed: false,
            saw_end: false,
            finished_writing: false,
            progress_at_last_look: 0,
            outcome: None,
        }
    }

    /// The socket.
    pub fn socket(&self) -> SocketId {
        self.socket
    }

    /// Which connection it is, if it knows.
    pub fn plan(&self) -> Option<usize> {
        self.script.as_ref().map(|script| script.plan)
    }

    /// Something is wrong, unless anything may be.
    fn complain(&self, context: &mut Context<'_>, what: &str) {
        let spoilt = self
            .plan()
            .is_some_and(|plan| context.board.spoilt.contains(&plan));
        if !spoilt {
            context.complain(format!("{}: {what}", self.describe()));
        }
    }

    /// Whether it has done all it will ever do.
    pub fn is_over(&self) -> bool {
        self.outcome.is_some()
    }

    /// How far it is, for a report about a run that hangs.
    pub fn describe(&self) -> String {
        let plan = self.script.as_ref().map(|script| script.plan);
        let totals = self
            .script
            .as_ref()
            .map(|script| (script.end.bytes, script.expected, script.end.ending));
        format!(
            "{:?} of connection {plan:?} {:?}: wrote {}, read {} of {totals:?}; connected {} \
             readable {} writable {} pauses {}/{} read_closed {} finished_writing {}",
            self.side,
            self.socket,
            self.written,
            self.received,
            self.connected,
            self.readable,
            self.writable,
            self.reading_paused,
            self.writing_paused,
            self.read_closed,
            self.finished_writing,
        )
    }

    fn take_script(&mut self, context: &mut Context<'_>, plan: usize) {
        let connection = context.connection_plan(plan);
        let (mine, theirs) = (self.side as usize, self.side.other() as usize);
        let run = context.seed();
        let pattern = |side: usize| {
            let direction = if connection.echo { 0 } else { side as u64 };
            Pattern::new(run, plan as u64 * 2 + direction)
        };
        self.script = Some(Script {
            plan,
            end: connection.ends[mine].clone(),
            outgoing: pattern(mine),
            incoming: pattern(theirs),
            expected: connection.ends[theirs].bytes,
            peer_is_graceful: connection.ends[theirs].is_graceful(),
            peer_is_mortal: connection.ends[theirs].mortal,
            echo: connection.echo && self.side == Side::Server,
        });
        for option in connection.ends[mine].options.clone() {
            self.request(context, TcpRequest::SetOption(self.socket, option));
        }
    }

    fn request(&self, context: &mut Context<'_>, request: TcpRequest) {
        let now = context.now;
        context.stack().tcp_request(now, request);
    }

    /// An event of the socket.
    pub fn on_event(&mut self, context: &mut Context<'_>, events: Events) {
        self.readable |= events.contains(Events::READABLE);
        self.read_closed |= events.contains(Events::READ_CLOSED);
        if events.contains(Events::WRITABLE) {
            self.writable = true;
            self.connected = true;
        }
        if events.contains(Events::ERROR) {
            self.fail(context);
            return;
        }
        self.run(context);
    }

    /// A timer.
    pub fn on_wake(&mut self, context: &mut Context<'_>, wake: Wake) {
        match wake {
            Wake::Write => self.writing_paused = false,
            Wake::Read => self.reading_paused = false,
            Wake::Patience => {
                self.look_for_peer(context);
                return;
            }
        }
        self.run(context);
    }

    /// A peer that crashed can't be told from a slow one, so a program has to give up some time.
    fn look_for_peer(&mut self, context: &mut Context<'_>) {
        if self.is_over() {
            return;
        }
        let progress = self.written + self.received + self.name.len() as u64;
        let stuck = progress == self.progress_at_last_look;
        let gone = match &self.script {
            Some(script) => {
                match context.outcome(script.plan, self.side.other()) {
                    // Its events may never come.
                    _ if context.board.spoilt.contains(&script.plan) => true,
                    Some(outcome) => outcome != Outcome::Complete,
                    // It may have been killed before it knew whom it served.
                    None => script.peer_is_mortal && context.board.killed,
                }
            }
            None => true,
        };
        if stuck && gone {
            if let Some(script) = &self.script {
                context.give_up(script.plan, self.side, self.written);
            }
            self.leave(context, Outcome::Forsaken);
            return;
        }
        self.progress_at_last_look = progress;
        context.wake(PATIENCE, self.number, Wake::Patience);
    }

    fn fail(&mut self, context: &mut Context<'_>) {
        if self.is_over() {
            return;
        }
        let number = context
            .stack()
            .tcp_table()
            .find(self.socket)
            .map_or(0, |record| {
                record.error.load(std::sync::atomic::Ordering::Acquire)
            });
        match SocketError::from_number(number) {
            Some(error) => self.leave(context, Outcome::Failed(error)),
            None => {
                self.complain(context, "an error event without an error");
                self.leave(context, Outcome::Failed(SocketError::Invalid));
            }
        }
    }

    /// Its program was killed: nothing is asked of the stack. Answers whether that was in the midst of a
    /// transfer.
    pub fn die(&self, context: &mut Context<'_>) -> bool {
        if let Some(script) = &self.script {
            context.conclude(script.plan, self.side, Outcome::Left);
        }
        self.script.is_some() && self.written + self.received > 0
    }

    fn leave(&mut self, context: &mut Context<'_>, outcome: Outcome) {
        self.outcome = Some(outcome);
        if let Some(script) = &self.script {
            context.conclude(script.plan, self.side, outcome);
        }
        self.request(context, TcpRequest::Close(self.socket));
    }

    /// Does what can be done now.
    fn run(&mut self, context: &mut Context<'_>) {
        if self.is_over() || !self.connected {
            return;
        }
        if context.stack().tcp_table().find(self.socket).is_none() {
            self.complain(context, "its slot was freed");
            self.leave(context, Outcome::Failed(SocketError::Invalid));
            return;
        }
        if self.script.is_none() && !self.learn_name(context) {
            return;
        }
        loop {
            let before = (self.written, self.received);
            self.read(context);
            self.write(context);
            if self.is_over() || self.close_if_due(context) {
                return;
            }
            if before == (self.written, self.received) {
                return;
            }
        }
    }

    /// Server: reads the name, the first bytes of the stream.
    fn learn_name(&mut self, context: &mut Context<'_>) -> bool {
        let mut buffer = [0; NAME_BYTES as usize];
        let missing = buffer.len() - self.name.len();
        let ring = context.stack().tcp_table().receive_ring(self.socket.slot);
        let count = ring.read(&mut buffer[..missing]);
        let empty = ring.is_empty();
        self.name.extend_from_slice(&buffer[..count]);
        if count > 0 {
            self.request(context, TcpRequest::Received(self.socket));
        }
        let Ok(name) = <[u8; NAME_BYTES as usize]>::try_from(self.name.as_slice()) else {
            self.readable = false;
            if self.read_closed && empty {
                // The client gave up before it said anything.
                self.leave(context, Outcome::Left);
            }
            return false;
        };
        let name = u64::from_le_bytes(name);
        let plan = (name / 2) as usize;
        if !name.is_multiple_of(2) || plan >= context.connection_count() {
            // The client's record may have been spoilt.
            if context.board.spoilt.is_empty() {
                self.complain(context, &format!("no such name: {name:#x}"));
            }
            self.leave(context, Outcome::Failed(SocketError::Invalid));
            return false;
        }
        self.received = NAME_BYTES;
        self.take_script(context, plan);
        true
    }

    fn read(&mut self, context: &mut Context<'_>) {
        let Some(script) = &self.script else { return };
        while self.readable && !self.reading_paused {
            let mut most = context.random.range(1, script.end.read_bytes.max(1));
            if script.echo {
                // Like an echo server with a small buffer: it reads no more than it can write.
                most = most.min((self.written + 20_000).saturating_sub(self.received));
                if most == 0 {
                    break;
                }
            }
            let ring = context.receive_ring(self.socket);
            let mut buffer = vec![0; ring.len().min(most as usize)];
            let count = ring.read(&mut buffer);
            if count == 0 {
                self.readable = false;
                break;
            }
            if let Some(at) = script
                .incoming
                .first_difference(self.received, &buffer[..count])
            {
                self.complain(context, &format!("byte {at} is wrong"));
            }
            self.received += count as u64;
            if self.received > script.expected {
                self.complain(context, "too many bytes");
            }
            self.request(context, TcpRequest::Received(self.socket));
            let (longest, often) = script.end.read_pause;
            if self.read_pauses > 0 && context.random.chance(often) {
                self.read_pauses -= 1;
                self.reading_paused = true;
                let pause = Duration::from_micros(context.random.range(1, longest));
                context.wake(pause, self.number, Wake::Read);
            }
        }
        let ring = context.receive_ring(self.socket);
        if self.read_closed && !self.saw_end && ring.is_empty() {
            self.saw_end = true;
            // Who gives up on a program that may be dead ends in the midst.
            let given_up = context.given_up(script.plan, self.side.other());
            let owed = given_up.unwrap_or(script.expected);
            if script.peer_is_graceful && self.received != owed {
                self.complain(context, "ended too early");
            }
        }
    }

    fn write(&mut self, context: &mut Context<'_>) {
        let Some(script) = &self.script else { return };
        if script.end.ending == Ending::AfterPeer && script.end.bytes == self.written {
            return;
        }
        while self.writable && !self.writing_paused {
            let end = if script.echo {
                self.received
            } else {
                script.end.bytes
            };
            let most = context.random.range(1, script.end.write_bytes.max(1));
            let most = most.min(end.saturating_sub(self.written));
            if most == 0 {
                return;
            }
            let table = context.stack().tcp_table();
            let ring = table.send_ring(self.socket.slot);
            let record = table.find(self.socket);
            if record.is_some_and(|record| skink_tcp::may_send_ahead(record, &ring)) {
                ring.grow(0);
            }
            let mut buffer = vec![0; ring.free().min(most as usize)];
            script.outgoing.fill(self.written, &mut buffer);
            let count = ring.write(&buffer) as u64;
            self.written += count;
            if count > 0 {
                self.request(context, TcpRequest::Sent(self.socket));
            }
            if count < most {
                self.writable = false;
            }
            let (longest, often) = script.end.write_pause;
            if self.write_pauses > 0 && context.random.chance(often) {
                self.write_pauses -= 1;
                self.writing_paused = true;
                let pause = Duration::from_micros(context.random.range(1, longest));
                context.wake(pause, self.number, Wake::Write);
            }
        }
    }

    /// Shuts down or closes where the script says so; answers whether the program is over.
    fn close_if_due(&mut self, context: &mut Context<'_>) -> bool {
        let Some(script) = &self.script else {
            return false;
        };
        let (end, expected) = (&script.end, script.expected);
        let written_all = self.written == end.bytes;
        let moved = self.written + self.received;
        let all_moved = written_all && self.received == expected;
        let peer_left = self.saw_end && self.received < expected;
        let ending = end.ending;
        let shut_down = match ending {
            Ending::HalfClose => written_all,
            Ending::AfterPeer => written_all && self.saw_end,
            Ending::Close | Ending::Abort(_) | Ending::CloseEarly(_) => false,
        };
        if shut_down && !self.finished_writing {
            self.finished_writing = true;
            let request = TcpRequest::Shutdown(self.socket, Shutdown::Write);
            self.request(context, request);
        }
        let outcome = match ending {
            Ending::HalfClose | Ending::AfterPeer if self.finished_writing && self.saw_end => {
                Outcome::Complete
            }
            Ending::Close if all_moved => Outcome::Complete,
            Ending::Abort(at) if moved >= at || all_moved => {
                let option = ConnectionOption::ResetOnClose(true);
                self.request(context, TcpRequest::SetOption(self.socket, option));
                Outcome::Left
            }
            Ending::CloseEarly(at) if moved >= at || all_moved => Outcome::Left,
            _ if peer_left => Outcome::Forsaken,
            Ending::HalfClose
            | Ending::AfterPeer
            | Ending::Close
            | Ending::Abort(_)
            | Ending::CloseEarly(_) => return false,
        };
        let outcome = if outcome == Outcome::Complete && self.received < expected {
            Outcome::Forsaken
        } else {
            outcome
        };
        self.leave(context, outcome);
        true
    }
}
