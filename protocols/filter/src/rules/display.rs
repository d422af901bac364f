//! Rules as text: what `pfctl -nvf` would print, and what the parser reads again.

use super::names;
use super::{Action, Address, Answer, FlagTest, Peer, PortTest, Rule, RuleSet, State, Table};
use crate::summary::Family;
use crate::verdict::Direction;
use core::fmt::{self, Display, Formatter};
use skink_wire::{IpCidr, protocol};
use std::net::IpAddr;

impl RuleSet {
    /// A rule as text, with the names of tables.
    pub fn text<'a>(&'a self, rule: &'a Rule) -> impl Display + 'a {
        RuleText {
            rule,
            tables: &self.tables,
        }
    }
}

struct RuleText<'a> {
    rule: &'a Rule,
    tables: &'a [Table],
}

impl Display for RuleText<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write_rule(formatter, self.rule, self.tables)
    }
}

/// The definition, as in a file.
impl Display for Table {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "table <{}> {{", self.name)?;
        for (index, (negated, network)) in self.entries.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let not = if *negated { "!" } else { "" };
            write!(formatter, "{comma} {not}{}", Short(*network))?;
        }
        formatter.write_str(" }")
    }
}

/// A network; without its prefix length if that is all of the address.
struct Short(IpCidr);

impl Display for Short {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let width = match self.0.addr {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        if self.0.prefix == width {
            write!(formatter, "{}", self.0.addr)
        } else {
            write!(formatter, "{}", self.0)
        }
    }
}

fn write_rule(formatter: &mut Formatter<'_>, rule: &Rule, tables: &[Table]) -> fmt::Result {
    formatter.write_str(match rule.action {
        Action::Pass => "pass",
        Action::Block(Answer::Drop) => "block drop",
        Action::Block(Answer::Return) => "block return",
    })?;
    formatter.write_str(match rule.direction {
        None => "",
        Some(Direction::In) => " in",
        Some(Direction::Out) => " out",
    })?;
    if rule.log {
        formatter.write_str(" log")?;
    }
    if rule.quick {
        formatter.write_str(" quick")?;
    }
    if let Some(interface) = &rule.interface {
        let not = if interface.negated { "! " } else { "" };
        write!(formatter, " on {not}{}", interface.name)?;
    }
    formatter.write_str(match rule.family {
        None => "",
        Some(Family::V4) => " inet",
        Some(Family::V6) => " inet6",
    })?;
    if let Some(number) = rule.protocol {
        match names::protocol_name(number) {
            Some(name) => write!(formatter, " proto {name}")?,
            None => write!(formatter, " proto {number}")?,
        }
    }
    if rule.from == Peer::ANY && rule.to == Peer::ANY {
        formatter.write_str(" all")?;
    } else {
        formatter.write_str(" from ")?;
        write_peer(formatter, &rule.from, tables)?;
        formatter.write_str(" to ")?;
        write_peer(formatter, &rule.to, tables)?;
    }
    write_options(formatter, rule)
}

fn write_peer(formatter: &mut Formatter<'_>, peer: &Peer, tables: &[Table]) -> fmt::Result {
    let not = |negated: bool| if negated { "! " } else { "" };
    match &peer.address {
        Address::Any => formatter.write_str("any")?,
        Address::Network { negated, network } => {
            write!(formatter, "{}{}", not(*negated), Short(*network))?;
        }
        Address::Table { negated, index } => {
            let name = tables.get(*index).map_or("?", |table| table.name.as_str());
            write!(formatter, "{}<{name}>", not(*negated))?;
        }
    }
    match peer.port {
        PortTest::Any => Ok(()),
        PortTest::Equal(port) => write!(formatter, " port = {port}"),
        PortTest::Unequal(port) => write!(formatter, " port != {port}"),
        PortTest::Below(port) => write!(formatter, " port < {port}"),
        PortTest::AtMost(port) => write!(formatter, " port <= {port}"),
        PortTest::Above(port) => write!(formatter, " port > {port}"),
        PortTest::AtLeast(port) => write!(formatter, " port >= {port}"),
        PortTest::Range(first, last) => write!(formatter, " port {first}:{last}"),
        PortTest::Between(before, after) => write!(formatter, " port {before} >< {after}"),
        PortTest::Except(first, last) => write!(formatter, " port {first} <> {last}"),
    }
}

fn write_options(formatter: &mut Formatter<'_>, rule: &Rule) -> fmt::Result {
    match rule.flags {
        FlagTest::Exactly { set, mask } => {
            let (set, mask) = (names::flag_letters(set), names::flag_letters(mask));
            write!(formatter, " flags {set}/{mask}")?;
        }
        // Otherwise the default would be read in its place.
        FlagTest::Any if is_request_default(rule) => formatter.write_str(" flags any")?,
        FlagTest::Any => {}
    }
    if let Some(icmp) = rule.icmp {
        let (word, family) = match rule.protocol {
            Some(protocol::ICMPV6) => ("icmp6-type", Family::V6),
            _ => ("icmp-type", Family::V4),
        };
        match names::icmp_type_name(family, icmp.kind) {
            Some(name) => write!(formatter, " {word} {name}")?,
            None => write!(formatter, " {word} {}", icmp.kind)?,
        }
        if let Some(code) = icmp.code {
            write!(formatter, " code {code}")?;
        }
    }
    match (rule.action, rule.state) {
        (Action::Pass, State::Keep) => formatter.write_str(" keep state")?,
        (Action::Pass, State::No) => formatter.write_str(" no state")?,
        (Action::Block(_), State::Keep | State::No) => {}
    }
    match &rule.label {
        // A label can't hold both kinds of quotes.
        Some(label) if label.contains('"') => write!(formatter, " label '{label}'"),
        Some(label) => write!(formatter, " label \"{label}\""),
        None => Ok(()),
    }
}

/// Whether `flags S/SA` goes without saying.
pub(super) fn is_request_default(rule: &Rule) -> bool {
    rule.action == Action::Pass
        && rule.state == State::Keep
        && rule.protocol.is_none_or(|number| number == protocol::TCP)
}
