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

    /// The eight bytes of which the byte at `position` is one.
    fn word(&self, position: u64) -> [u8; 8] {
        let word = match position / NAME_BYTES {
            0 => self.name,
            number => mix(self.seed.wrapping_add(number)),
        };
        word.to_le_bytes()
    }

    /// Writes the bytes from `position` on to all of `to`.
    pub fn fill(&self, position: u64, to: &mut [u8]) {
        let into = (position % NAME_BYTES) as usize;
        let begun = &self.word(position)[into..];
        let (first, rest) = to.split_at_mut(begun.len().min(to.len()));
        first.copy_from_slice(&begun[..first.len()]);
        let starts = (position + begun.len() as u64..).step_by(NAME_BYTES as usize);
        let (words, last) = rest.as_chunks_mut();
        let mut starts = starts.map(|start| self.word(start));
        words
            .iter_mut()
            .zip(&mut starts)
            .for_each(|(to, word)| *to = word);
        if let Some(word) = starts.next() {
            last.copy_from_slice(&word[..last.len()]);
        }
    }

    /// The position of the first byte of `bytes`, read from `position` on, that is wrong.
    pub fn first_difference(&self, position: u64, bytes: &[u8]) -> Option<u64> {
        let mut right = [0; 1_024];
        let mut start = position;
        for bytes in bytes.chunks(right.len()) {
            let right = &mut right[..bytes.len()];
            self.fill(start, right);
            if bytes != right {
                let same = bytes
                    .iter()
                    .zip(right)
                    .take_while(|(one, other)| one == other);
                return Some(start + same.count() as u64);
            }
            start += bytes.len() as u64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole or in pieces, it is the same sequence, and each byte of it is missed.
    #[test]
    fn every_byte_follows_from_its_position() {
        let pattern = Pattern::new(1, 7);
        let mut whole = [0; 3_000];
        pattern.fill(0, &mut whole);
        assert_eq!(whole[..8], 7u64.to_le_bytes());
        for (start, length) in [(0, 3), (1, 6), (3, 5), (5, 20), (8, 8), (13, 2_000), (9, 0)] {
            let mut piece = vec![0; length];
            pattern.fill(start as u64, &mut piece);
            assert_eq!(piece, whole[start..start + length]);
            assert_eq!(pattern.first_difference(start as u64, &piece), None);
            for wrong in 0..length {
                let mut piece = piece.clone();
                piece[wrong] ^= 1;
                let found = pattern.first_difference(start as u64, &piece);
                assert_eq!(found, Some((start + wrong) as u64));
            }
        }
    }
}
