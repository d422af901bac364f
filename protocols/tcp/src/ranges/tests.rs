use super::*;

/// The obviously right oracle: one flag for each number.
struct Bitmap {
    base: SeqNum,
    bits: Vec<bool>,
}

impl Bitmap {
    fn ranges(&self) -> Vec<(SeqNum, SeqNum)> {
        let mut ranges = Vec::new();
        let mut start = None;
        for (index, bit) in self.bits.iter().chain([&false]).enumerate() {
            let at = self.base + index as u32;
            match (start, bit) {
                (None, true) => start = Some(at),
                (Some(first), false) => {
                    ranges.push((first, at));
                    start = None;
                }
                _ => {}
            }
        }
        ranges
    }
}

#[test]
fn random_use_agrees_with_a_bitmap() {
    let mut random = 7u32;
    let mut next = |bound: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % bound
    };
    for round in 0..300 {
        // Begin near the wrap of the number circle.
        let base = SeqNum(u32::MAX - 400) + round;
        let mut bitmap = Bitmap {
            base,
            bits: vec![false; 400],
        };
        let mut ranges = Ranges::default();
        for _ in 0..60 {
            let (from, length) = (next(380), next(20));
            if next(10) == 0 {
                ranges.remove_below(base + from);
                bitmap.bits[..from as usize].fill(false);
            } else if next(10) == 0 {
                let end = base + from + 3 * length;
                for range in bitmap.ranges() {
                    if range.0.ge(base + from) && range.1.le(end) {
                        let [start, end] = [range.0, range.1].map(|at| base.distance_to(at));
                        bitmap.bits[start as usize..end as usize].fill(false);
                    }
                }
                ranges.remove_within(base + from, end);
            } else {
                assert!(ranges.insert(base + from, base + from + length));
                bitmap.bits[from as usize..(from + length) as usize].fill(true);
            }
            assert_eq!(ranges.iter().collect::<Vec<_>>(), bitmap.ranges());
            let (low, high) = (next(200), 200 + next(200));
            let window = &bitmap.bits[low as usize..high as usize];
            let set = window.iter().filter(|bit| **bit).count() as u32;
            assert_eq!(ranges.bytes_between(base + low, base + high), set);
            let gap = window.iter().position(|bit| !bit).map(|at| {
                let length = window[at..].iter().take_while(|bit| !**bit).count();
                let start = base + low + at as u32;
                (start, start + length as u32)
            });
            assert_eq!(ranges.first_gap(base + low, base + high), gap);
        }
    }
}

#[test]
fn the_number_of_ranges_is_bounded() {
    let mut ranges = Ranges::default();
    let added = (0..1_000)
        .filter(|index| ranges.insert(SeqNum(index * 10), SeqNum(index * 10 + 1)))
        .count();
    assert_eq!(added, LIMIT);
    assert!(ranges.insert(SeqNum(1), SeqNum(2)), "growing one is fine");
}
