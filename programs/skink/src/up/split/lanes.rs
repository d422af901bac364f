//! The queues between the parts, whether these share a process or not.
use crate::up::layout::{Layout, Places};
use skink_channel::{DoorbellDescriptors, QueueDescriptors};
use skink_control::{Part, QueueInfo};
use skink_lanes::{
    AttachParts, Coded, FromFilter, FromLink, FromTransport, Lane, ToFilter, ToLink, ToTransport,
};
use skink_messages::{CallOutcome, StoreReply, StoreRequest, TransportCall};
use std::io;

/// Makes a lane, in the place of another whose ends are both dead if there was one.
type Make = fn(Option<&Lane>) -> io::Result<Lane>;

/// Who has a lane to whom: the lower end, the upper one, and how it is made.
const PAIRS: [(Part, Part, Make); 7] = [
    (Part::Link, Part::Ip, |_| {
        Lane::create::<ToLink, FromLink>("skink-link-ip")
    }),
    (Part::Filter, Part::Ip, |_| {
        Lane::create::<ToFilter, FromFilter>("skink-ip-filter")
    }),
    (Part::Ip, Part::Tcp, |_| {
        Lane::create::<FromTransport, ToTransport>("skink-ip-tcp")
    }),
    (Part::Ip, Part::Udp, |_| {
        Lane::create::<FromTransport, ToTransport>("skink-ip-udp")
    }),
    (Part::Tcp, Part::Syscall, |old| {
        requests::<TransportCall, CallOutcome>("skink-tcp-syscall", old)
    }),
    (Part::Udp, Part::Syscall, |old| {
        requests::<TransportCall, CallOutcome>("skink-udp-syscall", old)
    }),
    (Part::Store, Part::Syscall, |old| {
        requests::<StoreRequest, StoreReply>("skink-store-syscall", old)
    }),
];

/// What `syscall` has asked for and nobody answers, programs don't ask for again: it passes on.
fn requests<Down: Coded, Up: Coded>(name: &str, old: Option<&Lane>) -> io::Result<Lane> {
    match old {
        Some(old) => old.renew::<Down, Up>(name),
        None => Lane::create::<Down, Up>(name),
    }
}

/// All of them, in the order of [`PAIRS`].
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Lanes(Vec<Lane>);

impl Lanes {
    /// New ones.
    pub fn create() -> io::Result<Lanes> {
        let lanes = PAIRS.into_iter().map(|(_, _, make)| make(None));
        Ok(Lanes(lanes.collect::<io::Result<_>>()?))
    }

    /// New ones in the place of these, all of whose ends are dead.
    pub fn anew(&self) -> io::Result<Lanes> {
        let lanes = self.0.iter().zip(PAIRS);
        let lanes = lanes.map(|(lane, (_, _, make))| make(Some(lane)));
        Ok(Lanes(lanes.collect::<io::Result<_>>()?))
    }

    /// Makes those anew that only these processes had ends of, and they have ended.
    pub fn renew(&mut self, layout: &Layout, ended: Places) -> io::Result<()> {
        for (lane, (lower, upper, make)) in self.0.iter_mut().zip(PAIRS) {
            if [lower, upper]
                .iter()
                .all(|end| ended.contains(layout.place(*end)))
            {
                *lane = make(Some(lane))?;
            }
        }
        Ok(())
    }

    /// The end of `part` of its lane to `other`, who is rung by `bell`. Incarnations travel in the order.
    pub fn end(
        &self,
        part: Part,
        other: Part,
        bell: DoorbellDescriptors,
    ) -> io::Result<AttachParts> {
        for (lane, (lower, upper, _)) in self.0.iter().zip(PAIRS) {
            if (lower, upper) == (part, other) {
                return lane.lower(1, 1, bell);
            }
            if (lower, upper) == (other, part) {
                return lane.upper(1, 1, bell);
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// How much waits for these parts.
    pub fn waiting(&self, parts: &[Part]) -> Vec<QueueInfo> {
        let all = self.queues().filter(|(_, to, _)| parts.contains(to));
        all.map(|(from, to, queue)| QueueInfo {
            from: from.name().to_owned(),
            to: to.name().to_owned(),
            waiting: queue.depth().unwrap_or_default().into(),
            capacity: queue.geometry.capacity().into(),
        })
        .collect()
    }

    /// Each queue, and from whom to whom it leads.
    pub fn queues(&self) -> impl Iterator<Item = (Part, Part, &QueueDescriptors)> {
        let all = self.0.iter().zip(PAIRS);
        all.flat_map(|(lane, (lower, upper, _))| {
            [(upper, lower, &lane.down), (lower, upper, &lane.up)]
        })
    }

    #[cfg(test)]
    pub fn lane(&self, one: Part, other: Part) -> Option<&Lane> {
        let mut all = self.0.iter().zip(PAIRS);
        let found = all.find(|(_, (lower, upper, _))| {
            [(one, other), (other, one)].contains(&(*lower, *upper))
        });
        found.map(|(lane, _)| lane)
    }
}

/// To whom a part has lanes, in the order in which it is handed them (see
/// [`PartStart`](skink_control::PartStart)).
pub fn neighbours(part: Part) -> &'static [Part] {
    match part {
        Part::Link | Part::Filter => &[Part::Ip],
        Part::Ip => &[Part::Link, Part::Tcp, Part::Udp, Part::Filter],
        Part::Udp | Part::Tcp => &[Part::Ip, Part::Syscall],
        Part::Syscall => &[Part::Tcp, Part::Udp, Part::Store],
        Part::Store => &[Part::Syscall],
    }
}
