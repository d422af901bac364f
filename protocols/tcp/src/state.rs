use core::fmt;

/// Where a connection is in its life (RFC 9293 section 3.3.2). The numbers are part of the record's
/// layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// No connection: a socket that was neither connected nor put to listen.
    Closed = 0,
    /// Waits for connection requests.
    Listen = 1,
    /// Has sent a connection request.
    SynSent = 2,
    /// Has answered a connection request.
    SynReceived = 3,
    /// Data flows both ways.
    Established = 4,
    /// We have finished sending; the peer hasn't acknowledged that.
    FinWait1 = 5,
    /// We have finished sending; the peer hasn't.
    FinWait2 = 6,
    /// The peer has finished sending; we haven't.
    CloseWait = 7,
    /// Both have finished at once; ours isn't acknowledged.
    Closing = 8,
    /// Both have finished, the peer first; ours isn't acknowledged.
    LastAck = 9,
    /// Waits for late segments to die out.
    TimeWait = 10,
}

impl State {
    /// The state that a record's number stands for.
    pub fn from_number(number: u8) -> Option<State> {
        use State::*;
        let all = [
            Closed,
            Listen,
            SynSent,
            SynReceived,
            Established,
            FinWait1,
            FinWait2,
            CloseWait,
            Closing,
            LastAck,
            TimeWait,
        ];
        all.into_iter().find(|state| *state as u8 == number)
    }

    /// Whether both sides agree that there is a connection.
    pub fn is_synchronized(self) -> bool {
        use State::*;
        match self {
            Closed | Listen | SynSent | SynReceived => false,
            Established | FinWait1 | FinWait2 | CloseWait | Closing | LastAck | TimeWait => true,
        }
    }

    /// Whether the peer may not have acknowledged all that was, or will be, sent, our FIN among it.
    pub fn is_unacknowledged(self) -> bool {
        use State::*;
        match self {
            SynSent | SynReceived | Established | CloseWait | FinWait1 | Closing | LastAck => true,
            Closed | Listen | FinWait2 | TimeWait => false,
        }
    }

    /// Whether the peer may still send data.
    pub fn receives_data(self) -> bool {
        use State::*;
        match self {
            Established | FinWait1 | FinWait2 => true,
            Closed | Listen | SynSent | SynReceived | CloseWait | Closing | LastAck | TimeWait => {
                false
            }
        }
    }

    /// Whether data, or our FIN, may be sent or sent again.
    pub fn sends_data(self) -> bool {
        use State::*;
        match self {
            Established | CloseWait | FinWait1 | Closing | LastAck => true,
            Closed | Listen | SynSent | SynReceived | FinWait2 | TimeWait => false,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Closed => "CLOSED",
            State::Listen => "LISTEN",
            State::SynSent => "SYN-SENT",
            State::SynReceived => "SYN-RECEIVED",
            State::Established => "ESTABLISHED",
            State::FinWait1 => "FIN-WAIT-1",
            State::FinWait2 => "FIN-WAIT-2",
            State::CloseWait => "CLOSE-WAIT",
            State::Closing => "CLOSING",
            State::LastAck => "LAST-ACK",
            State::TimeWait => "TIME-WAIT",
        })
    }
}
