//! The privileged side: opens all queues of one interface, and shares them out.

use super::open::{self, OpenError as QueueError};
use super::shares::{OwnShares, QUEUES, Share, share_out};
use super::{Geometry, XdpDescription, bell, driver};
use crate::error::OpenError;
use crate::opener::{Description, NicParts, Past, Sharing};
use crate::packet::{PacketOpener, usable_interface};
use crate::socket;
use rustix::event::epoll;
use serde::{Deserialize, Serialize};
use skink_steering::{AttachMode, Owner, Steering};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The kernel unbinds the socket of a process that ended a little later, from a work queue. It takes
/// about 20 ms, and longer on a busy machine; after this long somebody else has the queue.
const UNBINDING: Duration = Duration::from_secs(2);

/// Opens one interface for owner after owner.
#[derive(Serialize, Deserialize)]
pub(crate) struct XdpOpener {
    name: String,
    sharing: Sharing,
    packet: PacketOpener,
    mode: AttachMode,
    queues: Option<Open>,
    /// There were queues that were closed again.
    again: bool,
}

/// All queues, open as long as somebody may use them: a socket that is closed is unbound late.
#[derive(Serialize, Deserialize)]
struct Open {
    lines: Vec<open::QueueParts>,
    #[serde(with = "skink_inherit::descriptors")]
    shares: OwnShares,
    given: Vec<Option<Share>>,
    #[serde(with = "skink_inherit::descriptors")]
    bells: BTreeMap<Owner, OwnedFd>,
}

impl XdpOpener {
    /// Puts the steering program in front of the interface, where it stays as long as `steering`, and opens all queues.
    pub(crate) fn new(
        name: &str,
        sharing: Sharing,
        steering: &mut Steering,
    ) -> Result<XdpOpener, OpenError> {
        let packet = PacketOpener::new(name)?;
        open::probe(name)?;
        let mut opener = XdpOpener {
            name: name.to_owned(),
            sharing,
            packet,
            mode: steering.attach_xdp(name)?,
            queues: None,
            again: false,
        };
        // Whoever chooses this back end learns now what can't be had, and not when programs have started.
        opener.queues = Some(opener.open_queues(steering)?);
        Ok(opener)
    }

    /// See [`crate::Opener::step_aside`].
    pub(crate) fn step_aside(
        &self,
        wanted: bool,
        steering: &mut Steering,
    ) -> Result<(), OpenError> {
        if wanted == steering.is_attached() && driver::is_veth(&self.name).unwrap_or(false) {
            match wanted {
                true => steering.detach_xdp()?,
                false => drop(steering.attach_xdp(&self.name)?),
            }
        }
        Ok(())
    }

    pub(crate) fn open(
        &mut self,
        owner: Owner,
        steering: Option<&mut Steering>,
    ) -> Result<NicParts, OpenError> {
        let steering = steering.ok_or_else(|| self.missing())?;
        if self.queues.is_none() {
            self.queues = Some(self.open_queues(steering)?);
        }
        let packet = match self.sharing {
            Sharing::Sole => self.packet.open(owner, None)?,
            Sharing::Several => self.packet.open(owner, Some(steering))?,
        };
        self.parts(owner, packet, Past::Unused, steering)
    }

    /// What the owner has, for who goes on in place of its process.
    pub(crate) fn succeed(
        &mut self,
        owner: Owner,
        steering: Option<&mut Steering>,
    ) -> Result<NicParts, OpenError> {
        let steering = steering.ok_or_else(|| self.missing())?;
        let packet = self.packet.succeed(owner)?;
        self.parts(owner, packet, Past::Own, steering)
    }

    fn missing(&self) -> OpenError {
        let name = &self.name;
        OpenError::Unavailable {
            what: format!("a part of xdp:{name}"),
            advice: format!("this is a fault in Skink; use packet:{name}"),
        }
    }

    /// The owner's packet sockets, and its share of the queues, which are open.
    fn parts(
        &mut self,
        owner: Owner,
        packet: NicParts,
        past: Past,
        steering: &Steering,
    ) -> Result<NicParts, OpenError> {
        let missing = self.missing();
        let NicParts {
            description: Description::Packet(packet),
            mut descriptors,
        } = packet
        else {
            return Err(missing);
        };
        let Some(open) = &mut self.queues else {
            return Err(missing);
        };
        if !open.lines.is_empty() {
            let opened = open.add(owner, steering);
            let failed = OpenError::doing("sharing the queues of", &self.name);
            descriptors.extend(opened.map_err(failed)?);
        }
        let queues = open.lines.iter().map(|line| line.description.clone());
        Ok(NicParts {
            description: Description::Xdp(XdpDescription {
                packet,
                owner,
                past,
                queues: queues.collect(),
            }),
            descriptors,
        })
    }

