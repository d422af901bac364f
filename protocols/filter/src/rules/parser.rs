//! From tokens to rules: statements. A statement that can't be read is reported and skipped, so that
//! several mistakes are found at once.

use super::lexer::{Kind, Position, Token, lex};
use super::{Answer, ParseError, Rule, RuleSet, Table};
use skink_wire::IpCidr;
use std::collections::HashMap;

/// Mistakes that are reported; a file that isn't one of rules would have no end of them.
const MAXIMUM_ERRORS: usize = 50;

/// A mistake at a place.
pub(super) struct Problem {
    pub(super) at: Position,
    pub(super) message: String,
}

pub(super) type Parsed<T> = Result<T, Problem>;

/// A token to be read, and how many macros deep it comes from.
pub(super) struct Pending {
    pub(super) token: Token,
    pub(super) depth: u8,
}

pub(super) struct Parser {
    /// What is still to be read, the next one last.
    pub(super) pending: Vec<Pending>,
    pub(super) end: Position,
    pub(super) macros: HashMap<String, String>,
    pub(super) macro_tokens: usize,
    /// Braces that are open.
    pub(super) braces: u32,
    block_policy: Answer,
    pub(super) tables: Vec<Table>,
    /// Tables that were used before they were defined, by place.
    unknown_tables: Vec<(usize, Position)>,
    pub(super) rules: Vec<Rule>,
    skip: Vec<String>,
    problems: Vec<Problem>,
}

/// What pf has and Skink hasn't, at the beginning of a statement.
const UNSUPPORTED_STATEMENTS: [&str; 17] = [
    "nat",
    "rdr",
    "binat",
    "no",
    "match",
    "scrub",
    "queue",
    "altq",
    "anchor",
    "nat-anchor",
    "rdr-anchor",
    "binat-anchor",
    "load",
    "antispoof",
    "include",
    "ether",
    "state-policy",
];

const STATEMENTS: &str = "\"pass\", \"block\", \"table\", \"set\", or a macro (name = \"value\")";

pub(super) fn parse(text: &str) -> Result<RuleSet, Vec<ParseError>> {
    let mut tokens = lex(text);
    tokens.reverse();
    let end = tokens
        .first()
        .map_or_else(first_place, |end| end.at.clone());
    let pending = tokens.into_iter().map(|token| Pending { token, depth: 0 });
    let mut parser = Parser {
        pending: pending.collect(),
        end,
        macros: HashMap::new(),
        macro_tokens: 0,
        braces: 0,
        block_policy: Answer::Drop,
        tables: Vec::new(),
        unknown_tables: Vec::new(),
        rules: Vec::new(),
        skip: Vec::new(),
        problems: Vec::new(),
    };
    parser.file();
    if parser.problems.is_empty() {
        return Ok(RuleSet {
            rules: parser.rules,
            tables: parser.tables,
            skip: parser.skip,
        });
    }
    let lines: Vec<&str> = text.split('\n').collect();
    let mut errors: Vec<ParseError> = parser
        .problems
        .into_iter()
        .map(|problem| error(problem, &lines))
        .collect();
    errors.sort_by_key(|error| (error.line, error.column));
    Err(errors)
}

const fn first_place() -> Position {
    Position {
        line: 1,
        column: 1,
        length: 1,
        via: None,
    }
}

fn error(problem: Problem, lines: &[&str]) -> ParseError {
    let line = (problem.at.line as usize).saturating_sub(1);
    let text = lines.get(line).copied().unwrap_or_default();
    let message = match problem.at.via {
        Some(name) => format!("in ${name}: {}", problem.message),
        None => problem.message,
    };
    ParseError {
        line: problem.at.line,
        column: problem.at.column,
        length: problem.at.length,
        message,
        text: text.trim_end_matches('\r').to_owned(),
    }
}

