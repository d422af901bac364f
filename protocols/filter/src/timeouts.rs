use crate::tcp::{Life, Phase, TcpState};
use crate::track::Track;
use skink_time::Duration;
use skink_wire::protocol;

/// For how long a flow without packets is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// TCP: before the handshake is done.
    pub tcp_opening: Duration,
    /// TCP: after it.
    pub tcp_established: Duration,
    /// TCP: one side has finished sending.
    pub tcp_half_closed: Duration,
    /// TCP: both have. Longer than twice the longest retransmission timeout of 60 s (RFC 6298 5),
    /// since what was sent before the FIN may still be missing.
    pub tcp_closed: Duration,
    /// TCP: after a reset of ours.
    pub tcp_reset: Duration,
    /// TCP: after a peer's reset of an established connection: long, since it may be forged, and then
    /// the connection goes on (RFC 5961 section 3).
    pub tcp_reset_by_peer: Duration,
    /// UDP and other protocols: nothing came back yet.
    pub datagram: Duration,
    /// UDP and other protocols: both sides have sent. RFC 4787 section 4.3 asks for at least two
    /// minutes and recommends five.
    pub datagram_answered: Duration,
    /// ICMP echo (RFC 5508 section 3.2 asks for 60 s).
    pub echo: Duration,
}

impl Timeouts {
    /// Those that are used unless others are asked for: longer than pf's, since a state costs little
    /// and a forgotten flow is broken.
    pub const DEFAULT: Timeouts = Timeouts {
        tcp_opening: Duration::from_secs(120),
        tcp_established: Duration::from_secs(5 * 86_400),
        tcp_half_closed: Duration::from_secs(86_400),
        tcp_closed: Duration::from_secs(240),
        tcp_reset: Duration::from_secs(30),
        tcp_reset_by_peer: Duration::from_secs(900),
        datagram: Duration::from_secs(60),
        datagram_answered: Duration::from_secs(300),
        echo: Duration::from_secs(60),
    };

    /// For a flow of `protocol`.
    #[inline]
    pub(crate) fn of(&self, protocol: u8, track: &Track) -> Duration {
        match track {
            Track::Tcp(state) => self.of_tcp(state),
            Track::Datagram { answered, .. } => match (protocol, answered) {
                (protocol::ICMP | protocol::ICMPV6, _) => self.echo,
                (_, false) => self.datagram,
                (_, true) => self.datagram_answered,
            },
        }
    }

    #[inline]
    fn of_tcp(&self, state: &TcpState) -> Duration {
        match state.life {
            Life::Live | Life::ResetInDoubt => match state.phase {
                Phase::PickedUp | Phase::SynSent | Phase::SynReceived => self.tcp_opening,
                Phase::Established => self.tcp_established,
                Phase::LocalClosed | Phase::RemoteClosed => self.tcp_half_closed,
                Phase::BothClosed => self.tcp_closed,
            },
            Life::ResetByRemote if state.phase.is_synchronized() => self.tcp_reset_by_peer,
            Life::ResetByRemote | Life::ResetByLocal => self.tcp_reset,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts::DEFAULT
    }
}
