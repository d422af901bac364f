//! Rules on their way into a filter, and what they have counted on its way out: whoever must not hold the filter up
//! does the rest without it.
use crate::filter::{Filter, FilterConfig, RuleCounters, Totals};
use crate::index::Index;
use crate::rules::{Rule, RuleSet};
use std::sync::Arc;

/// Rules that only have to be put in force ([`Filter::replace`]): what takes time is done.
pub struct Prepared {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) index: Index,
    pub(crate) rule_counters: Vec<RuleCounters>,
    pub(crate) evaluations: Vec<u64>,
    pub(crate) is_active: bool,
}

impl FilterConfig {
    /// Prepares rules for a filter with this configuration.
    pub fn prepare(&self, rules: RuleSet) -> Prepared {
        Prepared {
            index: Index::new(&rules, &self.interface, self.seed),
            rule_counters: vec![RuleCounters::default(); rules.rules.len()],
            evaluations: vec![0; rules.rules.len()],
            is_active: !rules.rules.is_empty() && !rules.skips(&self.interface),
            rules: Arc::new(rules),
        }
    }
}

impl Prepared {
    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.rules.is_empty()
    }
}

/// What a filter's rules are and have counted, at one moment.
pub struct Snapshot {
    rules: Arc<RuleSet>,
    counters: Vec<RuleCounters>,
    /// Whether packets are checked at all.
    pub is_active: bool,
    /// How many flows are known.
    pub states: usize,
    /// What was counted of all packets.
    pub totals: Totals,
}

impl Snapshot {
    /// The rules, with what was counted of each; a rule's place is its number.
    pub fn rules(&self) -> impl Iterator<Item = (&Rule, &RuleCounters)> {
        self.rules.rules.iter().zip(&self.counters)
    }

    /// The rules.
    pub fn rule_set(&self) -> &RuleSet {
        &self.rules
    }
}

impl Filter {
    /// What the rules are and have counted: copies numbers only.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            rules: self.shared_rules(),
            counters: self.rules().map(|(_, counters)| counters).collect(),
            is_active: self.is_active(),
            states: self.states(),
            totals: *self.totals(),
        }
    }
}
