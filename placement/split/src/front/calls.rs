//! What a transport does for `syscall`.
use super::offers::Listener;
use crate::front::Front;
use skink_lanes::Exchange;
use skink_memory::{Holder, Record, Region, SocketId, SocketKind};
use skink_messages::{
    CallBody, CallOutcome, Events, Protocol, SocketError, SocketEvent, TcpRequest, TransportCall,
    UdpRequest,
};
use skink_tcp::State;
use skink_time::Instant;
use skink_wire::Endpoint;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Calls taken at one time, and outcomes that may wait for room; no more calls are taken then.
const CALLS: usize = 64;

/// A transport's end towards a `syscall` that it reaches by a lane.
pub struct CallEnd {
    pub(crate) exchange: Exchange<TransportCall, CallOutcome>,
    outcomes: VecDeque<CallOutcome>,
}

impl CallEnd {
    /// Around this lane.
    pub fn new(exchange: Exchange<TransportCall, CallOutcome>) -> CallEnd {
        CallEnd {
            exchange,
            outcomes: VecDeque::new(),
        }
    }

    fn tell(&mut self) {
        while let Some(outcome) = self.outcomes.front()
            && self.exchange.send(outcome).is_ok()
        {
            self.outcomes.pop_front();
        }
    }

    /// Whether there is something to take, or room for what waits for it. While too much waits, nothing
    /// is taken.
    pub(crate) fn is_ready(&self) -> bool {
        match self.outcomes.len() < CALLS {
            true => self.exchange.is_ready(),
            false => self.exchange.has_room(),
        }
    }
}

impl Front {
    /// Serves a batch of calls that came over lanes. Answers whether there were some.
    pub(crate) fn serve_calls(&mut self, now: Instant) -> bool {
        let mut any = false;
        for protocol in Protocol::ALL {
            if !self.stack.is_held(protocol) {
                any |= self.serve_calls_to(now, protocol);
            }
        }
        any
    }

    /// Whether a `syscall` that is apart has asked for something, or made room.
    pub fn is_called(&self) -> bool {
        let ends = Protocol::ALL.into_iter().zip(&self.call_ends);
        let mut ends = ends.filter_map(|(protocol, end)| Some((protocol, end.as_ref()?)));
        ends.any(|(protocol, end)| !self.stack.is_held(protocol) && end.is_ready())
    }

    fn call_end(&mut self, protocol: Protocol) -> Option<&mut CallEnd> {
        self.call_ends.get_mut(protocol.index())?.as_mut()
    }

    fn serve_calls_to(&mut self, now: Instant, protocol: Protocol) -> bool {
        let Some(end) = self.call_end(protocol) else {
            return false;
        };
        end.exchange.begin();
        end.tell();
        let mut taken = 0;
        while taken < CALLS
            && let Some(end) = self.call_end(protocol)
            && end.outcomes.len() < CALLS
            && let Some(call) = end.exchange.take()
        {
            taken += 1;
            self.vouch(protocol, &call);
            // Nothing that the program has said before is overtaken.
            self.serve_direct(now, call.program);
            let outcome = self.carry_out(now, protocol, call);
            if let (Some(outcome), Some(end)) = (outcome, self.call_end(protocol)) {
                end.outcomes.push_back(outcome);
            }
        }
        if let Some(end) = self.call_end(protocol) {
            end.tell();
            end.exchange.flush();
        }
        taken > 0
    }

