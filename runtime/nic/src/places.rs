use crate::socket::close_together;
use serde::{Deserialize, Serialize};
use skink_steering::Owner;
use std::io;
use std::os::fd::OwnedFd;

/// The sockets of a fan-out group, or the queues of a TAP, in the kernel's order, by which the
/// steering program names them.
///
/// There is no way to ask the kernel for that order. It appends who joins, and when a member leaves
/// (its last descriptor is closed) it moves the last one into the hole: `__fanout_unlink` in
/// net/packet/af_packet.c, `__tun_detach` in drivers/net/tun.c. When that happens can't be known to
/// the microsecond, since a dying process's descriptors go one by one, and a frame that reaches the
/// wrong owner in between is answered with a reset. So **nobody leaves**: the broker holds a duplicate
/// of each member, and hands that of an owner that is gone to the next one. (So an owner that takes
/// another's place also has its NIC at once: making rings takes the kernel 10 to 60 ms.) An interface that goes
/// down and comes up again changes nothing either, since members then join again in the order in
/// which their sockets were made.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Places(Vec<Place>);

#[derive(Serialize, Deserialize)]
struct Place {
    /// The member, and what else its owner needs.
    #[serde(with = "skink_inherit::descriptors")]
    descriptors: Vec<OwnedFd>,
    owner: Option<Owner>,
}

impl Places {
    /// Notes that the first of `descriptors` was appended, and all are `owner`'s; answers its index.
    pub(crate) fn append(&mut self, owner: Owner, descriptors: &[OwnedFd]) -> io::Result<u32> {
        let owner = Some(owner);
        let descriptors = duplicates(descriptors)?;
        self.0.push(Place { descriptors, owner });
        Ok(self.0.len() as u32 - 1)
    }

    /// Gives `owner` a member that nobody has, if there is one, with its index.
    pub(crate) fn take(&mut self, owner: Owner) -> io::Result<Option<(Vec<OwnedFd>, u32)>> {
        let mut places = (0..).zip(&mut self.0);
        let Some((index, place)) = places.find(|(_, place)| place.owner.is_none()) else {
            return Ok(None);
        };
        let descriptors = duplicates(&place.descriptors)?;
        place.owner = Some(owner);
        Ok(Some((descriptors, index)))
    }

    /// What all have, which are no members here any more.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = OwnedFd> {
        self.0.drain(..).flat_map(|place| place.descriptors)
    }

    /// How many members there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// What `owner` has, once more: for who goes on in place of its process.
    pub(crate) fn again(&self, owner: Owner) -> io::Result<Option<Vec<OwnedFd>>> {
        let place = self.0.iter().find(|place| place.owner == Some(owner));
        place
            .map(|place| duplicates(&place.descriptors))
            .transpose()
    }

    /// What `owner` has is nobody's now. Its process must have closed its descriptors.
    pub(crate) fn leave(&mut self, owner: Owner) {
        for place in &mut self.0 {
            if place.owner == Some(owner) {
                place.owner = None;
            }
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let all = self.drain().collect();
        close_together(all);
    }
}

pub(crate) fn duplicates(descriptors: &[OwnedFd]) -> io::Result<Vec<OwnedFd>> {
    descriptors.iter().map(OwnedFd::try_clone).collect()
}
