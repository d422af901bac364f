use std::fmt;

/// A place in a topology file, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in it.
    pub column: usize,
}

impl Position {
    /// The place of the byte at `offset`; the end of the text for an offset behind it.
    pub(crate) fn of(text: &str, offset: usize) -> Position {
        let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
        let start = before
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        // A character in UTF-8 has one byte that doesn't continue another.
        let characters = before
            .iter()
            .skip(start)
            .filter(|byte| **byte & 0xc0 != 0x80);
        Position {
            line,
            column: 1 + characters.count(),
        }
    }
}

/// One mistake in a topology: where, what, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopologyError {
    /// The file, or the preset.
    pub source: String,
    /// Where in it. None: the whole of it, such as a file that can't be read.
    pub position: Option<Position>,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(Position { line, column }) => {
                write!(f, "{}:{line}:{column}: {}", self.source, self.message)
            }
            None => write!(f, "{}: {}", self.source, self.message),
        }
    }
}

impl std::error::Error for TopologyError {}

/// All mistakes in a topology, in the order of the file; at least one. Its `Display` has a line for each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopologyErrors(pub Vec<TopologyError>);

impl fmt::Display for TopologyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for TopologyErrors {}
