//! The values of socket options.
use core::ffi::c_int;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use skink_messages::{ConnectionOption, PortOptions};

/// What a socket's options are set to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Options {
    /// `TCP_NODELAY`
    pub no_delay: bool,
    /// `TCP_CORK`
    pub cork: bool,
    /// `TCP_QUICKACK`
    pub quick_ack: bool,
    /// `SO_KEEPALIVE`
    pub keep_alive: bool,
    /// `TCP_KEEPIDLE` in seconds.
    pub keep_idle: u32,
    /// `TCP_KEEPINTVL` in seconds.
    pub keep_interval: u32,
    /// `TCP_KEEPCNT`
    pub keep_probes: u32,
    /// `TCP_USER_TIMEOUT` in milliseconds.
    pub user_timeout: u32,
    /// `TCP_MAXSEG` as it was set, or 0.
    pub maximum_segment: u16,
    /// `TCP_DEFER_ACCEPT` in seconds.
    pub defer_accept: u32,
    /// `SO_LINGER`, if on, in seconds.
    pub linger: Option<u32>,
    /// `SO_SNDBUF` as it was set, or 0.
    pub send_buffer: u32,
    /// `SO_RCVBUF` as it was set, or 0.
    pub receive_buffer: u32,
    /// `SO_RCVLOWAT` as it was set, or 0.
    #[serde(default)]
    pub receive_low: u32,
    /// `IP_TOS`, `IPV6_TCLASS`
    pub traffic_class: u8,
    /// `IP_TTL`, `IPV6_UNICAST_HOPS`; 0 for the default.
    pub hop_limit: u8,
    /// `SO_REUSEADDR`
    pub reuse_address: bool,
    /// `SO_REUSEPORT`
    pub reuse_port: bool,
    /// `IPV6_V6ONLY`
    pub only_v6: bool,
    /// `SO_BROADCAST`
    pub broadcast: bool,
    /// `SO_OOBINLINE`. Urgent data is inline always, as RFC 6093 advises.
    #[serde(default)]
    pub urgent_inline: bool,
    /// `SO_PRIORITY`, of which nothing comes: a NIC's queue has no classes here.
    #[serde(default)]
    pub priority: u32,
    /// `IP_MTU_DISCOVER`, `IPV6_MTU_DISCOVER` as it was set.
    #[serde(default)]
    pub mtu_discover: Option<u8>,
    /// What is sent to groups leaves by the kernel's half: it was told by which interface, or has joined one.
    #[serde(default)]
    pub groups: bool,
    /// What control messages tell of each datagram.
    #[serde(default)]
    pub told: Told,
    /// `SO_RCVTIMEO`
    pub receive_timeout: Option<Duration>,
    /// `SO_SNDTIMEO`
    pub send_timeout: Option<Duration>,
}

/// What a program wants to be told of each datagram that it receives, in control messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Told {
    /// `IP_PKTINFO`
    pub info_v4: bool,
    /// `IPV6_RECVPKTINFO`
    pub info_v6: bool,
    /// `IP_RECVTTL`
    pub ttl: bool,
    /// `IPV6_RECVHOPLIMIT`
    pub hop_limit: bool,
    /// `IP_RECVTOS`
    pub tos: bool,
    /// `IPV6_RECVTCLASS`
    pub traffic_class: bool,
    /// `SO_TIMESTAMP`, `SO_TIMESTAMPNS`
    pub time: Option<TimeUnit>,
}

/// In what a time is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TimeUnit {
    /// A `timeval`: `SO_TIMESTAMP`.
    Micros,
    /// A `timespec`: `SO_TIMESTAMPNS`.
    Nanos,
}

impl Told {
    /// As the kernel begins.
    pub const fn nothing() -> Told {
        Told {
            info_v4: false,
            info_v6: false,
            ttl: false,
            hop_limit: false,
            tos: false,
            traffic_class: false,
            time: None,
        }
    }
}

/// How much may wait in a ring of `capacity` bytes, if `SO_SNDBUF` or `SO_RCVBUF` says this (0 if it wasn't set). Linux takes twice
/// what it is told, and to send no less than 4,608.
#[inline]
pub fn buffer_limit(set: u32, capacity: usize) -> usize {
    match set as usize {
        0 => capacity,
        bytes => bytes.saturating_mul(2).max(4608).min(capacity),
    }
}

impl Options {
    /// As the kernel begins.
    pub const fn new() -> Options {
        Options {
            no_delay: false,
            cork: false,
            quick_ack: true,
            keep_alive: false,
            keep_idle: 7200,
            keep_interval: 75,
            keep_probes: 9,
            user_timeout: 0,
            maximum_segment: 0,
            defer_accept: 0,
            linger: None,
            send_buffer: 0,
            receive_buffer: 0,
            receive_low: 0,
            traffic_class: 0,
            hop_limit: 0,
            reuse_address: false,
            reuse_port: false,
            only_v6: false,
            broadcast: false,
            urgent_inline: false,
            priority: 0,
            mtu_discover: None,
            groups: false,
            told: Told::nothing(),
            receive_timeout: None,
            send_timeout: None,
        }
    }

    /// What a connection must be told that differs from how it begins.
    pub fn for_connection(&self) -> impl Iterator<Item = ConnectionOption> + use<> {
        use ConnectionOption::*;
        let new = Options::new();
        let differs = |differs: bool, option: ConnectionOption| differs.then_some(option);
        [
            differs(self.no_delay, NoDelay(true)),
            differs(self.cork, Cork(true)),
            differs(
                self.keep_idle != new.keep_idle,
                KeepAliveIdle(self.keep_idle),
            ),
            differs(
                self.keep_interval != new.keep_interval,
                KeepAliveInterval(self.keep_interval),
            ),
            differs(
                self.keep_probes != new.keep_probes,
                KeepAliveProbes(self.keep_probes),
            ),
            differs(self.keep_alive, KeepAlive(true)),
            differs(self.user_timeout != 0, UserTimeout(self.user_timeout)),
            differs(
                self.maximum_segment != 0,
                MaximumSegment(self.maximum_segment),
            ),
            differs(self.linger == Some(0), ResetOnClose(true)),
            differs(self.send_buffer != 0, SendBuffer(self.send_buffer)),
            differs(self.receive_buffer != 0, ReceiveBuffer(self.receive_buffer)),
            differs(self.traffic_class != 0, TrafficClass(self.traffic_class)),
            differs(self.hop_limit != 0, HopLimit(self.hop_limit)),
        ]
        .into_iter()
        .flatten()
    }

    /// Whether datagrams mustn't be fragmented. (Segments aren't anyway.)
    pub fn forbids_fragments(&self) -> bool {
        let forbids = [libc::IP_PMTUDISC_DO, libc::IP_PMTUDISC_PROBE];
        self.mtu_discover
            .is_some_and(|how| forbids.contains(&c_int::from(how)))
    }

    /// What the socket may share its end with. A `ticket` that isn't 0 shows that it was inherited.
    pub fn for_bind(&self, ticket: u64) -> PortOptions {
        PortOptions {
            reuse_address: self.reuse_address,
            reuse_port: self.reuse_port,
            ticket,
        }
    }
}

#[cfg(test)]
mod tests;
