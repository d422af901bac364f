//! Messages between `ip` and `filter`.

use crate::Incarnation;
use crate::codec::{Coded, Envelope, Few, MiddleMessage, SmallMessage, counted};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What `ip` asks `filter`: may this packet pass? It has what a filter looks at, as plain numbers in host
/// byte order; what they mean is between the two. Addresses are 16 bytes, those of IPv4 in their mapped form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Question {
    /// Comes back with the answer.
    pub id: u64,
    /// From whom, to whom, and the same two of the packet that an ICMP error is about.
    pub addresses: [[u8; 16]; 4],
    /// IP header and all that follows, in bytes.
    pub length: u32,
    /// Payload of a TCP segment, in bytes.
    pub payload_length: u32,
    /// TCP: sequence number.
    pub seq: u32,
    /// TCP: acknowledgement number.
    pub ack: u32,
    /// Which way it goes: 1 in, 2 out.
    pub direction: u32,
    /// TCP: window as in the header.
    pub window: u16,
    /// TCP: control bits.
    pub tcp_flags: u16,
    /// Source and destination port, and the same two of the packet that an ICMP error is about.
    pub ports: [u16; 4],
    /// IP version: 4 or 6; 0 if the headers couldn't be read.
    pub family: u8,
    /// 0 all of it, 1 the first fragment, 2 a later one.
    pub piece: u8,
    /// Number of the transport protocol.
    pub protocol: u8,
    /// ICMP: type.
    pub icmp_type: u8,
    /// ICMP: code.
    pub icmp_code: u8,
    /// ICMP error: protocol of the packet it is about, 0 if that can't be told.
    pub quoted_protocol: u8,
    /// ICMP error about an ICMP message: its type.
    pub quoted_icmp_type: u8,
    /// Not used.
    pub reserved: u8,
}

const _: () = assert!(size_of::<Question>() == 112);

const QUESTION: u32 = 1;

impl Coded for Question {
    type Wire = MiddleMessage;

    #[inline]
    fn encode(&self, incarnation: Incarnation) -> MiddleMessage {
        MiddleMessage::new(QUESTION, incarnation, self)
    }

    #[inline]
    fn decode(wire: &MiddleMessage) -> Option<Question> {
        match wire.kind() {
            QUESTION => wire.read(),
            _ => None,
        }
    }

    fn is_between(&self) -> bool {
        false
    }
}

/// What `filter` answers: for each question's id a number, which stands for a verdict and isn't 0.
#[derive(Clone, Copy, Debug)]
pub struct Verdicts(pub(crate) Few<(u64, u8), 5>);

impl Verdicts {
    /// The answers, oldest first.
    pub fn as_slice(&self) -> &[(u64, u8)] {
        self.0.as_slice()
    }
}

const VERDICTS: u32 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct VerdictsBody {
    ids: [u64; 5],
    verdicts: [u8; 5],
    count: u8,
    _reserved: [u8; 2],
}

const _: () = assert!(size_of::<VerdictsBody>() == 48);

impl Coded for Verdicts {
    type Wire = SmallMessage;

    #[inline]
    fn encode(&self, incarnation: Incarnation) -> SmallMessage {
        let body = VerdictsBody {
            ids: self.0.all.map(|(id, _)| id),
            verdicts: self.0.all.map(|(_, verdict)| verdict),
            count: self.0.count as u8,
            _reserved: [0; 2],
        };
        SmallMessage::new(VERDICTS, incarnation, &body)
    }

    #[inline]
    fn decode(wire: &SmallMessage) -> Option<Verdicts> {
        if wire.kind() != VERDICTS {
            return None;
        }
        let body: VerdictsBody = wire.read()?;
        let mut all = [(0, 0); 5];
        for (place, pair) in all.iter_mut().zip(body.ids.into_iter().zip(body.verdicts)) {
            *place = pair;
        }
        counted(all, body.count.into()).map(Verdicts)
    }

    fn is_between(&self) -> bool {
        true
    }
}
