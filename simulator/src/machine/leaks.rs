//! Whether all memory has come back.

use super::{Machine, Who};
use skink_channel::Pool;
use skink_messages::{StoreClient, StoreReply, StoreRequest};
use skink_store::Store;
use skink_syscall::is_of_socket;

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
        for program in &self.ended {
            lines.push(format!("program {program} isn't finished"));
        }
        for (name, front) in [("tcp", &self.tcp), ("udp", &self.udp)] {
            if front.shared() > 0 {
                lines.push(format!(
                    "{name} thinks that {} sockets are shared",
                    front.shared()
                ));
            }
        }
        let left = self.stored_of_sockets();
        if left > 0 {
            lines.push(format!("{left} things are stored of sockets"));
        }
        lines
    }

    /// What is stored of sockets, though they are gone or not.
    fn stored_of_sockets(&self) -> usize {
        // Nobody writes there meanwhile, and this one doesn't at all.
        let mut store = Store::over(self.stored.clone());
        store.request(StoreRequest::List(StoreClient::Syscall));
        let replies = std::iter::from_fn(|| store.take_reply());
        let of_sockets = |reply: &StoreReply| match reply {
            StoreReply::Item(key, _) => is_of_socket(*key),
            StoreReply::End(..) => false,
        };
        replies.filter(of_sockets).count()
    }

    /// Holds that no chunk is lent, kept or lost.
    ///
    /// # Panics
    /// If one is.
    pub fn assert_no_leak(&mut self) {
        assert_eq!(self.leaks(), Vec::<String>::new());
    }
}
