//! Rules, arranged so that few of them have to be looked at for a packet.
//!
//! In pf the last rule that matches decides, or the first `quick` one. So `quick` rules are tried
//! forwards and, where none matches, the others backwards, and each time the first match is the
//! answer. Rules are grouped by direction, IP version and protocol; within a group, those for one
//! destination port, one source network or one destination network (an address is one, too) are found
//! by hash, and only the rest must be tried one by one.

use crate::address_table::{AddressTable, mask};
use crate::rules::{Action, Address, FlagTest, IcmpTest, Peer, PortTest, Rule, RuleSet, State};
use crate::summary::{Family, Summary, number};
use crate::verdict::Direction;
use foldhash::fast::FixedState;
use skink_wire::protocol;
use std::collections::HashMap;

/// An address test, ready for use. IP versions are compared before.
#[derive(Clone, Copy)]
enum AddressTest {
    Any,
    Network {
        network: u128,
        mask: u128,
        negated: bool,
    },
    Table {
        index: u32,
        negated: bool,
    },
}

/// A port test, ready for use.
#[derive(Clone, Copy)]
struct PortRange {
    first: u16,
    last: u16,
    negated: bool,
}

impl PortRange {
    const ALL: PortRange = PortRange {
        first: 0,
        last: u16::MAX,
        negated: false,
    };
    const NONE: PortRange = PortRange {
        first: 1,
        last: 0,
        negated: false,
    };

    fn new(test: PortTest) -> PortRange {
        let range = |first: Option<u16>, last: Option<u16>, negated| match (first, last) {
            (Some(first), Some(last)) => PortRange {
                first,
                last,
                negated,
            },
            (None, _) | (_, None) => PortRange::NONE,
        };
        let (least, most) = (Some(0), Some(u16::MAX));
        match test {
            PortTest::Any => PortRange::ALL,
            PortTest::Equal(port) => range(Some(port), Some(port), false),
            PortTest::Unequal(port) => range(Some(port), Some(port), true),
            PortTest::Below(limit) => range(least, limit.checked_sub(1), false),
            PortTest::AtMost(limit) => range(least, Some(limit), false),
            PortTest::Above(limit) => range(limit.checked_add(1), most, false),
            PortTest::AtLeast(limit) => range(Some(limit), most, false),
            PortTest::Range(first, last) => range(Some(first), Some(last), false),
            PortTest::Between(before, after) => {
                range(before.checked_add(1), after.checked_sub(1), false)
            }
            PortTest::Except(first, last) => range(Some(first), Some(last), true),
        }
    }

    #[inline]
    fn matches(self, port: u16) -> bool {
        (self.first <= port && port <= self.last) != self.negated
    }
}

/// A rule, ready for use. Direction, interface and IP version are those of its groups.
struct Test {
    from: AddressTest,
    to: AddressTest,
    from_port: PortRange,
    to_port: PortRange,
    flags: FlagTest,
    icmp: Option<IcmpTest>,
    protocol: Option<u8>,
    /// It looks at ports, flags or ICMP types, which a later fragment doesn't have.
    needs_transport: bool,
}

/// What becomes of a packet that a rule decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Decision {
    pub(crate) rule: u32,
    pub(crate) action: Action,
    pub(crate) keep: bool,
    pub(crate) log: bool,
}

/// Rules of one group and of one kind (`quick` or not), each by its rank: the order of trial.
#[derive(Default)]
struct Lists {
    by_port: HashMap<u16, Vec<u32>, FixedState>,
    by_network: Vec<Networks>,
    rest: Vec<u32>,
}

/// Kinds of networks by which rules are found: each costs every packet a hash look-up.
const KINDS: usize = 6;
/// So many rules for a port are tried one by one; more of them are found by their networks, as far as they have some.
const MANY: usize = 4;

/// Rules for one source network (or destination) each, all of one prefix length.
struct Networks {
    mask: u128,
    is_source: bool,
    ranks: HashMap<u128, Vec<u32>, FixedState>,
}

#[derive(Default)]
struct Group {
    quick: Lists,
    others: Lists,
}

const PROTOCOLS: usize = 5;
const GROUPS: usize = 2 * 2 * PROTOCOLS;

/// All rules.
pub(crate) struct Index {
    tests: Vec<Test>,
    decisions: Vec<Decision>,
    tables: Vec<AddressTable>,
    groups: [Group; GROUPS],
}

const fn protocol_class(number: u8) -> usize {
    match number {
        protocol::TCP => 0,
        protocol::UDP => 1,
        protocol::ICMP => 2,
        protocol::ICMPV6 => 3,
        _ => 4,
    }
}

