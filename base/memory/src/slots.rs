/// Which slots of a table are free: last given back, first taken, so that a slot's memory is
/// touched again while it is still warm. Private to the owner of the table; an owner that adopts a
/// table claims the slots in use.
#[derive(Clone, Debug)]
pub struct Slots {
    /// One bit for each slot below `fresh`: whether it is taken.
    taken: Vec<u64>,
    /// Slots below `fresh` that were given back.
    free: Vec<u32>,
    /// The lowest slot that was never taken; all above are free too.
    fresh: u32,
    count: u32,
}

impl Slots {
    /// `count` slots, all free.
    pub fn new(count: u32) -> Slots {
        Slots {
            taken: Vec::new(),
            free: Vec::new(),
            fresh: 0,
            count,
        }
    }

    /// Takes a free slot, or `None` if there is none.
    pub fn take(&mut self) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.fresh < self.count => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return None,
        };
        self.mark(slot, true);
        Some(slot)
    }

    /// Gives `slot` back. A slot that isn't taken is ignored, so that none is ever given out twice.
    pub fn give(&mut self, slot: u32) {
        if self.is_taken(slot) {
            self.mark(slot, false);
            self.free.push(slot);
        }
    }

    /// Takes this very slot, when a table is adopted; `false` if it is taken already or doesn't
    /// exist. Constant time if slots are claimed in ascending order.
    pub fn claim(&mut self, slot: u32) -> bool {
        if slot >= self.count || self.is_taken(slot) {
            return false;
        }
        if slot >= self.fresh {
            self.free.extend(self.fresh..slot);
            self.fresh = slot + 1;
        } else if let Some(at) = self.free.iter().position(|free| *free == slot) {
            self.free.remove(at);
        }
        self.mark(slot, true);
        true
    }

    /// Whether `slot` is taken.
    pub fn is_taken(&self, slot: u32) -> bool {
        let word = self.taken.get(slot as usize / 64).copied().unwrap_or(0);
        word >> (slot % 64) & 1 != 0
    }

    fn mark(&mut self, slot: u32, taken: bool) {
        let index = slot as usize / 64;
        if index >= self.taken.len() {
            self.taken.resize(index + 1, 0);
        }
        let bit = 1 << (slot % 64);
        if taken {
            self.taken[index] |= bit;
        } else {
            self.taken[index] &= !bit;
        }
    }
}

#[cfg(test)]
mod tests;
