//! The end of a program: what it had written is still delivered, as long as peers take it.
use core::sync::atomic::Ordering::Relaxed;
use skink_memory::{SocketKind, SocketTable};
use skink_tcp::State;
use skink_time::{Duration, Instant};

/// How long peers may acknowledge nothing.
const SILENCE: Duration = Duration::from_secs(5);
/// How long it may take in all.
const IN_ALL: Duration = Duration::from_secs(60);

/// What peers still have to acknowledge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// Connections with such bytes, or a FIN.
    pub connections: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Left {
    /// Of all connections that the program has closed, or that are to be closed with it.
    pub fn of(table: &SocketTable) -> Left {
        let mut left = Left {
            connections: 0,
            bytes: 0,
        };
        for slot in table.slots() {
            let record = table.record(slot);
            if record.kind() != SocketKind::Tcp {
                continue;
            }
            let bytes = table.send_ring(slot).len();
            let closing = match State::from_number(record.state.load(Relaxed)) {
                Some(State::FinWait1 | State::Closing | State::LastAck) => true,
                Some(State::Established | State::CloseWait) => bytes > 0,
                _ => false,
            };
            if closing {
                left.connections += 1;
                left.bytes += bytes;
            }
        }
        left
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

    /// What is left, and how long to go on: not at all if that is nothing, or if peers have taken too long.
    pub fn look(&mut self, now: Instant, table: &SocketTable) -> (Left, Option<Duration>) {
        let left = Left::of(table);
        if self.left.replace(left) != Some(left) {
            self.progress = now;
        }
        let ends = (self.progress + SILENCE).min(self.begun + IN_ALL);
        let goes_on = left.connections > 0 && now < ends;
        (left, goes_on.then(|| ends.since(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skink_memory::{Region, TableConfig};

    fn table() -> SocketTable {
        let config = TableConfig {
            sockets: 4,
            send_bytes: 4096,
            receive_bytes: 4096,
        };
        let mut table = SocketTable::new(config.sockets);
        let region = Region::create("test", config).expect("memory");
        for (slot, state) in [State::FinWait1, State::Established, State::FinWait2]
            .into_iter()
            .enumerate()
        {
            let slot = region.open_slot(slot as u32, SocketKind::Tcp).slot;
            region.record(slot).state.store(state as u8, Relaxed);
            assert_eq!(region.send_ring(slot).write(&[7; 100]), 100);
        }
        table.insert(0, region).expect("room");
        table
    }

    #[test]
    fn it_ends_when_peers_take_nothing_and_after_a_minute_whatever_they_take() {
        let table = table();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut farewell = Farewell::new(at(0));
        let (left, longest) = farewell.look(at(0), &table);
        assert_eq!((left.connections, left.bytes), (2, 200));
        assert_eq!(longest, Some(SILENCE));
        for second in (4..60).step_by(4) {
            assert!(farewell.look(at(second), &table).1.is_some());
            table.send_ring(1).advance_head(1);
        }
        assert_eq!(farewell.look(at(60), &table).1, None);

        let mut farewell = Farewell::new(at(0));
        assert!(farewell.look(at(1), &table).1.is_some());
        assert_eq!(farewell.look(at(6), &table).1, None);
    }

    #[test]
    fn it_ends_once_all_is_acknowledged() {
        let table = table();
        let mut farewell = Farewell::new(Instant::ZERO);
        assert!(farewell.look(Instant::ZERO, &table).1.is_some());
        table.record(0).state.store(State::FinWait2 as u8, Relaxed);
        table.send_ring(1).advance_head(100);
        assert_eq!(farewell.look(Instant::ZERO, &table).1, None);
    }
}
