use crate::BUDGET;
use crate::host::{Host, Neighbour};
use skink_lanes::{EndCounters, Exchange, Incarnation};
use skink_messages::{Progress, StoreReply, StoreRequest};
use skink_store::Store;
use skink_time::Instant;

/// `store` and its end towards its client.
pub struct StoreHost {
    store: Store,
    exchange: Exchange<StoreRequest, StoreReply>,
    /// There was no room for it.
    reply: Option<StoreReply>,
}

impl StoreHost {
    /// Around what is stored already.
    pub fn new(store: Store, exchange: Exchange<StoreRequest, StoreReply>) -> StoreHost {
        StoreHost {
            store,
            exchange,
            reply: None,
        }
    }

    /// `syscall` was replaced.
    pub fn syscall_restarted(&mut self, incarnation: Incarnation) {
        self.exchange.restarted(incarnation);
    }

    /// What was dropped at its end, or found no room in the table.
    pub fn end_counters(&self) -> EndCounters {
        self.exchange.counters.plus(EndCounters {
            full: self.store.dropped(),
            ..EndCounters::default()
        })
    }
}

impl Host for StoreHost {
    fn poll(&mut self, _: Instant) -> Progress {
        self.exchange.begin();
        let mut taken = 0;
        while taken < BUDGET
            && let Some(request) = self.exchange.take()
        {
            taken += 1;
            self.store.request(request);
        }
        while let Some(reply) = self.reply.take().or_else(|| self.store.take_reply()) {
            if self.exchange.send(&reply).is_err() {
                self.reply = Some(reply);
                break;
            }
        }
        self.exchange.flush();
        match taken < BUDGET {
            true => Progress::Idle,
            false => Progress::More,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn is_ready(&self) -> bool {
        self.exchange.is_ready()
    }

    fn broken(&self) -> Option<Neighbour> {
        self.exchange.is_broken().then_some(Neighbour::Syscall)
    }
}
