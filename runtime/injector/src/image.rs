//! The functions of an executable.
use crate::code::{Code, Landmarks};
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, ObjectSymbolTable, RelocationTarget,
    SegmentFlags, SymbolKind,
};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// What is known of an executable.
pub struct Image {
    /// Those that faults may be put into, in the order of their addresses.
    pub functions: Vec<Function>,
    /// What else some classes look for.
    pub landmarks: Landmarks,
    /// Sizes and names by address, also of functions that are left alone: for telling where one died.
    names: BTreeMap<u64, (u64, String)>,
    /// Address less place in the file, of its machine code.
    pub(crate) link_bias: u64,
}

/// One function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Demangled, without hash.
    pub name: String,
    /// Its machine code, as in the file.
    pub code: Code,
}

impl Image {
    /// Reads an executable. Faults may be put into the functions for which `eligible` says so.
    ///
    /// # Errors
    /// If it can't be read, or has no symbols.
    pub fn read(path: &Path, eligible: impl Fn(&str) -> bool) -> io::Result<Image> {
        let data = std::fs::read(path)?;
        let file = object::File::parse(&*data).map_err(io::Error::other)?;
        let mut image = Image {
            functions: Vec::new(),
            landmarks: Landmarks::default(),
            names: BTreeMap::new(),
            link_bias: link_bias(&file)?,
        };
        // Functions of the same code have one address.
        let mut functions = BTreeMap::new();
        for symbol in file.symbols() {
            let is_function = symbol.kind() == SymbolKind::Text && symbol.size() > 0;
            let Some(name) = symbol.name().ok().filter(|_| is_function) else {
                continue;
            };
            let name = format!("{:#}", rustc_demangle::demangle(name));
            let (address, size) = (symbol.address(), symbol.size());
            if panics(&name) {
                image.landmarks.panics.insert(address);
            } else if matches!(name.as_str(), "memcpy" | "memmove") {
                image.landmarks.copies.insert(address);
            } else if eligible(&name)
                && let Some(bytes) = bytes(&file, &symbol)
            {
                let code = Code { address, bytes };
                let name = name.clone();
                functions.insert(address, Function { name, code });
            }
            image.names.insert(address, (size, name));
        }
        image.functions = functions.into_values().collect();
        image.add_slots(&file);
        match image.functions.is_empty() {
            false => Ok(image),
            true => Err(io::Error::other(format!(
                "{} has no symbols of functions that could have faults: was it stripped?",
                path.display()
            ))),
        }
    }

    /// Slots by which functions of libraries are called, and others if the linker left them.
    fn add_slots(&mut self, file: &object::File<'_>) {
        let symbols = file.dynamic_symbol_table();
        for (slot, relocation) in file.dynamic_relocations().into_iter().flatten() {
            if let RelocationTarget::Symbol(index) = relocation.target() {
                let symbols = symbols.as_ref();
                let symbol = symbols.and_then(|all| all.symbol_by_index(index).ok());
                let copies = symbol.is_some_and(|it| matches!(it.name(), Ok("memcpy" | "memmove")));
                if copies {
                    self.landmarks.copies.insert(slot);
                }
            } else if self
                .landmarks
                .panics
                .contains(&relocation.addend().cast_unsigned())
            {
                self.landmarks.panics.insert(slot);
            }
        }
    }

    /// The name of the function that has an address as linked.
    pub fn name_at(&self, address: u64) -> Option<&str> {
        let (start, (size, name)) = self.names.range(..=address).next_back()?;
        (address - start < *size).then_some(name)
    }
}

fn bytes<'d>(file: &object::File<'d>, symbol: &impl ObjectSymbol<'d>) -> Option<Vec<u8>> {
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    let range = section.data_range(symbol.address(), symbol.size());
    range.ok().flatten().map(<[u8]>::to_vec)
}

/// Address less place in the file, of what is executable.
fn link_bias(file: &object::File<'_>) -> io::Result<u64> {
    const EXECUTABLE: u32 = object::elf::PF_X;
    let executable = file.segments().find(|segment| {
        matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & EXECUTABLE != 0)
    });
    let executable =
        executable.ok_or_else(|| io::Error::other("the executable has no machine code"))?;
    let (place, _) = executable.file_range();
    Ok(executable.address().wrapping_sub(place))
}

/// Whether a function is one that checks jump to when they fail.
fn panics(name: &str) -> bool {
    const PREFIXES: [&str; 6] = [
        "core::panicking::",
        "core::slice::index::slice_",
        "core::slice::copy_from_slice_impl::len_mismatch_fail",
        "core::str::slice_error_fail",
        "core::cell::panic_",
        "std::panicking::",
    ];
    const NAMES: [&str; 3] = [
        "core::option::unwrap_failed",
        "core::option::expect_failed",
        "core::result::unwrap_failed",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a function is of one of the crates whose names begin with `prefix`, or of a type of theirs.
pub fn is_of_crates(name: &str, prefix: &str) -> bool {
    let name = name.trim_start_matches(['<', '&', '*', '[', '(']);
    let name = name.strip_prefix("mut ").unwrap_or(name);
    name.starts_with(prefix)
}

#[cfg(test)]
mod tests;
