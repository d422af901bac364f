//! Several programs on one host, of which one is killed.

use super::{Death, ListenerPlan, Scenario, Target};
use crate::random::Random;
use skink_time::Instant;

/// Programs on the divided host.
const PROGRAMS: u32 = 3;
/// The one that is killed.
const VICTIM: u32 = 1;
/// Ports of the programs' own listeners begin here.
const OWN_PORT: u16 = 8100;
/// The port that all share.
const SHARED_PORT: u16 = 8200;

impl Scenario {
    /// Divides the sockets of the first listener's host among three programs. Each gets a listener of its
    /// own and one on a port that all share; one of the three is killed in the midst of it all.
    pub(super) fn divide(&mut self, random: &mut Random) {
        let host = self.listeners[0].host;
        self.hosts[host].programs = PROGRAMS;
        self.death = Some(Death {
            host,
            program: VICTIM,
            at: Instant::from_nanos(random.scale(1_000_000, 4_000_000_000)),
        });
        let any = |random: &mut Random| random.range(0, u64::from(PROGRAMS) - 1) as u32;
        let here = self.listeners.iter_mut().filter(|one| one.host == host);
        here.for_each(|listener| listener.program = any(random));
        let model = ListenerPlan {
            backlog: 16,
            ..self.listeners[0].clone()
        };
        for program in 0..PROGRAMS {
            for (port, shared) in [(OWN_PORT + program as u16, false), (SHARED_PORT, true)] {
                self.listeners.push(ListenerPlan {
                    port,
                    program,
                    shared,
                    ..model.clone()
                });
            }
        }
        let all = 0..self.listeners.len();
        let here: Vec<usize> = all
            .filter(|index| self.listeners[*index].host == host)
            .collect();
        for connection in &mut self.connections {
            if connection.client == host {
                connection.program = any(random);
                connection.ends[0].mortal = connection.program == VICTIM;
            }
            let Target::Listener(index) = connection.target else {
                continue;
            };
            if self.listeners[index].host == host {
                let index = random.pick(&here);
                let listener = &self.listeners[index];
                connection.target = Target::Listener(index);
                connection.v6 = listener.v6;
                connection.ends[1].mortal = listener.shared || listener.program == VICTIM;
            }
        }
    }
}
