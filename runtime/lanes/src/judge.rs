//! Messages between `ip` and `filter`.

use crate::Incarnation;
use crate::codec::{
    Coded, Envelope, Few, MiddleMessage, SmallMessage, counted, family, get_address, put_address,
};
use skink_messages::FlowAccount;
use skink_time::Instant;
use skink_wire::{Endpoint, FourTuple};
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

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct AccountBody {
    local: [u8; 16],
    remote: [u8; 16],
    packets: [u64; 2],
    bytes: [u64; 2],
    last_ns: u64,
    expected: [u32; 2],
    ports: [u16; 2],
    family: u8,
    protocol: u8,
    expects: u8,
    _reserved: u8,
}

const _: () = assert!(size_of::<AccountBody>() == 88);

fn put_account(account: &FlowAccount) -> AccountBody {
    let FourTuple { local, remote } = account.tuple;
    AccountBody {
        local: put_address(local.addr),
        remote: put_address(remote.addr),
        packets: account.packets,
        bytes: account.bytes,
        last_ns: account.last.as_nanos(),
        expected: account.expected.unwrap_or_default(),
        ports: [local.port, remote.port],
        family: family(local.addr),
        protocol: account.protocol,
        expects: put_flag(account.expected.is_some()),
        _reserved: 0,
    }
}

fn get_account(body: &AccountBody) -> Option<FlowAccount> {
    let end = |address, port| Some(Endpoint::new(get_address(address, body.family)?, port));
    let [local, remote] = body.ports;
    Some(FlowAccount {
        protocol: body.protocol,
        tuple: FourTuple::new(end(body.local, local)?, end(body.remote, remote)?),
        packets: body.packets,
        bytes: body.bytes,
        expected: get_flag(body.expects)?.then_some(body.expected),
        last: Instant::from_nanos(body.last_ns),
    })
}

/// Not 0 for either: memory never written says nothing.
fn put_flag(flag: bool) -> u8 {
    match flag {
        true => 1,
        false => 2,
    }
}

fn get_flag(number: u8) -> Option<bool> {
    match number {
        1 => Some(true),
        2 => Some(false),
        _ => None,
    }
}

/// What `ip` says to `filter`.
#[derive(Clone, Copy, Debug)]
pub enum ToFilter {
    /// It is to be answered.
    Question(Question),
    /// It is to be known before the questions that follow.
    Account(FlowAccount),
}

const QUESTION: u32 = 1;
const ACCOUNT: u32 = 2;

impl Coded for ToFilter {
    type Wire = MiddleMessage;

    #[inline]
    fn encode(&self, incarnation: Incarnation) -> MiddleMessage {
        match self {
            ToFilter::Question(question) => MiddleMessage::new(QUESTION, incarnation, question),
            ToFilter::Account(account) => {
                MiddleMessage::new(ACCOUNT, incarnation, &put_account(account))
            }
        }
    }

    #[inline]
    fn decode(wire: &MiddleMessage) -> Option<ToFilter> {
        match wire.kind() {
            QUESTION => wire.read().map(ToFilter::Question),
            ACCOUNT => {
                let body: AccountBody = wire.read()?;
                get_account(&body).map(ToFilter::Account)
            }
            _ => None,
        }
    }

    fn is_between(&self) -> bool {
        false
    }
}

/// What `filter` says to `ip`.
#[derive(Clone, Copy, Debug)]
pub enum FromFilter {
    /// For each question's id a number, which stands for a verdict and isn't 0. The oldest come first.
    Verdicts(Few<(u64, u8), 5>),
    /// The packet of the question with this id may pass, and more of its flow without being asked about.
    Offload {
        /// The question's.
        id: u64,
        /// TCP: as in [`FlowAccount::expected`].
        expected: Option<[u32; 2]>,
    },
    /// Whether packets are to be asked about at all. They are until it says otherwise.
    Asked(bool),
}

const VERDICTS: u32 = 1;
const OFFLOAD: u32 = 2;
const ASKED: u32 = 3;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct VerdictsBody {
    ids: [u64; 5],
    verdicts: [u8; 5],
    count: u8,
    _reserved: [u8; 2],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct OffloadBody {
    id: u64,
    expected: [u32; 2],
    expects: u8,
    _reserved: [u8; 7],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct AskedBody {
    asked: u8,
}

const _: () = assert!(size_of::<VerdictsBody>() == 48 && size_of::<OffloadBody>() == 24);

impl Coded for FromFilter {
    type Wire = SmallMessage;

    #[inline]
    fn encode(&self, incarnation: Incarnation) -> SmallMessage {
        match self {
            FromFilter::Verdicts(verdicts) => {
                let body = VerdictsBody {
                    ids: verdicts.all.map(|(id, _)| id),
                    verdicts: verdicts.all.map(|(_, verdict)| verdict),
                    count: verdicts.count as u8,
                    _reserved: [0; 2],
                };
                SmallMessage::new(VERDICTS, incarnation, &body)
            }
            FromFilter::Offload { id, expected } => {
                let body = OffloadBody {
                    id: *id,
                    expected: expected.unwrap_or_default(),
                    expects: put_flag(expected.is_some()),
                    _reserved: [0; 7],
                };
                SmallMessage::new(OFFLOAD, incarnation, &body)
            }
            FromFilter::Asked(asked) => {
                let body = AskedBody {
                    asked: put_flag(*asked),
                };
                SmallMessage::new(ASKED, incarnation, &body)
            }
        }
    }

    #[inline]
    fn decode(wire: &SmallMessage) -> Option<FromFilter> {
        match wire.kind() {
            VERDICTS => {
                let body: VerdictsBody = wire.read()?;
                let mut all = [(0, 0); 5];
                let pairs = body.ids.into_iter().zip(body.verdicts);
                for (place, pair) in all.iter_mut().zip(pairs) {
                    *place = pair;
                }
                counted(all, body.count.into()).map(FromFilter::Verdicts)
            }
            OFFLOAD => {
                let body: OffloadBody = wire.read()?;
                let expected = get_flag(body.expects)?.then_some(body.expected);
                Some(FromFilter::Offload {
                    id: body.id,
                    expected,
                })
            }
            ASKED => {
                let body: AskedBody = wire.read()?;
                get_flag(body.asked).map(FromFilter::Asked)
            }
            _ => None,
        }
    }

    fn is_between(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
