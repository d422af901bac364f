//! Which socket of the program each socket of the stack belongs to, and what has happened to it for
//! good.
use skink_memory::SocketId;
use skink_messages::Events;

const NOBODY: u32 = u32::MAX;
/// A generation that is larger by up to this is newer: they wrap.
const NEWER: u32 = u32::MAX / 2;

/// Whose a slot of a table is, and what has happened to it.
#[derive(Clone, Copy)]
struct Slot {
    generation: u32,
    owner: u32,
    /// What is for good: `READ_CLOSED`, `CLOSED`, `ERROR`.
    lasting: Events,
}

const FREE: Slot = Slot {
    generation: 0,
    owner: NOBODY,
    lasting: Events::empty(),
};

impl Slot {
    /// Of a socket of which nothing is known.
    fn of(id: SocketId) -> Slot {
        Slot {
            generation: id.generation,
            ..FREE
        }
    }
}

/// What is known of the sockets of one table, region by region: most of a large table's regions are
/// other programs'.
pub struct Slots {
    /// Logarithm of the table's stride.
    shift: u32,
    regions: Vec<(u32, Vec<Slot>)>,
}

impl Slots {
    /// For a table of this stride, a power of two.
    pub fn new(stride: u32) -> Slots {
        Slots {
            shift: stride.trailing_zeros(),
            regions: Vec::new(),
        }
    }

    /// The slot of `id`, whosever it is.
    fn place(&mut self, id: SocketId) -> &mut Slot {
        let number = id.slot >> self.shift;
        let place = self
            .regions
            .iter()
            .position(|(region, _)| *region == number);
        let place = place.unwrap_or_else(|| {
            self.regions.push((number, Vec::new()));
            self.regions.len() - 1
        });
        let slots = &mut self.regions[place].1;
        let index = (id.slot & ((1 << self.shift) - 1)) as usize;
        if index >= slots.len() {
            slots.resize(index + 1, FREE);
        }
        &mut slots[index]
    }

    /// The slot of `id`, begun anew if it was an older socket's; `None` if it is a newer one's by now: what
    /// the stack has said of a socket may be heard after the end of it.
    fn slot(&mut self, id: SocketId) -> Option<&mut Slot> {
        let slot = self.place(id);
        match id.generation.wrapping_sub(slot.generation) {
            0 => {}
            1..=NEWER => *slot = Slot::of(id),
            _ => return None,
        }
        Some(slot)
    }

    /// Events of `id` concern socket `owner` from now on. Answers what lasts so far, to which `found`
    /// is added.
    pub fn own(&mut self, id: SocketId, owner: u32, found: Events) -> Events {
        let slot = self.place(id);
        if slot.generation != id.generation {
            *slot = Slot::of(id);
        }
        slot.owner = owner;
        slot.lasting |= lasting(found);
        slot.lasting
    }

    /// Nobody is interested in `id` any more.
    pub fn disown(&mut self, id: SocketId) {
        if let Some(slot) = self.slot(id) {
            slot.owner = NOBODY;
        }
    }

    /// Something happened to `id`: whom it concerns.
    pub fn note(&mut self, id: SocketId, events: Events) -> Option<u32> {
        let slot = self.slot(id)?;
        slot.lasting |= lasting(events);
        (slot.owner != NOBODY).then_some(slot.owner)
    }

    /// Forgets what happened in regions that `keep` doesn't want: others may come under their numbers.
    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.regions.retain(|(region, _)| keep(*region));
    }

    /// What has happened to `id` for good.
    #[inline]
    pub fn lasting(&self, id: SocketId) -> Events {
        let number = id.slot >> self.shift;
        let index = (id.slot & ((1 << self.shift) - 1)) as usize;
        let mut regions = self.regions.iter();
        let slot = regions
            .find(|(region, _)| *region == number)
            .and_then(|(_, slots)| slots.get(index));
        slot.filter(|slot| slot.generation == id.generation)
            .map_or(Events::empty(), |slot| slot.lasting)
    }

    /// `events` happen to every socket that somebody is interested in; answers to whose.
    pub fn strike(&mut self, events: Events) -> Vec<u32> {
        let mut struck = Vec::new();
        for slot in self.regions.iter_mut().flat_map(|(_, slots)| slots) {
            if slot.owner != NOBODY {
                slot.lasting |= lasting(events);
                struck.push(slot.owner);
            }
        }
        struck
    }
}

/// What lasts of an event.
fn lasting(events: Events) -> Events {
    events & (Events::READ_CLOSED | Events::CLOSED | Events::ERROR)
}

#[cfg(test)]
mod tests;
