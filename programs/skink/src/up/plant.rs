//! What the processes of a stack are made of: the NIC, and what they share with each other.
use super::component::Component;
use super::layout::Layout;
use super::split::{Outside, Split};
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use skink_control::{Order, Part, PortMaps, StackStart};
use skink_memory::{CaptureRing, StoredTable};
use skink_nic::{Adaptation, Load, Opener};
use std::fmt::Display;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The stack's number among the owners of the NIC.
const OWNER: u16 = 0;

/// Things that `store` can keep. Memory is taken as they come.
const STORED: u32 = 1 << 18;

/// As many as the packet filter knows at the most, and two for changes.
const FLOWS: u32 = (1 << 16) + 2;

/// Of copies of frames, for tools.
const CAPTURE_BYTES: usize = 1 << 20;

/// How long a NIC that is to be opened anew is left alone: a standby of this process has it too, until the
/// next one is made.
const FORGOTTEN: Duration = Duration::from_millis(50);

/// Outlives the processes, so that each can have a successor.
#[derive(Serialize, Deserialize)]
pub struct Plant {
    opener: Opener,
    /// To how the NIC is used. The next build makes its own.
    #[serde(skip)]
    adaptation: Adaptation,
    /// The process that has the NIC took it over as it was.
    passed_on: bool,
    /// The NIC can be opened anew from then on.
    #[serde(with = "skink_inherit::moments")]
    closed: Option<Instant>,
    pub start: StackStart,
    /// Which process hosts what.
    pub layout: Layout,
    /// None: all of the stack is in one process.
    pub split: Option<Split>,
    /// What `store` keeps.
    #[serde(with = "super::memory")]
    stored: StoredTable,
    /// Flows of datagrams that the packet filter knows.
    #[serde(with = "super::memory")]
    flows: StoredTable,
    /// Frames that `link` has seen, while a tool wants them.
    #[serde(with = "super::memory")]
    capture: CaptureRing,
}

fn no_memory(error: impl Display) -> Failure {
    Failure::own(format!(
        "no shared memory can be made: {error}; is /proc mounted?"
    ))
}

pub type Prepared = Result<(Order, Vec<OwnedFd>), String>;

pub fn handed(error: io::Error) -> String {
    format!("what it needs can't be handed over: {error}")
}

