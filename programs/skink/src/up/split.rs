//! What the parts of a stack share, where they are in several processes, and what each knows of the
//! others.
mod lanes;
mod standstill;

use super::component::Component;
use super::layout::{Layout, Places};
use crate::failure::Failure;
use lanes::Lanes;
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};
use skink_channel::{Credentials, DoorbellDescriptors, Registry};
use skink_control::{
    LinkSizes, Order, Part, PartStart, PoolSizes, PortMaps, QueueInfo, StackStart,
};
use skink_lanes::board::BoardDescriptors;
use standstill::Standstill;
pub use standstill::Stuck;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// How far a part is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Stage {
    /// It has no process, or that hasn't said yet that it runs.
    Dead,
    /// It runs, and the others are told of it.
    Held,
    /// It works.
    Going,
}

/// A pool that a part has made for others.
#[derive(Serialize, Deserialize)]
struct Pool {
    sizes: PoolSizes,
    #[serde(with = "skink_inherit::descriptors")]
    memory: OwnedFd,
}

/// Everything between the parts. Arrays are by [`Part::index`] unless they say otherwise.
#[derive(Serialize, Deserialize)]
pub struct Split {
    layout: Layout,
    lanes: Lanes,
    board: BoardDescriptors,
    /// The writing end is held open here and by those that programs have a channel to: the others go on
    /// until all of them are gone.
    #[serde(with = "skink_inherit::descriptors")]
    life: (OwnedFd, OwnedFd),
    /// The parts by name, each with its pool if it has made one. Those who know of a part have attached; its
    /// incarnation is the generation.
    registry: Registry<Pool>,
    stages: [Stage; Part::COUNT],
    next_pool: u32,
    sizes: Option<LinkSizes>,
    /// How often the process at each place must still say which connections there are.
    flows: [u32; Part::COUNT],
    /// It is to be made anew.
    given_up: bool,
    #[serde(skip)]
    standstill: Standstill,
}

/// An order for the process at this place.
pub type PlaceOrder = (usize, Order, Vec<OwnedFd>);

/// What some parts need from outside.
#[derive(Default)]
pub struct Outside {
    /// For `link`.
    pub nic: Vec<OwnedFd>,
    /// Likewise, for tools.
    pub capture: Option<OwnedFd>,
    /// For the transports, if there is one.
    pub ports: Option<PortMaps>,
    /// For `store`.
    pub stored: Option<OwnedFd>,
    /// For `filter`.
    pub flows: Option<OwnedFd>,
}

impl Split {
    /// Makes what is between them.
    pub fn new(layout: Layout) -> Result<Split, Failure> {
        Split::over(layout, Lanes::create().map_err(failed)?)
    }

    fn over(layout: Layout, lanes: Lanes) -> Result<Split, Failure> {
        let life = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        let names = Part::ALL.map(|part| (part.name(), Credentials(layout.place(part))));
        Ok(Split {
            registry: Registry::new(names),
            layout,
            lanes,
            board: BoardDescriptors::create("skink-routes").map_err(failed)?,
            life: life.map_err(|error| failed(error.into()))?,
            stages: [Stage::Dead; Part::COUNT],
            next_pool: 1,
            sizes: None,
            flows: [0; Part::COUNT],
            given_up: false,
            standstill: Standstill::default(),
        })
    }

    /// Queues are spoilt: nobody is started before all of this is made anew.
    pub fn give_up(&mut self) {
        self.given_up = true;
    }

    /// Makes the queues anew, once all have ended. Whoever starts is a successor, and finds what `ip` has
    /// published, and what `syscall` had asked for.
    ///
    /// # Errors
    /// As [`Split::new`]; all is as before then.
    pub fn renew(&mut self) -> Result<(), Failure> {
        let lanes = self.lanes.anew().map_err(failed)?;
        let old = std::mem::replace(self, Split::over(self.layout.clone(), lanes)?);
        self.registry = old.registry;
        self.next_pool = old.next_pool;
        self.board = old.board;
        Ok(())
    }

    /// Whether all of this is to be made anew.
    pub fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// `ip` must know what the link takes.
    pub fn can_start(&self, place: usize) -> bool {
        !self.given_up && (!self.needs_sizes(place) || self.sizes.is_some())
    }

    /// Whether it has `ip`, which takes the sizes from a `link` beside it.
    fn needs_sizes(&self, place: usize) -> bool {
        self.layout.hosts(place, Part::Ip) && !self.layout.hosts(place, Part::Link)
    }