    /// The steering has forgotten the owner and its queues already.
    pub(crate) fn close(&mut self, owner: Owner) {
        if let Some(open) = &mut self.queues
            && open.bells.remove(&owner).is_some()
        {
            open.shares.forget(owner);
            open.share_out();
        }
        // What a sole owner left may not make sense to its successor.
        if self.sharing == Sharing::Sole {
            self.again |= self.queues.take().is_some();
        }
        self.packet.close(owner);
    }

    fn goes_without(&self, queue: u32, why: &str) {
        tracing::warn!(
            interface = self.name,
            queue,
            why,
            "an AF_XDP queue can't be had: its frames take the slower way, by a packet socket"
        );
    }

    /// Opens all queues but those that other programs have.
    fn open_queues(&self, steering: &mut Steering) -> Result<Open, OpenError> {
        let (interface, _) = usable_interface(&self.name)?;
        let known = driver::queues(&self.name).map(|queues| queues.min(QUEUES));
        let geometry = Geometry::of(known.unwrap_or(1));
        let begun = Instant::now();
        let mut lines = Vec::new();
        for queue in 0..known.unwrap_or(QUEUES) {
            let opened = loop {
                match open::queue(&interface, queue, geometry) {
                    Err(QueueError::Taken) if self.again && begun.elapsed() < UNBINDING => {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    opened => break opened,
                }
            };
            match opened {
                Ok(mut parts) => {
                    parts.description.generic = self.mode == AttachMode::Generic;
                    steering.set_socket(queue, parts.socket.as_fd())?;
                    // A sole owner is a component of the stack, which has one thread.
                    if self.sharing == Sharing::Several {
                        let count = flow_rings(known.unwrap_or(1));
                        open::add_flow_rings(&mut parts, &interface, count);
                    }
                    for (ring, socket) in (1..).zip(&parts.flow_rings) {
                        steering.set_ring(queue, ring, socket.as_fd())?;
                    }
                    lines.push(parts);
                }
                Err(QueueError::NoSuchQueue) if queue > 0 => break,
                Err(QueueError::Taken) => self.goes_without(queue, "another program has it"),
                // Better some than none.
                Err(QueueError::Pinned(error)) if !lines.is_empty() => {
                    self.goes_without(queue, &format!("its memory can't be pinned: {error}"));
                    break;
                }
                Err(error) => return Err(error.about(&self.name)),
            }
        }
        let sharing = OpenError::doing("sharing the queues of", &self.name);
        Ok(Open {
            given: vec![None; lines.len()],
            lines,
            shares: OwnShares::create().map_err(sharing)?,
            bells: BTreeMap::new(),
        })
    }
}

/// How many sockets for flows each queue gets, of so many queues: one for each of 16 threads, but no more than 32 in
/// all, since every program is handed them.
fn flow_rings(queues: u32) -> u8 {
    (32 / queues.max(1)).min(16) as u8
}

impl Drop for Open {
    fn drop(&mut self) {
        let lines = self.lines.iter_mut();
        let sockets = lines.flat_map(|line| std::mem::take(&mut line.flow_rings));
        socket::close_together(sockets.collect());
    }
}

impl Open {
    /// Another owner: answers the descriptors that it needs.
    fn add(&mut self, owner: Owner, steering: &Steering) -> io::Result<Vec<OwnedFd>> {
        let bell = bell::new()?;
        let watched = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(u64::MAX);
        epoll::add(&watched, &bell, data, epoll::EventFlags::IN)?;
        let shares = self.shares.memory()?;
        let mut all = vec![watched, bell.try_clone()?, shares];
        all.extend([steering.owner_map()?, steering.flow_ring_map()?]);
        for line in &self.lines {
            all.push(line.socket.try_clone()?);
            all.push(line.memory.try_clone()?);
            for socket in &line.flow_rings {
                all.push(socket.try_clone()?);
            }
        }
        self.bells.insert(owner, bell);
        self.share_out();
        Ok(all)
    }

    /// Shares the queues out among the owners that there are now, and tells them.
    fn share_out(&mut self) {
        let owners: BTreeSet<Owner> = self.bells.keys().copied().collect();
        let before = self.given.clone();
        share_out(&mut self.given, &owners);
        self.shares.give(&self.given);
        let changed = before
            .iter()
            .zip(&self.given)
            .filter(|(old, new)| old != new);
        let concerned = changed.flat_map(|(old, new)| [old, new]).flatten();
        for share in concerned {
            if let Some(bell) = self.bells.get(&share.owner) {
                bell::ring(bell);
            }
        }
    }
}