fn cloned(memory: BorrowedFd<'_>) -> Result<OwnedFd, String> {
    memory.try_clone_to_owned().map_err(handed)
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
            adaptation: Adaptation::default(),
            passed_on: false,
            closed: None,
            start,
            layout,
            split,
            stored: StoredTable::create("skink-stored", STORED).map_err(no_memory)?,
            flows: StoredTable::create("skink-flows", FLOWS).map_err(no_memory)?,
            capture: CaptureRing::create(CAPTURE_BYTES).map_err(no_memory)?,
        })
    }

    /// The first order to the process at this place, with everything that belongs to it. `None` if
    /// another one must say something first, or the NIC can't be opened anew yet.
    pub fn prepare(&mut self, place: usize, processes: &[Component]) -> Option<Prepared> {
        let component = processes.get(place)?;
        if self.layout.hosts(place, Part::Link) && self.closed.is_some_and(|at| at > Instant::now())
        {
            return None;
        }
        match &self.split {
            None => Some(self.whole(component, processes)),
            Some(split) if split.can_start(place) => Some(self.parts(place, processes)),
            Some(_) => None,
        }
    }

    fn whole(&mut self, component: &Component, processes: &[Component]) -> Prepared {
        let mut start = self.start.clone();
        start.process = component.name().to_owned();
        start.processors = component.processors(processes);
        let mut descriptors = self.nic(&mut start)?;
        let ports = self.port_maps(&mut start)?;
        descriptors.extend(ports.into_iter().flat_map(|maps| [maps.tcp, maps.udp]));
        descriptors.extend(component.shared().map_err(handed)?);
        for memory in [self.capture.fd(), self.stored.fd(), self.flows.fd()] {
            descriptors.push(cloned(memory)?);
        }
        // Whoever comes after the first takes over.
        self.start.successor = true;
        Ok((Order::Start(Box::new(start)), descriptors))
    }

    fn parts(&mut self, place: usize, processes: &[Component]) -> Prepared {
        let component = processes.get(place).ok_or("there is no such process")?;
        let mut start = self.start.clone();
        start.process = component.name().to_owned();
        start.processors = component.processors(processes);
        let mut outside = Outside::default();
        if self.layout.hosts(place, Part::Link) {
            outside.nic = self.nic(&mut start)?;
            outside.capture = Some(cloned(self.capture.fd())?);
        }
        if self.layout.transports().contains(place) {
            outside.ports = self.port_maps(&mut start)?;
        }
        if self.layout.hosts(place, Part::Store) {
            outside.stored = Some(cloned(self.stored.fd())?);
        }
        if self.layout.hosts(place, Part::Filter) {
            outside.flows = Some(cloned(self.flows.fd())?);
        }
        let split = self.split.as_mut().ok_or("it has the whole stack")?;
        let mut descriptors = component.shared().map_err(handed)?;
        let ends = split.ends(place, processes, outside);
        descriptors.extend(ends.map_err(handed)?);
        let start = split.start(place, start);
        Ok((Order::StartPart(Box::new(start)), descriptors))
    }

    /// Where tools find the frames that the process at this place sends and receives.
    pub fn capture(&self, place: usize) -> Option<BorrowedFd<'_>> {
        let sees_frames = self.layout.hosts(place, Part::Link);
        sees_frames.then(|| self.capture.fd())
    }

    fn nic(&mut self, start: &mut StackStart) -> Result<Vec<OwnedFd>, String> {
        let opened = self.opener.open_again(OWNER);
        let (nic, again) = opened.map_err(|error| error.to_string())?;
        if !again {
            // It may be another interface of that name.
            self.adaptation = self.opener.adaptation();
        }
        self.passed_on = again;
        self.closed = None;
        start.nic = serde_json::to_string(&nic.description).map_err(|error| error.to_string())?;
        start.nic_descriptors = nic.descriptors.len();
        Ok(nic.descriptors)
    }

    /// Adapts the NIC to how it is used now.
    pub fn adapt(&mut self, load: Load) {
        self.adaptation.adapt(load);
        self.opener.step_aside(load.bulk);
    }

    /// The NIC is as it was, whatever it was adapted to, also by a process of which this one is a copy.
    pub fn adapt_anew(&mut self) {
        self.adaptation.undo();
        self.opener.come_back();
    }

    /// This program has inherited it from the build before, which had undone what it had adapted.
    pub fn inherit(&mut self) {
        self.adaptation = self.opener.adaptation();
    }

    fn port_maps(&mut self, start: &mut StackStart) -> Result<Option<PortMaps>, String> {
        let Some(steering) = self.opener.steering() else {
            return Ok(None);
        };
        start.owner = Some(OWNER);
        let maps = steering.port_maps().map_err(|error| error.to_string())?;
        Ok(Some(maps))
    }

    /// Whether the interface isn't any more what whoever has the NIC takes it for.
    pub fn has_nic_changed(&self) -> bool {
        self.opener.has_changed(OWNER)
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

    /// The process at this place has ended; `soon` after it had begun.
    pub fn ended(&mut self, place: usize, soon: bool) {
        if self.layout.hosts(place, Part::Link) {
            self.adapt(Load::default());
            // Its successor has the NIC as it is, unless that may be what this one died of.
            let spoilt = soon && self.passed_on;
            if spoilt || !self.opener.can_go_on(OWNER) {
                self.opener.close(OWNER);
                self.closed = Some(Instant::now() + FORGOTTEN);
            }
            if spoilt {
                tracing::warn!("the NIC is opened anew: its last process ended soon");
            }
        }
        let ended = self.split.as_mut().map(|split| split.ended(place));
        if let Some(Err(error)) = ended {
            tracing::error!("no new queues can be made, so the old ones stay: {error}");
        }
    }
}
