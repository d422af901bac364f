//! Breakpoints in a process, each for one hit.
use crate::error::InjectError;
use crate::trace::Subject;
use std::collections::BTreeMap;

const TRAP: u8 = 0xcc;
/// Written at once where breakpoints are close together.
const PAGE: u64 = 4096;

/// Breakpoints that are in place, each with what it is for.
pub(crate) struct Breakpoints<T> {
    all: BTreeMap<u64, (u8, T)>,
}

impl<T> Breakpoints<T> {
    pub(crate) fn new() -> Breakpoints<T> {
        Breakpoints {
            all: BTreeMap::new(),
        }
    }

    /// Puts them in, while the process is stopped. Where there is one already it stays.
    pub(crate) fn plant(
        &mut self,
        subject: &Subject,
        places: Vec<(u64, T)>,
    ) -> Result<(), InjectError> {
        let mut pages: BTreeMap<u64, Vec<(u64, T)>> = BTreeMap::new();
        for (address, what) in places {
            if !self.all.contains_key(&address) {
                pages
                    .entry(address / PAGE)
                    .or_default()
                    .push((address, what));
            }
        }
        for mut places in pages.into_values() {
            places.sort_by_key(|(address, _)| *address);
            places.dedup_by_key(|(address, _)| *address);
            let (Some(first), Some(last)) = (places.first(), places.last()) else {
                continue;
            };
            // A page of the process's at most.
            let (first, length) = (first.0, (last.0 - first.0) as usize + 1);
            let mut bytes = vec![0; length];
            if !subject.read(first, &mut bytes) {
                continue;
            }
            for (address, what) in places {
                if let Some(byte) = bytes.get_mut((address - first) as usize) {
                    self.all.insert(address, (*byte, what));
                    *byte = TRAP;
                }
            }
            subject.write(first, &bytes)?;
        }
        Ok(())
    }

    /// Takes one out that was hit; `None` if there is none.
    pub(crate) fn hit(
        &mut self,
        subject: &Subject,
        address: u64,
    ) -> Result<Option<T>, InjectError> {
        let Some((byte, what)) = self.all.remove(&address) else {
            return Ok(None);
        };
        subject.write(address, &[byte])?;
        Ok(Some(what))
    }

    /// Takes all out, while the process is stopped.
    pub(crate) fn clear(&mut self, subject: &Subject) -> Result<(), InjectError> {
        for (address, (byte, _)) in std::mem::take(&mut self.all) {
            subject.write(address, &[byte])?;
        }
        Ok(())
    }

    /// Changes the process's machine code below the breakpoints.
    pub(crate) fn write(
        &mut self,
        subject: &Subject,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), InjectError> {
        for (address, byte) in (address..).zip(bytes) {
            match self.all.get_mut(&address) {
                Some((saved, _)) => *saved = *byte,
                None => subject.write(address, &[*byte])?,
            }
        }
        Ok(())
    }
}
