use crate::random::mix;

/// The bytes that one direction of a connection carries: a name of eight bytes, by which the other
/// end knows what to expect, then a pseudo-random sequence. Every byte follows from its position, so
/// a reader finds the first byte that is lost, doubled or changed.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    name: u64,
    seed: u64,
}

/// Length of the name at the beginning.
pub const NAME_BYTES: u64 = 8;

impl Pattern {
    /// The sequence called `name` of a run.
    pub fn new(run: u64, name: u64) -> Pattern {
        let seed = mix(run ^ mix(name));
        Pattern { name, seed }
    }

    /// The byte at `position`.
    pub fn byte(&self, position: u64) -> u8 {
        if position < NAME_BYTES {
            return self.name.to_le_bytes()[position as usize];
        }
        let word = mix(self.seed.wrapping_add(position / 8));
        word.to_le_bytes()[(position % 8) as usize]
    }

    /// Writes the bytes from `position` on to all of `to`.
    pub fn fill(&self, position: u64, to: &mut [u8]) {
        for (offset, byte) in to.iter_mut().enumerate() {
            *byte = self.byte(position + offset as u64);
        }
    }

    /// The position of the first byte of `bytes`, read from `position` on, that is wrong.
    pub fn first_difference(&self, position: u64, bytes: &[u8]) -> Option<u64> {
        let positions = position..;
        positions
            .zip(bytes)
            .find(|(position, byte)| self.byte(*position) != **byte)
            .map(|(position, _)| position)
    }
}
