//! Where a rule says from whom to whom.

use super::expand::Draft;
use super::lexer::{Kind, Token};
use super::names;
use super::options::decimal;
use super::parser::{Parsed, Parser, Problem, unexpected, unsupported};
use super::{Address, PortTest};
use skink_wire::IpCidr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ADDRESS: &str = "an address or network, such as 192.0.2.1 or 2001:db8::/32";
const PORT: &str =
    "a port: a number up to 65535, a service such as https, or a range such as 1000:1999";

impl Parser {
    /// `all`, or `from` and `to`, each of which may be left out.
    pub(super) fn peers(&mut self, draft: &mut Draft) -> Parsed<()> {
        if self.take_word("all") {
            return Ok(());
        }
        if self.take_word("from") {
            (draft.from, draft.from_ports) = self.peer(draft)?;
        }
        if self.take_word("to") {
            (draft.to, draft.to_ports) = self.peer(draft)?;
        }
        Ok(())
    }

    fn peer(&mut self, draft: &mut Draft) -> Parsed<(Vec<Address>, Vec<PortTest>)> {
        let mut addresses = Vec::new();
        let first = self.peek();
        if first.word() != Some("port") {
            addresses = self.list(Parser::address)?;
        }
        let next = self.peek();
        if next.word() == Some("os") {
            return Err(unsupported(&next, "os"));
        }
        let mut ports = Vec::new();
        if self.take_word("port") {
            draft.port_at.get_or_insert(next.at);
            ports = self.list(Parser::port)?;
        }
        Ok((addresses, ports))
    }

    fn address(&mut self) -> Parsed<Address> {
        let negated = self.take("!");
        if self.take("<") {
            let (name, at) = self.table_name_after_bracket()?;
            let index = self.use_table(name, at);
            return Ok(Address::Table { negated, index });
        }
        let next = self.peek();
        if next.word() == Some("any") {
            self.next();
            if negated {
                let at = next.at;
                let message = "\"! any\" matches nothing".to_owned();
                return Err(Problem { at, message });
            }
            return Ok(Address::Any);
        }
        let network = self.network()?;
        Ok(Address::Network { negated, network })
    }

    /// An address, with a prefix length or without. IPv4 networks may leave out octets, as in `10/8`.
    pub(super) fn network(&mut self) -> Parsed<IpCidr> {
        let first = self.next();
        let word = match &first.kind {
            Kind::Word(word) => word.clone(),
            Kind::Symbol("(") => return Err(unsupported(&first, "an interface as an address")),
            _ => return Err(unexpected(&first, ADDRESS)),
        };
        if matches!(word.as_str(), "self" | "no-route" | "urpf-failed" | "route") {
            return Err(unsupported(&first, &word));
        }
        let mut prefix = None;
        if self.take("/") {
            let next = self.next();
            let bits: Option<u8> = next.word().and_then(decimal);
            let bits = bits.ok_or_else(|| unexpected(&next, "a prefix length, such as 24"))?;
            prefix = Some((bits, next));
        }
        let next = self.peek();
        if next.word() == Some("-") {
            return Err(unsupported(&next, "a range of addresses"));
        }
        let address =
            read_address(&word, prefix.is_some()).ok_or_else(|| not_address(&first, &word))?;
        let (bits, place) = match prefix {
            Some(given) => given,
            None if address.is_ipv4() => (32, first),
            None => (128, first),
        };
        match IpCidr::new(address, bits) {
            Ok(network) => Ok(network.network()),
            Err(error) => Err(Problem {
                at: place.at,
                message: error.to_string(),
            }),
        }
    }

    fn port(&mut self) -> Parsed<PortTest> {
        let next = self.peek();
        if let Kind::Symbol(symbol @ ("=" | "!=" | "<" | "<=" | ">" | ">=")) = next.kind {
            self.next();
            let place = self.next();
            let port = place.word().and_then(read_port);
            let port = port.ok_or_else(|| unexpected(&place, PORT))?;
            return Ok(match symbol {
                "=" => PortTest::Equal(port),
                "!=" => PortTest::Unequal(port),
                "<" => PortTest::Below(port),
                "<=" => PortTest::AtMost(port),
                ">" => PortTest::Above(port),
                _ => PortTest::AtLeast(port),
            });
        }
        let first = self.next();
        let word = first.word().ok_or_else(|| unexpected(&first, PORT))?;
        if let Some((low, high)) = word.split_once(':') {
            let ports = read_port(low).zip(read_port(high));
            let (low, high) = ports.ok_or_else(|| unexpected(&first, PORT))?;
            return ordered(&first, low, high, PortTest::Range);
        }
        let port = read_port(word).ok_or_else(|| unexpected(&first, PORT))?;
        let make = match self.peek().kind {
            Kind::Symbol("><") => PortTest::Between,
            Kind::Symbol("<>") => PortTest::Except,
            _ => return Ok(PortTest::Equal(port)),
        };
        self.next();
        let place = self.next();
        let last = place.word().and_then(read_port);
        let last = last.ok_or_else(|| unexpected(&place, PORT))?;
        ordered(&place, port, last, make)
    }
}

fn ordered(
    place: &Token,
    low: u16,
    high: u16,
    make: impl Fn(u16, u16) -> PortTest,
) -> Parsed<PortTest> {
    if low <= high {
        return Ok(make(low, high));
    }
    Err(Problem {
        at: place.at.clone(),
        message: format!("the range is upside down: write {high} first and {low} second"),
    })
}

fn read_port(word: &str) -> Option<u16> {
    decimal(word).or_else(|| names::service(word))
}

fn read_address(word: &str, has_prefix: bool) -> Option<IpAddr> {
    if let Ok(address) = word.parse::<Ipv4Addr>() {
        return Some(address.into());
    }
    if let Ok(address) = word.parse::<Ipv6Addr>() {
        return Some(address.into());
    }
    let octets: Vec<&str> = word.split('.').collect();
    if !has_prefix || octets.len() > 3 {
        return None;
    }
    let mut address = [0; 4];
    for (octet, text) in address.iter_mut().zip(octets) {
        *octet = decimal(text)?;
    }
    Some(Ipv4Addr::from(address).into())
}

fn not_address(token: &Token, word: &str) -> Problem {
    if word.contains('%') {
        return unsupported(token, "an address with a zone");
    }
    let mut problem = unexpected(token, ADDRESS);
    if word.starts_with(|first: char| first.is_ascii_alphabetic()) && !word.contains(':') {
        problem
            .message
            .push_str(" (names of hosts and interfaces are not supported by Skink as addresses)");
    }
    problem
}
