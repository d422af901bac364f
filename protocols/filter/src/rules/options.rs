//! The statement `pass` or `block`.

use super::expand::Draft;
use super::lexer::{Kind, Token};
use super::names;
use super::parser::{Parsed, Parser, Problem, unexpected, unsupported};
use super::{Action, Answer, FlagTest, IcmpTest, Interface, State};
use crate::summary::Family;
use crate::verdict::Direction;
use skink_wire::protocol;

/// What pf has and Skink hasn't, behind the addresses of a rule.
const UNSUPPORTED_OPTIONS: [&str; 27] = [
    "route-to",
    "reply-to",
    "dup-to",
    "rtable",
    "tag",
    "tagged",
    "!tagged",
    "user",
    "group",
    "tos",
    "prio",
    "set",
    "queue",
    "probability",
    "allow-opts",
    "once",
    "nat-to",
    "rdr-to",
    "binat-to",
    "af-to",
    "divert-to",
    "divert-packet",
    "received-on",
    "os",
    "fragment",
    "max-pkt-rate",
    "scrub",
];

impl Parser {
    /// A rule, of which the first word was taken.
    pub(super) fn rule(&mut self, first: &Token) -> Parsed<()> {
        let action = match first.word() {
            Some("pass") => Action::Pass,
            _ => Action::Block(self.answer()?),
        };
        let mut draft = Draft::new(action, first.at.clone());
        draft.direction = self.direction();
        draft.log = self.log()?;
        draft.quick = self.take_word("quick");
        if self.take_word("on") {
            draft.interfaces = self.list(Parser::interface)?;
        }
        draft.family = match self.peek().word() {
            Some("inet") => Some(Family::V4),
            Some("inet6") => Some(Family::V6),
            _ => None,
        };
        if draft.family.is_some() {
            self.next();
        }
        if self.take_word("proto") {
            draft.protocols = self.list(Parser::protocol)?;
        }
        self.peers(&mut draft)?;
        while self.option(&mut draft)? {}
        self.expand(draft)
    }

    fn answer(&mut self) -> Parsed<Answer> {
        let next = self.peek();
        let answer = match next.word() {
            Some("drop") => Answer::Drop,
            Some("return") => Answer::Return,
            Some(word @ ("return-rst" | "return-icmp" | "return-icmp6")) => {
                let mut problem = unsupported(&next, word);
                problem.message.push_str("; write \"block return\"");
                return Err(problem);
            }
            _ => return Ok(self.block_policy()),
        };
        self.next();
        Ok(answer)
    }

    fn direction(&mut self) -> Option<Direction> {
        if self.take_word("in") {
            Some(Direction::In)
        } else if self.take_word("out") {
            Some(Direction::Out)
        } else {
            None
        }
    }

    fn log(&mut self) -> Parsed<bool> {
        if !self.take_word("log") {
            return Ok(false);
        }
        let next = self.peek();
        match next.kind {
            Kind::Symbol("(") => Err(unsupported(&next, "log (...)")),
            _ => Ok(true),
        }
    }

    fn interface(&mut self) -> Parsed<Interface> {
        let negated = self.take("!");
        let name = self.name("an interface's name")?;
        Ok(Interface { negated, name })
    }

    fn protocol(&mut self) -> Parsed<u8> {
        let next = self.next();
        let known = next.word().and_then(|word| {
            let by_name = names::protocol(word);
            by_name.or_else(|| decimal(word))
        });
        known.ok_or_else(|| {
            unexpected(
                &next,
                "a protocol: tcp, udp, icmp, icmp6 or a number from 0 to 255",
            )
        })
    }

