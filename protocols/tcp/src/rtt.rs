use skink_time::Duration;

/// RFC 6298 asks for a minimum of one second; Linux and everybody else use a fifth of that, since
/// timers are finer than in 1988 and delayed acknowledgements come within 40 to 200 ms.
pub const MINIMUM: Duration = Duration::from_millis(200);
const MINIMUM_NS: u64 = MINIMUM.as_nanos() as u64;
const MAXIMUM: Duration = Duration::from_secs(120);
/// RFC 6298 (2.1).
const INITIAL: Duration = Duration::from_secs(1);
/// RFC 6298 (5.7).
const AFTER_REPEATED_REQUEST: Duration = Duration::from_secs(3);

/// Estimates the round-trip time, and from it the retransmission timeout (RFC 6298).
#[derive(Clone, Copy, Debug)]
pub struct RttEstimator {
    /// Smoothed round-trip time and its variation in nanoseconds, once there was a sample.
    measured: Option<(u64, u64)>,
    /// The least that was measured: how far away the peer is. The rest of a round trip is waiting.
    least: Option<Duration>,
    /// The timeout as long as there was none.
    initial: Duration,
}

impl RttEstimator {
    pub fn new() -> RttEstimator {
        RttEstimator {
            measured: None,
            least: None,
            initial: INITIAL,
        }
    }

    /// The request for the connection was repeated, so that it gave no measurement.
    pub fn on_repeated_request(&mut self) {
        self.initial = AFTER_REPEATED_REQUEST;
    }

    /// Takes one measurement (RFC 6298 section 2).
    pub fn sample(&mut self, rtt: Duration) {
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        let rtt = u64::try_from(rtt.as_nanos())
            .unwrap_or(u64::MAX)
            .min(1 << 40);
        self.measured = Some(match self.measured {
            None => (rtt, rtt / 2),
            Some((srtt, variation)) => (
                srtt - srtt / 8 + rtt / 8,
                variation - variation / 4 + srtt.abs_diff(rtt) / 4,
            ),
        });
    }

    /// Smoothed round-trip time, if one was measured.
    pub fn smoothed(&self) -> Option<Duration> {
        self.measured.map(|(srtt, _)| Duration::from_nanos(srtt))
    }

    /// The least round-trip time, if one was measured.
    pub fn least(&self) -> Option<Duration> {
        self.least
    }

    /// The smoothed one in microseconds, 0 if none was measured: what a record has.
    pub fn smoothed_us(&self) -> u32 {
        self.measured.map_or(0, |(srtt, _)| {
            u32::try_from(srtt / 1_000).unwrap_or(u32::MAX)
        })
    }

    /// The retransmission timeout after `backoff` timeouts in a row (RFC 6298 (5.5)).
    pub fn timeout(&self, backoff: u32) -> Duration {
        let base_ns = match self.measured {
            None => self.initial.as_nanos() as u64,
            // Linux too bounds the variation term, not the sum: a steady long path then keeps
            // 200 ms of margin over its round-trip time.
            Some((srtt, variation)) => srtt + (4 * variation).max(MINIMUM_NS),
        };
        // A sample has at most 40 bits: 17 more still fit.
        Duration::from_nanos((base_ns << backoff.min(16)).min(MAXIMUM.as_nanos() as u64))
    }
}

#[cfg(test)]
mod tests;
