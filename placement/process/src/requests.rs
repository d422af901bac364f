//! What programs ask for.
use crate::host::Host;
use crate::offers::Listener;
use crate::program::{REQUEST_BUDGET, SHARES};
use crate::shares::Released;
use skink_memory::{SocketId, SocketKind};
use skink_messages::{BindOptions as Sharing, Counter, SocketError, TcpRequest, UdpRequest};
use skink_sockets::{Answer, BindOptions, Notice, Protocol, Request, RequestBody};
use skink_time::Instant;
use skink_wire::Endpoint;

impl Host {
    /// Serves a batch of requests of each program that has any. Answers whether there were some.
    pub(crate) fn serve_requests(&mut self, now: Instant) -> bool {
        let count = self.programs.numbers.len();
        // Somebody else is first each time.
        self.turn = self.turn.wrapping_add(1);
        let mut any = false;
        for step in 0..count {
            let at = self.turn.wrapping_add(step) % count;
            // One that is detached meanwhile makes the list shorter.
            let Some(program) = self.programs.numbers.get(at).copied() else {
                continue;
            };
            any |= self.serve_program(now, program);
        }
        any
    }

    fn serve_program(&mut self, now: Instant, program: u32) -> bool {
        let Some(attached) = self.programs.get_mut(program) else {
            return false;
        };
        // Answers must find room first; events can be merged, they can't.
        if !attached.server.is_ready() || attached.is_stuck() {
            return false;
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        let taken = attached
            .server
            .receive(REQUEST_BUDGET, |request| inbox.push(request));
        let malformed = attached.server.malformed();
        let nonsense = malformed.wrapping_sub(attached.malformed);
        attached.malformed = malformed;
        self.counters.add(Counter::SocketsDropMalformed, nonsense);
        self.counters
            .add(Counter::SocketsRequests, inbox.len() as u64);
        for request in inbox.drain(..) {
            self.request(now, program, request);
        }
        self.inbox = inbox;
        match taken {
            Ok(taken) => {
                self.make_due(program);
                taken > 0
            }
            Err(_) => {
                self.spoilt(now, program);
                true
            }
        }
    }

    fn request(&mut self, now: Instant, program: u32, request: Request) {
        let answer = match request.body {
            RequestBody::Open(protocol) => self.open(program, protocol),
            RequestBody::Bind(protocol, id, local, options) => {
                self.bind(program, protocol, id, local, options)
            }
            RequestBody::Listen(id, backlog) => self.listen(now, program, id, backlog),
            RequestBody::Connect(protocol, id, remote) => {
                self.connect(now, program, protocol, id, remote)
            }
            RequestBody::Rest(id) => return self.rest(program, id),
            RequestBody::Accepted(id) => return self.accepted(program, id),
            RequestBody::Share(protocol, id, secret) => {
                return self.share(program, protocol, id, secret);
            }
            RequestBody::Tcp(request) => return self.tcp(now, program, request),
            RequestBody::Udp(request) => return self.udp(now, program, request),
        };
        self.counters.count(Counter::SocketsAnswers);
        if let Some(attached) = self.programs.get_mut(program) {
            attached.tell(Notice::Answer(request.serial, answer));
        }
    }

    /// Whether the program may name the socket: its own, or one that it shares.
    fn may_name(&mut self, program: u32, protocol: Protocol, id: SocketId) -> bool {
        let attached = self.programs.get(program);
        let may = self.owner_of(protocol, id) == program
            || attached.is_some_and(|it| it.shares.contains(&(protocol, id)));
        if !may {
            self.counters.count(Counter::SocketsDropForeign);
        }
        may
    }

    fn named(&mut self, program: u32, protocol: Protocol, id: SocketId) -> Result<(), SocketError> {
        match self.may_name(program, protocol, id) {
            true => Ok(()),
            false => Err(SocketError::Invalid),
        }
    }

    fn open(&mut self, program: u32, protocol: Protocol) -> Result<Answer, SocketError> {
        let socket = match protocol {
            Protocol::Tcp => self.stack.tcp_open_in(program)?,
            Protocol::Udp => self.stack.udp_open_in(program)?,
        };
        Ok(Answer {
            socket: Some(socket),
            ..Answer::default()
        })
    }

    fn bind(
        &mut self,
        program: u32,
        protocol: Protocol,
        id: SocketId,
        local: Endpoint,
        options: BindOptions,
    ) -> Result<Answer, SocketError> {
        self.named(program, protocol, id)?;
        let uid = self.programs.get(program).map_or(u32::MAX, |it| it.uid);
        let permission = self.ports.permission(protocol, local, uid, options)?;
        let sharing = Sharing {
            reuse_address: options.reuse_address,
            shared: permission.shared,
        };
        let local = match protocol {
            Protocol::Tcp => self.stack.tcp_bind(id, local, sharing)?,
            Protocol::Udp => self.stack.udp_bind(id, local, sharing)?,
        };
        let ticket = self.ports.bound(protocol, id, local, options, permission);
        Ok(Answer {
            socket: Some(id),
            local: Some(local),
            value: ticket,
        })
    }

    fn listen(
        &mut self,
        now: Instant,
        program: u32,
        id: SocketId,
        backlog: u32,
    ) -> Result<Answer, SocketError> {
        // A listening socket isn't shared: each program has its own on the port.
        if self.owner_of(Protocol::Tcp, id) != program {
            self.counters.count(Counter::SocketsDropForeign);
            return Err(SocketError::Invalid);
        }
        let local = self.stack.tcp_listen(now, id, backlog)?;
        if !self.ports.is_bound(Protocol::Tcp, id) {
            // It was given a port just now.
            let options = BindOptions::default();
            let uid = self.programs.get(program).map_or(u32::MAX, |it| it.uid);
            let permission = self.ports.permission(Protocol::Tcp, local, uid, options)?;
            self.ports
                .bound(Protocol::Tcp, id, local, options, permission);
        }
        if let Some(attached) = self.programs.get_mut(program) {
            let fresh = || Listener::new(id, backlog);
            let listener = attached.listeners.entry(id.slot).or_insert_with(fresh);
            if listener.id != id {
                *listener = fresh();
            }
            listener.set_backlog(backlog);
        }
        self.offer(program, id.slot);
        Ok(Answer {
            socket: Some(id),
            local: Some(local),
            value: 0,
        })
    }

    fn connect(
        &mut self,
        now: Instant,
        program: u32,
        protocol: Protocol,
        id: SocketId,
        remote: Option<Endpoint>,
    ) -> Result<Answer, SocketError> {
        self.named(program, protocol, id)?;
        let local = match protocol {
            Protocol::Tcp => {
                let remote = remote.ok_or(SocketError::Invalid)?;
                self.stack.tcp_connect(now, id, remote)?;
                let record = self.stack.tcp_table().find(id);
                record.map(|record| record.four_tuple().local)
            }
            Protocol::Udp => Some(self.stack.udp_connect(id, remote)?),
        };
        Ok(Answer {
            socket: Some(id),
            local,
            value: 0,
        })
    }

    fn rest(&mut self, program: u32, id: SocketId) {
        if self.may_name(program, Protocol::Tcp, id) {
            // One that isn't bound has nothing to rest on.
            let _ = self.stack.tcp_rest(id, true);
        }
    }

    fn share(&mut self, program: u32, protocol: Protocol, id: SocketId, secret: u64) {
        if !self.try_share(program, protocol, id, secret) {
            self.counters.count(Counter::SocketsDropForeign);
        }
    }

    fn try_share(&mut self, program: u32, protocol: Protocol, id: SocketId, secret: u64) -> bool {
        let owner = self.owner_of(protocol, id);
        let attached = self.programs.get(owner).map(|it| it.secret);
        let agreed = attached.or(self.departed.get(&owner).copied());
        if agreed != Some(secret) {
            return false;
        }
        if owner == program {
            return self.shares.regain((protocol, id));
        }
        let table = match protocol {
            Protocol::Tcp => self.stack.tcp_table(),
            Protocol::Udp => self.stack.udp_table(),
        };
        let kind = table.find(id).map(|record| record.kind());
        if kind.is_none_or(|kind| kind == SocketKind::TcpListener) {
            return false;
        }
        // Nobody has let go of it yet, or the others keep it: else it would be closing.
        let Some(attached) = self.programs.get_mut(program) else {
            return false;
        };
        if attached.shares.len() >= SHARES || !self.shares.add((protocol, id), owner, program) {
            return false;
        }
        attached.shares.insert((protocol, id));
        true
    }

    fn tcp(&mut self, now: Instant, program: u32, request: TcpRequest) {
        let id = match request {
            TcpRequest::Sent(id)
            | TcpRequest::Received(id)
            | TcpRequest::Shutdown(id, _)
            | TcpRequest::Close(id)
            | TcpRequest::SetOption(id, _) => id,
        };
        if !self.may_name(program, Protocol::Tcp, id) {
            return;
        }
        match request {
            TcpRequest::Close(id) => self.close(now, program, Protocol::Tcp, id),
            TcpRequest::Sent(_)
            | TcpRequest::Received(_)
            | TcpRequest::Shutdown(..)
            | TcpRequest::SetOption(..) => self.stack.tcp_request(now, request),
        }
    }

    fn udp(&mut self, now: Instant, program: u32, request: UdpRequest) {
        match request {
            UdpRequest::Sent(id) => {
                if self.may_name(program, Protocol::Udp, id) {
                    self.stack.udp_request(now, request);
                }
            }
            UdpRequest::Close(id) => {
                if self.may_name(program, Protocol::Udp, id) {
                    self.close(now, program, Protocol::Udp, id);
                }
            }
        }
    }

    /// A program lets go of a socket.
    fn close(&mut self, now: Instant, program: u32, protocol: Protocol, id: SocketId) {
        if protocol == Protocol::Tcp {
            self.withdraw(now, program, id);
        }
        if let Some(attached) = self.programs.get_mut(program) {
            attached.drop_share(protocol, id);
        }
        match self.let_go(now, program, protocol, id) {
            Released::NotShared => self.close_socket(now, protocol, id),
            Released::Held | Released::Last => {}
        }
    }
}
