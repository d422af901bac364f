use super::frame::Frame;
use skink_wire::{IpCidr, ethernet, protocol};
use std::net::IpAddr;

/// Deepest nesting of parentheses and `not`.
const MAXIMUM_DEPTH: usize = 100;

/// Which frames to show: a subset of tcpdump's language.
#[derive(Clone, PartialEq, Debug)]
pub enum Filter {
    Everything,
    Not(Box<Filter>),
    And(Box<Filter>, Box<Filter>),
    Or(Box<Filter>, Box<Filter>),
    /// A transport protocol, by its number.
    Protocol(u8),
    EtherType(u16),
    Network(Side, IpCidr),
    Port(Side, u16),
}

/// Which end of a packet must match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Source,
    Destination,
    Either,
}

impl Side {
    fn test<T>(self, source: Option<T>, destination: Option<T>, good: impl Fn(T) -> bool) -> bool {
        let source = || source.is_some_and(&good);
        match self {
            Side::Source => source(),
            Side::Destination => destination.is_some_and(&good),
            Side::Either => source() || destination.is_some_and(&good),
        }
    }
}

impl Filter {
    /// Reads a filter; nothing at all stands for everything. An error is a sentence.
    pub fn parse(text: &str) -> Result<Filter, String> {
        let words = split(text);
        if words.is_empty() {
            return Ok(Filter::Everything);
        }
        let mut parser = Parser {
            words: &words,
            at: 0,
        };
        let filter = parser.any_of(0)?;
        match parser.peek() {
            None => Ok(filter),
            Some(word) => Err(parser.wrong(word)),
        }
    }

    /// Whether to show the frame.
    pub fn matches(&self, frame: &Frame) -> bool {
        match self {
            Filter::Everything => true,
            Filter::Not(filter) => !filter.matches(frame),
            Filter::And(first, second) => first.matches(frame) && second.matches(frame),
            Filter::Or(first, second) => first.matches(frame) || second.matches(frame),
            Filter::Protocol(number) => frame.protocol == Some(*number),
            Filter::EtherType(number) => frame.ether_type == *number,
            Filter::Network(side, network) => {
                side.test(frame.source, frame.destination, |address| {
                    network.contains(address)
                })
            }
            Filter::Port(side, port) => {
                side.test(frame.source_port, frame.destination_port, |found| {
                    found == *port
                })
            }
        }
    }
}

/// Words; parentheses and `!` are words of their own.
fn split(text: &str) -> Vec<String> {
    let spaced = text
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('!', " ! ");
    spaced.split_whitespace().map(str::to_lowercase).collect()
}

struct Parser<'a> {
    words: &'a [String],
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(String::as_str)
    }

    fn take(&mut self, any: &[&str]) -> bool {
        let there = self.peek().is_some_and(|word| any.contains(&word));
        self.at += usize::from(there);
        there
    }

    fn wrong(&self, word: &str) -> String {
        format!(
            "the filter can't be understood at \"{word}\": it knows host A, net A/P, port N (after src or dst if wanted), tcp, udp, icmp, icmp6, arp, ip, ip6, and, or, not and parentheses"
        )
    }

    /// `or` binds less than `and`.
    fn any_of(&mut self, depth: usize) -> Result<Filter, String> {
        let mut filter = self.all_of(depth)?;
        while self.take(&["or", "||"]) {
            let other = self.all_of(depth)?;
            filter = Filter::Or(Box::new(filter), Box::new(other));
        }
        Ok(filter)
    }

    fn all_of(&mut self, depth: usize) -> Result<Filter, String> {
        let mut filter = self.factor(depth)?;
        while self.take(&["and", "&&"]) {
            let other = self.factor(depth)?;
            filter = Filter::And(Box::new(filter), Box::new(other));
        }
        Ok(filter)
    }

    fn factor(&mut self, depth: usize) -> Result<Filter, String> {
        if depth > MAXIMUM_DEPTH {
            return Err("the filter is nested too deeply".to_owned());
        }
        if self.take(&["not", "!"]) {
            let filter = self.factor(depth + 1)?;
            return Ok(Filter::Not(Box::new(filter)));
        }
        if self.take(&["("]) {
            let filter = self.any_of(depth + 1)?;
            return match self.take(&[")"]) {
                true => Ok(filter),
                false => Err("a parenthesis of the filter isn't closed".to_owned()),
            };
        }
        self.primitive()
    }

    /// A protocol, or what an end must be, or both as in `tcp dst port 80`.
    fn primitive(&mut self) -> Result<Filter, String> {
        let kind = match self.peek() {
            Some("tcp") => Some(Filter::Protocol(protocol::TCP)),
            Some("udp") => Some(Filter::Protocol(protocol::UDP)),
            Some("icmp") => Some(Filter::Protocol(protocol::ICMP)),
            Some("icmp6") => Some(Filter::Protocol(protocol::ICMPV6)),
            Some("arp") => Some(Filter::EtherType(ethernet::ARP)),
            Some("ip") => Some(Filter::EtherType(ethernet::IPV4)),
            Some("ip6") => Some(Filter::EtherType(ethernet::IPV6)),
            Some(_) | None => None,
        };
        let Some(kind) = kind else {
            return self.end();
        };
        self.at += 1;
        match self.peek() {
            Some("src" | "dst" | "host" | "net" | "port") => {
                Ok(Filter::And(Box::new(kind), Box::new(self.end()?)))
            }
            Some(_) | None => Ok(kind),
        }
    }

    fn end(&mut self) -> Result<Filter, String> {
        let side = match self.peek() {
            Some("src") => Side::Source,
            Some("dst") => Side::Destination,
            Some(_) | None => Side::Either,
        };
        self.at += usize::from(side != Side::Either);
        let what = self.peek();
        match what {
            Some("host") => {
                self.at += 1;
                self.host(side)
            }
            Some("net") => {
                self.at += 1;
                let word = self.value("net")?;
                let network = word.parse::<IpCidr>();
                network
                    .map(|network| Filter::Network(side, network))
                    .map_err(|error| format!("after \"net\", \"{word}\": {error}"))
            }
            Some("port") => {
                self.at += 1;
                let word = self.value("port")?;
                let port = word.parse().map_err(|_| {
                    format!("after \"port\", \"{word}\" isn't a number from 0 to 65535")
                })?;
                Ok(Filter::Port(side, port))
            }
            Some(word) if side != Side::Either || word.parse::<IpAddr>().is_ok() => self.host(side),
            Some(word) => Err(self.wrong(word)),
            None => Err("the filter ends where something should follow".to_owned()),
        }
    }

    fn host(&mut self, side: Side) -> Result<Filter, String> {
        let word = self.value("host")?;
        let address: IpAddr = word.parse().map_err(|_| {
            format!("after \"host\", \"{word}\" isn't an IP address (names aren't looked up)")
        })?;
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        let host = IpCidr::new(address, prefix).map_err(|error| error.to_string())?;
        Ok(Filter::Network(side, host))
    }

    fn value(&mut self, after: &str) -> Result<&'a str, String> {
        let word = self
            .peek()
            .ok_or_else(|| format!("the filter ends after \"{after}\""))?;
        self.at += 1;
        Ok(word)
    }
}

#[cfg(test)]
mod tests;
