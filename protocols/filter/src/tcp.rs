//! TCP connections as the filter follows them, from the segments that go by.
//!
//! The rule of this file: never lose a connection that the two ends still have. What the local side
//! sends is the truth, since `tcp` is on this side of the filter; what the remote side sends may be
//! forged.

use crate::summary::Summary;
use crate::track::Step;
use crate::verdict::Side;
use skink_wire::SeqNum;
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
    /// A reset came in the peer's name, but not with the sequence number that `tcp` waits for, as far as
    /// can be told. It counts for nothing but that this state is given up before others.
    ResetInDoubt = 3,
}

impl Life {
    /// The value that a number stands for.
    pub fn from_number(number: u8) -> Option<Life> {
        let all = [
            Life::Live,
            Life::ResetByLocal,
            Life::ResetByRemote,
            Life::ResetInDoubt,
        ];
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
    /// What `tcp` expects of the peer; `None` before a segment of ours has told.
    pub(crate) expected: Option<Expected>,
    /// The end of a FIN in the peer's name that came ahead of what `tcp` expected: if we acknowledge that, it was one.
    pub(crate) early_fin: Option<SeqNum>,
}

/// The peer's next sequence number as `tcp` sees it lies between these two, both included. (It may be
/// beyond, for a moment, after what was lost has come at last.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Expected {
    /// What we have acknowledged.
    acknowledged: SeqNum,
    /// The end of what has come without a gap.
    received: SeqNum,
}

impl Expected {
    /// Acknowledged, received.
    pub(crate) fn numbers(self) -> [u32; 2] {
        [self.acknowledged.0, self.received.0]
    }

    /// As [`Expected::numbers`] has answered.
    pub(crate) fn of_numbers([acknowledged, received]: [u32; 2]) -> Expected {
        Expected {
            acknowledged: SeqNum(acknowledged),
            received: SeqNum(received),
        }
    }
}

impl TcpState {
    pub(crate) const fn new(phase: Phase, opener: Side) -> TcpState {
        TcpState {
            phase,
            life: Life::Live,
            opener,
            answer_seq: 0,
            expected: None,
            early_fin: None,
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

    /// After a segment.
    #[inline]
    pub(crate) fn step(mut self, from: Side, segment: &Summary) -> Step<TcpState> {
        let flags = segment.flags();
        let in_order = self.is_expected(from, segment);
        self.expect(from, segment, in_order);
        // Nearly all segments.
        if !flags.intersects(Flags::SYN | Flags::FIN | Flags::RST)
            && self.phase == Phase::Established
            && self.life == Life::Live
            && self.early_fin.is_none()
        {
            return Step::Goes(self);
        }
        if flags.contains(Flags::RST) {
            let is_asked = !self.phase.is_synchronized();
            // It refuses an acknowledgement of what we never sent, and the handshake goes on (RFC 9293 section
            // 3.10.7.4, SYN-RECEIVED).
            if self.phase == Phase::SynReceived
                && (from, self.opener) == (Side::Local, Side::Remote)
                && !flags.contains(Flags::ACK)
                && segment.seq != self.answer_seq.wrapping_add(1)
            {
                return Step::Goes(self);
            }
            self.life = match (self.life, from) {
                (Life::ResetByLocal, _) | (_, Side::Local) => Life::ResetByLocal,
                (Life::ResetByRemote, Side::Remote) => Life::ResetByRemote,
                (_, Side::Remote) if in_order || self.expected.is_none() && is_asked => {
                    Life::ResetByRemote
                }
                (_, Side::Remote) => Life::ResetInDoubt,
            };
            return Step::Goes(self);
        }
        if flags.contains(Flags::SYN) && (self.phase.is_synchronized() || self.life != Life::Live) {
            let is_answer = flags.contains(Flags::ACK);
            let is_repeated = self.life == Life::Live
                && self.opener == Side::Remote
                && segment.seq == self.answer_seq;
            match (from, is_answer) {
                // Our answer will tell.
                (Side::Remote, false) => return Step::Asks,
                // `tcp` begins anew: it has no such connection any more.
                (Side::Local, false) if !is_repeated => return Step::Over,
                (Side::Local, true) if !is_repeated => {
                    return Step::Goes(TcpState::answered(segment));
                }
                (Side::Local, _) | (Side::Remote, true) => {}
            }
        }
        // `tcp` goes on: the reset was none (RFC 5961 section 3.2 answers with an ACK).
        if from == Side::Local {
            self.life = Life::Live;
        }
        self.advance(from, segment, flags);
        if flags.contains(Flags::FIN) {
            match from == Side::Local || in_order {
                true => self.phase = self.phase.closed_by(from),
                false => self.early_fin = Some(end(segment)),
            }
        }
        if from == Side::Local
            && flags.contains(Flags::ACK)
            && self.early_fin == Some(SeqNum(segment.ack))
        {
            self.early_fin = None;
            self.phase = self.phase.closed_by(Side::Remote);
        }
        Step::Goes(self)
    }

    /// Our answer to a request.
    fn answered(answer: &Summary) -> TcpState {
        let mut state = TcpState {
            answer_seq: answer.seq,
            ..TcpState::new(Phase::SynReceived, Side::Remote)
        };
        state.expect(Side::Local, answer, true);
        state
    }

    /// Whether a segment of the peer's reaches what `tcp` expects, without a gap.
    #[inline]
    fn is_expected(&self, from: Side, segment: &Summary) -> bool {
        self.expected.is_some_and(|expected| {
            from == Side::Remote
                && SeqNum(segment.seq).le(expected.received)
                && end(segment).ge(expected.acknowledged)
        })
    }

    /// Takes note of what we expect of the peer after a segment.
    #[inline]
    fn expect(&mut self, from: Side, segment: &Summary, in_order: bool) {
        match (from, &mut self.expected) {
            (Side::Local, expected) if segment.flags().contains(Flags::ACK) => {
                let acknowledged = SeqNum(segment.ack);
                let known = expected.get_or_insert(Expected {
                    acknowledged,
                    received: acknowledged,
                });
                known.acknowledged = known.acknowledged.max(acknowledged);
                known.received = known.received.max(acknowledged);
            }
            (Side::Remote, Some(expected)) if in_order => {
                expected.received = expected.received.max(end(segment));
            }
            (Side::Local | Side::Remote, _) => {}
        }
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

/// The sequence number behind a segment of an open connection.
#[inline]
fn end(segment: &Summary) -> SeqNum {
    let fin = u32::from(segment.flags().contains(Flags::FIN));
    SeqNum(segment.seq) + segment.payload_length + fin
}

#[cfg(test)]
mod tests;
