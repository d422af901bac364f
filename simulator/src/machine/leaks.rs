//! Whether all memory has come back.

use super::{Machine, Who};
use skink_channel::Pool;
use skink_messages::{StoreClient, StoreReply, StoreRequest};
use skink_store::Store;
use skink_syscall::is_of_socket;

fn missing(pool: &Pool) -> usize {
    pool.geometry().chunks() as usize - pool.available()
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
        let transports = [&mut self.tcp, &mut self.udp].map(|front| front.stack.apart());
        let by_transports = transports.map(|apart| apart.map_or(0, |apart| apart.held_back()));
        let mut held_back: usize = by_transports.iter().sum();
        let mut away = Vec::new();
        if let Some(link) = &self.link {
            held_back += link.held_back();
            away.push(("received frames", missing(link.pool())));
        }
        if let Some(ip) = &mut self.ip {
            held_back += ip.held_back();
            let (judged, lent) = ip.outstanding();
            let mut lent_and_held = lent.iter().zip(by_transports);
            if judged > 0 || lent_and_held.any(|(lent, held)| *lent as usize > held) {
                lines.push(format!(
                    "ip waits for filter, tcp and udp: {judged}, {lent:?}; these hold back {by_transports:?}"
                ));
            }
            away.push(("ip's own packets", missing(ip.pool())));
        }
        let udp = self.udp.stack.apart().and_then(|apart| apart.udp_host());
        away.push(("datagrams", udp.map_or(0, |it| it.udp().lent() as usize)));
        // Less is missing where one was replaced that a chunk came from: nobody waits for that.
        if away.iter().map(|(_, chunks)| chunks).sum::<usize>() > held_back {
            lines.push(format!(
                "{away:?} chunks are away, {held_back} are held back"
            ));
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
