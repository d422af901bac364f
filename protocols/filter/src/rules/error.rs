use core::fmt;

/// A mistake in a file of rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1, in characters.
    pub column: u32,
    /// How many characters are meant; at least 1.
    pub length: u32,
    /// What is wrong, and what was expected.
    pub message: String,
    /// The line itself.
    pub text: String,
}

/// `LINE:COLUMN: what is wrong`, the line, and a caret below the place.
impl fmt::Display for ParseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}:{}: {}", self.line, self.column, self.message)?;
        let before = (self.column as usize).saturating_sub(1);
        // Tabs stay tabs, so that the caret stands where the terminal shows the place.
        let indent = self.text.chars().take(before);
        let indent: String = indent.map(|c| if c == '\t' { c } else { ' ' }).collect();
        let room = self.text.chars().count().saturating_sub(before).max(1);
        let carets = "^".repeat((self.length as usize).clamp(1, room));
        writeln!(formatter, "    {}", self.text)?;
        write!(formatter, "    {indent}{carets}")
    }
}

impl core::error::Error for ParseError {}
