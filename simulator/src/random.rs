/// SplitMix64 (Steele, Lea and Flood, 2014): small, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// The output function of SplitMix64: spreads `value` over all 64 bits.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Random {
    /// A generator that begins at `seed`.
    pub fn new(seed: u64) -> Random {
        Random(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)))
    }

    /// A generator of its own for one part of a run, so that parts don't disturb each other.
    pub fn fork(&mut self) -> Random {
        Random::new(self.next())
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from `from` to `to`, both included.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        let span = to.saturating_sub(from).saturating_add(1);
        from + self.next() % span
    }

    /// As [`Random::range`], but each order of magnitude is as likely as any other.
    pub fn scale(&mut self, from: u64, to: u64) -> u64 {
        let bits = |value: u64| u64::from(64 - value.leading_zeros());
        let width = self.range(bits(from), bits(to)) as u32;
        let low = if width == 0 { 0 } else { 1u64 << (width - 1) };
        let high = low.saturating_mul(2).saturating_sub(1);
        self.range(low.max(from), high.min(to).max(low.max(from)))
    }

    /// True in `per_mille` of a thousand cases.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.next() % 1000 < u64::from(per_mille)
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.next() % choices.len() as u64) as usize]
    }
}
