//! How long a batch may be where others wait.

use skink_time::{Duration, Instant};

/// After how many bytes a batch ends, for who has others to hear. Who waits behind them overtakes them, or is heard in the next batch.
#[derive(Default, Debug)]
pub struct BatchBytes {
    overtook: Option<Instant>,
}

impl BatchBytes {
    /// As much as costs a program alone no throughput.
    pub const ALONE: usize = 256 * 1024;
    /// While frames overtake others: a question waits for a batch, and its answer for another one.
    pub const IN_COMPANY: usize = 64 * 1024;
    /// For how long after the last one did: so long who asks and waits may take from answer to question.
    const COMPANY_LASTS: Duration = Duration::from_millis(5);

    /// For the next batch. So many frames have overtaken others since the last one.
    pub fn next(&mut self, now: Instant, overtaken: u64) -> usize {
        if overtaken > 0 {
            self.overtook = Some(now);
        }
        match self.overtook {
            Some(at) if now.since(at) < Self::COMPANY_LASTS => Self::IN_COMPANY,
            _ => Self::ALONE,
        }
    }
}

#[cfg(test)]
mod tests;