    /// Does what `syscall` asks. Answers the outcome if there is one.
    pub(crate) fn carry_out(
        &mut self,
        now: Instant,
        protocol: Protocol,
        call: TransportCall,
    ) -> Option<CallOutcome> {
        let TransportCall {
            program,
            serial,
            body,
        } = call;
        let last = self
            .programs
            .get(program)
            .and_then(|it| it.outcomes.get(protocol.index()).copied().flatten());
        let known = last.filter(|last| serial != 0 && last.serial == serial);
        if known.is_some() {
            return known;
        }
        let transports = self.stack.transports();
        // Only the first call can be one that a predecessor has carried out.
        if self.is_successor
            && last.is_none()
            && serial != 0
            && let Some(done) = transports.carried_out(protocol, &call)
        {
            let result = Ok(done);
            return Some(self.remember(
                protocol,
                CallOutcome {
                    program,
                    serial,
                    result,
                },
            ));
        }
        if let CallBody::Bind(id, ..) | CallBody::Listen(id, _) | CallBody::Connect(id, _) = body {
            transports.note_call(protocol, id, serial);
        }
        let result = match body {
            CallBody::Open => {
                let opened = transports.open_for(protocol, program, serial);
                opened.map(|id| (id, None))
            }
            CallBody::Bind(id, local, options) => {
                let bound = self.stack.transports().bind(protocol, id, local, options);
                bound.map(|local| (id, Some(local)))
            }
            CallBody::Listen(id, backlog) => self.listen(now, program, id, backlog),
            CallBody::Connect(id, remote) => {
                let local = self.stack.transports().connect(now, protocol, id, remote);
                local.map(|local| (id, local))
            }
            CallBody::Share(id) => self.share(now, program, protocol, id),
            CallBody::Rest(id) => self.stack.transports().rest(id).map(|()| (id, None)),
            CallBody::Release(id) => {
                self.release(program, protocol, id);
                return None;
            }
            CallBody::Close(id) => {
                self.close(now, program, protocol, id);
                return None;
            }
            CallBody::Detach(tag) => {
                // Else it is late: the program has finished, and another one may have its number.
                if self.tags.get(&program) == Some(&tag) {
                    self.end_program_if_known(now, protocol, program);
                }
                return None;
            }
            CallBody::Abandon(tag) => {
                if self.tags.get(&program) == Some(&tag) {
                    self.abandon_program(now, protocol, program);
                }
                return None;
            }
            CallBody::Sharing => {
                self.begin_sharing(protocol);
                return None;
            }
            CallBody::AllShared => {
                self.end_sharing(now, protocol);
                return None;
            }
        };
        Some(self.remember(
            protocol,
            CallOutcome {
                program,
                serial,
                result,
            },
        ))
    }

    /// Keeps the outcome, in case it is asked for again. What a successor of `syscall` tells by itself isn't
    /// a program's call, and doesn't take the place of the last one.
    fn remember(&mut self, protocol: Protocol, outcome: CallOutcome) -> CallOutcome {
        if outcome.serial == 0 {
            return outcome;
        }
        let attached = self.programs.get_mut(outcome.program);
        let place = attached.and_then(|it| it.outcomes.get_mut(protocol.index()));
        if let Some(place) = place {
            *place = Some(outcome);
        }
        outcome
    }

    /// A program's listening sockets, which a predecessor had offered connections on.
    pub(crate) fn find_listeners(&mut self, program: u32) {
        let listening = self.sockets_of(Protocol::Tcp, program, true);
        if let Some(attached) = self.programs.get_mut(program) {
            for id in listening {
                attached
                    .listeners
                    .insert(id.slot, Listener::new(id, u32::MAX));
            }
        }
    }

    fn listen(
        &mut self,
        now: Instant,
        program: u32,
        id: SocketId,
        backlog: u32,
    ) -> Result<(SocketId, Option<Endpoint>), SocketError> {
        let local = self.stack.transports().listen(now, id, backlog)?;
        if let Some(attached) = self.programs.get_mut(program) {
            let fresh = || Listener::new(id, backlog);
            let listener = attached.listeners.entry(id.slot).or_insert_with(fresh);
            if listener.id != id {
                *listener = fresh();
            }
            listener.set_backlog(backlog);
        }
        self.offer(program, id.slot);
        self.make_due(program);
        Ok((id, Some(local)))
    }

    fn share(
        &mut self,
        now: Instant,
        program: u32,
        protocol: Protocol,
        id: SocketId,
    ) -> Result<(SocketId, Option<Endpoint>), SocketError> {
        let table = self.stack.transports().table(protocol);
        let record = table.and_then(|table| table.find(id));
        let can_be = |record: &&Record| {
            record.kind() != SocketKind::TcpListener && record.holder() != Some(Holder::Gone)
        };
        let Some(record) = record.filter(can_be) else {
            return Err(SocketError::Invalid);
        };
        let events = happened(record);
        let owner = self.owner_of(protocol, id);
        self.holders.add((protocol, id), owner, program);
        if self.is_successor && owner != program {
            // What it has said of the socket before we knew that it may was dropped, and it wasn't told what
            // happened there.
            if let Some(attached) = self.programs.get_mut(program) {
                attached.push_foreign(protocol, SocketEvent { socket: id, events });
            }
            self.make_due(program);
            let transports = self.stack.transports();
            match protocol {
                Protocol::Tcp => {
                    transports.tcp_request(now, TcpRequest::Sent(id));
                    transports.tcp_request(now, TcpRequest::Received(id));
                }
                Protocol::Udp => transports.udp_request(now, UdpRequest::Sent(id)),
            }
        }
        Ok((id, None))
    }

