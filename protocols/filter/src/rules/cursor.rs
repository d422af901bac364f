//! How the parser reads tokens: one by one, with macros replaced by what they stand for.

use super::lexer::{Kind, Token, lex};
use super::parser::{Parsed, Parser, Pending, unexpected};
use std::rc::Rc;

/// Macros used in macros, so deep.
const MAXIMUM_DEPTH: u8 = 16;
/// Tokens that macros may turn into, in all: they can double at each level.
const MAXIMUM_MACRO_TOKENS: usize = 200_000;

impl Parser {
    /// One item, or several in braces.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Parser) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        if !self.take("{") {
            return Ok(vec![item(self)?]);
        }
        self.items(item)
    }

    /// What follows an opening brace: at least one item. Commas between them are optional, as in pf.
    pub(super) fn items<T>(
        &mut self,
        mut item: impl FnMut(&mut Parser) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        loop {
            while self.take_newline() || (!items.is_empty() && self.take(",")) {}
            if !items.is_empty() && self.take("}") {
                return Ok(items);
            }
            let next = self.peek();
            if next.kind == Kind::End {
                return Err(unexpected(&next, "} at the end of the list"));
            }
            items.push(item(self)?);
        }
    }

    /// A word or a quoted text.
    pub(super) fn name(&mut self, expected: &str) -> Parsed<String> {
        let next = self.next();
        match next.kind {
            Kind::Word(text) | Kind::Quoted(text) => Ok(text),
            Kind::Macro(_) | Kind::Symbol(_) | Kind::Newline | Kind::Wrong(_) | Kind::End => {
                Err(unexpected(&next, expected))
            }
        }
    }

    pub(super) fn take(&mut self, symbol: &str) -> bool {
        let is_next = matches!(self.peek().kind, Kind::Symbol(next) if next == symbol);
        if is_next {
            self.next();
        }
        is_next
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let is_next = self.peek().word() == Some(word);
        if is_next {
            self.next();
        }
        is_next
    }

    pub(super) fn take_newline(&mut self) -> bool {
        let is_next = self.peek().kind == Kind::Newline;
        if is_next {
            self.next();
        }
        is_next
    }

    /// The next token, which stays.
    pub(super) fn peek(&mut self) -> Token {
        self.expand_macros();
        match self.pending.last() {
            Some(pending) => pending.token.clone(),
            None => Token {
                kind: Kind::End,
                at: self.end.clone(),
            },
        }
    }

    /// Takes the next token.
    pub(super) fn next(&mut self) -> Token {
        let token = self.peek();
        // The end is never used up.
        if token.kind != Kind::End {
            self.pending.pop();
        }
        match token.kind {
            Kind::Symbol("{") => self.braces = self.braces.saturating_add(1),
            Kind::Symbol("}") => self.braces = self.braces.saturating_sub(1),
            _ => {}
        }
        token
    }

    /// Replaces a macro that stands next by what it stands for.
    fn expand_macros(&mut self) {
        while let Some(Pending { token, depth }) = self.pending.last() {
            let Kind::Macro(name) = &token.kind else {
                return;
            };
            let (depth, mut at) = (*depth, token.at.clone());
            let wrong = |message: String| Token {
                kind: Kind::Wrong(message),
                at: token.at.clone(),
            };
            let tokens = match self.macros.get(name) {
                None => vec![wrong(format!(
                    "the macro ${name} isn't defined: write a line such as {name} = \"value\" above"
                ))],
                Some(_) if depth >= MAXIMUM_DEPTH => {
                    vec![wrong(format!("the macro ${name} contains itself"))]
                }
                Some(value) => {
                    at.via.get_or_insert_with(|| Rc::from(name.as_str()));
                    let mut tokens = lex(value);
                    tokens.retain(|token| !matches!(token.kind, Kind::End | Kind::Newline));
                    for token in &mut tokens {
                        token.at = at.clone();
                    }
                    tokens
                }
            };
            self.macro_tokens = self.macro_tokens.saturating_add(tokens.len() + 1);
            let tokens = match self.macro_tokens > MAXIMUM_MACRO_TOKENS {
                true => vec![wrong("the macros grow beyond all bounds".to_owned())],
                false => tokens,
            };
            self.pending.pop();
            let depth = depth.saturating_add(1);
            let tokens = tokens.into_iter().rev();
            self.pending
                .extend(tokens.map(|token| Pending { token, depth }));
        }
    }
}

impl Token {
    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            Kind::Quoted(_)
            | Kind::Macro(_)
            | Kind::Symbol(_)
            | Kind::Newline
            | Kind::Wrong(_)
            | Kind::End => None,
        }
    }
}
