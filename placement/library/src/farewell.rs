//! The end of a program: what it had written is still delivered, as long as peers take it.
use skink_time::{Duration, Instant};

/// How long peers may acknowledge nothing.
const SILENCE: Duration = Duration::from_secs(5);
/// How long it may take in all.
const IN_ALL: Duration = Duration::from_secs(60);
/// How long peers that have everything have for reading it, and closing: a reset may cost those what they haven't read that don't keep it then.
const HALF_CLOSED: Duration = Duration::from_millis(250);

/// What peers still have to acknowledge, or to close.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Left {
    /// Connections with such bytes, or a FIN.
    pub connections: usize,
    /// Bytes.
    pub bytes: usize,
    /// Connections whose peers have acknowledged everything, and haven't closed.
    pub half_closed: usize,
}

impl Left {
    /// Whether there is nothing that a reset would be for.
    pub fn is_nothing(&self) -> bool {
        *self == Left::default()
    }
}

/// How far it has come.
pub struct Farewell {
    begun: Instant,
    /// When peers had acknowledged something last.
    progress: Instant,
    left: Option<Left>,
}

impl Farewell {
    /// It begins.
    pub fn new(now: Instant) -> Farewell {
        Farewell {
            begun: now,
            progress: now,
            left: None,
        }
    }

    /// How long to go on with what is left: not at all if that is nothing, or if peers have taken too long.
    pub fn look(&mut self, now: Instant, left: Left) -> Option<Duration> {
        let acknowledged = |left: Left| (left.connections, left.bytes);
        if self.left.replace(left).map(acknowledged) != Some(acknowledged(left)) {
            self.progress = now;
        }
        let patience = match left.connections {
            0 => HALF_CLOSED,
            _ => SILENCE,
        };
        let ends = (self.progress + patience).min(self.begun + IN_ALL);
        let goes_on = !left.is_nothing() && now < ends;
        goes_on.then(|| ends.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn left(bytes: usize) -> Left {
        Left {
            connections: 1,
            bytes,
            half_closed: 0,
        }
    }

    #[test]
    fn peers_that_have_everything_get_little_time_to_close() {
        let half_closed = |half_closed| Left {
            half_closed,
            ..Left::default()
        };
        let mut farewell = Farewell::new(at(0));
        assert_eq!(farewell.look(at(0), left(100)), Some(SILENCE));
        assert_eq!(farewell.look(at(3), half_closed(2)), Some(HALF_CLOSED));
        // That one of them closes doesn't make it longer.
        let later = at(3) + HALF_CLOSED;
        assert_eq!(farewell.look(later, half_closed(1)), None);
        assert_eq!(Farewell::new(at(0)).look(at(0), half_closed(0)), None);
    }

    #[test]
    fn it_ends_when_peers_take_nothing_and_after_a_minute_whatever_they_take() {
        let mut farewell = Farewell::new(at(0));
        assert_eq!(farewell.look(at(0), left(100)), Some(SILENCE));
        for second in (4..60).step_by(4) {
            assert!(
                farewell
                    .look(at(second), left(100 - second as usize))
                    .is_some()
            );
        }
        assert_eq!(farewell.look(at(60), left(1)), None);

        let mut farewell = Farewell::new(at(0));
        assert!(farewell.look(at(1), left(100)).is_some());
        assert_eq!(farewell.look(at(6), left(100)), None);
    }

    #[test]
    fn it_ends_once_all_is_acknowledged() {
        let mut farewell = Farewell::new(at(0));
        // A FIN alone.
        assert!(farewell.look(at(0), left(0)).is_some());
        assert_eq!(farewell.look(at(0), Left::default()), None);
    }
}
