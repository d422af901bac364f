//! Where a successor goes on in a receive ring.
//!
//! The kernel doesn't tell where it goes on to write, and a ring that is empty or full looks the same
//! wherever that is. So the consumer marks each slot that it gives back with a number that rises: the
//! one with the latest is the one that it emptied last. The number is in a field of the slot's header
//! that the kernel sets to 0 when it fills the slot (`tp_padding` in `tpacket_rcv`).

/// What a slot says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    /// The kernel has handed it over.
    pub(super) filled: bool,
    /// The number that a consumer left, or 0.
    pub(super) mark: u32,
    /// When its frame arrived, in seconds and nanoseconds.
    pub(super) arrived: (u32, u32),
}

/// Where a successor goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    /// The slot that is next, counted from the first.
    pub(super) next: usize,
    /// The mark that it leaves next.
    pub(super) mark: u32,
    /// This slot's frame was seen, but the slot wasn't given back.
    pub(super) seen: Option<usize>,
}

/// The mark after `mark`. Never 0, which says that there is none.
pub(super) fn after(mark: u32) -> u32 {
    mark.wrapping_add(1).max(1)
}

/// Finds where to go on in a ring of these slots, of which there is at least one.
pub(super) fn find(slots: &[Seen]) -> Position {
    let following = |slot: usize| if slot + 1 < slots.len() { slot + 1 } else { 0 };
    let marked = slots.iter().enumerate().filter(|(_, slot)| slot.mark != 0);
    // Marks wrap, but those in a ring are close together.
    let last = marked.reduce(|last, other| {
        match other.1.mark.wrapping_sub(last.1.mark).cast_signed() > 0 {
            true => other,
            false => last,
        }
    });
    if let Some((slot, seen)) = last {
        return Position {
            next: following(slot),
            mark: after(seen.mark),
            seen: seen.filled.then_some(slot),
        };
    }
    // Nothing was ever taken out: frames begin in the first slot. Or all were filled since, but for
    // those that the kernel is filling: they are the newest, and what follows is the oldest.
    let next = match slots.iter().rposition(|slot| !slot.filled) {
        Some(slot) => following(slot),
        None => oldest(slots),
    };
    Position {
        next,
        mark: 1,
        seen: None,
    }
}

/// In a full ring the oldest frame comes after the newest. On several processors frames may be stamped
/// in another order than they are stored in, and clocks are set: so the largest step back counts.
fn oldest(slots: &[Seen]) -> usize {
    let nanoseconds =
        |slot: &Seen| i64::from(slot.arrived.0) * 1_000_000_000 + i64::from(slot.arrived.1);
    let before = slots.iter().cycle().skip(slots.len().saturating_sub(1));
    let steps = before
        .zip(slots)
        .map(|(before, slot)| nanoseconds(slot) - nanoseconds(before));
    let least = steps.enumerate().min_by_key(|(_, step)| *step);
    least.map_or(0, |(slot, _)| slot)
}

#[cfg(test)]
mod tests;
