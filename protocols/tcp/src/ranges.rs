use skink_wire::SeqNum;

/// Disjoint, ascending ranges of sequence numbers, none touching another.
///
/// A receiver keeps here what arrived ahead of a gap, a sender what was selectively acknowledged. All
/// numbers must lie within 2^31 of each other, as anything within one window does. Memory is taken
/// with the first range, and kept.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    list: Vec<(SeqNum, SeqNum)>,
}

/// More ranges than this are not remembered: a bound on a hostile peer.
const LIMIT: usize = 128;

impl Ranges {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn clear(&mut self) {
        self.list.clear();
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (SeqNum, SeqNum)> + '_ {
        self.list.iter().copied()
    }

    /// Adds `start..end`; `false` if there is no room for one more range.
    pub fn insert(&mut self, start: SeqNum, end: SeqNum) -> bool {
        if start.ge(end) {
            return true;
        }
        // New data mostly belongs to the last range or comes after it.
        let before = self
            .list
            .iter()
            .rposition(|range| range.1.lt(start))
            .map_or(0, |index| index + 1);
        let touched = self.list[before..]
            .iter()
            .take_while(|range| range.0.le(end))
            .count();
        if touched == 0 {
            if self.list.len() >= LIMIT {
                return false;
            }
            self.list.insert(before, (start, end));
            return true;
        }
        let last = self.list[before + touched - 1];
        let first = &mut self.list[before];
        *first = (first.0.min(start), last.1.max(end));
        self.list.drain(before + 1..before + touched);
        true
    }

    /// Forgets everything below `bound`.
    pub fn remove_below(&mut self, bound: SeqNum) {
        let gone = self
            .list
            .iter()
            .take_while(|range| range.1.le(bound))
            .count();
        self.list.drain(..gone);
        if let Some(first) = self.list.first_mut() {
            first.0 = first.0.max(bound);
        }
    }

    /// Forgets the ranges that lie within `start..end`.
    pub fn remove_within(&mut self, start: SeqNum, end: SeqNum) {
        self.list
            .retain(|range| range.0.lt(start) || range.1.gt(end));
    }

    /// The range that holds `at`.
    pub fn around(&self, at: SeqNum) -> Option<(SeqNum, SeqNum)> {
        self.iter().find(|range| range.0.le(at) && at.lt(range.1))
    }

    /// Bytes in ranges between `from` and `to`.
    pub fn bytes_between(&self, from: SeqNum, to: SeqNum) -> u32 {
        self.iter()
            .map(|(start, end)| (start.max(from), end.min(to)))
            .filter(|(start, end)| start.lt(*end))
            .fold(0, |sum: u32, (start, end)| {
                sum.wrapping_add(start.distance_to(end))
            })
    }

    /// The first stretch of `from..to` that is in no range.
    pub fn first_gap(&self, from: SeqNum, to: SeqNum) -> Option<(SeqNum, SeqNum)> {
        let mut at = from;
        for (start, end) in self.iter() {
            if at.lt(start) {
                break;
            }
            at = at.max(end);
        }
        let end = self
            .iter()
            .map(|(start, _)| start)
            .find(|start| start.gt(at))
            .map_or(to, |start| start.min(to));
        at.lt(end).then_some((at, end))
    }
}

#[cfg(test)]
mod tests;
