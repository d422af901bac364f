//! Where a host's components are: all in one stack, or each on its own. Programs see no difference, but that
//! they wait for answers.

use crate::apart::{Apart, Opened};
use skink_library::{Protocol, Stack};
use skink_memory::{SocketId, SocketTable};
use skink_messages::{BindOptions, SocketError, SocketEvent, TcpRequest, UdpRequest};
use skink_time::Instant;
use skink_wire::Endpoint;

/// What serves a host's programs. The methods are those of [`Stack`].
pub enum Place {
    /// One stack.
    Whole(Box<Stack>),
    /// Seven components.
    Apart(Box<Apart>),
}

/// A socket that a program wants.
#[derive(Clone, Copy, Debug)]
pub struct SocketPlan {
    /// Of which transport.
    pub protocol: Protocol,
    /// In whose region.
    pub program: u32,
    /// What it is bound to.
    pub local: Option<(Endpoint, BindOptions)>,
    /// What it does then.
    pub then: Then,
}

/// See [`SocketPlan`].
#[derive(Clone, Copy, Debug)]
pub enum Then {
    /// Nothing.
    Stays,
    /// It listens, with this backlog.
    Listens(u32),
    /// It connects.
    Connects(Endpoint),
}

fn make_in(
    stack: &mut Stack,
    now: Instant,
    plan: SocketPlan,
    socket: SocketId,
) -> Result<(), SocketError> {
    if let Some((local, sharing)) = plan.local {
        match plan.protocol {
            Protocol::Tcp => stack.tcp_bind(socket, local, sharing)?,
            Protocol::Udp => stack.udp_bind(socket, local, sharing)?,
        };
    }
    match (plan.then, plan.protocol) {
        (Then::Stays, _) => {}
        (Then::Listens(backlog), _) => {
            stack.tcp_listen(now, socket, backlog)?;
        }
        (Then::Connects(remote), Protocol::Tcp) => stack.tcp_connect(now, socket, remote)?,
        (Then::Connects(remote), Protocol::Udp) => {
            stack.udp_connect(socket, Some(remote))?;
        }
    }
    Ok(())
}

impl Place {
    /// The stack, if it is one.
    pub fn whole(&mut self) -> Option<&mut Stack> {
        match self {
            Place::Whole(stack) => Some(stack),
            Place::Apart(_) => None,
        }
    }

    /// The components, if they are on their own.
    pub fn apart(&mut self) -> Option<&mut Apart> {
        match self {
            Place::Whole(_) => None,
            Place::Apart(apart) => Some(apart),
        }
    }

    pub fn tcp_table(&self) -> &SocketTable {
        match self {
            Place::Whole(stack) => stack.tcp_table(),
            Place::Apart(apart) => apart.machine.table(Protocol::Tcp),
        }
    }

    pub fn udp_table(&self) -> &SocketTable {
        match self {
            Place::Whole(stack) => stack.udp_table(),
            Place::Apart(apart) => apart.machine.table(Protocol::Udp),
        }
    }

    /// Makes a socket for `number`. Answers what came of it; `None` if that comes later
    /// ([`Place::take_opened`]).
    pub fn make(
        &mut self,
        now: Instant,
        number: usize,
        plan: SocketPlan,
    ) -> Option<Result<SocketId, SocketError>> {
        let stack = match self {
            Place::Whole(stack) => stack,
            Place::Apart(apart) => {
                apart.make(number, plan);
                return None;
            }
        };
        let opened = match plan.protocol {
            Protocol::Tcp => stack.tcp_open_in(plan.program),
            Protocol::Udp => stack.udp_open_in(plan.program),
        };
        Some(opened.and_then(|socket| {
            let made = make_in(stack, now, plan, socket);
            if made.is_err() {
                match plan.protocol {
                    Protocol::Tcp => stack.tcp_request(now, TcpRequest::Close(socket)),
                    Protocol::Udp => stack.udp_request(now, UdpRequest::Close(socket)),
                }
            }
            made.map(|()| socket)
        }))
    }

    /// A socket that was made later.
    pub fn take_opened(&mut self) -> Option<Opened> {
        self.apart()?.take_opened()
    }

    pub fn tcp_accept(&mut self, listener: SocketId) -> Option<SocketId> {
        match self {
            Place::Whole(stack) => stack.tcp_accept(listener),
            Place::Apart(apart) => apart.tcp_accept(listener),
        }
    }

    pub fn tcp_acceptable(&self, listener: SocketId) -> usize {
        match self {
            Place::Whole(stack) => stack.tcp_acceptable(listener),
            Place::Apart(apart) => apart.tcp_acceptable(listener),
        }
    }

    /// The program is told again of what waits to be accepted.
    pub fn is_held_up(&self, listener: SocketId) -> bool {
        match self {
            Place::Whole(_) => false,
            Place::Apart(apart) => apart.is_held_up(listener),
        }
    }

    pub fn tcp_unfinished(&self) -> usize {
        match self {
            Place::Whole(stack) => stack.tcp_unfinished(),
            Place::Apart(apart) => apart.machine.tcp.stack.unfinished(),
        }
    }

    pub fn tcp_request(&mut self, now: Instant, request: TcpRequest) {
        match self {
            Place::Whole(stack) => stack.tcp_request(now, request),
            Place::Apart(apart) => apart.tcp_request(request),
        }
    }

    pub fn udp_request(&mut self, now: Instant, request: UdpRequest) {
        match self {
            Place::Whole(stack) => stack.udp_request(now, request),
            Place::Apart(apart) => apart.udp_request(request),
        }
    }

    pub fn abandon(&mut self, now: Instant, protocol: Protocol, program: u32) {
        match self {
            Place::Whole(stack) => stack.abandon(now, protocol, program),
            Place::Apart(apart) => apart.abandon(now, program),
        }
    }

    pub fn take_eventful(&mut self) -> Option<u32> {
        match self {
            Place::Whole(stack) => stack.take_eventful(),
            Place::Apart(apart) => apart.take_eventful(),
        }
    }

    pub fn take_event_of(&mut self, program: u32) -> Option<(Protocol, SocketEvent)> {
        match self {
            Place::Whole(stack) => stack.take_event_of(program),
            Place::Apart(apart) => apart.take_event_of(program),
        }
    }

    pub fn take_finished(&mut self) -> Option<u32> {
        match self {
            Place::Whole(stack) => stack.take_finished(),
            Place::Apart(apart) => apart.take_finished(),
        }
    }
}
