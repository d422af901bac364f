/// Which way a packet goes, as seen from this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Direction {
    /// From the link to us.
    In = 1,
    /// From us to the link.
    Out = 2,
}

impl Direction {
    /// The other way.
    pub const fn opposite(self) -> Direction {
        match self {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        }
    }

    /// Its place in pairs of numbers: received, sent.
    pub(crate) const fn index(self) -> usize {
        match self {
            Direction::In => 0,
            Direction::Out => 1,
        }
    }

    /// Who sent a packet that goes this way.
    pub const fn sender(self) -> Side {
        match self {
            Direction::In => Side::Remote,
            Direction::Out => Side::Local,
        }
    }
}

/// An end of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Side {
    /// This host.
    Local = 1,
    /// The peer.
    Remote = 2,
}

/// What is to be done with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
#[repr(u8)]
pub enum Verdict {
    /// It goes on.
    Pass = 1,
    /// It is dropped without a word.
    Drop = 2,
    /// It is dropped, and its sender is told: by a reset (TCP) or an ICMP "administratively
    /// prohibited" (UDP). Never answered for a reset, an ICMP message or a later piece of a packet.
    Return = 3,
}