    /// The first order of a new process.
    pub fn start(&mut self, place: usize, stack: StackStart) -> PartStart {
        let parts = self.layout.parts(place).to_vec();
        for part in &parts {
            self.registry.begin(part.name());
        }
        let pool = self.next_pool;
        self.next_pool += Part::COUNT.next_power_of_two() as u32;
        PartStart {
            parts,
            stack,
            pool,
            incarnations: Part::ALL.map(|part| self.incarnation(part)),
            link: self.sizes.filter(|_| self.needs_sizes(place)),
        }
    }

    /// Its ends of what it shares with others, in the order of [`PartStart`].
    pub fn ends(
        &self,
        place: usize,
        processes: &[Component],
        outside: Outside,
    ) -> io::Result<Vec<OwnedFd>> {
        let bell = |part| {
            let process = processes.get(self.layout.place(part));
            process.ok_or(io::ErrorKind::NotFound)?.sleeper.doorbell()
        };
        self.ends_with(place, &bell, outside)
    }

    fn ends_with(
        &self,
        place: usize,
        bell: &dyn Fn(Part) -> io::Result<DoorbellDescriptors>,
        mut outside: Outside,
    ) -> io::Result<Vec<OwnedFd>> {
        let (reading, writing) = &self.life;
        let mut all = vec![reading.try_clone()?];
        if self.layout.front().contains(place) {
            all.push(writing.try_clone()?);
        }
        for part in self.layout.parts(place) {
            for other in lanes::neighbours(*part) {
                let end = self.lanes.end(*part, *other, bell(*other)?)?;
                all.extend(end.into_descriptors());
            }
            match part {
                Part::Link => {
                    all.append(&mut outside.nic);
                    all.extend(outside.capture.take());
                }
                Part::Ip => all.push(self.board.writer()?),
                Part::Udp | Part::Tcp => {
                    all.push(self.board.reader()?);
                    if let Some(maps) = &outside.ports {
                        // Nobody reaches the other one's.
                        let own = if *part == Part::Tcp {
                            &maps.tcp
                        } else {
                            &maps.udp
                        };
                        all.push(own.try_clone()?);
                    }
                }
                Part::Store => all.extend(outside.stored.take()),
                Part::Filter => all.extend(outside.flows.take()),
                Part::Syscall => {}
            }
        }
        Ok(all)
    }

    /// `link` has said what its NIC takes.
    pub fn set_sizes(&mut self, sizes: LinkSizes) {
        self.sizes = Some(sizes);
    }

    /// Of the one that runs, or will next.
    fn incarnation(&self, part: Part) -> u32 {
        self.registry.generation(part.name())
    }

    /// A process says that one of its parts has made a pool.
    pub fn set_pool(&mut self, by: usize, part: Part, sizes: PoolSizes, memory: OwnedFd) {
        let pool = Pool { sizes, memory };
        let published = self.registry.publish(part.name(), Credentials(by), pool);
        if let Err(refusal) = published {
            tracing::warn!(
                "process {by} says that {} has a pool: {refusal}",
                part.name()
            );
        }
    }

    /// A process runs. Answers who is to be told what.
    pub fn started(&mut self, place: usize) -> io::Result<Vec<PlaceOrder>> {
        let mut orders = Vec::new();
        let parts = self.layout.parts(place).to_vec();
        for part in &parts {
            self.stages[part.index()] = Stage::Held;
        }
        for other in self.running().iter() {
            for part in &parts {
                // It tells all that it hosts, but nobody of himself.
                if self.layout.parts(other) != [*part] {
                    orders.push(self.introduction(*part, other)?);
                    self.registry.export(part.name(), Credentials(other));
                }
            }
            if other != place {
                for part in self.layout.parts(other) {
                    orders.push(self.introduction(*part, place)?);
                }
            }
        }
        if parts.contains(&Part::Filter) {
            self.flows = [0; Part::COUNT];
            orders.extend(self.want_flows());
        }
        Ok(orders)
    }

    fn introduction(&self, of: Part, to: usize) -> io::Result<PlaceOrder> {
        let reads = |part: &Part| reads(*part, of);
        let offered = self.registry.offer(of.name());
        let pool = offered.filter(|_| self.layout.parts(to).iter().any(reads));
        let memory = pool.map(|pool| pool.memory.try_clone()).transpose()?;
        let order = Order::Neighbour {
            part: of,
            incarnation: self.incarnation(of),
            pool: pool.map(|pool| pool.sizes),
        };
        Ok((to, order, memory.into_iter().collect()))
    }

    /// The processes that have said that they run.
    fn running(&self) -> Places {
        self.layout.hosting(|part| self.runs(part))
    }