const fn group_of(direction: Direction, family: Family, class: usize) -> usize {
    let direction = match direction {
        Direction::In => 0,
        Direction::Out => 1,
    };
    let family = match family {
        Family::V4 => 0,
        Family::V6 => 1,
    };
    (direction * 2 + family) * PROTOCOLS + class
}

fn address_test(address: &Address) -> AddressTest {
    match *address {
        Address::Any => AddressTest::Any,
        Address::Network { negated, network } => {
            let mask = mask(Family::of(network.addr), network.prefix);
            AddressTest::Network {
                network: number(network.addr) & mask,
                mask,
                negated,
            }
        }
        Address::Table { negated, index } => AddressTest::Table {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            negated,
        },
    }
}

/// The only network that a peer can be in.
fn only_network(peer: &Peer) -> Option<(u128, u128)> {
    match address_test(&peer.address) {
        AddressTest::Network {
            network,
            mask,
            negated: false,
        } => Some((network, mask)),
        AddressTest::Network { .. } | AddressTest::Any | AddressTest::Table { .. } => None,
    }
}

impl Lists {
    fn add(&mut self, rule: &Rule, rank: u32) {
        let port = match rule.to.port {
            PortTest::Equal(port) => Some(port),
            _ => None,
        };
        let ranks = port.and_then(|port| self.by_port.get(&port));
        let is_short = ranks.is_none_or(|ranks| ranks.len() < MANY);
        let list = if let Some(port) = port.filter(|_| is_short) {
            self.by_port.entry(port).or_default()
        } else if let Some(place) = self.place_of(&rule.from, true) {
            self.of_network(place)
        } else if let Some(place) = self.place_of(&rule.to, false) {
            self.of_network(place)
        } else if let Some(port) = port {
            self.by_port.entry(port).or_default()
        } else {
            &mut self.rest
        };
        list.push(rank);
    }

    /// The kind of a peer's network, and the network; `None` if it isn't in one, or of too many kinds.
    fn place_of(&mut self, peer: &Peer, is_source: bool) -> Option<(usize, u128)> {
        let (network, mask) = only_network(peer)?;
        let same = |kind: &Networks| (kind.mask, kind.is_source) == (mask, is_source);
        let at = match self.by_network.iter().position(same) {
            Some(at) => at,
            None if self.by_network.len() >= KINDS => return None,
            None => {
                self.by_network.push(Networks {
                    mask,
                    is_source,
                    ranks: HashMap::default(),
                });
                self.by_network.len() - 1
            }
        };
        Some((at, network))
    }

    fn of_network(&mut self, (kind, network): (usize, u128)) -> &mut Vec<u32> {
        self.by_network[kind].ranks.entry(network).or_default()
    }

    fn sort(&mut self) {
        let networks = self.by_network.iter_mut();
        let networks = networks.flat_map(|kind| kind.ranks.values_mut());
        for list in self.by_port.values_mut().chain(networks) {
            list.sort_unstable();
        }
        self.rest.sort_unstable();
    }

    /// Tries the rules that can match, in the order of their ranks, and answers the first that does.
    #[inline]
    fn first(&self, packet: &Summary, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut lists: [&[u32]; KINDS + 2] = [&[]; KINDS + 2];
        let mut used = 0;
        let port = packet.has_transport().then_some(packet.destination_port);
        let by_port = port.and_then(|port| self.by_port.get(&port));
        let networks = self.by_network.iter().map(|kind| {
            let address = match kind.is_source {
                true => packet.source,
                false => packet.destination,
            };
            kind.ranks.get(&(address & kind.mask))
        });
        let found = [Some(&self.rest), by_port].into_iter().chain(networks);
        for (place, list) in lists.iter_mut().zip(found.flatten()) {
            *place = list;
            used += 1;
        }
        if used == 1 {
            return self.rest.iter().copied().find(|rank| matches(*rank));
        }
        let lists = lists.get_mut(..used)?;
        loop {
            // The list whose first rank is the least.
            let heads = lists.iter_mut().filter(|list| !list.is_empty());
            let list = heads.min_by_key(|list| list.first().copied())?;
            let (rank, rest) = list.split_first()?;
            if matches(*rank) {
                return Some(*rank);
            }
            *list = rest;
        }
    }
}

