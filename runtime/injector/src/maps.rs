//! What a process has mapped (proc_pid_maps(5)).
use std::io;
use std::ops::Range;

/// One mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    pub(crate) range: Range<u64>,
    pub(crate) writable: bool,
    pub(crate) executable: bool,
    pub(crate) private: bool,
    /// Place in the file.
    pub(crate) offset: u64,
    /// Empty for memory without a file.
    pub(crate) path: String,
}

/// All mappings of a process.
pub(crate) fn read(pid: u32) -> io::Result<Vec<Mapping>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    Ok(text.lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = fields.next()?;
    let path = fields.nth(2).unwrap_or_default().trim();
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        range: number(start)?..number(end)?,
        writable: permissions.contains('w'),
        executable: permissions.contains('x'),
        private: permissions.contains('p'),
        offset: number(offset)?,
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests;
