//! What the processes of topology `split` share, and what each knows of the others.
use super::component::Component;
use crate::failure::Failure;
use rustix::pipe::PipeFlags;
use skink_channel::DoorbellDescriptors;
use skink_control::{LinkSizes, Order, Part, PartStart, PoolSizes, StackStart};
use skink_packets::board::BoardDescriptors;
use skink_packets::{
    AttachParts, FromLink, FromTransport, Lane, Question, ToLink, ToTransport, Verdicts,
};
use std::io;
use std::os::fd::OwnedFd;

/// How far a part's process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// There is none, or it hasn't said yet that it runs.
    Dead,
    /// It runs, and its neighbours are told of it.
    Held,
    /// It works.
    Going,
}

/// Everything between the parts. Arrays are by [`Part::index`].
pub struct Split {
    /// By the process's place.
    parts: [Part; 4],
    link: Lane,
    filter: Lane,
    tcp: Lane,
    udp: Lane,
    board: BoardDescriptors,
    /// Held open here and by the transports: the others go on until both are gone.
    life: (OwnedFd, OwnedFd),
    incarnations: [u32; 4],
    launched: [bool; 4],
    stages: [Stage; 4],
    pools: [Option<(PoolSizes, OwnedFd)>; 4],
    /// Bits of those who must still say that they know of it.
    unknown_to: [u8; 4],
    next_pool: u32,
    sizes: Option<LinkSizes>,
    /// How often the transports must still say which connections there are.
    flows: u32,
    /// It is to be made anew.
    given_up: bool,
}

/// An order for a part.
pub type PartOrder = (Part, Order, Vec<OwnedFd>);

impl Split {
    /// Makes what is between them.
    pub fn new(parts: [Part; 4]) -> Result<Split, Failure> {
        let failed = |error: io::Error| {
            Failure::own(format!(
                "no shared memory can be made: {error}; is /proc mounted?"
            ))
        };
        let life = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        Ok(Split {
            parts,
            link: Lane::create::<ToLink, FromLink>("skink-link-ip").map_err(failed)?,
            filter: Lane::create::<Question, Verdicts>("skink-ip-filter").map_err(failed)?,
            tcp: Lane::create::<FromTransport, ToTransport>("skink-ip-tcp").map_err(failed)?,
            udp: Lane::create::<FromTransport, ToTransport>("skink-ip-udp").map_err(failed)?,
            board: BoardDescriptors::create("skink-network").map_err(failed)?,
            life: life.map_err(|error| failed(error.into()))?,
            incarnations: [1; 4],
            launched: [false; 4],
            stages: [Stage::Dead; 4],
            pools: [None, None, None, None],
            unknown_to: [0; 4],
            next_pool: 1,
            sizes: None,
            flows: 0,
            given_up: false,
        })
    }

    /// What the process at this place hosts.
    pub fn part(&self, place: usize) -> Part {
        self.parts.get(place).copied().unwrap_or(Part::Transport)
    }

    /// Where a part's process is.
    pub fn place(&self, part: Part) -> usize {
        let place = self.parts.iter().position(|other| *other == part);
        place.unwrap_or_default()
    }

    /// What the processes host, by their places.
    pub fn parts(&self) -> [Part; 4] {
        self.parts
    }

    /// Queues are spoilt: nobody is started before all of this is made anew.
    pub fn give_up(&mut self) {
        self.given_up = true;
    }

    /// Whether all of this is to be made anew.
    pub fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// `ip` must know what the link takes.
    pub fn can_start(&self, place: usize) -> bool {
        !self.given_up && (self.part(place) != Part::Ip || self.sizes.is_some())
    }

    /// The first order of a new process.
    pub fn start(&mut self, place: usize, stack: StackStart) -> PartStart {
        let part = self.part(place);
        let index = part.index();
        if std::mem::replace(&mut self.launched[index], true) {
            self.incarnations[index] += 1;
        }
        let pool = self.next_pool;
        self.next_pool += 1;
        PartStart {
            part,
            stack,
            pool,
            incarnations: self.incarnations,
            link: self.sizes,
        }
    }

