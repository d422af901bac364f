//! The mutator: what a fault makes of a function.
use crate::class::Class;
use crate::code::{Code, Landmarks, Listing, disassemble};
use crate::edits::{self, Counter, Edit};
use crate::random::Random;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What a fault does to a function when the instruction is reached.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Mutation {
    /// Which fault it is; never [`Class::Random`].
    pub class: Class,
    /// Of the instruction, in the function, in bytes.
    pub offset: usize,
    /// The instruction before.
    pub before: String,
    /// What is executed instead.
    pub after: String,
    /// What was done, as a sentence.
    pub what: String,
    /// How to do it.
    pub change: Change,
}

/// How a fault is made.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Bytes of the function, from `offset` on, become these.
    Bytes {
        /// In the function.
        offset: usize,
        /// Never none.
        bytes: Vec<u8>,
    },
    /// A register is too large when the instruction is reached, once.
    Overrun {
        /// Which.
        register: Counter,
        /// By how much: bytes, or whatever the instruction counts.
        by: u64,
    },
}

impl Mutation {
    /// The bytes of the function that are written.
    pub fn range(&self) -> Range<usize> {
        match &self.change {
            Change::Bytes { offset, bytes } => *offset..offset + bytes.len(),
            Change::Overrun { .. } => self.offset..self.offset,
        }
    }

    /// The function's bytes with the fault in them.
    pub fn apply(&self, code: &Code) -> Vec<u8> {
        let mut all = code.bytes.clone();
        if let Change::Bytes { bytes, .. } = &self.change
            && let Some(old) = all.get_mut(self.range())
        {
            old.copy_from_slice(bytes);
        }
        all
    }
}

/// Where the instructions of a function begin, in bytes from its start.
pub fn boundaries(code: &Code) -> Vec<usize> {
    let listing = Listing::new(code);
    listing.items.iter().map(|item| item.offset).collect()
}

/// Where instructions begin that fit a class.
pub fn candidates(code: &Code, landmarks: &Landmarks, class: Class) -> Vec<usize> {
    let listing = Listing::new(code);
    let items = listing.items.iter().enumerate();
    items
        .filter(|(at, _)| !edits::edits(&listing, *at, landmarks, class).is_empty())
        .map(|(_, item)| item.offset)
        .collect()
}

/// A fault of a class in the instruction that begins at `offset`; `None` if none fits it. The same seed
/// makes the same fault.
pub fn mutate(
    code: &Code,
    landmarks: &Landmarks,
    offset: usize,
    class: Class,
    seed: u64,
) -> Option<Mutation> {
    let mut random = Random::new(seed);
    let listing = Listing::new(code);
    let at = listing.find(offset)?;
    let class = match class {
        Class::Random => {
            let fits = |class: &Class| !edits::edits(&listing, at, landmarks, *class).is_empty();
            let classes: Vec<Class> = Class::CODE.iter().copied().filter(fits).collect();
            *random.pick(&classes)?
        }
        class => class,
    };
    let edits = edits::edits(&listing, at, landmarks, class);
    let edit = random.pick(&edits)?.clone();
    let item = listing.items.get(at)?;
    let bytes = listing.bytes(item);
    let address = item.instruction.ip();
    let before = disassemble(bytes, address, bytes.len());
    let (change, done) = change(edit, code, offset, bytes, &mut random)?;
    let mut mutation = Mutation {
        class,
        offset,
        what: format!("{class}: {done} of `{before}`"),
        after: before.clone(),
        before,
        change,
    };
    if let Change::Bytes { .. } = mutation.change {
        let after = mutation.apply(code);
        let length = mutation.range().end.saturating_sub(offset);
        mutation.after = disassemble(after.get(offset..)?, address, length.max(bytes.len()));
    }
    Some(mutation)
}

/// The change that an edit is, and what it does, to go before "of" and the instruction.
fn change(
    edit: Edit,
    code: &Code,
    offset: usize,
    old: &[u8],
    random: &mut Random,
) -> Option<(Change, String)> {
    match edit {
        Edit::Bit(bit) => {
            let offset = offset + bit / 8;
            let bytes = vec![*code.bytes.get(offset)? ^ (1 << (bit % 8))];
            let done = format!("flipped bit {} in byte {}", bit % 8, bit / 8);
            Some((Change::Bytes { offset, bytes }, done))
        }
        Edit::Bytes(bytes) => {
            let pairs = old.iter().zip(&bytes);
            let changed = pairs.filter(|(old, new)| old != new).count();
            let done = format!("rewrote {changed} of {} bytes", old.len());
            Some((Change::Bytes { offset, bytes }, done))
        }
        Edit::Overrun(register) => {
            let by = overrun(random);
            let name = match register {
                Counter::Rdx => "rdx",
                Counter::Rcx => "rcx",
            };
            let done = format!("made {name} too large by {by} before one execution");
            Some((Change::Overrun { register, by }, done))
        }
    }
}

/// As Rio did: mostly one too many, often up to 1,024, seldom half a page or a whole one.
fn overrun(random: &mut Random) -> u64 {
    match random.below(100) {
        0..50 => 1,
        50..94 => 2 + random.below(1_023) as u64,
        _ => 2_048 + random.below(2_049) as u64,
    }
}

#[cfg(test)]
mod tests;
