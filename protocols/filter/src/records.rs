//! Flows as plain data: what `tcp` and `udp` tell after a crash, and what one filter hands to the next.

use crate::states::{Entry, NO_RULE};
use crate::tcp::{Life, Phase, TcpState};
use crate::track::{Key, Track};
use crate::verdict::Side;
use skink_time::Instant;
use skink_wire::{Endpoint, FourTuple, protocol};

/// A flow as `tcp` or `udp` knows it, for [`Filter::rebuild`](crate::Filter::rebuild).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Its ends.
    pub tuple: FourTuple,
    /// How far it has come.
    pub phase: FlowPhase,
}

/// How far a flow has come, as `tcp` or `udp` knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowPhase {
    /// TCP: we have asked for the connection (SYN-SENT).
    Asked,
    /// TCP: the peer has, and we have answered with this initial sequence number (SYN-RECEIVED).
    Answered {
        /// Our initial sequence number.
        iss: u32,
    },
    /// TCP: ESTABLISHED.
    Established,
    /// TCP: we have finished sending (FIN-WAIT-1, FIN-WAIT-2).
    LocalClosed,
    /// TCP: the peer has (CLOSE-WAIT).
    RemoteClosed,
    /// TCP: both have (CLOSING, LAST-ACK, TIME-WAIT).
    BothClosed,
    /// UDP: a connected socket.
    Datagrams,
}

impl Flow {
    pub(crate) fn state(&self) -> Option<(Key, Track)> {
        let tcp = |phase, opener| Track::Tcp(TcpState::new(phase, opener));
        let track = match self.phase {
            FlowPhase::Asked => tcp(Phase::SynSent, Side::Local),
            FlowPhase::Answered { iss } => Track::Tcp(TcpState {
                answer_seq: iss,
                ..TcpState::new(Phase::SynReceived, Side::Remote)
            }),
            FlowPhase::Established => tcp(Phase::Established, Side::Local),
            FlowPhase::LocalClosed => tcp(Phase::LocalClosed, Side::Local),
            FlowPhase::RemoteClosed => tcp(Phase::RemoteClosed, Side::Local),
            FlowPhase::BothClosed => tcp(Phase::BothClosed, Side::Local),
            FlowPhase::Datagrams => Track::Datagram {
                opener: Side::Local,
                answered: true,
            },
        };
        let protocol = match track {
            Track::Tcp(_) => protocol::TCP,
            Track::Datagram { .. } => protocol::UDP,
        };
        Some((Key::between(protocol, &self.tuple)?, track))
    }
}

/// A state as plain data: what a filter shows, and what it hands to its successor. Numbers that mean
/// nothing make the record be left out by [`Filter::import`](crate::Filter::import).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateRecord {
    /// Number of the transport protocol.
    pub protocol: u8,
    /// Our end. For ICMP echo, the port is the identifier.
    pub local: Endpoint,
    /// The peer's end. For ICMP echo, the port is [`Side`]: who asks.
    pub remote: Endpoint,
    /// TCP: [`Phase`]. Otherwise 0 for flows without an answer, 1 for those with one.
    pub phase: u8,
    /// TCP: [`Life`]; otherwise 0.
    pub life: u8,
    /// [`Side`]: who sent the first packet.
    pub opener: u8,
    /// TCP: initial sequence number of the side that answered.
    pub answer_seq: u32,
    /// The rule that let it in, if those rules are still in force.
    pub rule: Option<u32>,
    /// When it is forgotten if no packet comes.
    pub expires: Instant,
    /// Packets received and sent.
    pub packets: [u64; 2],
    /// Bytes received and sent, IP headers included.
    pub bytes: [u64; 2],
}

impl StateRecord {
    pub(crate) fn new(entry: &Entry, generation: u32) -> StateRecord {
        let key = &entry.key;
        let FourTuple { local, remote } = key.tuple();
        let (phase, life, opener, answer_seq) = match entry.track {
            Track::Tcp(state) => (
                state.phase as u8,
                state.life as u8,
                state.opener,
                state.answer_seq,
            ),
            Track::Datagram { opener, answered } => (u8::from(answered), 0, opener, 0),
        };
        StateRecord {
            protocol: key.protocol(),
            local,
            remote,
            phase,
            life,
            opener: opener as u8,
            answer_seq,
            rule: Some(entry.rule)
                .filter(|rule| entry.generation == generation && *rule != NO_RULE),
            expires: entry.expires,
            packets: entry.packets,
            bytes: entry.bytes,
        }
    }

    /// The flow, if the record makes sense.
    pub(crate) fn state(&self) -> Option<(Key, Track)> {
        let opener = match self.opener {
            1 => Side::Local,
            2 => Side::Remote,
            _ => return None,
        };
        let track = match (self.protocol, self.phase) {
            (protocol::TCP, phase) => Track::Tcp(TcpState {
                phase: Phase::from_number(phase)?,
                life: Life::from_number(self.life)?,
                opener,
                answer_seq: self.answer_seq,
                expected: None,
                early_fin: None,
            }),
            (_, answered @ (0 | 1)) => Track::Datagram {
                opener,
                answered: answered == 1,
            },
            _ => return None,
        };
        let tuple = FourTuple::new(self.local, self.remote);
        Some((Key::between(self.protocol, &tuple)?, track))
    }
}