impl Parser {
    fn file(&mut self) {
        loop {
            while self.take_newline() {}
            if self.peek().kind == Kind::End {
                break;
            }
            if let Err(problem) = self.statement() {
                self.problems.push(problem);
                if self.problems.len() >= MAXIMUM_ERRORS {
                    return;
                }
                self.skip_statement();
            }
            self.braces = 0;
        }
        for (index, at) in std::mem::take(&mut self.unknown_tables) {
            let name = self.tables.get(index).map(|table| table.name.as_str());
            let name = name.unwrap_or_default();
            let message = format!(
                "table <{name}> isn't defined: write a line such as table <{name}> {{ 192.0.2.0/24 }}"
            );
            self.problems.push(Problem { at, message });
        }
    }

    /// After a mistake: to the end of the line, or of the list that is open.
    fn skip_statement(&mut self) {
        loop {
            let open = self.braces > 0;
            match self.next().kind {
                Kind::End => return,
                Kind::Newline if !open => return,
                Kind::Newline
                | Kind::Word(_)
                | Kind::Quoted(_)
                | Kind::Macro(_)
                | Kind::Symbol(_)
                | Kind::Wrong(_) => {}
            }
        }
    }

    fn statement(&mut self) -> Parsed<()> {
        let first = self.next();
        let Kind::Word(word) = &first.kind else {
            return Err(unexpected(&first, STATEMENTS));
        };
        if self.take("=") {
            return self.define_macro(word.clone());
        }
        match word.as_str() {
            "pass" | "block" => self.rule(&first)?,
            "table" => self.table()?,
            "set" => self.set()?,
            name if UNSUPPORTED_STATEMENTS.contains(&name) => {
                return Err(unsupported(&first, name));
            }
            _ => return Err(unexpected(&first, STATEMENTS)),
        }
        self.end_of_statement("the end of the line")
    }

    pub(super) fn end_of_statement(&mut self, expected: &str) -> Parsed<()> {
        let next = self.next();
        match next.kind {
            Kind::Newline | Kind::End => Ok(()),
            Kind::Word(_) | Kind::Quoted(_) | Kind::Macro(_) | Kind::Symbol(_) | Kind::Wrong(_) => {
                Err(unexpected(&next, expected))
            }
        }
    }

    fn define_macro(&mut self, name: String) -> Parsed<()> {
        let mut value: Vec<String> = Vec::new();
        loop {
            let next = self.next();
            match &next.kind {
                Kind::Newline | Kind::End if value.is_empty() => {
                    return Err(unexpected(&next, "the macro's value, such as \"eth0\""));
                }
                Kind::Newline | Kind::End => break,
                Kind::Word(text) | Kind::Quoted(text) => value.push(text.clone()),
                Kind::Symbol(symbol @ ("/" | "!" | "<" | ">")) => value.push((*symbol).to_owned()),
                Kind::Symbol(_) => {
                    return Err(unexpected(
                        &next,
                        "the value in quotes, such as \"{ 80, 443 }\"",
                    ));
                }
                Kind::Macro(_) | Kind::Wrong(_) => {
                    return Err(unexpected(&next, "the macro's value"));
                }
            }
        }
        self.macros.insert(name, value.join(" "));
        Ok(())
    }

    fn set(&mut self) -> Parsed<()> {
        let option = self.next();
        match &option.kind {
            Kind::Word(word) if word == "block-policy" => {
                let policy = self.next();
                self.block_policy = match policy.word() {
                    Some("drop") => Answer::Drop,
                    Some("return") => Answer::Return,
                    _ => return Err(unexpected(&policy, "\"drop\" or \"return\"")),
                };
                Ok(())
            }
            Kind::Word(word) if word == "skip" => {
                let on = self.next();
                if on.word() != Some("on") {
                    return Err(unexpected(&on, "\"on\" and an interface"));
                }
                let interfaces = self.list(|parser| parser.name("an interface"))?;
                self.skip.extend(interfaces);
                Ok(())
            }
            Kind::Word(word) => Err(unsupported(&option, &format!("set {word}"))),
            Kind::Quoted(_)
            | Kind::Macro(_)
            | Kind::Symbol(_)
            | Kind::Newline
            | Kind::Wrong(_)
            | Kind::End => Err(unexpected(
                &option,
                "\"block-policy drop\", \"block-policy return\" or \"skip on\"",
            )),
        }
    }

