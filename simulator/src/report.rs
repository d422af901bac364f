//! What a run found, and whether that is as it must be.

use crate::connection::{Outcome, Side};
use crate::context::Board;
use crate::machine::Who;
use crate::random::mix;
use crate::scenario::{EndPlan, Target};
use skink_messages::{Counter, Counters, SocketError};
use skink_time::Instant;
use std::collections::BTreeMap;

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What went wrong; empty if all is well.
    pub failures: Vec<String>,
    /// Virtual time at the end.
    pub ended: Instant,
    /// Virtual time when the last end of a connection was done.
    pub done: Instant,
    /// Steps of the event loop.
    pub steps: u64,
    /// Frames that went over the switch.
    pub frames: u64,
    /// A hash over what arrived when and where: equal for equal runs.
    pub trace: u64,
    /// Connections of which both ends saw every byte.
    pub complete: usize,
    /// All connections.
    pub connections: usize,
    /// Ends of connections whose program was killed in the midst of a transfer.
    pub killed: usize,
    /// Stacks that died.
    pub crashes: usize,
    /// Frames that each host sent, and ports that it used or gave back.
    pub acts: Vec<u64>,
    /// Components on their own that died.
    pub deaths: usize,
    /// By host and component: how often it had acted in each of its turns, if it was on its own.
    pub turns: Vec<[Vec<u64>; Who::COUNT]>,
    /// Messages between components on their own that were told to be a predecessor's, or for one.
    pub foreign: u64,
    /// How often a connection was handed on to another process, and how many processes ended after that.
    pub shared: [u64; 2],
    /// Bells that weren't heard.
    pub lost_bells: u64,
    /// Messages that there was no room for.
    pub full: u64,
    /// Connections by how they ended otherwise.
    pub others: BTreeMap<String, u64>,
    /// What the stacks counted, summed up.
    pub counted: BTreeMap<&'static str, u64>,
}

impl Report {
    /// An empty report.
    pub fn new(seed: u64) -> Report {
        Report {
            seed,
            ..Report::default()
        }
    }

    /// Adds an arrival to the trace.
    pub fn trace(&mut self, at: Instant, place: u64, bytes: &[u8]) {
        let mut hash = mix(self.trace ^ at.as_nanos() ^ place << 56);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = mix(hash.wrapping_add(u64::from_le_bytes(word)));
        }
        self.trace = hash;
    }

    /// Adds what a stack counted.
    pub fn add_counters(&mut self, counters: &Counters) {
        for counter in Counter::ALL {
            *self.counted.entry(counter.label()).or_default() += counters.get(*counter);
        }
    }

    /// No record may be given up in an adoption, unless it was spoilt.
    pub fn look_at_records(&mut self, board: &Board) {
        let given_up = self.counted.iter();
        let given_up = given_up.filter(|(label, count)| label.contains(".record.") && **count > 0);
        let given_up: Vec<_> = given_up.collect();
        if board.spoilt.is_empty() && !given_up.is_empty() {
            let what = format!("records were given up: {given_up:?}");
            self.failures.push(what);
        }
    }

    /// Takes over the verdict.
    pub fn conclude(&mut self, board: &Board) {
        self.failures.extend(board.failures.iter().cloned());
        self.connections = board.outcomes.len();
        let complete = [Some(Outcome::Complete); 2];
        self.complete = board
            .outcomes
            .iter()
            .filter(|outcome| **outcome == complete)
            .count();
        for (plan, outcome) in board.outcomes.iter().enumerate() {
            if *outcome != complete {
                *self.others.entry(describe(board, plan)).or_default() += 1;
            }
        }
    }
}

/// A connection's fate in words, without its particulars.
fn describe(board: &Board, plan: usize) -> String {
    let connection = &board.scenario.connections[plan];
    let kind = match connection.target {
        Target::Listener(_) if connection.ends.iter().all(EndPlan::is_graceful) => "graceful",
        Target::Listener(_) => "abrupt",
        Target::ClosedPort(_) => "closed port",
        Target::Nobody => "nobody there",
    };
    let word = |outcome: &Option<Outcome>| match outcome {
        None => "none".to_owned(),
        Some(outcome) => format!("{outcome:?}"),
    };
    let [client, server] = &board.outcomes[plan];
    format!("{kind}: client {}, server {}", word(client), word(server))
}

/// Holds each connection's outcome against what its script allows.
pub fn judge(board: &mut Board) {
    for plan in 0..board.outcomes.len() {
        if board.spoilt.contains(&plan) {
            continue;
        }
        if let Some(what) = judge_connection(board, plan) {
            board.failures.push(what);
        }
    }
}

fn judge_connection(board: &Board, plan: usize) -> Option<String> {
    let scenario = &board.scenario;
    let connection = &scenario.connections[plan];
    let [client, server] = board.outcomes[plan];
    let graceful = connection.ends.iter().all(EndPlan::is_graceful);
    // Where frames get lost, a handshake may fail for good.
    let unlucky = !scenario.gentle
        && server.is_none()
        && matches!(
            client,
            Some(Outcome::Failed(
                SocketError::TimedOut
                    | SocketError::Reset
                    | SocketError::BrokenPipe
                    | SocketError::HostUnreachable
            ))
        );
    // A flow between the same ends may be in use, or in TIME-WAIT.
    let in_use = connection.client_port.is_some()
        && client == Some(Outcome::Failed(SocketError::AddressNotAvailable))
        && server.is_none();
    let died = connection.ends[0].mortal && client == Some(Outcome::Left) && server.is_none();
    let good = in_use
        || died
        || match connection.target {
            Target::Listener(_) if graceful => {
                client == Some(Outcome::Complete) && server == Some(Outcome::Complete) || unlucky
            }
            Target::Listener(_) => {
                let fine = |side: Side, outcome: Option<Outcome>| match outcome {
                    Some(Outcome::Left) => !connection.ends[side as usize].is_graceful(),
                    Some(Outcome::Complete | Outcome::Forsaken) => true,
                    Some(Outcome::Failed(error)) => {
                        // Who was to answer is dead.
                        let late = connection.ends[1].mortal && error == SocketError::Refused;
                        late || matches!(
                            error,
                            SocketError::Reset | SocketError::BrokenPipe | SocketError::TimedOut
                        )
                    }
                    // A server that never learnt whom it serves.
                    None => side == Side::Server,
                };
                fine(Side::Client, client) && fine(Side::Server, server) || unlucky
            }
            Target::ClosedPort(_) => {
                client == Some(Outcome::Failed(SocketError::Refused)) && server.is_none() || unlucky
            }
            Target::Nobody => {
                let errors = [SocketError::HostUnreachable, SocketError::TimedOut];
                let failed = errors.map(|error| Some(Outcome::Failed(error)));
                failed.contains(&client) && server.is_none()
            }
        };
    (!good).then(|| {
        let ends = connection.ends.each_ref().map(|end| (end.bytes, end.ending));
        format!(
            "connection {plan} from host {} to {:?}, ends {ends:?}: client {client:?}, server {server:?}",
            connection.client, connection.target
        )
    })
}