    /// Its ends of what it shares with others.
    pub fn ends(&self, place: usize, processes: &[Component]) -> io::Result<Vec<OwnedFd>> {
        let bell = |part: Part| -> io::Result<DoorbellDescriptors> {
            let process = processes.get(self.place(part));
            let process = process.ok_or(io::ErrorKind::NotFound)?;
            process.sleeper.doorbell()
        };
        let lower = |lane: &Lane, upper| lane.lower(1, 1, bell(upper)?);
        let upper = |lane: &Lane, lower| lane.upper(1, 1, bell(lower)?);
        // Incarnations travel in the order.
        let add = |all: &mut Vec<OwnedFd>, parts: AttachParts| all.extend(parts.into_descriptors());
        let part = self.part(place);
        let (reading, writing) = &self.life;
        let mut all = vec![match part {
            Part::Transport => writing.try_clone()?,
            Part::Link | Part::Ip | Part::Filter => reading.try_clone()?,
        }];
        match part {
            Part::Link => add(&mut all, lower(&self.link, Part::Ip)?),
            Part::Filter => add(&mut all, lower(&self.filter, Part::Ip)?),
            Part::Ip => {
                add(&mut all, upper(&self.link, Part::Link)?);
                add(&mut all, lower(&self.tcp, Part::Transport)?);
                add(&mut all, lower(&self.udp, Part::Transport)?);
                add(&mut all, upper(&self.filter, Part::Filter)?);
                all.push(self.board.writer()?);
            }
            Part::Transport => {
                add(&mut all, upper(&self.tcp, Part::Ip)?);
                add(&mut all, upper(&self.udp, Part::Ip)?);
                all.extend([self.board.reader()?, self.board.reader()?]);
            }
        }
        Ok(all)
    }

    /// `link` has said what its NIC takes.
    pub fn set_sizes(&mut self, sizes: LinkSizes) {
        self.sizes = Some(sizes);
    }

    /// A part has made a pool.
    pub fn set_pool(&mut self, part: Part, sizes: PoolSizes, memory: OwnedFd) {
        self.pools[part.index()] = Some((sizes, memory));
    }

    /// A part runs. Answers who is to be told what.
    pub fn started(&mut self, part: Part) -> io::Result<Vec<PartOrder>> {
        self.stages[part.index()] = Stage::Held;
        self.unknown_to[part.index()] = 0;
        let mut orders = Vec::new();
        for other in Part::ALL {
            if other == part || !self.runs(other) {
                continue;
            }
            orders.push(self.introduction(part, other)?);
            orders.push(self.introduction(other, part)?);
            self.unknown_to[part.index()] |= 1 << other.index();
        }
        if part == Part::Filter {
            self.flows = 0;
            orders.extend(self.want_flows());
        }
        Ok(orders)
    }

    fn introduction(&self, of: Part, to: Part) -> io::Result<PartOrder> {
        let pool = self.pools[of.index()].as_ref();
        let memory = pool.map(|(_, memory)| memory.try_clone()).transpose()?;
        let order = Order::Neighbour {
            part: of,
            incarnation: self.incarnations[of.index()],
            pool: pool.map(|(sizes, _)| *sizes),
        };
        Ok((to, order, memory.into_iter().collect()))
    }

    /// The filter has new rules, and must know the connections there are.
    pub fn new_rules(&mut self) -> Option<PartOrder> {
        if !self.runs(Part::Filter) {
            return None;
        }
        self.stages[Part::Filter.index()] = Stage::Held;
        self.want_flows()
    }

    fn want_flows(&mut self) -> Option<PartOrder> {
        self.runs(Part::Transport).then(|| {
            self.flows += 1;
            (Part::Transport, Order::ShowFlows {}, Vec::new())
        })
    }

    /// The transports have said once which connections there are.
    pub fn flows_told(&mut self) {
        self.flows = self.flows.saturating_sub(1);
    }

    /// A part knows of another.
    pub fn knows(&mut self, by: Part, part: Part, incarnation: u32) {
        if self.incarnations[part.index()] == incarnation {
            self.unknown_to[part.index()] &= !(1 << by.index());
        }
    }

    /// A part that may begin to work now, or go on.
    pub fn take_going(&mut self) -> Option<Part> {
        let part = Part::ALL.into_iter().find(|part| {
            let waits = *part == Part::Filter && self.flows > 0;
            self.stages[part.index()] == Stage::Held && self.unknown_to[part.index()] == 0 && !waits
        })?;
        self.stages[part.index()] = Stage::Going;
        Some(part)
    }

    /// The process at this place has ended.
    pub fn ended(&mut self, place: usize) {
        let part = self.part(place);
        self.stages[part.index()] = Stage::Dead;
        self.pools[part.index()] = None;
        for bits in &mut self.unknown_to {
            *bits &= !(1 << part.index());
        }
        if matches!(part, Part::Transport | Part::Filter) {
            self.flows = 0;
        }
    }

    /// Whether a part's process runs.
    pub fn runs(&self, part: Part) -> bool {
        self.stages[part.index()] != Stage::Dead
    }

    /// Whether a part works.
    pub fn is_going(&self, part: Part) -> bool {
        self.stages[part.index()] == Stage::Going
    }
}

#[cfg(test)]
mod tests;
