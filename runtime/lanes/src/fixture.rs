//! What the tests of ends have in common.

use crate::lane::AttachParts;
use crate::{Coded, Incarnation, Lane};
use skink_channel::SleeperDescriptors;

/// A lane between two neighbours, both of whom one sleeper stands for.
pub(crate) struct Pair {
    lane: Lane,
    sleeper: SleeperDescriptors,
}

impl Pair {
    /// With messages of these kinds.
    pub fn new<Down: Coded, Up: Coded>() -> Pair {
        Pair {
            lane: Lane::create::<Down, Up>("test").expect("a lane"),
            sleeper: SleeperDescriptors::create("test").expect("a sleeper"),
        }
    }

    pub fn upper(&self, own: Incarnation, neighbour: Incarnation) -> AttachParts {
        let bell = self.sleeper.doorbell().expect("a doorbell");
        self.lane.upper(own, neighbour, bell).expect("descriptors")
    }

    pub fn lower(&self, own: Incarnation, neighbour: Incarnation) -> AttachParts {
        let bell = self.sleeper.doorbell().expect("a doorbell");
        self.lane.lower(own, neighbour, bell).expect("descriptors")
    }
}
