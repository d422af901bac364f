//! Making the two queues between a pair of neighbours, for whoever starts components.

use crate::Incarnation;
use crate::codec::Coded;
use skink_channel::{
    AttachError, Consumer, ConsumerDescriptors, DoorbellDescriptors, Producer, ProducerDescriptors,
    Queue, QueueDescriptors, QueueGeometry,
};
use std::io;
use std::os::fd::OwnedFd;

/// What one side of a [`Lane`] is handed.
#[derive(Debug)]
pub struct AttachParts {
    pub(crate) incoming: ConsumerDescriptors,
    pub(crate) incoming_geometry: QueueGeometry,
    pub(crate) outgoing: ProducerDescriptors,
    pub(crate) outgoing_geometry: QueueGeometry,
    pub(crate) doorbell: DoorbellDescriptors,
    pub(crate) own: Incarnation,
    pub(crate) neighbour: Incarnation,
}

impl AttachParts {
    /// In the form that crosses a Unix socket.
    pub fn into_descriptors(self) -> [OwnedFd; 6] {
        let AttachParts {
            incoming,
            incoming_geometry: _,
            outgoing,
            outgoing_geometry: _,
            doorbell,
            own: _,
            neighbour: _,
        } = self;
        [
            incoming.own,
            incoming.theirs,
            outgoing.own,
            outgoing.theirs,
            doorbell.page,
            doorbell.bell,
        ]
    }

    /// From what [`AttachParts::into_descriptors`] answered, for a component that receives `In` and sends
    /// `Out`. `None` if there are no queues for such messages.
    pub fn from_descriptors<In: Coded, Out: Coded>(
        descriptors: [OwnedFd; 6],
        own: Incarnation,
        neighbour: Incarnation,
    ) -> Option<AttachParts> {
        let [in_own, in_theirs, out_own, out_theirs, page, bell] = descriptors;
        let incoming_bytes = QueueGeometry::slot_bytes_for::<In::Wire>();
        let outgoing_bytes = QueueGeometry::slot_bytes_for::<Out::Wire>();
        Some(AttachParts {
            incoming: ConsumerDescriptors {
                own: in_own,
                theirs: in_theirs,
            },
            incoming_geometry: QueueGeometry::new(incoming_bytes, CAPACITY)?,
            outgoing: ProducerDescriptors {
                own: out_own,
                theirs: out_theirs,
            },
            outgoing_geometry: QueueGeometry::new(outgoing_bytes, CAPACITY)?,
            doorbell: DoorbellDescriptors { page, bell },
            own,
            neighbour,
        })
    }
}

/// Two queues, one each way. Keep it, and either side can have a successor.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Lane {
    /// What `upper` sends.
    pub down: QueueDescriptors,
    /// What `lower` sends.
    pub up: QueueDescriptors,
}

/// Messages that wait in each direction.
pub const CAPACITY: u32 = 512;

impl Lane {
    /// Between a component that sends `Down` and one that sends `Up`. Its memory is called `name` in
    /// `/proc/PID/maps`.
    ///
    /// # Errors
    /// What the system says.
    pub fn create<Down: Coded, Up: Coded>(name: &str) -> io::Result<Lane> {
        Ok(Lane {
            down: Queue::create(
                name,
                QueueGeometry::slot_bytes_for::<Down::Wire>(),
                CAPACITY,
            )?,
            up: Queue::create(name, QueueGeometry::slot_bytes_for::<Up::Wire>(), CAPACITY)?,
        })
    }

    /// Another one in the place of this one, both of whose components have ended. What was sent down and not
    /// taken yet is in it: for requests that nobody repeats, and nothing that points into a pool. What can't
    /// be read, or makes no sense, is left out. This one stays as it is.
    ///
    /// # Errors
    /// As [`Lane::create`].
    pub fn renew<Down: Coded, Up: Coded>(&self, name: &str) -> io::Result<Lane> {
        let lane = Lane::create::<Down, Up>(name)?;
        let mut new = Producer::attach(lane.down.producer()?, lane.down.geometry)
            .map_err(io::Error::other)?;
        let mut old = match Consumer::attach(self.down.consumer()?, self.down.geometry) {
            Ok(old) => old,
            Err(AttachError::Memory(error)) => return Err(error),
            Err(_) => return Ok(lane),
        };
        // Both have the same room: all of it fits.
        while let Ok(Some(wire)) = old.peek()
            && (Down::decode(&wire).is_none() || new.write(&wire).is_ok())
        {}
        new.publish();
        Ok(lane)
    }

    /// For the component that sends down, of incarnation `own`. `doorbell` is that of its neighbour.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn upper(
        &self,
        own: Incarnation,
        neighbour: Incarnation,
        doorbell: DoorbellDescriptors,
    ) -> io::Result<AttachParts> {
        parts(&self.up, &self.down, own, neighbour, doorbell)
    }

    /// For the component that sends up.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn lower(
        &self,
        own: Incarnation,
        neighbour: Incarnation,
        doorbell: DoorbellDescriptors,
    ) -> io::Result<AttachParts> {
        parts(&self.down, &self.up, own, neighbour, doorbell)
    }
}

fn parts(
    incoming: &QueueDescriptors,
    outgoing: &QueueDescriptors,
    own: Incarnation,
    neighbour: Incarnation,
    doorbell: DoorbellDescriptors,
) -> io::Result<AttachParts> {
    Ok(AttachParts {
        incoming: incoming.consumer()?,
        incoming_geometry: incoming.geometry,
        outgoing: outgoing.producer()?,
        outgoing_geometry: outgoing.geometry,
        doorbell,
        own,
        neighbour,
    })
}

#[cfg(test)]
mod tests;
