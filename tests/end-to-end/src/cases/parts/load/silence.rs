//! For how long nothing comes from Skink's host.

use crate::Failure;
use crate::network::Network;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked whether something came.
const INTERVAL: Duration = Duration::from_millis(1);
/// Until then what was on its way has come.
const DRAINED: Duration = Duration::from_millis(5);

/// Looks at what comes, from when it was made.
pub struct Watch {
    end: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<io::Result<Vec<Instant>>>>,
}

impl Watch {
    pub fn start(network: &Network) -> Result<Watch, Failure> {
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let look = move || {
            let (mut last, mut moments) = (received()?, Vec::new());
            while !ended.load(Ordering::Relaxed) {
                let now = received()?;
                if now != last {
                    last = now;
                    moments.push(Instant::now());
                }
                std::thread::park_timeout(INTERVAL);
            }
            Ok(moments)
        };
        Ok(Watch {
            thread: network.kernel.thread(look)?,
            end,
        })
    }

    /// From `killed` to the end of the longest silence that began then or soon after.
    pub fn stop(self, killed: Instant) -> Result<Duration, Failure> {
        self.end.store(true, Ordering::Relaxed);
        let moments = self.thread.join();
        let moments = moments.map_err(|_| Failure::Wrong("the watch panicked".to_owned()))???;
        let after: Vec<Instant> = moments.into_iter().filter(|it| *it > killed).collect();
        let before = std::iter::once(&killed).chain(&after);
        let silences = before.zip(&after);
        let silences = silences.filter(|(from, _)| **from <= killed + DRAINED);
        let longest = silences.max_by_key(|(from, to)| **to - **from);
        Ok(longest.map_or(Duration::MAX, |(_, to)| *to - killed))
    }
}

/// Packets that have come through the wire to the host of the calling thread.
fn received() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("wire:"));
    let packets = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    packets.ok_or_else(|| io::Error::other("there is no wire"))
}
