//! Programs that send datagrams to and fro. A datagram may be lost or doubled, but what arrives must
//! be one that was sent, whole.

use crate::connection::Wake;
use crate::context::Context;
use crate::pattern::Pattern;
use crate::place::{SocketPlan, Then};
use crate::scenario::{DatagramPlan, address};
use skink_library::Protocol;
use skink_memory::{Datagram, DatagramRing, SocketId};
use skink_messages::{BindOptions, Events, SocketError, UdpRequest};
use skink_time::Duration;
use skink_wire::Endpoint;

const PORT: u16 = 9000;
/// How long the client waits for answers after its last datagram.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends datagrams back.
pub struct DatagramServer {
    socket: SocketId,
}

/// Sends datagrams, and checks those that come back.
pub struct DatagramClient {
    number: usize,
    socket: SocketId,
    plan: DatagramPlan,
    sent: u64,
    answers: Vec<u64>,
    /// How often sending failed for want of room.
    refused: u64,
    done: bool,
}

fn endpoint(plan: &DatagramPlan) -> Endpoint {
    Endpoint::new(address(plan.server, plan.v6), PORT)
}

fn request(context: &mut Context<'_>, request: UdpRequest) {
    let now = context.now;
    context.stack().udp_request(now, request);
}

impl DatagramServer {
    /// The socket.
    pub fn plan_socket(context: &Context<'_>, plan: usize) -> SocketPlan {
        let plan = context.datagram_plan(plan);
        SocketPlan {
            protocol: Protocol::Udp,
            program: context.last_program(plan.server),
            local: Some((endpoint(&plan), BindOptions::default())),
            then: Then::Stays,
        }
    }

    /// The program, once the socket is bound.
    pub fn open(
        context: &mut Context<'_>,
        made: Result<SocketId, SocketError>,
    ) -> Option<DatagramServer> {
        match made {
            Ok(socket) => Some(DatagramServer { socket }),
            Err(error) => {
                context.complain(format!("a datagram server: {error:?}"));
                None
            }
        }
    }

    /// The socket.
    pub fn socket(&self) -> SocketId {
        self.socket
    }

    /// An event of the socket.
    pub fn on_event(&mut self, context: &mut Context<'_>, _events: Events) {
        let table = context.stack.udp_table();
        let inbound = DatagramRing::new(table.receive_ring(self.socket.slot));
        let outbound = DatagramRing::new(table.send_ring(self.socket.slot));
        while let Some(datagram) = inbound.peek() {
            let bytes = contents(&datagram);
            let header = datagram.header;
            inbound.pop(&datagram);
            // Without room the answer is lost, as datagrams may be.
            let _ = outbound.push(header.remote, header.local, 0, &[&bytes]);
        }
        request(context, UdpRequest::Sent(self.socket));
    }

    /// Closes the socket.
    pub fn close(&self, context: &mut Context<'_>) {
        request(context, UdpRequest::Close(self.socket));
    }
}

impl DatagramClient {
    /// The socket.
    pub fn plan_socket(context: &Context<'_>, plan: usize) -> SocketPlan {
        let plan = context.datagram_plan(plan);
        SocketPlan {
            protocol: Protocol::Udp,
            program: context.last_program(plan.client),
            local: None,
            then: Then::Connects(endpoint(&plan)),
        }
    }

    /// The program, once the socket is connected.
    pub fn open(
        context: &mut Context<'_>,
        number: usize,
        plan: usize,
        made: Result<SocketId, SocketError>,
    ) -> Option<DatagramClient> {
        let plan = context.datagram_plan(plan);
        let socket = match made {
            Ok(socket) => socket,
            Err(error) => {
                context.complain(format!("a datagram client: {error:?}"));
                return None;
            }
        };
        context.wake(Duration::from_millis(1), number, Wake::Write);
        Some(DatagramClient {
            number,
            socket,
            answers: vec![0; plan.count as usize],
            plan,
            sent: 0,
            refused: 0,
            done: false,
        })
    }

    /// The socket.
    pub fn socket(&self) -> SocketId {
        self.socket
    }

    /// The datagram called `index`: its name, then bytes that follow from it.
    fn datagram(&self, run: u64, index: u64) -> Vec<u8> {
        let pattern = Pattern::new(run, index);
        let length = crate::random::mix(run ^ index) % (self.plan.largest + 1);
        let mut bytes = vec![0; 8 + length as usize];
        pattern.fill(0, &mut bytes);
        bytes
    }

    /// A timer.
    pub fn on_wake(&mut self, context: &mut Context<'_>) {
        if self.sent == self.plan.count {
            self.finish(context);
            return;
        }
        let bytes = self.datagram(context.seed(), self.sent);
        let table = context.stack.udp_table();
        let ring = DatagramRing::new(table.send_ring(self.socket.slot));
        let peer = Endpoint::new(endpoint(&self.plan).addr, 0);
        let here = address(self.plan.client, self.plan.v6);
        if ring.push(peer, here, 0, &[&bytes]).is_err() {
            self.refused += 1;
        }
        request(context, UdpRequest::Sent(self.socket));
        self.sent += 1;
        let pause = if self.sent == self.plan.count {
            PATIENCE
        } else {
            Duration::from_micros(self.plan.pause_us)
        };
        context.wake(pause, self.number, Wake::Write);
    }

    /// An event of the socket.
    pub fn on_event(&mut self, context: &mut Context<'_>, events: Events) {
        if events.contains(Events::ERROR) {
            context.complain("a datagram client was told of an error".to_owned());
        }
        loop {
            let table = context.stack.udp_table();
            let ring = DatagramRing::new(table.receive_ring(self.socket.slot));
            let Some(datagram) = ring.peek() else {
                return;
            };
            let bytes = contents(&datagram);
            let from = datagram.header.remote;
            ring.pop(&datagram);
            let name = bytes.first_chunk().map(|name| u64::from_le_bytes(*name));
            let known = name.filter(|name| *name < self.sent);
            let right = known.is_some_and(|name| self.datagram(context.seed(), name) == bytes);
            if !right || from != endpoint(&self.plan) {
                let length = bytes.len();
                context.complain(format!("{length} bytes from {from} weren't sent"));
                return;
            }
            if let Some(count) = known.and_then(|name| self.answers.get_mut(name as usize)) {
                *count += 1;
            }
        }
    }

    fn finish(&mut self, context: &mut Context<'_>) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        context.board.datagrams_done += 1;
        let answered = self.answers.iter().filter(|count| **count > 0).count() as u64;
        // Short ones with pauses between them overrun no queue, not even while ARP is under way.
        let easy = self.plan.pause_us >= 1000 && self.plan.largest <= 500;
        if easy && context.board.scenario.quiet && (answered + self.refused) * 2 < self.plan.count {
            let what = format!("{answered} of {} datagrams came back", self.plan.count);
            context.complain(what);
        }
        let harms = context.board.scenario.hosts.iter();
        let doubling = harms.map(|host| host.wire.duplicate + host.wire.ghost);
        let whole = context.board.scenario.is_immortal();
        let once = whole && doubling.sum::<u32>() == 0 && context.board.scenario.noise_us == 0;
        if once && self.answers.iter().any(|count| *count > 1) {
            context.complain("a datagram came twice".to_owned());
        }
    }

    /// Closes the socket.
    pub fn close(&self, context: &mut Context<'_>) {
        request(context, UdpRequest::Close(self.socket));
    }
}

fn contents(datagram: &Datagram<'_>) -> Vec<u8> {
    let mut bytes = vec![0; datagram.len()];
    datagram.copy_to(&mut bytes);
    bytes
}