impl Index {
    /// Arranges rules for a stack whose interface is `interface`.
    pub(crate) fn new(rules: &RuleSet, interface: &str, seed: u64) -> Index {
        let tables = rules.tables.iter();
        let mut index = Index {
            tests: rules.rules.iter().map(Test::new).collect(),
            decisions: (0..).zip(&rules.rules).map(decision).collect(),
            tables: tables.map(|table| AddressTable::new(table, seed)).collect(),
            groups: core::array::from_fn(|_| Group::default()),
        };
        let count = u32::try_from(rules.rules.len()).unwrap_or(u32::MAX);
        for (number, rule) in (0..count).zip(&rules.rules) {
            let is_ours = rule.interface.as_ref().is_none_or(|wanted| {
                // The only interface is also the way to everywhere else.
                let same = wanted.name == interface || wanted.name == "egress";
                same != wanted.negated
            });
            if is_ours {
                index.add(rule, number, count);
            }
        }
        for group in &mut index.groups {
            group.quick.sort();
            group.others.sort();
        }
        index
    }

    fn add(&mut self, rule: &Rule, number: u32, count: u32) {
        for direction in [Direction::In, Direction::Out] {
            for family in [Family::V4, Family::V6] {
                for class in 0..PROTOCOLS {
                    let fits = rule.direction.is_none_or(|wanted| wanted == direction)
                        && rule.family.is_none_or(|wanted| wanted == family)
                        && rule.protocol.is_none_or(|own| protocol_class(own) == class);
                    let group = &mut self.groups[group_of(direction, family, class)];
                    match (fits, rule.quick) {
                        (false, _) => {}
                        (true, true) => group.quick.add(rule, number),
                        (true, false) => group.others.add(rule, count - 1 - number),
                    }
                }
            }
        }
    }

    /// The rule that decides about a packet; `tried` is told each rule that is looked at.
    #[inline]
    pub(crate) fn find(
        &self,
        direction: Direction,
        packet: &Summary,
        mut tried: impl FnMut(u32),
    ) -> Option<Decision> {
        let class = protocol_class(packet.protocol);
        let group = self.groups.get(group_of(direction, packet.family, class))?;
        let mut matches = |rule: u32| {
            tried(rule);
            let test = self.tests.get(rule as usize);
            test.is_some_and(|test| test.matches(packet, &self.tables))
        };
        let last = u32::try_from(self.tests.len()).ok()?.checked_sub(1)?;
        let quick = group.quick.first(packet, &mut matches);
        let rule = quick.or_else(|| {
            let rank = group.others.first(packet, |rank| matches(last - rank));
            rank.map(|rank| last - rank)
        })?;
        self.decisions.get(rule as usize).copied()
    }
}

fn decision((number, rule): (u32, &Rule)) -> Decision {
    Decision {
        rule: number,
        action: rule.action,
        keep: rule.state == State::Keep,
        log: rule.log,
    }
}

impl Test {
    fn new(rule: &Rule) -> Test {
        let tests_ports = rule.from.port != PortTest::Any || rule.to.port != PortTest::Any;
        Test {
            from: address_test(&rule.from.address),
            to: address_test(&rule.to.address),
            from_port: PortRange::new(rule.from.port),
            to_port: PortRange::new(rule.to.port),
            flags: rule.flags,
            icmp: rule.icmp,
            protocol: rule.protocol,
            needs_transport: tests_ports || rule.icmp.is_some(),
        }
    }

    #[inline]
    fn matches(&self, packet: &Summary, tables: &[AddressTable]) -> bool {
        if self.protocol.is_some_and(|own| own != packet.protocol) {
            return false;
        }
        if packet.has_transport() {
            if !self.from_port.matches(packet.source_port)
                || !self.to_port.matches(packet.destination_port)
            {
                return false;
            }
            if packet.protocol == protocol::TCP && !self.flags.matches(packet.flags()) {
                return false;
            }
            if let Some(icmp) = self.icmp
                && (icmp.kind != packet.icmp_type
                    || icmp.code.is_some_and(|code| code != packet.icmp_code))
            {
                return false;
            }
        } else if self.needs_transport
            || (packet.protocol == protocol::TCP && self.flags != FlagTest::Any)
        {
            return false;
        }
        let family = packet.family;
        self.from.matches(family, packet.source, tables)
            && self.to.matches(family, packet.destination, tables)
    }
}

impl AddressTest {
    #[inline]
    fn matches(&self, family: Family, address: u128, tables: &[AddressTable]) -> bool {
        match *self {
            AddressTest::Any => true,
            AddressTest::Network {
                network,
                mask,
                negated,
            } => (address & mask == network) != negated,
            AddressTest::Table { index, negated } => {
                let table = tables.get(index as usize);
                table.is_some_and(|table| table.contains(family, address)) != negated
            }
        }
    }
}

#[cfg(test)]
mod tests;
