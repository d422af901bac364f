//! Where a host's components are: all in one stack, or each on its own. Programs see no difference.

use crate::apart::Apart;
use skink_library::{Protocol, Stack};
use skink_memory::{SocketId, SocketTable};
use skink_messages::{BindOptions, SocketError, SocketEvent, TcpRequest, UdpRequest};
use skink_time::Instant;
use skink_wire::Endpoint;

/// What serves a host's programs. The methods are those of [`Stack`].
pub enum Place {
    /// One stack.
    Whole(Box<Stack>),
    /// Five components.
    Apart(Box<Apart>),
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

    /// Whether a call that needs an answer can be carried out now.
    pub fn answers(&self) -> bool {
        match self {
            Place::Whole(_) => true,
            Place::Apart(apart) => apart.answers(),
        }
    }

    pub fn tcp_table(&self) -> &SocketTable {
        match self {
            Place::Whole(stack) => stack.tcp_table(),
            Place::Apart(apart) => apart.machine.tcp.tcp().table(),
        }
    }

    pub fn udp_table(&self) -> &SocketTable {
        match self {
            Place::Whole(stack) => stack.udp_table(),
            Place::Apart(apart) => apart.machine.udp.udp().table(),
        }
    }

    pub fn tcp_open_in(&mut self, program: u32) -> Result<SocketId, SocketError> {
        match self {
            Place::Whole(stack) => stack.tcp_open_in(program),
            Place::Apart(apart) => apart.machine.tcp.call(|tcp, _| tcp.open_in(program)),
        }
    }

    pub fn tcp_bind(
        &mut self,
        socket: SocketId,
        local: Endpoint,
        options: BindOptions,
    ) -> Result<Endpoint, SocketError> {
        match self {
            Place::Whole(stack) => stack.tcp_bind(socket, local, options),
            Place::Apart(apart) => {
                let tcp = &mut apart.machine.tcp;
                tcp.call(|tcp, below| tcp.bind(socket, local, options, below))
            }
        }
    }

    pub fn tcp_listen(
        &mut self,
        now: Instant,
        socket: SocketId,
        backlog: u32,
    ) -> Result<Endpoint, SocketError> {
        match self {
            Place::Whole(stack) => stack.tcp_listen(now, socket, backlog),
            Place::Apart(apart) => {
                let tcp = &mut apart.machine.tcp;
                tcp.call(|tcp, below| tcp.listen(socket, backlog, below))
            }
        }
    }

    pub fn tcp_connect(
        &mut self,
        now: Instant,
        socket: SocketId,
        remote: Endpoint,
    ) -> Result<(), SocketError> {
        match self {
            Place::Whole(stack) => stack.tcp_connect(now, socket, remote),
            Place::Apart(apart) => {
                let tcp = &mut apart.machine.tcp;
                tcp.call(|tcp, below| tcp.connect(now, socket, remote, below))
            }
        }
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
            Place::Apart(apart) => apart.machine.tcp.tcp().acceptable(listener),
        }
    }

    pub fn tcp_unfinished(&self) -> usize {
        match self {
            Place::Whole(stack) => stack.tcp_unfinished(),
            Place::Apart(apart) => apart.machine.tcp.tcp().unfinished(),
        }
    }

    pub fn tcp_request(&mut self, now: Instant, request: TcpRequest) {
        match self {
            Place::Whole(stack) => stack.tcp_request(now, request),
            Place::Apart(apart) => apart.tcp_request(now, request),
        }
    }

    pub fn udp_open_in(&mut self, program: u32) -> Result<SocketId, SocketError> {
        match self {
            Place::Whole(stack) => stack.udp_open_in(program),
            Place::Apart(apart) => apart.machine.udp.call(|udp, _| udp.open_in(program)),
        }
    }

    pub fn udp_bind(
        &mut self,
        socket: SocketId,
        local: Endpoint,
        options: BindOptions,
    ) -> Result<Endpoint, SocketError> {
        match self {
            Place::Whole(stack) => stack.udp_bind(socket, local, options),
            Place::Apart(apart) => {
                let udp = &mut apart.machine.udp;
                udp.call(|udp, below| udp.bind(socket, local, options, below))
            }
        }
    }

    pub fn udp_connect(
        &mut self,
        socket: SocketId,
        remote: Option<Endpoint>,
    ) -> Result<Endpoint, SocketError> {
        match self {
            Place::Whole(stack) => stack.udp_connect(socket, remote),
            Place::Apart(apart) => {
                let udp = &mut apart.machine.udp;
                udp.call(|udp, below| udp.connect(socket, remote, below))
            }
        }
    }

    pub fn udp_request(&mut self, now: Instant, request: UdpRequest) {
        match self {
            Place::Whole(stack) => stack.udp_request(now, request),
            Place::Apart(apart) => apart.udp_request(now, request),
        }
    }

    pub fn abandon(&mut self, now: Instant, protocol: Protocol, program: u32) {
        match self {
            Place::Whole(stack) => stack.abandon(now, protocol, program),
            Place::Apart(apart) => apart.abandon(now, protocol, program),
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
