//! The packet filter's rules and what it counted.
use crate::clock;
use crate::host::Host;
use skink_filter::{Filter, RuleSet};
use skink_library::filter_shown;

impl Host {
    /// Puts rules in force.
    pub(crate) fn load_rules(&mut self, text: &str) -> Result<(), String> {
        if self.inner.load_rules(text)? {
            return Ok(());
        }
        let rules = parse(text)?;
        match self.front.stack.whole() {
            Some(stack) => {
                stack.set_rules(clock::now(), &self.interface, rules);
                Ok(())
            }
            None => Err("the packet filter is in another process".to_owned()),
        }
    }

    /// Rules and counters as JSON.
    pub(crate) fn show_filter(&mut self) -> String {
        let apart = self.inner.show_filter();
        let here = || self.front.stack.whole()?.filter().map(show);
        apart.or_else(here).unwrap_or_else(|| filter_shown(None))
    }
}

/// Rules of the supervisor.
pub(crate) fn parse(text: &str) -> Result<RuleSet, String> {
    RuleSet::parse(text).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        format!("the packet filter's rules:\n{}", lines.join("\n"))
    })
}

/// Rules and counters as JSON.
pub(crate) fn show(filter: &Filter) -> String {
    filter_shown(Some(&filter.snapshot()))
}
