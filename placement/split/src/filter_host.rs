use crate::host::{Host, Neighbour};
use crate::{BUDGET, questions};
use skink_channel::AttachError;
use skink_filter::{Filter, FilterConfig, Flow, RuleSet, Verdict};
use skink_lanes::{AttachParts, EndCounters, FilterEnd, Incarnation, Question, ToFilter};
use skink_memory::StoredTable;
use skink_messages::{Counters, Progress};
use skink_time::Instant;

/// `filter` and its end towards `ip`.
pub struct FilterHost {
    filter: Filter,
    end: FilterEnd,
}

impl FilterHost {
    /// Starts, with these rules.
    ///
    /// # Errors
    /// If the lane isn't one.
    pub fn new(
        config: FilterConfig,
        rules: RuleSet,
        counters: Counters,
        ip: AttachParts,
    ) -> Result<FilterHost, AttachError> {
        let mut filter = Filter::new(config, counters);
        filter.load(rules);
        let mut end = FilterEnd::attach(ip)?;
        end.set_asked(filter.is_active());
        Ok(FilterHost { filter, end })
    }

    /// Keeps flows of datagrams in a table, where those of a predecessor are ([`Filter::keep_in`]).
    pub fn keep_in(&mut self, now: Instant, table: StoredTable) -> usize {
        self.filter.keep_in(now, table)
    }

    /// The filter.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Puts rules in force in place of those that were.
    pub fn load(&mut self, rules: RuleSet) {
        self.filter.load(rules);
        self.end.set_asked(self.filter.is_active());
        if self.filter.is_active() {
            // At once: the next poll may come late.
            self.end.flush();
        }
    }

    /// Enters the flows that `tcp` and `udp` know, before the first poll.
    pub fn rebuild(&mut self, now: Instant, flows: impl IntoIterator<Item = Flow>) -> usize {
        self.filter.rebuild(now, flows)
    }

    /// Flows that `tcp` says are still there ([`Filter::confirm`]).
    pub fn confirm(&mut self, now: Instant, flows: impl IntoIterator<Item = Flow>) -> usize {
        self.filter.confirm(now, flows)
    }

    /// `ip` was replaced.
    pub fn ip_restarted(&mut self, incarnation: Incarnation) {
        self.end.ip_restarted(incarnation);
    }

    fn judge(&mut self, now: Instant, question: &Question) {
        let Some((direction, summary)) = questions::packet(question) else {
            return self.end.answer(question.id, Verdict::Drop as u8);
        };
        let verdict = self.filter.check_parsed(now, direction, summary);
        let offload = match (verdict, summary) {
            (Verdict::Pass, Ok(summary)) => self.filter.offload(direction, &summary),
            _ => None,
        };
        match offload {
            Some(offload) => self.end.offload(question.id, offload.expected),
            None => self.end.answer(question.id, verdict as u8),
        }
    }

    /// What was dropped at its end.
    pub fn end_counters(&self) -> EndCounters {
        self.end.counters()
    }
}

impl Host for FilterHost {
    fn poll(&mut self, now: Instant) -> Progress {
        self.end.begin();
        let mut taken = 0;
        while taken < BUDGET
            && let Some(message) = self.end.take()
        {
            taken += 1;
            match message {
                ToFilter::Question(question) => self.judge(now, &question),
                ToFilter::Account(account) => self.filter.settle(now, &account),
            }
        }
        let expiry = self.filter.poll(now);
        self.end.flush();
        match taken >= BUDGET || expiry == Progress::More {
            true => Progress::More,
            false => Progress::Idle,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.filter.next_deadline()
    }

    fn is_ready(&self) -> bool {
        self.end.is_ready()
    }

    fn broken(&self) -> Option<Neighbour> {
        self.end.is_broken().then_some(Neighbour::Ip)
    }
}
