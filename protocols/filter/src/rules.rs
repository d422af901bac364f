//! Rules as data, and the language that they are written in.

mod cursor;
mod display;
mod error;
mod expand;
mod lexer;
mod names;
mod options;
mod parser;
mod peers;

pub use error::ParseError;

use crate::summary::Family;
use crate::verdict::Direction;
use skink_wire::IpCidr;
use skink_wire::tcp::Flags;

/// A parsed file: rules after the expansion of macros and lists, in order, and the tables they name.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RuleSet {
    /// The rules; their places are their numbers.
    pub rules: Vec<Rule>,
    /// The tables.
    pub tables: Vec<Table>,
    /// Interfaces that aren't filtered (`set skip on`).
    pub skip: Vec<String>,
}

impl RuleSet {
    /// Whether a stack whose interface this is, which is the way to everywhere else too, isn't filtered.
    pub fn skips(&self, interface: &str) -> bool {
        let mut skipped = self.skip.iter();
        skipped.any(|name| name == interface || name == "egress")
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// All mistakes that could be told apart, in the order of their lines.
    pub fn parse(text: &str) -> Result<RuleSet, Vec<ParseError>> {
        parser::parse(text)
    }
}

/// A named set of addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its name, without the angle brackets.
    pub name: String,
    /// Networks and addresses. The longest prefix that an address is in decides whether the address
    /// is in the table: not if the entry is negated (`true`).
    pub entries: Vec<(bool, IpCidr)>,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What it does.
    pub action: Action,
    /// For packets of which direction; `None` for both.
    pub direction: Option<Direction>,
    /// Whether the packets it decides are counted as logged.
    pub log: bool,
    /// Whether it decides at once, instead of the last rule that matches.
    pub quick: bool,
    /// On which interface.
    pub interface: Option<Interface>,
    /// For which IP version.
    pub family: Option<Family>,
    /// For which transport protocol.
    pub protocol: Option<u8>,
    /// The source.
    pub from: Peer,
    /// The destination.
    pub to: Peer,
    /// TCP control bits; looked at in TCP segments only.
    pub flags: FlagTest,
    /// ICMP type and code.
    pub icmp: Option<IcmpTest>,
    /// Whether a packet that it passes makes a state.
    pub state: State,
    /// A name for the rule.
    pub label: Option<String>,
    /// The line of the file that it stands in, from 1.
    pub line: u32,
}

/// What a rule does with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Let it pass.
    Pass,
    /// Stop it.
    Block(Answer),
}

/// What the sender of a blocked packet gets to know.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Answer {
    /// Nothing.
    #[default]
    Drop,
    /// A TCP reset, or an ICMP error for UDP.
    Return,
}

/// Whether a rule makes states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It doesn't.
    No,
    /// It does: the default of `pass` rules.
    Keep,
}

/// An interface of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// All but this one.
    pub negated: bool,
    /// Its name.
    pub name: String,
}

/// One end of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its address.
    pub address: Address,
    /// Its port.
    pub port: PortTest,
}

impl Peer {
    /// Any address, any port.
    pub const ANY: Peer = Peer {
        address: Address::Any,
        port: PortTest::Any,
    };
}

/// An address in a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// Every one.
    Any,
    /// One in a network; a single address is a network of one.
    Network {
        /// One outside of it, of the same IP version.
        negated: bool,
        /// The network.
        network: IpCidr,
    },
    /// One in a table.
    Table {
        /// One that isn't in it.
        negated: bool,
        /// Its place in [`RuleSet::tables`].
        index: usize,
    },
}

/// A port in a rule. Where both are given, the first is not above the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortTest {
    /// Every one.
    Any,
    /// `= a`
    Equal(u16),
    /// `!= a`
    Unequal(u16),
    /// `< a`
    Below(u16),
    /// `<= a`
    AtMost(u16),
    /// `> a`
    Above(u16),
    /// `>= a`
    AtLeast(u16),
    /// `a:b`, both included.
    Range(u16, u16),
    /// `a >< b`, both excluded.
    Between(u16, u16),
    /// `a <> b`: below `a` or above `b`.
    Except(u16, u16),
}

impl PortTest {
    /// Whether a port passes the test.
    pub const fn matches(self, port: u16) -> bool {
        match self {
            PortTest::Any => true,
            PortTest::Equal(wanted) => port == wanted,
            PortTest::Unequal(other) => port != other,
            PortTest::Below(limit) => port < limit,
            PortTest::AtMost(limit) => port <= limit,
            PortTest::Above(limit) => port > limit,
            PortTest::AtLeast(limit) => port >= limit,
            PortTest::Range(first, last) => first <= port && port <= last,
            PortTest::Between(before, after) => before < port && port < after,
            PortTest::Except(first, last) => port < first || port > last,
        }
    }
}

/// TCP control bits in a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlagTest {
    /// Whatever they are.
    Any,
    /// Of the bits in `mask`, exactly those in `set`.
    Exactly {
        /// Bits that must be set.
        set: Flags,
        /// Bits that are looked at.
        mask: Flags,
    },
}

impl FlagTest {
    /// The default of rules that make states: a connection request.
    pub const REQUEST: FlagTest = FlagTest::Exactly {
        set: Flags::SYN,
        mask: Flags::SYN.union(Flags::ACK),
    };

    /// Whether a segment's bits pass the test.
    pub const fn matches(self, flags: Flags) -> bool {
        match self {
            FlagTest::Any => true,
            FlagTest::Exactly { set, mask } => flags.bits() & mask.bits() == set.bits(),
        }
    }
}

/// ICMP type and code in a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpTest {
    /// The type.
    pub kind: u8,
    /// The code; `None` for every one.
    pub code: Option<u8>,
}

#[cfg(test)]
mod tests;
