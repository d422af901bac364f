//! What the head of a program file says about whether a library can be preloaded into it.

/// What kind of program a file is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Starts the dynamic loader of this path, which takes `LD_PRELOAD`.
    Dynamic(String),
    /// No loader: nothing can be preloaded.
    Static,
    /// For another machine or word size.
    Foreign,
    /// `#!`: the interpreter and its argument, if there is one.
    Script(String, Option<String>),
    /// Neither.
    Unknown,
}

const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(target_arch = "riscv64")]
const MACHINE: u16 = 243;

const PT_INTERP: u32 = 3;
const PROGRAM_HEADER_BYTES: usize = 56;

/// Reads the head of a file. `bytes` is its beginning, long enough for the program headers and the
/// loader's name, which linkers put right behind (a few KiB).
pub fn kind(bytes: &[u8]) -> Kind {
    if let Some(rest) = bytes.strip_prefix(b"#!") {
        return script(rest);
    }
    if !bytes.starts_with(b"\x7fELF") {
        return Kind::Unknown;
    }
    let half = |at: usize| Some(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    if bytes.get(4) != Some(&CLASS_64)
        || bytes.get(5) != Some(&LITTLE_ENDIAN)
        || half(18) != Some(MACHINE)
    {
        return Kind::Foreign;
    }
    let headers = long(bytes, 32).and_then(|at| usize::try_from(at).ok());
    let (Some(headers), Some(count)) = (headers, half(56)) else {
        return Kind::Unknown;
    };
    let mut program_headers = (0..usize::from(count)).filter_map(|index| {
        let at = headers.checked_add(index * PROGRAM_HEADER_BYTES)?;
        bytes.get(at..at.checked_add(PROGRAM_HEADER_BYTES)?)
    });
    let interpreter = program_headers.find(|header| header.starts_with(&PT_INTERP.to_le_bytes()));
    match interpreter {
        None => Kind::Static,
        Some(header) => Kind::Dynamic(interpreter_path(bytes, header).unwrap_or_default()),
    }
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*field))
}

fn interpreter_path(bytes: &[u8], header: &[u8]) -> Option<String> {
    let offset = usize::try_from(long(header, 8)?).ok()?;
    let length = usize::try_from(long(header, 32)?).ok()?;
    let path = bytes.get(offset..offset.checked_add(length)?)?;
    let path = path.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(path).into_owned())
}

fn script(rest: &[u8]) -> Kind {
    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let line = line.trim();
    if line.is_empty() {
        return Kind::Unknown;
    }
    // The kernel passes all that follows the interpreter as one argument.
    match line.split_once(char::is_whitespace) {
        Some((interpreter, argument)) => {
            Kind::Script(interpreter.to_owned(), Some(argument.trim().to_owned()))
        }
        None => Kind::Script(line.to_owned(), None),
    }
}

#[cfg(test)]
pub mod tests;
