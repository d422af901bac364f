//! The stack's packet filter.
use super::Stack;
use skink_filter::{Filter, FilterConfig, Flow, FlowPhase, Prepared, RuleSet};
use skink_memory::StoredTable;
use skink_tcp::State;
use skink_time::Instant;
use skink_wire::{FourTuple, SeqNum};

impl Stack {
    /// Puts the packet filter's rules in force in place of those that were; `interface` is what `on`
    /// in rules means. Connections that there are go on, whatever the rules say of new ones.
    pub fn set_rules(&mut self, now: Instant, interface: &str, rules: RuleSet) {
        let rules = self.filter_config(interface).prepare(rules);
        self.put_in_force(now, interface, rules);
    }

    /// What to prepare rules with for [`Stack::put_in_force`].
    pub fn filter_config(&self, interface: &str) -> FilterConfig {
        // A seed of its own, as for the other components.
        let seed = self
            .seed
            .wrapping_mul(0xd6e8_feb8_6659_fd93)
            .rotate_left(23);
        FilterConfig::new(interface, seed)
    }

    /// As [`Stack::set_rules`], with rules that are prepared, so that it takes no longer than to enter the connections
    /// that there are. Answers what was in force, which takes time to drop.
    pub fn put_in_force(
        &mut self,
        now: Instant,
        interface: &str,
        rules: Prepared,
    ) -> Option<Prepared> {
        if self.filter.is_none() && rules.is_empty() {
            return None;
        }
        let config = self.filter_config(interface);
        let filter = self.filter.get_or_insert_with(|| {
            let mut filter = Box::new(Filter::new(config, self.counters.clone()));
            if let Some(flows) = self.flows.take() {
                filter.keep_in(now, flows);
            }
            filter
        });
        let before = filter.replace(rules);
        self.rebuild_filter(now);
        Some(before)
    }

    /// Keeps flows of datagrams in this table once there are rules, and finds those of a predecessor there
    /// ([`Filter::keep_in`]).
    pub fn keep_flows(&mut self, table: StoredTable) {
        self.flows = Some(table);
    }

    /// Enters the connections that there are, which a stack that adopted them hasn't made.
    pub fn rebuild_filter(&mut self, now: Instant) {
        if let Some(filter) = &mut self.filter {
            filter.rebuild(now, self.tcp.flows().filter_map(flow));
        }
    }

    /// The packet filter, once rules were loaded.
    pub fn filter(&self) -> Option<&Filter> {
        self.filter.as_deref()
    }
}

/// A connection of [`skink_tcp::Tcp::flows`] as the filter knows it.
pub fn flow((tuple, state, iss): (FourTuple, State, SeqNum)) -> Option<Flow> {
    let phase = match state {
        State::Closed | State::Listen => return None,
        State::SynSent => FlowPhase::Asked,
        State::SynReceived => FlowPhase::Answered { iss: iss.0 },
        State::Established => FlowPhase::Established,
        State::FinWait1 | State::FinWait2 => FlowPhase::LocalClosed,
        State::CloseWait => FlowPhase::RemoteClosed,
        State::Closing | State::LastAck | State::TimeWait => FlowPhase::BothClosed,
    };
    Some(Flow { tuple, phase })
}
