//! From text to tokens.

use std::rc::Rc;

/// Where a token stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Position {
    /// From 1.
    pub(super) line: u32,
    /// From 1, in characters.
    pub(super) column: u32,
    /// In characters.
    pub(super) length: u32,
    /// The macro from which the token came; the position is where that is used.
    pub(super) via: Option<Rc<str>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A keyword, name, number or address.
    Word(String),
    /// Text in quotes.
    Quoted(String),
    /// `$name`
    Macro(String),
    /// Punctuation.
    Symbol(&'static str),
    /// The end of a line that isn't continued.
    Newline,
    /// Something that can't be a token; the text says why.
    Wrong(String),
    /// The end of the text.
    End,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: Position,
}

/// Two-character symbols come before the one-character ones that they begin with.
const SYMBOLS: [&str; 15] = [
    "<=", ">=", "!=", "><", "<>", "<", ">", "=", "!", "{", "}", "(", ")", ",", "/",
];

/// What a word can be made of, as in pf.
fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || (character.is_ascii_punctuation() && !"(){}<>!=/#,\"'$\\".contains(character))
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    column: u32,
    tokens: Vec<Token>,
}

/// All tokens of a text, the last of which is [`Kind::End`].
pub(super) fn lex(text: &str) -> Vec<Token> {
    let mut lexer = Lexer {
        rest: text,
        line: 1,
        column: 1,
        tokens: Vec::new(),
    };
    while lexer.step() {}
    lexer.tokens
}

impl Lexer<'_> {
    fn skip(&mut self, characters: usize) {
        for _ in 0..characters {
            let mut rest = self.rest.chars();
            match rest.next() {
                Some('\n') => {
                    self.line = self.line.saturating_add(1);
                    self.column = 1;
                }
                Some(_) => self.column = self.column.saturating_add(1),
                None => return,
            }
            self.rest = rest.as_str();
        }
    }

    /// Makes a token of the next `characters` characters.
    fn push(&mut self, kind: Kind, characters: usize) {
        let at = Position {
            line: self.line,
            column: self.column,
            length: u32::try_from(characters).unwrap_or(u32::MAX).max(1),
            via: None,
        };
        self.tokens.push(Token { kind, at });
        self.skip(characters);
    }

    /// The length of what makes the next line a part of this one, if that comes next.
    fn continued(&self) -> Option<usize> {
        let mut ends = ["\\\n", "\\\r\n"].into_iter();
        ends.find(|end| self.rest.starts_with(end)).map(str::len)
    }

    /// Reads one token, or skips what is none; whether there is more.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else {
            self.push(Kind::End, 0);
            return false;
        };
        if let Some(length) = self.continued() {
            self.skip(length);
            return true;
        }
        match first {
            '\n' => self.push(Kind::Newline, 1),
            _ if first.is_whitespace() => self.skip(1),
            '#' => {
                // As in pf, a backslash at the end of its line makes the next line one of the comment, too.
                while !self.rest.is_empty() && !self.rest.starts_with('\n') {
                    self.skip(self.continued().unwrap_or(1));
                }
            }
            '"' | '\'' => self.quoted(first),
            '$' => self.macro_name(),
            _ if is_word(first) => {
                let word: String = self.rest.chars().take_while(|c| is_word(*c)).collect();
                let length = word.chars().count();
                self.push(Kind::Word(word), length);
            }
            _ => match SYMBOLS
                .iter()
                .find(|symbol| self.rest.starts_with(**symbol))
            {
                Some(symbol) => self.push(Kind::Symbol(symbol), symbol.len()),
                None => {
                    let message = format!("the character {first:?} has no meaning here");
                    self.push(Kind::Wrong(message), 1);
                }
            },
        }
        true
    }

    fn quoted(&mut self, quote: char) {
        let line = self.rest.split('\n').next().unwrap_or_default();
        let inside = line.get(1..).unwrap_or_default();
        match inside.split_once(quote) {
            Some((text, _)) => {
                let length = text.chars().count() + 2;
                self.push(Kind::Quoted(text.to_owned()), length);
            }
            None => {
                let message = format!("the text isn't ended by another {quote} on its line");
                self.push(Kind::Wrong(message), line.chars().count());
            }
        }
    }

    fn macro_name(&mut self) {
        let name = self.rest.chars().skip(1);
        let name: String = name
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        let length = name.chars().count() + 1;
        let kind = if name.is_empty() {
            Kind::Wrong("a macro's name is missing after the $".to_owned())
        } else {
            Kind::Macro(name)
        };
        self.push(kind, length);
    }
}
