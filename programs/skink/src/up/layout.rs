//! Which process hosts what.
use serde::{Deserialize, Serialize};
use skink_control::Part;
use skink_sockets::{Routes, ServedBy};

/// Processes, by their places in the topology.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Places(u32);

impl Places {
    /// Adds one.
    pub fn insert(&mut self, place: usize) {
        self.0 |= bit(place);
    }

    /// Takes one away; whether it was there.
    pub fn remove(&mut self, place: usize) -> bool {
        let had = self.contains(place);
        self.0 &= !bit(place);
        had
    }

    /// Whether it is there.
    pub fn contains(self, place: usize) -> bool {
        self.0 & bit(place) != 0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that are in both.
    pub fn both(self, other: Places) -> Places {
        Places(self.0 & other.0)
    }

    /// All of them, from the first on.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..32).filter(move |place| self.contains(*place))
    }
}

/// There are no more processes than parts; a place beyond them is none.
fn bit(place: usize) -> u32 {
    u32::try_from(place).map_or(0, |place| 1u32.checked_shl(place).unwrap_or(0))
}

impl FromIterator<usize> for Places {
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Places {
        let mut all = Places::default();
        places.into_iter().for_each(|place| all.insert(place));
        all
    }
}

/// What each process hosts, by its place; each part is in exactly one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Layout(Vec<Vec<Part>>);

impl Layout {
    /// Of these processes.
    pub fn new(mut processes: Vec<Vec<Part>>) -> Layout {
        for parts in &mut processes {
            parts.sort_by_key(|part| part.index());
        }
        Layout(processes)
    }

    /// Whether all is in one process.
    pub fn is_whole(&self) -> bool {
        self.0.len() == 1
    }

    /// What the process at this place hosts, from the wire up.
    pub fn parts(&self, place: usize) -> &[Part] {
        self.0.get(place).map_or(&[], Vec::as_slice)
    }

    /// Where a part is.
    pub fn place(&self, part: Part) -> usize {
        let place = self.0.iter().position(|parts| parts.contains(&part));
        place.unwrap_or_default()
    }

    /// Whether the process at this place hosts a part.
    pub fn hosts(&self, place: usize, part: Part) -> bool {
        self.parts(place).contains(&part)
    }

    /// The processes that host one of these parts at least.
    pub fn hosting(&self, wanted: impl Fn(Part) -> bool) -> Places {
        let all = self.0.iter().enumerate();
        let those = all.filter(|(_, parts)| parts.iter().any(|part| wanted(*part)));
        those.map(|(place, _)| place).collect()
    }

    /// Those that programs have a channel to.
    pub fn front(&self) -> Places {
        self.hosting(Part::serves_programs)
    }

    /// Those that have sockets.
    pub fn transports(&self) -> Places {
        self.hosting(|part| matches!(part, Part::Tcp | Part::Udp))
    }

    /// Those that read what programs send where it lies.
    pub fn readers(&self) -> Places {
        self.hosting(|part| matches!(part, Part::Link | Part::Ip))
    }

    /// In which order they stop, so that the last packets still leave: who has connections, who sends for them, who is
    /// asked for that, and who has the NIC. Where connections share a process with one of the later, what its neighbours
    /// have to do for them then is lost.
    pub fn stopping_order(&self) -> [Places; 4] {
        let mut order = [Places::default(); 4];
        for place in 0..self.0.len() {
            let turn = match place {
                _ if self.hosts(place, Part::Tcp) => 0,
                _ if self.hosts(place, Part::Link) => 3,
                _ if self.front().contains(place) => 0,
                _ if self.hosts(place, Part::Ip) => 1,
                _ => 2,
            };
            order[turn].insert(place);
        }
        order
    }

    /// Which of a program's channels leads where.
    pub fn routes(&self) -> Routes {
        Routes::to_hosts(&ServedBy::ALL.map(|part| self.place(served(part))))
    }

    /// The processes of [`Layout::front`], by a program's channel.
    pub fn channels(&self) -> Vec<usize> {
        let routes = self.routes();
        let parts = (0..routes.channels()).filter_map(|channel| routes.parts(channel).next());
        parts.map(|part| self.place(served(part))).collect()
    }
}

fn served(part: ServedBy) -> Part {
    match part {
        ServedBy::Syscall => Part::Syscall,
        ServedBy::Tcp => Part::Tcp,
        ServedBy::Udp => Part::Udp,
    }
}

#[cfg(test)]
mod tests;
