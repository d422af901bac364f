//! Which messages cross from one process to another.

use crate::component::Component;
use crate::topology::Topology;

/// What a channel carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// `link` and `ip`: frames, either way.
    Frames,
    /// `ip` to `filter`: what is to be judged.
    Summaries,
    /// `filter` to `ip`: what becomes of it.
    Verdicts,
    /// `ip` and a transport: packets, either way.
    Packets,
    /// `syscall` to a transport: what programs ask for.
    Requests,
    /// A transport to `syscall`: what they came to.
    Outcomes,
    /// `syscall` to `store`: what is to be kept.
    Values,
    /// `store` to `syscall`: what was kept for it.
    Restored,
}

/// A channel in one direction, between two processes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Channel {
    /// Who sends.
    pub from: Component,
    /// Who receives.
    pub to: Component,
    /// What is sent.
    pub kind: Kind,
}

const fn channel(from: Component, to: Component, kind: Kind) -> Channel {
    Channel { from, to, kind }
}

/// Who has something to say to whom. `filter` is a branch of `ip` and has no other neighbour on the data
/// path (NewtOS, figure 2.3); what must outlive `syscall` is in `store`.
const NEIGHBOURS: [Channel; 14] = {
    use Component::{Filter, Ip, Link, Store, Syscall, Tcp, Udp};
    [
        channel(Link, Ip, Kind::Frames),
        channel(Ip, Link, Kind::Frames),
        channel(Ip, Filter, Kind::Summaries),
        channel(Filter, Ip, Kind::Verdicts),
        channel(Ip, Udp, Kind::Packets),
        channel(Udp, Ip, Kind::Packets),
        channel(Ip, Tcp, Kind::Packets),
        channel(Tcp, Ip, Kind::Packets),
        channel(Syscall, Udp, Kind::Requests),
        channel(Udp, Syscall, Kind::Outcomes),
        channel(Syscall, Tcp, Kind::Requests),
        channel(Tcp, Syscall, Kind::Outcomes),
        channel(Syscall, Store, Kind::Values),
        channel(Store, Syscall, Kind::Restored),
    ]
};

impl Topology {
    /// The channels that this topology needs, in an order that doesn't depend on it. Neighbours in one
    /// process call each other and have none.
    pub fn channels(&self) -> Vec<Channel> {
        let apart = |channel: &Channel| {
            let place = |component| self.place_of(component);
            place(channel.from) != place(channel.to)
        };
        NEIGHBOURS.into_iter().filter(apart).collect()
    }
}

#[cfg(test)]
mod tests;
