//! Lists in a rule stand for a rule each, in pf's order: the last list varies fastest.

use super::display::is_request_default;
use super::lexer::Position;
use super::parser::{Parsed, Parser, Problem};
use super::{Action, Address, FlagTest, IcmpTest, Interface, Peer, PortTest, Rule, State};
use crate::summary::Family;
use crate::verdict::Direction;
use skink_wire::protocol;

/// The most rules that a file may have, after expansion.
const MAXIMUM_RULES: usize = 65_536;

/// A rule as it is written. An empty list stands for "any".
pub(super) struct Draft {
    pub(super) action: Action,
    pub(super) at: Position,
    pub(super) direction: Option<Direction>,
    pub(super) log: bool,
    pub(super) quick: bool,
    pub(super) interfaces: Vec<Interface>,
    pub(super) family: Option<Family>,
    pub(super) protocols: Vec<u8>,
    pub(super) from: Vec<Address>,
    pub(super) from_ports: Vec<PortTest>,
    pub(super) to: Vec<Address>,
    pub(super) to_ports: Vec<PortTest>,
    /// Where the first port is asked for.
    pub(super) port_at: Option<Position>,
    pub(super) flags: Option<(FlagTest, Position)>,
    pub(super) icmp: Vec<IcmpTest>,
    pub(super) state: Option<State>,
    pub(super) label: Option<String>,
}

impl Draft {
    pub(super) fn new(action: Action, at: Position) -> Draft {
        Draft {
            action,
            at,
            direction: None,
            log: false,
            quick: false,
            interfaces: Vec::new(),
            family: None,
            protocols: Vec::new(),
            from: Vec::new(),
            from_ports: Vec::new(),
            to: Vec::new(),
            to_ports: Vec::new(),
            port_at: None,
            flags: None,
            icmp: Vec::new(),
            state: None,
            label: None,
        }
    }

    /// What is wrong with the rule as a whole.
    fn check(&self) -> Parsed<()> {
        let all_are = |wanted: &[u8]| {
            !self.protocols.is_empty() && self.protocols.iter().all(|one| wanted.contains(one))
        };
        if let Some(at) = &self.port_at
            && !all_are(&[protocol::TCP, protocol::UDP])
        {
            return Err(Problem {
                at: at.clone(),
                message: "a port needs \"proto tcp\", \"proto udp\" or \"proto { tcp, udp }\" in the rule"
                    .to_owned(),
            });
        }
        if let Some((FlagTest::Exactly { .. }, at)) = &self.flags
            && !self.protocols.is_empty()
            && !self.protocols.contains(&protocol::TCP)
        {
            return Err(Problem {
                at: at.clone(),
                message: "flags are those of TCP: write \"proto tcp\"".to_owned(),
            });
        }
        if matches!(self.action, Action::Block(_)) && self.state == Some(State::Keep) {
            return Err(Problem {
                at: self.at.clone(),
                message: "a block rule lets nothing pass of which to keep state".to_owned(),
            });
        }
        Ok(())
    }

    /// How many rules it stands for.
    fn count(&self) -> usize {
        let lengths = [
            self.interfaces.len(),
            self.protocols.len(),
            self.icmp.len(),
            self.from.len(),
            self.from_ports.len(),
            self.to.len(),
            self.to_ports.len(),
        ];
        let factors = lengths.into_iter().map(|length| length.max(1));
        factors.fold(1, usize::saturating_mul)
    }

    /// One of the rules; `None` where its addresses, or they and the protocol, are of different IP versions.
    fn rule(
        &self,
        interface: Option<&Interface>,
        protocol: Option<u8>,
        icmp: Option<IcmpTest>,
        from: Peer,
        to: Peer,
    ) -> Option<Rule> {
        let mut family = self.family;
        for peer in [&from, &to] {
            if let Address::Network { network, .. } = &peer.address {
                let own = Family::of(network.addr);
                if family.is_some_and(|family| family != own) {
                    return None;
                }
                family = Some(own);
            }
        }
        match (protocol, family) {
            (Some(protocol::ICMP), Some(Family::V6)) => return None,
            (Some(protocol::ICMPV6), Some(Family::V4)) => return None,
            _ => {}
        }
        let state = match self.action {
            Action::Pass => self.state.unwrap_or(State::Keep),
            Action::Block(_) => State::No,
        };
        let mut rule = Rule {
            action: self.action,
            direction: self.direction,
            log: self.log,
            quick: self.quick,
            interface: interface.cloned(),
            family,
            protocol,
            from,
            to,
            flags: FlagTest::Any,
            icmp,
            state,
            label: self.label.clone(),
            line: self.at.line,
        };
        rule.flags = match &self.flags {
            Some((flags, _)) if protocol.is_none_or(|one| one == protocol::TCP) => *flags,
            None if is_request_default(&rule) => FlagTest::REQUEST,
            Some(_) | None => FlagTest::Any,
        };
        Some(rule)
    }
}

/// The items of a list, or once "any" for an empty one.
fn each<T: Clone>(items: &[T]) -> impl Iterator<Item = Option<&T>> {
    let any = items.is_empty().then_some(None);
    items.iter().map(Some).chain(any)
}

/// All combinations of an address and a port.
fn peers(addresses: &[Address], ports: &[PortTest]) -> Vec<Peer> {
    let mut peers = Vec::new();
    for address in each(addresses) {
        for port in each(ports) {
            peers.push(Peer {
                address: address.cloned().unwrap_or(Address::Any),
                port: port.copied().unwrap_or(PortTest::Any),
            });
        }
    }
    peers
}

impl Parser {
    /// Adds the rules that a draft stands for.
    pub(super) fn expand(&mut self, draft: Draft) -> Parsed<()> {
        draft.check()?;
        if draft.count().saturating_add(self.rules.len()) > MAXIMUM_RULES {
            return Err(Problem {
                at: draft.at,
                message: format!(
                    "more than {MAXIMUM_RULES} rules: put addresses into a table instead of a list"
                ),
            });
        }
        let before = self.rules.len();
        let from = peers(&draft.from, &draft.from_ports);
        let to = peers(&draft.to, &draft.to_ports);
        for interface in each(&draft.interfaces) {
            for protocol in each(&draft.protocols) {
                for icmp in each(&draft.icmp) {
                    for from in &from {
                        for to in &to {
                            let (protocol, icmp) = (protocol.copied(), icmp.copied());
                            let (from, to) = (from.clone(), to.clone());
                            let rule = draft.rule(interface, protocol, icmp, from, to);
                            self.rules.extend(rule);
                        }
                    }
                }
            }
        }
        if self.rules.len() == before {
            return Err(Problem {
                at: draft.at,
                message:
                    "no packet can match: its addresses and protocol are of different IP versions"
                        .to_owned(),
            });
        }
        Ok(())
    }
}
