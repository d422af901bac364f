//! The program behind a listening socket.

use crate::connection::Wake;
use crate::context::Context;
use crate::place::{SocketPlan, Then};
use crate::scenario::address;
use skink_library::Protocol;
use skink_memory::SocketId;
use skink_messages::{BindOptions, Events, SocketError, TcpRequest};
use skink_time::Duration;
use skink_wire::Endpoint;

/// What servers say of the ends that they bind to.
pub const REUSE: BindOptions = BindOptions {
    reuse_address: true,
    shared: false,
};

/// Accepts, at its own pace.
pub struct Listener {
    number: usize,
    socket: SocketId,
    pause_us: u64,
    paused: bool,
}

impl Listener {
    /// The socket that `plan` describes.
    pub fn plan_socket(context: &Context<'_>, plan: usize) -> SocketPlan {
        let plan = &context.board.scenario.listeners[plan];
        let sharing = BindOptions {
            shared: plan.shared,
            ..REUSE
        };
        let local = Endpoint::new(address(plan.host, plan.v6), plan.port);
        SocketPlan {
            protocol: Protocol::Tcp,
            program: plan.program,
            local: Some((local, sharing)),
            then: Then::Listens(plan.backlog),
        }
    }

    /// The program, once the socket listens.
    pub fn open(
        context: &mut Context<'_>,
        number: usize,
        plan: usize,
        made: Result<SocketId, SocketError>,
    ) -> Option<Listener> {
        let plan = &context.board.scenario.listeners[plan];
        let (port, pause_us) = (plan.port, plan.pause_us);
        match made {
            Ok(socket) => Some(Listener {
                number,
                socket,
                pause_us,
                paused: false,
            }),
            Err(error) => {
                context.complain(format!("listening on port {port}: {error:?}"));
                None
            }
        }
    }

    /// The socket.
    pub fn socket(&self) -> SocketId {
        self.socket
    }

    /// An event of the socket.
    pub fn on_event(&mut self, context: &mut Context<'_>, events: Events) {
        if events.contains(Events::READABLE) {
            self.accept(context);
        }
    }

    /// The pause is over.
    pub fn on_wake(&mut self, context: &mut Context<'_>) {
        self.paused = false;
        self.accept(context);
    }

    fn accept(&mut self, context: &mut Context<'_>) {
        while !self.paused {
            let waiting = context.stack().tcp_acceptable(self.socket);
            let Some(socket) = context.stack().tcp_accept(self.socket) else {
                if waiting > 0 && !context.stack().is_held_up(self.socket) {
                    context.complain(format!("{waiting} connections wait, none is given"));
                }
                return;
            };
            context.board.accepted.push(socket);
            if self.pause_us > 0 {
                self.paused = true;
                let pause = Duration::from_micros(context.random.range(1, self.pause_us));
                context.wake(pause, self.number, Wake::Read);
            }
        }
    }

    /// Closes the socket.
    pub fn close(&self, context: &mut Context<'_>) {
        let now = context.now;
        context
            .stack()
            .tcp_request(now, TcpRequest::Close(self.socket));
    }
}
