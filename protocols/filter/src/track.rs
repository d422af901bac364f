//! What names a flow, and what is remembered of it.

use crate::summary::{Family, Summary, address, is_echo_reply, is_echo_request, number};
use crate::tcp::TcpState;
use crate::verdict::{Direction, Side};
use skink_wire::{Endpoint, FourTuple, protocol};

/// What names a flow, the same for its packets in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) local: u128,
    pub(crate) remote: u128,
    /// Local port, remote port, protocol, family: 16, 16, 8 and 8 bits of it from bit 16 on.
    rest: u64,
}

impl Key {
    pub(crate) const fn new(
        family: Family,
        protocol: u8,
        local: (u128, u16),
        remote: (u128, u16),
    ) -> Key {
        Key {
            local: local.0,
            remote: remote.0,
            rest: (local.1 as u64) << 48
                | (remote.1 as u64) << 32
                | (protocol as u64) << 16
                | family as u64,
        }
    }

    /// The flow between two ends; `None` if they are of two families.
    pub(crate) fn between(protocol: u8, tuple: &FourTuple) -> Option<Key> {
        let FourTuple { local, remote } = tuple;
        let family = Family::of(local.addr);
        let end = |end: &Endpoint| (number(end.addr), end.port);
        (family == Family::of(remote.addr))
            .then(|| Key::new(family, protocol, end(local), end(remote)))
    }

    /// The ends of the flow.
    pub(crate) fn tuple(&self) -> FourTuple {
        let end = |addr, port| Endpoint::new(address(self.family(), addr), port);
        FourTuple::new(
            end(self.local, self.local_port()),
            end(self.remote, self.remote_port()),
        )
    }

    /// The flow of a packet that goes in `direction`; `None` if packets of its kind have none.
    #[inline]
    pub(crate) fn of(direction: Direction, packet: &Summary) -> Option<Key> {
        if !packet.has_transport() {
            return None;
        }
        let mut source_port = packet.source_port;
        let mut destination_port = packet.destination_port;
        if matches!(packet.protocol, protocol::ICMP | protocol::ICMPV6) {
            let asker = echo_asker(direction, packet)?;
            // Both ends may ping with the same identifier: the remote port tells whose it is.
            (source_port, destination_port) = match direction {
                Direction::In => (asker as u16, packet.source_port),
                Direction::Out => (packet.source_port, asker as u16),
            };
        }
        let source = (packet.source, source_port);
        let destination = (packet.destination, destination_port);
        let (local, remote) = match direction {
            Direction::In => (destination, source),
            Direction::Out => (source, destination),
        };
        Some(Key::new(packet.family, packet.protocol, local, remote))
    }

    pub(crate) const fn local_port(&self) -> u16 {
        (self.rest >> 48) as u16
    }

    pub(crate) const fn remote_port(&self) -> u16 {
        (self.rest >> 32) as u16
    }

    pub(crate) const fn protocol(&self) -> u8 {
        (self.rest >> 16) as u8
    }

    pub(crate) const fn family(&self) -> Family {
        match self.rest as u8 {
            4 => Family::V4,
            _ => Family::V6,
        }
    }
}

/// Who asked for the echo that a message is part of; `None` if it isn't of that kind.
fn echo_asker(direction: Direction, packet: &Summary) -> Option<Side> {
    if is_echo_request(packet.family, packet.icmp_type) {
        Some(direction.sender())
    } else if is_echo_reply(packet.family, packet.icmp_type) {
        Some(direction.opposite().sender())
    } else {
        None
    }
}

/// What becomes of a flow, or of what is remembered of it, after a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step<T> {
    /// It goes on.
    Goes(T),
    /// It is over: the packet is the first of another one.
    Over,
    /// It stays as it is; the packet asks for another one between the same ends.
    Asks,
}

/// What is remembered of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Track {
    Tcp(TcpState),
    /// UDP, ICMP echo, and other protocols.
    Datagram {
        opener: Side,
        /// Both sides have sent.
        answered: bool,
    },
}

/// How readily a state is given up for a new one, the first most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Class {
    /// One side alone has been heard, or a handshake isn't done.
    HalfOpen = 0,
    /// TCP: at least one side has finished, or there was a reset.
    Closing = 1,
    /// Datagrams both ways, and TCP connections that somebody seems to have reset.
    Datagram = 2,
    /// TCP: never given up.
    Established = 3,
}

impl Track {
    /// That of the first packet of a flow; `None` if it makes none.
    pub(crate) fn first(direction: Direction, packet: &Summary) -> Option<Track> {
        let from = direction.sender();
        match packet.protocol {
            protocol::TCP => TcpState::first(from, packet).map(Track::Tcp),
            protocol::ICMP | protocol::ICMPV6
                if !is_echo_request(packet.family, packet.icmp_type) =>
            {
                None
            }
            _ => Some(Track::Datagram {
                opener: from,
                answered: false,
            }),
        }
    }

    /// After a packet.
    #[inline]
    pub(crate) fn step(self, from: Side, packet: &Summary) -> Step<Track> {
        match self {
            Track::Tcp(state) => match state.step(from, packet) {
                Step::Goes(state) => Step::Goes(Track::Tcp(state)),
                Step::Over => Step::Over,
                Step::Asks => Step::Asks,
            },
            Track::Datagram { opener, answered } => Step::Goes(Track::Datagram {
                opener,
                answered: answered || from != opener,
            }),
        }
    }

    /// Whether both sides have finished.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Track::Tcp(state) => state.phase == crate::tcp::Phase::BothClosed,
            Track::Datagram { .. } => false,
        }
    }

    #[inline]
    pub(crate) fn class(&self) -> Class {
        use crate::tcp::{Life, Phase};
        match self {
            Track::Tcp(state) => match (state.phase, state.life) {
                (Phase::PickedUp | Phase::SynSent | Phase::SynReceived, _) => Class::HalfOpen,
                (Phase::Established, Life::Live) => Class::Established,
                (Phase::Established, Life::ResetInDoubt) => Class::Datagram,
                (Phase::Established, Life::ResetByLocal | Life::ResetByRemote)
                | (Phase::LocalClosed | Phase::RemoteClosed | Phase::BothClosed, _) => {
                    Class::Closing
                }
            },
            Track::Datagram { answered, .. } => match answered {
                false => Class::HalfOpen,
                true => Class::Datagram,
            },
        }
    }
}
