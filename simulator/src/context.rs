use crate::connection::{Outcome, Side, Wake};
use crate::place::Place;
use crate::random::Random;
use crate::scenario::{ConnectionPlan, DatagramPlan, Scenario, Target, address};
use skink_memory::{Ring, SocketId};
use skink_time::{Duration, Instant};
use skink_wire::Endpoint;

/// What programs share: the scenario, and what they have to say about it.
pub struct Board {
    /// The scenario.
    pub scenario: Scenario,
    /// How each end of each connection fared.
    pub outcomes: Vec<[Option<Outcome>; 2]>,
    /// How many bytes an end had written that gave up on a program that may be dead: they are all that is owed.
    pub given_up: Vec<[Option<u64>; 2]>,
    /// What is wrong.
    pub failures: Vec<String>,
    /// Timers to be set: when, for which program, what.
    pub wakes: Vec<(Instant, usize, Wake)>,
    /// Connections just accepted, each in need of a program.
    pub accepted: Vec<SocketId>,
    /// Datagram plans whose client is done.
    pub datagrams_done: usize,
    /// When the last of them was known.
    pub concluded: Instant,
    /// The program that was to be killed has been.
    pub killed: bool,
    /// Connections of which a record was spoilt: anything may become of them.
    pub spoilt: Vec<usize>,
}

/// What a program sees of the world while it runs.
pub struct Context<'a> {
    /// The time.
    pub now: Instant,
    /// Chance.
    pub random: &'a mut Random,
    /// What programs share.
    pub board: &'a mut Board,
    /// The stack of the program's host.
    pub stack: &'a mut Place,
}

impl Context<'_> {
    /// The stack of the program's host.
    pub fn stack(&mut self) -> &mut Place {
        self.stack
    }

    /// The receive ring of a TCP socket.
    pub fn receive_ring(&self, socket: SocketId) -> Ring<'_> {
        self.stack.tcp_table().receive_ring(socket.slot)
    }

    /// Has `wake` handed to `program` after `pause`.
    pub fn wake(&mut self, pause: Duration, program: usize, wake: Wake) {
        self.board.wakes.push((self.now + pause, program, wake));
    }

    /// Records how an end of a connection fared.
    pub fn conclude(&mut self, plan: usize, side: Side, outcome: Outcome) {
        self.board.concluded = self.now;
        let slot = &mut self.board.outcomes[plan][side as usize];
        if let Some(earlier) = *slot {
            let what = format!("{side:?} of connection {plan}: {outcome:?} after {earlier:?}");
            self.board.failures.push(what);
        } else {
            *slot = Some(outcome);
        }
    }

    /// How an end fared, if it is over.
    pub fn outcome(&self, plan: usize, side: Side) -> Option<Outcome> {
        self.board.outcomes[plan][side as usize]
    }

    /// An end gives up on its peer, after so many bytes.
    pub fn give_up(&mut self, plan: usize, side: Side, written: u64) {
        self.board.given_up[plan][side as usize] = Some(written);
    }

    /// After how many bytes an end gave up on its peer, if it did.
    pub fn given_up(&self, plan: usize, side: Side) -> Option<u64> {
        self.board.given_up[plan][side as usize]
    }

    /// Something is wrong.
    pub fn complain(&mut self, what: String) {
        let at = self.now;
        self.board.failures.push(format!("at {at:?}: {what}"));
    }

    /// A host's last program, which is never killed.
    pub fn last_program(&self, host: usize) -> u32 {
        self.board.scenario.hosts[host].programs - 1
    }

    /// The run's seed.
    pub fn seed(&self) -> u64 {
        self.board.scenario.seed
    }

    /// How many connections there are.
    pub fn connection_count(&self) -> usize {
        self.board.scenario.connections.len()
    }

    /// A connection's script.
    pub fn connection_plan(&self, plan: usize) -> ConnectionPlan {
        self.board.scenario.connections[plan].clone()
    }

    /// A datagram script.
    pub fn datagram_plan(&self, plan: usize) -> DatagramPlan {
        self.board.scenario.datagrams[plan].clone()
    }

    /// Where a connection goes.
    pub fn target_of(&self, plan: usize) -> Endpoint {
        let scenario = &self.board.scenario;
        let connection = &scenario.connections[plan];
        match connection.target {
            Target::Listener(index) => {
                let listener = &scenario.listeners[index];
                Endpoint::new(address(listener.host, connection.v6), listener.port)
            }
            Target::ClosedPort(host) => Endpoint::new(address(host, connection.v6), 7),
            Target::Nobody => Endpoint::new(address(99, connection.v6), 8000),
        }
    }
}