    /// The last of the sockets that outlived a program is gone.
    fn abandon_program(&mut self, now: Instant, protocol: Protocol, program: u32) {
        self.forget_ended(protocol, program);
        self.remove_program(program);
        for id in self.holders.end(protocol, program) {
            self.holders.forget((protocol, id));
        }
        self.departed.remove(&(protocol, program));
        self.stack.transports().abandon(now, protocol, program);
    }

    /// A program lets go of a socket that others hold.
    fn release(&mut self, program: u32, protocol: Protocol, id: SocketId) {
        if protocol == Protocol::Tcp {
            self.withdraw(program, id);
        }
        self.holders.remove((protocol, id), program);
        if let Some(attached) = self.programs.get_mut(program) {
            attached.drop_share(protocol, id);
        }
    }

    /// The last holder lets go.
    fn close(&mut self, now: Instant, program: u32, protocol: Protocol, id: SocketId) {
        self.release(program, protocol, id);
        for other in self.holders.forget((protocol, id)) {
            if let Some(attached) = self.programs.get_mut(other) {
                attached.drop_share(protocol, id);
            }
        }
        self.close_socket(now, protocol, id);
    }

    fn close_socket(&mut self, now: Instant, protocol: Protocol, id: SocketId) {
        let transports = self.stack.transports();
        match protocol {
            Protocol::Tcp => transports.tcp_request(now, TcpRequest::Close(id)),
            Protocol::Udp => transports.udp_request(now, UdpRequest::Close(id)),
        }
    }

    /// A program has ended: its sockets of this protocol do, but for those that others hold.
    pub(crate) fn end_program(&mut self, now: Instant, protocol: Protocol, program: u32) {
        self.remove_program(program);
        let held = self.holders.end(protocol, program);
        if held.is_empty() {
            self.departed.remove(&(protocol, program));
            return self.stack.transports().abandon(now, protocol, program);
        }
        self.departed.insert((protocol, program));
        for listeners in [true, false] {
            for id in self.sockets_of(protocol, program, listeners) {
                if !held.contains(&id) {
                    self.close_socket(now, protocol, id);
                }
            }
        }
    }

    /// A program's open sockets: those that listen, or the others that it has. (What nobody has accepted goes where its listening
    /// socket's queue goes.)
    fn sockets_of(&mut self, protocol: Protocol, program: u32, listeners: bool) -> Vec<SocketId> {
        let Some(table) = self.stack.transports().table(protocol) else {
            return Vec::new();
        };
        let used = table.region(program).map_or(0, Region::used);
        let slots = (0..used).map(|slot| table.slot_of(program, slot));
        let open = slots.filter_map(|slot| {
            let record = table.record(slot);
            let listens = match record.kind() {
                SocketKind::Free => return None,
                SocketKind::Tcp if record.holder() == Some(Holder::Awaited) => return None,
                SocketKind::TcpListener => true,
                SocketKind::Tcp | SocketKind::Udp => false,
            };
            let generation = record.generation.load(Ordering::Relaxed);
            (listens == listeners).then_some(SocketId { slot, generation })
        });
        open.collect()
    }
}

/// What has happened to a socket so far, and may have been told to its owner only.
fn happened(record: &Record) -> Events {
    let state = State::from_number(record.state.load(Ordering::Relaxed));
    let lasting = match state.filter(|_| record.kind() == SocketKind::Tcp) {
        Some(State::CloseWait | State::Closing | State::LastAck) => Events::READ_CLOSED,
        Some(State::TimeWait) => Events::READ_CLOSED | Events::CLOSED,
        // Else it was never connected.
        Some(State::Closed) if record.four_tuple().remote.port != 0 => {
            Events::READ_CLOSED | Events::CLOSED
        }
        Some(
            State::Closed
            | State::Listen
            | State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2,
        )
        | None => Events::empty(),
    };
    let error = match record.error.load(Ordering::Relaxed) {
        0 => Events::empty(),
        _ => Events::ERROR,
    };
    Events::READABLE | Events::WRITABLE | lasting | error
}
