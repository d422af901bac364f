//! What programs ask for.
use super::program::REQUEST_BUDGET;
use crate::front::Front;
use skink_memory::SocketId;
use skink_messages::{Counter, Protocol, SocketCall, TcpRequest, UdpRequest};
use skink_sockets::{REQUESTS, Request, RequestBody, ServerError};
use skink_time::Instant;

/// Requests that are served before anything else has its turn. (One program's batch may be more, if it makes no sense.)
const REQUESTS_AT_ONCE: u64 = 1024;

/// What became of the request that is first in a program's queue.
enum Taken {
    /// It is dealt with.
    Done,
    /// It waits, and the rest behind it.
    Waits,
}

impl Front {
    /// Serves a batch of requests of each program that has any, up to so many of all. Answers whether there were some.
    pub(crate) fn serve_requests(&mut self, now: Instant) -> bool {
        let count = self.programs.numbers.len();
        // Somebody else is first each time.
        let first = self.first.wrapping_add(1);
        self.first = first;
        let mut served = 0;
        for step in 0..count {
            let at = first.wrapping_add(step) % count;
            // One that is detached meanwhile makes the list shorter.
            let Some(program) = self.programs.numbers.get(at).copied() else {
                continue;
            };
            // Answers must find room first; events can be merged, they can't.
            if self.programs.get(program).is_some_and(|it| it.asks()) {
                served += self.serve_program(now, program);
            }
            if served >= REQUESTS_AT_ONCE {
                // The next ones are first.
                self.first = at;
                break;
            }
        }
        served > 0
    }

    /// Answers how many requests there were, those included that made no sense.
    fn serve_program(&mut self, now: Instant, program: u32) -> u64 {
        let mut taken = 0;
        for _ in 0..REQUEST_BUDGET {
            match self.next_request(program) {
                Ok(Some(request)) => {
                    taken += 1;
                    if let Taken::Waits = self.request(now, program, request) {
                        break;
                    }
                }
                Ok(None) => break,
                Err(ServerError) => {
                    self.spoilt(now, program);
                    return taken + 1;
                }
            }
        }
        taken + self.end_batch(program)
    }

    /// Takes in what a program has said to the transports here, as far as no call comes before it.
    pub(crate) fn serve_direct(&mut self, now: Instant, program: u32) {
        for _ in 0..REQUESTS {
            let body = match self.next_request(program) {
                Ok(Some(request)) => request.body,
                Ok(None) => break,
                Err(ServerError) => return self.spoilt(now, program),
            };
            if matches!(body, RequestBody::Call(_)) || self.waits_for_shares(program, &body) {
                break;
            }
            self.advance(program);
            self.direct(now, program, body);
        }
        self.end_batch(program);
    }

    /// Takes in what a program that has ended had still said to the transports here. Its calls end with it.
    pub(crate) fn serve_last(&mut self, now: Instant, program: u32) {
        for _ in 0..REQUESTS {
            let Ok(Some(request)) = self.next_request(program) else {
                return;
            };
            self.advance(program);
            self.direct(now, program, request.body);
        }
    }

    fn next_request(&mut self, program: u32) -> Result<Option<Request>, ServerError> {
        match self.programs.get_mut(program) {
            Some(attached) => attached.server.peek(),
            None => Ok(None),
        }
    }

    fn advance(&mut self, program: u32) {
        self.counters.count(Counter::SocketsRequests);
        if let Some(attached) = self.programs.get_mut(program) {
            attached.server.advance();
        }
    }

    /// Answers how many requests made no sense.
    fn end_batch(&mut self, program: u32) -> u64 {
        let Some(attached) = self.programs.get_mut(program) else {
            return 0;
        };
        let malformed = attached.server.malformed();
        let nonsense = malformed.wrapping_sub(attached.malformed);
        attached.malformed = malformed;
        self.counters.add(Counter::SocketsDropMalformed, nonsense);
        self.make_due(program);
        nonsense
    }

    fn request(&mut self, now: Instant, program: u32, request: Request) -> Taken {
        match request.body {
            RequestBody::Call(call) => self.call(now, program, request.serial, call),
            body if self.waits_for_shares(program, &body) => Taken::Waits,
            body => {
                self.advance(program);
                self.direct(now, program, body);
                Taken::Done
            }
        }
    }

    fn call(&mut self, now: Instant, program: u32, serial: u32, call: SocketCall) -> Taken {
        let Some(syscall) = &mut self.syscall else {
            self.counters.count(Counter::SocketsDropForeign);
            self.advance(program);
            return Taken::Done;
        };
        let Some(attached) = self.programs.get_mut(program) else {
            return Taken::Waits;
        };
        if attached.in_hand || attached.is_stuck() {
            return Taken::Waits;
        }
        if syscall.is_busy() {
            syscall.has_refused = true;
            attached.blocked = true;
            return Taken::Waits;
        }
        attached.in_hand = call.is_answered();
        self.counters.count(Counter::SocketsCalls);
        syscall.request(program, serial, call);
        if !call.is_answered() {
            self.advance(program);
        } else {
            self.counters.count(Counter::SocketsRequests);
        }
        self.run_syscall(now);
        let waits = self.programs.get(program).is_some_and(|it| it.in_hand);
        match waits {
            true => Taken::Waits,
            false => Taken::Done,
        }
    }

    /// What a program tells a transport.
    fn direct(&mut self, now: Instant, program: u32, body: RequestBody) {
        match body {
            RequestBody::Accepted {
                listener,
                connection,
            } => self.accepted(program, listener, connection),
            RequestBody::Tcp(request) => {
                let id = match request {
                    TcpRequest::Sent(id)
                    | TcpRequest::Received(id)
                    | TcpRequest::Shutdown(id, _)
                    | TcpRequest::SetOption(id, _) => id,
                    // Never comes out of a queue: it is a call.
                    TcpRequest::Close(_) => return,
                };
                if self.may_name(program, Protocol::Tcp, id) {
                    self.stack.transports().tcp_request(now, request);
                }
            }
            RequestBody::Udp(UdpRequest::Sent(id)) => {
                if self.may_name(program, Protocol::Udp, id) {
                    let request = UdpRequest::Sent(id);
                    self.stack.transports().udp_request(now, request);
                }
            }
            RequestBody::Udp(UdpRequest::Close(_)) | RequestBody::Call(_) => {}
        }
    }

    /// Whether the program may name the socket: its own, or one that it holds as well.
    fn may_name(&mut self, program: u32, protocol: Protocol, id: SocketId) -> bool {
        let may = self.stack.has(protocol)
            && (self.owner_of(protocol, id) == program
                || self.holders.holds((protocol, id), program));
        if !may {
            self.counters.count(Counter::SocketsDropForeign);
        }
        may
    }

    /// The program in whose region a socket is.
    pub(crate) fn owner_of(&self, protocol: Protocol, socket: SocketId) -> u32 {
        let stride = self.strides.get(protocol.index()).copied().unwrap_or(1);
        socket.slot >> stride.trailing_zeros()
    }
}
