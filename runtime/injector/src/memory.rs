//! Faults in a process's own memory.
use crate::class::Class;
use crate::error::InjectError;
use crate::maps::{self, Mapping};
use crate::random::Random;
use crate::trace::Subject;
use std::ops::Range;

/// Draws until a word is taken that isn't in use, as it seems.
const DRAWS: usize = 256;
/// Of a word, in bytes.
const WORD: u64 = 8;

/// What was done.
pub(crate) struct Spoilt {
    pub(crate) place: String,
    pub(crate) what: String,
}

/// Overwrites a word of the heap or of the stack of a stopped process. Words that are zero are mostly not in
/// use: others are preferred.
pub(crate) fn spoil(
    subject: &Subject,
    class: Class,
    random: &mut Random,
) -> Result<Spoilt, InjectError> {
    let pid = subject.id();
    let failed = |error| InjectError::Trace("have its memory looked at", pid, error);
    let maps = maps::read(pid).map_err(failed)?;
    let stack_pointer = subject.stack_pointer()?.unwrap_or(0);
    let regions = match class {
        Class::Stack => stack(&maps, stack_pointer),
        _ => heap(&maps),
    };
    let total: u64 = regions.iter().map(|(range, _)| words(range)).sum();
    let mut drawn = None;
    for _ in 0..DRAWS {
        let mut at = random.draw() % total.max(1);
        let region = regions.iter().find(|(range, _)| {
            let here = at < words(range);
            if !here {
                at -= words(range);
            }
            here
        });
        let Some((range, name)) = region else { break };
        let address = range.start.next_multiple_of(WORD) + at * WORD;
        let mut word = [0; WORD as usize];
        if !subject.read(address, &mut word) {
            continue;
        }
        let old = u64::from_le_bytes(word);
        drawn = Some((address, name.clone(), old));
        if old != 0 {
            break;
        }
    }
    let missing = || failed(std::io::Error::other("it has no memory of its own"));
    let (address, place, old) = drawn.ok_or_else(missing)?;
    let new = random.draw();
    subject.write(address, &new.to_le_bytes())?;
    let what = format!("{class}: the word at {address:#x} in {place}, {old:#x}, became {new:#x}");
    Ok(Spoilt { place, what })
}

fn words(range: &Range<u64>) -> u64 {
    let start = range.start.next_multiple_of(WORD);
    range.end.saturating_sub(start) / WORD
}

type Region = (Range<u64>, String);

/// Private writable memory other than the stack. Shared memory is others' too.
fn heap(maps: &[Mapping]) -> Vec<Region> {
    let own = maps
        .iter()
        .filter(|it| it.writable && it.private && !it.executable && it.path != "[stack]");
    own.map(|it| {
        let name = match it.path.as_str() {
            "" => "anonymous memory",
            path => path,
        };
        (it.range.clone(), name.to_owned())
    })
    .collect()
}

/// What of the stack is in use.
fn stack(maps: &[Mapping], stack_pointer: u64) -> Vec<Region> {
    let stack = maps
        .iter()
        .find(|it| it.writable && it.range.contains(&stack_pointer));
    let used = stack.map(|it| (stack_pointer..it.range.end, "the stack".to_owned()));
    used.into_iter().collect()
}

#[cfg(test)]
mod tests;
