use super::*;

/// One letter for each slot: `.` empty, `F` filled, `0` to `9` emptied with that mark, `a` to `j` the
/// same, but not given back.
fn ring(text: &str) -> Vec<Seen> {
    let slot = |(at, letter): (usize, char)| Seen {
        filled: letter.is_ascii_alphabetic(),
        mark: match letter {
            '0'..='9' => letter as u32 - '0' as u32,
            'a'..='j' => letter as u32 - 'a' as u32,
            _ => 0,
        },
        arrived: (7, at as u32),
    };
    text.chars().enumerate().map(slot).collect()
}

fn position(next: usize, mark: u32) -> Position {
    Position {
        next,
        mark,
        seen: None,
    }
}

#[test]
fn a_successor_goes_on_after_the_last_mark() {
    for (slots, next, mark) in [
        // Nobody took anything out.
        ("......", 0, 1),
        ("FF....", 0, 1),
        ("F.F...", 0, 1),
        ("FFFFF.", 0, 1),
        // The kernel fills the last free slot.
        ("FF.FFF", 3, 1),
        // Some were taken out; what waits, if anything, follows.
        ("123...", 3, 4),
        ("123FF.", 3, 4),
        // The first frame is still being stored.
        ("123.F.", 3, 4),
        ("FF3456", 0, 7),
        ("F.3456", 0, 7),
        ("783456", 2, 9),
        ("78FFFF", 2, 9),
        ("FFFFF9", 0, 10),
    ] {
        assert_eq!(find(&ring(slots)), position(next, mark), "{slots}");
    }
}

#[test]
fn a_frame_that_was_seen_is_not_seen_again() {
    for (slots, next, mark, seen) in [("12dF..", 3, 4, 2), ("FFFFFj", 0, 10, 5)] {
        let seen = Some(seen);
        let expected = Position { next, mark, seen };
        assert_eq!(find(&ring(slots)), expected, "{slots}");
    }
}

#[test]
fn marks_wrap() {
    let mut slots = ring("......");
    for (slot, mark) in [(0, u32::MAX - 1), (1, u32::MAX), (2, 1)] {
        slots[slot].mark = mark;
    }
    assert_eq!(find(&slots), position(3, 2));
    assert_eq!(after(u32::MAX), 1);
}

#[test]
fn in_a_full_ring_the_oldest_is_next() {
    for oldest in 0..6 {
        let mut slots = ring("FFFFFF");
        for age in 0..6 {
            slots[(oldest + age) % 6].arrived = (3 + age as u32 / 4, age as u32 * 100);
        }
        // Two processors at a time.
        slots[(oldest + 2) % 6].arrived.1 += 150;
        assert_eq!(find(&slots), position(oldest, 1), "from {oldest}");
    }
}