    /// The filter has new rules, and must know the connections there are.
    pub fn new_rules(&mut self) -> Vec<PlaceOrder> {
        if !self.runs(Part::Filter) {
            return Vec::new();
        }
        self.stages[Part::Filter.index()] = Stage::Held;
        self.want_flows()
    }

    /// A process with a transport has started and knows its programs: if the filter waits to be told which
    /// connections there are, it is asked too.
    pub fn ask_flows(&mut self, place: usize) -> Option<PlaceOrder> {
        let waits = self.stages[Part::Filter.index()] == Stage::Held;
        if !waits || !self.layout.transports().contains(place) {
            return None;
        }
        self.flows[place] += 1;
        Some((place, Order::ShowFlows {}, Vec::new()))
    }

    fn want_flows(&mut self) -> Vec<PlaceOrder> {
        let asked = self.layout.transports().both(self.running());
        for place in asked.iter() {
            self.flows[place] += 1;
        }
        let orders = asked.iter();
        orders
            .map(|place| (place, Order::ShowFlows {}, Vec::new()))
            .collect()
    }

    /// A process has said once which connections there are.
    pub fn flows_told(&mut self, place: usize) {
        if let Some(flows) = self.flows.get_mut(place) {
            *flows = flows.saturating_sub(1);
        }
    }

    /// A process knows of a part.
    pub fn knows(&mut self, by: usize, part: Part, incarnation: u32) {
        // One that isn't waited for was about a predecessor, or comes from who started before it.
        let _ = self
            .registry
            .attach(part.name(), Credentials(by), incarnation);
    }

    /// A part that may begin to work now, or go on.
    pub fn take_going(&mut self) -> Option<Part> {
        let mut transports = [Part::Tcp, Part::Udp].into_iter();
        // A successor will know what its predecessor did.
        let missing = transports.any(|it| !self.runs(it) && self.incarnation(it) > 1);
        let asked = missing || self.flows.iter().any(|flows| *flows > 0);
        let part = Part::ALL.into_iter().find(|part| {
            let waits = *part == Part::Filter && asked;
            self.stages[part.index()] == Stage::Held
                && self.registry.is_attached(part.name())
                && !waits
        })?;
        self.stages[part.index()] = Stage::Going;
        Some(part)
    }

    /// The process at this place has ended. What was between two of its own parts is made anew.
    pub fn ended(&mut self, place: usize) -> io::Result<()> {
        self.forget(place);
        let only = [place].into_iter().collect();
        self.lanes.renew(&self.layout, only)
    }

    fn forget(&mut self, place: usize) {
        for part in self.layout.parts(place) {
            self.stages[part.index()] = Stage::Dead;
        }
        // Whoever starts before its successor will meet that one first.
        self.registry.on_end(Credentials(place));
        if let Some(flows) = self.flows.get_mut(place) {
            *flows = 0;
        }
        if self.layout.hosts(place, Part::Filter) {
            self.flows = [0; Part::COUNT];
        }
    }

    /// Whether a part runs.
    pub fn runs(&self, part: Part) -> bool {
        self.stages[part.index()] != Stage::Dead
    }

    /// Whether a part works.
    pub fn is_going(&self, part: Part) -> bool {
        self.stages[part.index()] == Stage::Going
    }

    /// Looks whether messages wait that nobody takes, if it is time to. `goes_on` says whether the process at a
    /// place goes through its loop, or sleeps well.
    pub fn stuck(&mut self, now: Instant, goes_on: impl Fn(usize) -> bool) -> Option<Stuck> {
        if self.stages.iter().any(|stage| *stage != Stage::Going) {
            self.standstill.forget();
            return None;
        }
        if !self.standstill.is_due(now) {
            return None;
        }
        let goes_on = |part| goes_on(self.layout.place(part));
        self.standstill.look(now, &self.lanes, goes_on)
    }

    /// How much waits in the queues to the process at this place.
    pub fn waiting(&self, place: usize) -> Vec<QueueInfo> {
        self.lanes.waiting(self.layout.parts(place))
    }
}

/// Whether a part reads what another has in its pool: frames that `link` received, and packets of `ip`'s own. Nobody else
/// is handed that.
fn reads(part: Part, of: Part) -> bool {
    match of {
        Part::Link => matches!(part, Part::Ip | Part::Tcp | Part::Udp),
        Part::Ip => matches!(part, Part::Link | Part::Tcp | Part::Udp),
        Part::Filter | Part::Udp | Part::Tcp | Part::Syscall | Part::Store => false,
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::own(format!(
        "no shared memory can be made: {error}; is /proc mounted?"
    ))
}

#[cfg(test)]
mod tests;
