//! What the processes of a stack are made of: the NIC, and what they share with each other.
use super::component::Component;
use super::layout::Layout;
use super::split::{Outside, Split};
use crate::failure::Failure;
use skink_control::{Order, Part, StackStart};
use skink_memory::StoredTable;
use skink_nic::Opener;
use std::io;
use std::os::fd::OwnedFd;

/// The stack's number among the owners of the NIC.
const OWNER: u16 = 0;

/// Things that `store` can keep. Memory is taken as they come.
const STORED: u32 = 1 << 18;

/// Outlives the processes, so that each can have a successor.
pub struct Plant {
    opener: Opener,
    pub start: StackStart,
    /// Which process hosts what.
    pub layout: Layout,
    /// None: all of the stack is in one process.
    pub split: Option<Split>,
    /// What `store` keeps.
    stored: StoredTable,
}

pub type Prepared = Result<(Order, Vec<OwnedFd>), String>;

pub fn handed(error: io::Error) -> String {
    format!("what it needs can't be handed over: {error}")
}

impl Plant {
    /// For the processes that the topology places.
    pub fn new(opener: Opener, start: StackStart, layout: Layout) -> Result<Plant, Failure> {
        let split = match layout.is_whole() {
            true => None,
            false => Some(Split::new(layout.clone())?),
        };
        Ok(Plant {
            opener,
            start,
            layout,
            split,
            stored: StoredTable::create(STORED).map_err(|error| {
                Failure::own(format!(
                    "no shared memory can be made: {error}; is /proc mounted?"
                ))
            })?,
        })
    }

    /// The first order to the process at this place, with everything that belongs to it. `None` if
    /// another one must say something first.
    pub fn prepare(&mut self, place: usize, processes: &[Component]) -> Option<Prepared> {
        let component = processes.get(place)?;
        match &self.split {
            None => Some(self.whole(component)),
            Some(split) if split.can_start(place) => Some(self.parts(place, processes)),
            Some(_) => None,
        }
    }

    fn whole(&mut self, component: &Component) -> Prepared {
        let mut start = self.start.clone();
        start.process = component.name().to_owned();
        let mut descriptors = self.nic(&mut start)?;
        descriptors.extend(self.port_map(&mut start)?);
        descriptors.extend(component.shared().map_err(handed)?);
        descriptors.push(self.stored()?);
        // Whoever comes after the first takes over.
        self.start.successor = true;
        Ok((Order::Start(Box::new(start)), descriptors))
    }

    fn parts(&mut self, place: usize, processes: &[Component]) -> Prepared {
        let component = processes.get(place).ok_or("there is no such process")?;
        let mut start = self.start.clone();
        start.process = component.name().to_owned();
        let mut outside = Outside::default();
        if self.layout.hosts(place, Part::Link) {
            outside.nic = self.nic(&mut start)?;
        }
        if self.layout.transports().contains(place) {
            outside.port_map = self.port_map(&mut start)?;
        }
        if self.layout.hosts(place, Part::Store) {
            outside.stored = Some(self.stored()?);
        }
        let split = self.split.as_mut().ok_or("it has the whole stack")?;
        let mut descriptors = component.shared().map_err(handed)?;
        let ends = split.ends(place, processes, outside);
        descriptors.extend(ends.map_err(handed)?);
        let start = split.start(place, start);
        Ok((Order::StartPart(Box::new(start)), descriptors))
    }

    fn stored(&self) -> Result<OwnedFd, String> {
        self.stored.fd().try_clone_to_owned().map_err(handed)
    }

    fn nic(&mut self, start: &mut StackStart) -> Result<Vec<OwnedFd>, String> {
        let nic = self.opener.open(OWNER).map_err(|error| error.to_string())?;
        start.nic = serde_json::to_string(&nic.description).map_err(|error| error.to_string())?;
        start.nic_descriptors = nic.descriptors.len();
        Ok(nic.descriptors)
    }

    fn port_map(&mut self, start: &mut StackStart) -> Result<Option<OwnedFd>, String> {
        let Some(steering) = self.opener.steering() else {
            return Ok(None);
        };
        start.owner = Some(OWNER);
        let map = steering.port_map().map_err(|error| error.to_string())?;
        Ok(Some(map))
    }

    /// Nobody has anything of what was given up any more.
    pub fn renew(&mut self) -> Result<(), Failure> {
        if let Some(split) = &mut self.split
            && split.is_given_up()
        {
            split.renew()?;
        }
        Ok(())
    }

    /// The process at this place has ended, while those at `alive` hadn't. Answers which of these must
    /// end too.
    pub fn ended(&mut self, place: usize) {
        if self.layout.hosts(place, Part::Link) {
            self.opener.close(OWNER);
        }
        let ended = self.split.as_mut().map(|split| split.ended(place));
        if let Some(Err(error)) = ended {
            tracing::error!("no new queues can be made, so the old ones stay: {error}");
        }
    }
}
