use skink_time::{Duration, Instant};

/// Initial window in segments (RFC 6928).
const INITIAL_SEGMENTS: u64 = 10;
/// The window isn't counted beyond this; no path needs a gibibyte in flight.
const MAXIMUM_BYTES: u64 = 1 << 30;

/// CUBIC congestion control (RFC 9438), in bytes and whole numbers.
#[derive(Clone, Debug)]
pub struct Cubic {
    mss: u64,
    cwnd: u64,
    ssthresh: u64,
    /// `W_max` of RFC 9438: the window at the last reduction, in bytes.
    w_max: u64,
    /// Since when the current increase goes on.
    epoch: Option<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Instant,
    /// `K` of RFC 9438 in milliseconds: when the window is back at `W_max`.
    k_ms: u64,
    /// The window at `K`, in bytes: `W_max`, or where we are if that is more.
    origin: u64,
    /// `W_est`: the window that Reno would have, in bytes.
    w_est: u64,
}

/// What a loss changed, to be undone if there was none (RFC 4015).
#[derive(Clone, Copy, Debug)]
pub struct Undo {
    cwnd: u64,
    ssthresh: u64,
    w_max: u64,
}

impl Cubic {
    pub fn new(mss: u32) -> Cubic {
        let mss = u64::from(mss.max(1));
        Cubic {
            mss,
            cwnd: INITIAL_SEGMENTS * mss,
            ssthresh: u64::MAX,
            w_max: 0,
            epoch: None,
        }
    }

    /// The congestion window in bytes.
    pub fn window(&self) -> u32 {
        self.cwnd as u32
    }

    /// The path's segment size turned out to be another. One segment has room in any window (RFC 5681 section 3.1), or
    /// nothing would leave until a timeout where the window was one of a smaller size.
    pub fn set_mss(&mut self, mss: u32) {
        self.mss = u64::from(mss.max(1));
        self.cwnd = self.cwnd.max(self.mss);
    }

    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// `acked` new bytes were acknowledged outside of recovery. `limited`: the window was what kept
    /// us from sending more; otherwise it must not grow (RFC 9438 5.8).
    pub fn on_ack(&mut self, now: Instant, acked: u32, rtt: Duration, limited: bool) {
        if !limited {
            // Time spent idle doesn't count as growth.
            self.epoch = None;
            return;
        }
        let mut acked = u64::from(acked);
        if self.in_slow_start() {
            let grown = acked.min(self.ssthresh - self.cwnd);
            self.cwnd = (self.cwnd + grown).min(MAXIMUM_BYTES);
            acked -= grown;
        }
        if acked > 0 {
            self.avoid_congestion(now, acked, rtt);
        }
    }

    fn avoid_congestion(&mut self, now: Instant, acked: u64, rtt: Duration) {
        let mss = self.mss;
        let (cwnd, w_max) = (self.cwnd, self.w_max);
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            start: now,
            k_ms: time_to_return(cwnd, w_max, mss),
            origin: cwnd.max(w_max),
            w_est: cwnd,
        });
        // RFC 9438 4.3: Reno's share, with alpha = 3 (1 - beta) / (1 + beta) = 9/17.
        epoch.w_est += acked * mss * 9 / (17 * cwnd.max(1));
        let elapsed = now.since(epoch.start) + rtt;
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let target = cubic(epoch.origin, elapsed_ms, epoch.k_ms, mss)
            .max(epoch.w_est)
            .clamp(cwnd, cwnd + cwnd / 2);
        // (target - cwnd) / cwnd for each byte acknowledged.
        let grown = (target - cwnd) * acked / cwnd.max(1);
        self.cwnd = (cwnd + grown).min(MAXIMUM_BYTES);
    }

    /// Loss was found by acknowledgements: RFC 9438 4.6 and 4.7. `flight` is what was in flight. Answers what to undo.
    pub fn on_loss(&mut self, flight: u32) -> Undo {
        let undo = self.reduce(flight);
        self.cwnd = self.ssthresh;
        undo
    }

    /// The retransmission timer ran out: RFC 9438 4.8, RFC 5681 section 3.1. Answers what to undo.
    pub fn on_timeout(&mut self, flight: u32) -> Undo {
        let undo = self.reduce(flight);
        self.cwnd = self.mss;
        undo
    }

    /// The timer ran out again: the threshold stays, only the window starts anew.
    pub fn on_repeated_timeout(&mut self) {
        self.cwnd = self.mss;
    }

    /// Nothing was lost.
    pub fn undo(&mut self, undo: Undo) {
        self.cwnd = self.cwnd.max(undo.cwnd);
        self.ssthresh = undo.ssthresh;
        self.w_max = undo.w_max;
        self.epoch = None;
    }

    /// Nothing was sent for longer than a timeout: what the window knew is stale (RFC 5681 4.1).
    pub fn on_idle(&mut self) {
        self.cwnd = self.cwnd.min(INITIAL_SEGMENTS * self.mss);
        self.epoch = None;
    }

    fn reduce(&mut self, flight: u32) -> Undo {
        let undo = Undo {
            cwnd: self.cwnd,
            ssthresh: self.ssthresh,
            w_max: self.w_max,
        };
        // Fast convergence (4.7): give way if the window hasn't come back to where it was.
        self.w_max = if self.cwnd < self.w_max {
            self.cwnd * 17 / 20
        } else {
            self.cwnd
        };
        // beta = 0.7; an application-limited sender goes by what it had in flight.
        let used = self.cwnd.min(u64::from(flight)).max(2 * self.mss);
        self.ssthresh = (used * 7 / 10).max(2 * self.mss);
        self.epoch = None;
        undo
    }
}

/// `K = cbrt((W_max - cwnd) / C)` with C = 0.4 segments/s³, in milliseconds.
fn time_to_return(cwnd: u64, w_max: u64, mss: u64) -> u64 {
    let missing = w_max.saturating_sub(cwnd);
    cube_root(u128::from(missing) * 2_500_000_000 / u128::from(mss))
}

/// `C (t - K)³ + W_max` in bytes.
fn cubic(base: u64, elapsed_ms: u64, k_ms: u64, mss: u64) -> u64 {
    let distance = u128::from(elapsed_ms.abs_diff(k_ms).min(1 << 30));
    let change = distance * distance * distance * u128::from(mss) * 4 / 10_000_000_000;
    let change = u64::try_from(change).unwrap_or(u64::MAX);
    if elapsed_ms < k_ms {
        base.saturating_sub(change)
    } else {
        base.saturating_add(change)
    }
}

/// The largest whole number whose cube isn't larger.
fn cube_root(value: u128) -> u64 {
    let mut root = 0u128;
    for bit in (0..42).rev() {
        let candidate = root | 1 << bit;
        if candidate * candidate * candidate <= value {
            root = candidate;
        }
    }
    root as u64
}

#[cfg(test)]
mod tests;
