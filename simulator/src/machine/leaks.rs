//! Whether all memory has come back.

use super::{Machine, Who};
use skink_channel::Pool;

fn look(lines: &mut Vec<String>, what: &str, pool: &Pool) {
    let (free, all) = (pool.available(), pool.geometry().chunks() as usize);
    if free != all {
        lines.push(format!("{} chunks of {what} haven't come back", all - free));
    }
}

impl Machine {
    /// What is lent, kept or lost of the pools, once nothing is under way.
    pub fn leaks(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for who in Who::ALL {
            if self.is_dead(who) {
                lines.push(format!("{} is dead", who.name()));
            }
        }
        if let Some(link) = &self.link {
            look(&mut lines, "received frames", link.pool());
        }
        if let Some(ip) = &mut self.ip {
            let outstanding = ip.outstanding();
            if outstanding != (0, [0, 0]) {
                let what = format!("ip waits for filter, tcp and udp: {outstanding:?}");
                lines.push(what);
            }
            look(&mut lines, "ip's own packets", ip.pool());
        }
        if let Some(pool) = self.udp.stack.apart().and_then(|apart| apart.pool()) {
            look(&mut lines, "datagrams", pool);
        }
        lines
    }

    /// Holds that no chunk is lent, kept or lost.
    ///
    /// # Panics
    /// If one is.
    pub fn assert_no_leak(&mut self) {
        assert_eq!(self.leaks(), Vec::<String>::new());
    }
}
