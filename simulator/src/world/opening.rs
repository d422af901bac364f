//! Programs begin with a socket, which whole stacks make at once, and others when they have been asked.

use super::{Program, Resident, World};
use crate::connection::Connection;
use crate::datagram::{DatagramClient, DatagramServer};
use crate::listener::Listener;
use skink_library::Protocol;
use skink_memory::SocketId;
use skink_messages::{Events, SocketError, SocketEvent};

/// What there will be once a socket is made; with the index of its plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    Connection(usize),
    Listener(usize),
    DatagramServer(usize),
    DatagramClient(usize),
}

impl Opening {
    pub fn serves(self) -> bool {
        matches!(self, Opening::Listener(_) | Opening::DatagramServer(_))
    }
}

impl World {
    /// Makes a socket, and then what it is for.
    pub(super) fn open(&mut self, host: usize, opening: Opening) {
        let number = self.programs.len();
        self.programs.push(Resident {
            host,
            program: None,
            opening: Some(opening),
        });
        let context = self.context(host);
        let plan = match opening {
            Opening::Connection(plan) => Connection::plan_socket(&context, plan),
            Opening::Listener(plan) => Listener::plan_socket(&context, plan),
            Opening::DatagramServer(plan) => DatagramServer::plan_socket(&context, plan),
            Opening::DatagramClient(plan) => DatagramClient::plan_socket(&context, plan),
        };
        let made = self.hosts[host].stack.make(self.now, number, plan);
        if let Some(made) = made {
            self.opened(number, made, Events::empty());
        }
    }

    /// A socket is made, or can't be. `early` happened to it meanwhile.
    pub(super) fn opened(
        &mut self,
        number: usize,
        made: Result<SocketId, SocketError>,
        early: Events,
    ) {
        let host = self.programs[number].host;
        let Some(opening) = self.programs[number].opening.take() else {
            return;
        };
        let context = &mut self.context(host);
        let program = match opening {
            Opening::Connection(plan) => {
                Connection::connect(context, number, plan, made).map(Program::Connection)
            }
            Opening::Listener(plan) => {
                Listener::open(context, number, plan, made).map(Program::Listener)
            }
            Opening::DatagramServer(_) => {
                DatagramServer::open(context, made).map(Program::DatagramServer)
            }
            Opening::DatagramClient(plan) => {
                DatagramClient::open(context, number, plan, made).map(Program::DatagramClient)
            }
        };
        self.settle_in(number, program);
        if let (Ok(socket), false) = (made, early.is_empty()) {
            let protocol = match opening {
                Opening::Connection(_) | Opening::Listener(_) => Protocol::Tcp,
                Opening::DatagramServer(_) | Opening::DatagramClient(_) => Protocol::Udp,
            };
            let events = early;
            self.deliver_event(host, protocol, SocketEvent { socket, events });
        }
    }

    /// Whether all servers have their sockets.
    pub(super) fn servers_are_open(&self) -> bool {
        let mut residents = self.programs.iter();
        residents.all(|resident| !resident.opening.is_some_and(Opening::serves))
    }
}