    fn table(&mut self) -> Parsed<()> {
        let (name, at) = self.table_name()?;
        let mut entries = Vec::new();
        loop {
            let next = self.peek();
            match &next.kind {
                Kind::Word(word) if matches!(word.as_str(), "const" | "persist" | "counters") => {
                    self.next();
                }
                Kind::Word(word) if word == "file" => {
                    return Err(unsupported(&next, "a table from a file"));
                }
                Kind::Symbol("{") => {
                    self.next();
                    while self.take_newline() {}
                    // Unlike other lists, a table can be empty.
                    if !self.take("}") {
                        entries.extend(self.items(Parser::table_entry)?);
                    }
                }
                _ => break,
            }
        }
        let index = self.table_index(&name);
        let defined = self.unknown_tables.len();
        self.unknown_tables
            .retain(|(unknown, _)| Some(*unknown) != index);
        let was_used = self.unknown_tables.len() != defined;
        match self.tables.get_mut(index.unwrap_or(usize::MAX)) {
            Some(table) if was_used => table.entries = entries,
            Some(_) => {
                let message = format!("table <{name}> is defined twice");
                return Err(Problem { at, message });
            }
            None => self.tables.push(Table { name, entries }),
        }
        Ok(())
    }

    fn table_entry(&mut self) -> Parsed<(bool, IpCidr)> {
        let negated = self.take("!");
        Ok((negated, self.network()?))
    }

    /// `<name>`
    fn table_name(&mut self) -> Parsed<(String, Position)> {
        let open = self.next();
        if open.kind != Kind::Symbol("<") {
            return Err(unexpected(&open, "a table's name, such as <friends>"));
        }
        self.table_name_after_bracket()
    }

    pub(super) fn table_name_after_bracket(&mut self) -> Parsed<(String, Position)> {
        let name = self.next();
        let Some(text) = name.word() else {
            return Err(unexpected(&name, "a table's name"));
        };
        let text = text.to_owned();
        let close = self.next();
        if close.kind != Kind::Symbol(">") {
            return Err(unexpected(&close, "> after the table's name"));
        }
        Ok((text, name.at))
    }

    fn table_index(&self, name: &str) -> Option<usize> {
        self.tables.iter().position(|table| table.name == name)
    }

    /// The place of a table that a rule uses. It may be defined further below.
    pub(super) fn use_table(&mut self, name: String, at: Position) -> usize {
        if let Some(index) = self.table_index(&name) {
            return index;
        }
        let entries = Vec::new();
        self.tables.push(Table { name, entries });
        let index = self.tables.len() - 1;
        self.unknown_tables.push((index, at));
        index
    }

    pub(super) fn block_policy(&self) -> Answer {
        self.block_policy
    }
}

pub(super) fn unexpected(token: &Token, expected: &str) -> Problem {
    let message = match &token.kind {
        Kind::Word(word) => format!("expected {expected}, found {word:?}"),
        Kind::Quoted(text) => format!("expected {expected}, found the text {text:?}"),
        Kind::Symbol(symbol) => format!("expected {expected}, found \"{symbol}\""),
        Kind::Macro(name) => format!("expected {expected}, found ${name}"),
        Kind::Newline | Kind::End => format!("expected {expected}, but the line ends here"),
        Kind::Wrong(message) => message.clone(),
    };
    let at = token.at.clone();
    Problem { at, message }
}

pub(super) fn unsupported(token: &Token, what: &str) -> Problem {
    Problem {
        at: token.at.clone(),
        message: format!("\"{what}\" is not supported by Skink (docs/filter.md lists what is)"),
    }
}
