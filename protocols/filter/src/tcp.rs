//! TCP connections as the filter follows them, from the segments that go by.
//!
//! The rule of this file: never lose a connection that the two ends still have. What the local side
//! sends is the truth, since `tcp` is on this side of the filter; what the remote side sends may be
//! forged.

use crate::summary::Summary;
use crate::verdict::Side;
use skink_wire::tcp::Flags;

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// First seen in the middle, by a rule with `flags any`; the other side hasn't answered.
    PickedUp = 1,
    /// One side has asked for the connection.
    SynSent = 2,
    /// Both have sent a SYN; that the opener got the other's isn't known.
    SynReceived = 3,
    /// The handshake is done.
    Established = 4,
    /// We have finished sending, the peer hasn't.
    LocalClosed = 5,
    /// The peer has finished sending, we haven't.
    RemoteClosed = 6,
    /// Both have finished sending.
    BothClosed = 7,
}

impl Phase {
    /// The phase that a number stands for.
    pub fn from_number(number: u8) -> Option<Phase> {
        let all = [
            Phase::PickedUp,
            Phase::SynSent,
            Phase::SynReceived,
            Phase::Established,
            Phase::LocalClosed,
            Phase::RemoteClosed,
            Phase::BothClosed,
        ];
        all.into_iter().find(|phase| *phase as u8 == number)
    }

    /// Whether both sides agree that there is (or was) a connection.
    pub const fn is_synchronized(self) -> bool {
        match self {
            Phase::PickedUp | Phase::SynSent | Phase::SynReceived => false,
            Phase::Established | Phase::LocalClosed | Phase::RemoteClosed | Phase::BothClosed => {
                true
            }
        }
    }

    /// After a FIN of `from`.
    const fn closed_by(self, from: Side) -> Phase {
        match (self, from) {
            (Phase::PickedUp | Phase::SynSent | Phase::SynReceived, _) => self,
            (Phase::Established | Phase::LocalClosed, Side::Local) => Phase::LocalClosed,
            (Phase::Established | Phase::RemoteClosed, Side::Remote) => Phase::RemoteClosed,
            (Phase::LocalClosed, Side::Remote) | (Phase::RemoteClosed, Side::Local) => {
                Phase::BothClosed
            }
            (Phase::BothClosed, _) => Phase::BothClosed,
        }
    }
}

/// Whether a connection was reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Life {
    /// It wasn't.
    Live = 0,
    /// We have reset it: it is gone.
    ResetByLocal = 1,
    /// The peer has, if it was the peer. If the connection goes on, a segment of ours shows it.
    ResetByRemote = 2,
}

impl Life {
    /// The value that a number stands for.
    pub fn from_number(number: u8) -> Option<Life> {
        let all = [Life::Live, Life::ResetByLocal, Life::ResetByRemote];
        all.into_iter().find(|life| *life as u8 == number)
    }
}

/// What is remembered of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TcpState {
    pub(crate) phase: Phase,
    pub(crate) life: Life,
    /// Who sent the first segment.
    pub(crate) opener: Side,
    /// The initial sequence number of the side that answered.
    pub(crate) answer_seq: u32,
}

impl TcpState {
    pub(crate) const fn new(phase: Phase, opener: Side) -> TcpState {
        TcpState {
            phase,
            life: Life::Live,
            opener,
            answer_seq: 0,
        }
    }

    /// The state that the first segment of a flow makes; none is made by a reset.
    pub(crate) fn first(from: Side, segment: &Summary) -> Option<TcpState> {
        let flags = segment.flags();
        if flags.contains(Flags::RST) {
            return None;
        }
        let is_request = flags.contains(Flags::SYN) && !flags.contains(Flags::ACK);
        let phase = if is_request {
            Phase::SynSent
        } else {
            Phase::PickedUp
        };
        Some(TcpState::new(phase, from))
    }

    /// After a segment; `None` where the segment begins another connection between the same ends.
    #[inline]
    pub(crate) fn step(mut self, from: Side, segment: &Summary) -> Option<TcpState> {
        let flags = segment.flags();
        // Nearly all segments.
        if !flags.intersects(Flags::SYN | Flags::FIN | Flags::RST)
            && self.phase == Phase::Established
            && self.life == Life::Live
        {
            return Some(self);
        }
        if flags.contains(Flags::RST) {
            self.life = match (self.life, from) {
                (Life::ResetByLocal, _) | (_, Side::Local) => Life::ResetByLocal,
                (Life::Live | Life::ResetByRemote, Side::Remote) => Life::ResetByRemote,
            };
            return Some(self);
        }
        let is_request = flags.contains(Flags::SYN) && !flags.contains(Flags::ACK);
        let is_over = self.life != Life::Live || self.phase == Phase::BothClosed;
        if is_request && is_over {
            return None;
        }
        match (self.life, from) {
            (Life::Live, _) => {}
            (Life::ResetByLocal | Life::ResetByRemote, Side::Remote) => return Some(self),
            // `tcp` goes on: the reset was none (RFC 5961 section 3.2 answers with an ACK).
            (Life::ResetByLocal | Life::ResetByRemote, Side::Local) => self.life = Life::Live,
        }
        self.advance(from, segment, flags);
        if flags.contains(Flags::FIN) {
            self.phase = self.phase.closed_by(from);
        }
        Some(self)
    }

    /// The handshake.
    fn advance(&mut self, from: Side, segment: &Summary, flags: Flags) {
        let is_opener = from == self.opener;
        match self.phase {
            Phase::PickedUp => {
                if !is_opener && flags.contains(Flags::ACK) {
                    self.phase = Phase::Established;
                }
            }
            Phase::SynSent => {
                if !is_opener && flags.contains(Flags::SYN) {
                    self.phase = Phase::SynReceived;
                    self.answer_seq = segment.seq;
                }
            }
            Phase::SynReceived => {
                let confirmed = match (is_opener, from) {
                    // An ACK of what the other never sent must not make an established state, or
                    // forged handshakes could fill the table with states that stay.
                    (true, Side::Remote) => {
                        flags.contains(Flags::ACK) && segment.ack == self.answer_seq.wrapping_add(1)
                    }
                    (true, Side::Local) => flags.contains(Flags::ACK),
                    // We send data only once the handshake is done; a bare ACK may answer nonsense.
                    (false, Side::Local) => {
                        !flags.contains(Flags::SYN)
                            && (segment.payload_length > 0 || flags.contains(Flags::FIN))
                    }
                    (false, Side::Remote) => false,
                };
                if confirmed {
                    self.phase = Phase::Established;
                } else if !is_opener && flags.contains(Flags::SYN) {
                    self.answer_seq = segment.seq;
                }
            }
            Phase::Established | Phase::LocalClosed | Phase::RemoteClosed | Phase::BothClosed => {}
        }
    }
}

#[cfg(test)]
mod tests;