    /// One of the options in the end of a rule, in any order; whether there was one.
    fn option(&mut self, draft: &mut Draft) -> Parsed<bool> {
        let next = self.peek();
        let word = match &next.kind {
            Kind::Word(word) => word.as_str(),
            Kind::Newline | Kind::End => return Ok(false),
            _ => return Err(unexpected(&next, OPTIONS)),
        };
        self.next();
        let was_there = match word {
            "flags" => draft.flags.is_some(),
            "icmp-type" | "icmp6-type" => !draft.icmp.is_empty(),
            "label" => draft.label.is_some(),
            _ => false,
        };
        if was_there {
            let at = next.at.clone();
            let message = format!("{word:?} stands twice in the rule");
            return Err(Problem { at, message });
        }
        match word {
            "flags" => draft.flags = Some((self.flags()?, next.at)),
            "icmp-type" => self.icmp(draft, Family::V4, &next)?,
            "icmp6-type" => self.icmp(draft, Family::V6, &next)?,
            "keep" | "no" => {
                self.state_word(&next)?;
                let state = if word == "no" { State::No } else { State::Keep };
                if draft.state.is_some_and(|earlier| earlier != state) {
                    let message = "\"keep state\" and \"no state\" exclude each other".to_owned();
                    let at = next.at;
                    return Err(Problem { at, message });
                }
                draft.state = Some(state);
            }
            "modulate" | "synproxy" => {
                let mut problem = unsupported(&next, &format!("{word} state"));
                problem.message.push_str("; write \"keep state\"");
                return Err(problem);
            }
            "label" => draft.label = Some(self.name("the label in quotes")?),
            _ if EARLIER_WORDS.contains(&word) => {
                let at = next.at.clone();
                let message = format!("{word:?} stands too late or twice: the order is {ORDER}");
                return Err(Problem { at, message });
            }
            _ if UNSUPPORTED_OPTIONS.contains(&word) => return Err(unsupported(&next, word)),
            _ => return Err(unexpected(&next, OPTIONS)),
        }
        Ok(true)
    }

    fn state_word(&mut self, before: &Token) -> Parsed<()> {
        let next = self.next();
        if next.word() != Some("state") {
            return Err(unexpected(&next, "\"state\""));
        }
        let options = self.peek();
        match options.kind {
            Kind::Symbol("(") if before.word() == Some("keep") => {
                Err(unsupported(&options, "keep state (...)"))
            }
            _ => Ok(()),
        }
    }

    fn flags(&mut self) -> Parsed<FlagTest> {
        if self.take_word("any") {
            return Ok(FlagTest::Any);
        }
        let expected = "flags such as S/SA, of the letters FSRPAUEW, or \"any\"";
        let mut set = skink_wire::tcp::Flags::EMPTY;
        let first = self.peek();
        if let Some(letters) = first.word() {
            set = names::flags(letters).ok_or_else(|| unexpected(&first, expected))?;
            self.next();
        }
        let slash = self.next();
        if slash.kind != Kind::Symbol("/") {
            return Err(unexpected(&slash, expected));
        }
        let last = self.next();
        let mask = last.word().and_then(names::flags);
        let mask = mask.ok_or_else(|| unexpected(&last, expected))?;
        if !mask.contains(set) {
            let at = last.at;
            let message =
                "a flag before the / isn't among those after it: no segment matches".to_owned();
            return Err(Problem { at, message });
        }
        Ok(FlagTest::Exactly { set, mask })
    }

    fn icmp(&mut self, draft: &mut Draft, family: Family, word: &Token) -> Parsed<()> {
        let wanted = match family {
            Family::V4 => protocol::ICMP,
            Family::V6 => protocol::ICMPV6,
        };
        if draft.protocols != [wanted] {
            let name = names::protocol_name(wanted).unwrap_or_default();
            let at = word.at.clone();
            let message = format!("this needs \"proto {name}\" in the rule, and no other protocol");
            return Err(Problem { at, message });
        }
        draft.icmp = self.list(|parser| parser.icmp_test(family))?;
        Ok(())
    }

    fn icmp_test(&mut self, family: Family) -> Parsed<IcmpTest> {
        let next = self.next();
        let kind = next
            .word()
            .and_then(|word| names::icmp_type(family, word).or_else(|| decimal(word)));
        let kind = kind.ok_or_else(|| {
            unexpected(
                &next,
                "an ICMP type, such as echoreq or a number from 0 to 255",
            )
        })?;
        let mut code = None;
        if self.take_word("code") {
            let next = self.next();
            let known = next
                .word()
                .and_then(|word| names::icmp_code(family, kind, word).or_else(|| decimal(word)));
            let expected = "a code of this ICMP type: a name or a number from 0 to 255";
            code = Some(known.ok_or_else(|| unexpected(&next, expected))?);
        }
        Ok(IcmpTest { kind, code })
    }
}

/// Words that stand before the options.
const EARLIER_WORDS: [&str; 13] = [
    "drop", "return", "in", "out", "log", "quick", "on", "inet", "inet6", "proto", "all", "from",
    "to",
];

const ORDER: &str = "in or out, log, quick, on, inet or inet6, proto, from, to, and then options";

const OPTIONS: &str = "\"flags\", \"icmp-type\", \"icmp6-type\", \"keep state\", \"no state\", \
    \"label\" or the end of the line";

/// A number in digits; `from_str` would take a plus sign.
pub(super) fn decimal<T: core::str::FromStr>(word: &str) -> Option<T> {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|_| is_number)
}
