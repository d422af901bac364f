//! Pools of chunks that one component writes and many read (NewtOS, sections 2.4 and 2.5.3).
//!
//! # Layout
//!
//! One memfd. Offsets in bytes:
//!
//! | offset | |
//! | --- | --- |
//! | 0 | for each chunk a 64-bit word: its generation, which changes when it is freed |
//! | the next multiple of 4096 | the chunks |
//!
//! # Who may write
//!
//! The creator's own mapping, and nothing else, ever: once it is made, the file is sealed with
//! `F_SEAL_FUTURE_WRITE`, after which nobody can map it for writing or write(2) to it, not even by
//! opening `/proc/PID/fd/N` once more, nor the creator itself. Read-only descriptors are handed out all
//! the same, so that what a holder may do shows. What remains: a process that may ptrace(2) the creator,
//! or write its `/proc/PID/mem` (the same user, unless the creator isn't dumpable or seccomp and
//! Landlock forbid it), writes what it likes; and what inherits the creator's mapping by fork(2) can too.
//!
//! The price is that a creator that was restarted can't use its predecessor's pool. It makes another
//! one under another id; readers keep the old one for as long as they point into it.
//!
//! # Who frees
//!
//! The creator alone, and it trusts nobody: whom it lent a chunk, how often, is in its private memory.
//! A chunk is free when its creator is done with it and all loans have come back. If a holder dies, the creator gives
//! back in its place what it doesn't lend to a successor. If the pool is exhausted, the creator drops what it wanted to put there.

use crate::generation::Generation;
use crate::memory::{Memory, Ordering, word};
use crate::queue::{AttachError, duplicate, read_only};
use rustix::fs::SealFlags;
use skink_memory::Bytes;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod reader;

pub use reader::{PoolReader, PoolSet, ResolveError};

/// Where some bytes are: what travels through queues in their place.
#[repr(C)]
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Hash, Debug, Default,
)]
pub struct RichPointer {
    /// The pool's id.
    pub pool: u32,
    /// From the pool's first chunk, in bytes.
    pub offset: u32,
    /// In bytes. The span lies within one chunk.
    pub length: u32,
    /// The chunk's, when the bytes were written. Never 0, so all zeros is no pointer.
    pub generation: u32,
}

const _: () = assert!(size_of::<RichPointer>() == 16 && align_of::<RichPointer>() == 4);

/// Sizes of a pool. They travel beside its descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolGeometry {
    chunk_bytes: u32,
    chunks: u32,
}

impl PoolGeometry {
    /// Chunks of `chunk_bytes` bytes, a multiple of 64, `chunks` of them; together less than 4 GiB.
    /// `None` if it is anything else.
    pub fn new(chunk_bytes: u32, chunks: u32) -> Option<PoolGeometry> {
        let good = chunk_bytes > 0
            && chunk_bytes.is_multiple_of(64)
            && chunks > 0
            && chunk_bytes.checked_mul(chunks).is_some();
        good.then_some(PoolGeometry {
            chunk_bytes,
            chunks,
        })
    }

    /// Size of a chunk in bytes.
    pub fn chunk_bytes(self) -> u32 {
        self.chunk_bytes
    }

    /// How many there are.
    pub fn chunks(self) -> u32 {
        self.chunks
    }

    fn first_chunk(self) -> usize {
        (self.chunks as usize * 8).next_multiple_of(4096)
    }

    fn total_bytes(self) -> usize {
        self.first_chunk() + self.chunk_bytes as usize * self.chunks as usize
    }

    /// The chunk that a span lies in, if it lies in one.
    fn chunk_of(self, offset: u32, length: u32) -> Option<u32> {
        let chunk = offset / self.chunk_bytes;
        let inside = offset % self.chunk_bytes;
        (chunk < self.chunks && length <= self.chunk_bytes - inside).then_some(chunk)
    }
}

/// What a reader is handed.
#[derive(Debug)]
pub struct PoolDescriptors {
    /// The pool's id.
    pub id: u32,
    /// Its sizes.
    pub geometry: PoolGeometry,
    /// Its memory, for reading.
    pub memory: OwnedFd,
}

/// A component that chunks are lent to, by a number that the creator chose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HolderId(pub u16);

/// Why the creator can't do something with a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolError {
    /// No chunk is free.
    Exhausted,
    /// The pointer isn't to a chunk that is in use now: it was freed, or was made up.
    NotInUse,
    /// It was lent already, so it must not change any more.
    Lent,
    /// It doesn't fit into the chunk.
    TooLong,
    /// There is no such holder, or the chunk was lent to it 65,535 times.
    NoSuchLoan,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PoolError::Exhausted => "no chunk of the pool is free",
            PoolError::NotInUse => "the chunk isn't in use",
            PoolError::Lent => "the chunk was lent already and must not change",
            PoolError::TooLong => "the chunk is too small",
            PoolError::NoSuchLoan => "the chunk isn't or can't be lent to this holder",
        })
    }
}

impl std::error::Error for PoolError {}

/// A chunk that its creator is using. Not `Clone`: it is freed once.
#[derive(PartialEq, Eq, Debug)]
pub struct Chunk {
    index: u32,
    generation: u32,
}

/// What the creator knows of a chunk.
#[derive(Clone, Copy)]
struct Account {
    generation: u32,
    /// Its creator isn't done with it.
    kept: bool,
    /// It was lent since it was allocated, so it is final.
    lent: bool,
    loans: u32,
}

/// The creator's end of a pool.
pub struct Pool {
    id: u32,
    geometry: PoolGeometry,
    memory: Memory,
    read_only: OwnedFd,
    accounts: Vec<Account>,
    /// For each chunk and holder: loans.
    loans: Vec<u16>,
    holders: u16,
    free: Vec<u32>,
    refused: u64,
}

impl Pool {
    /// Makes a pool with an `id` that no other pool has or had, called `name` in `/proc/PID/maps`, that
    /// lends chunks to holders numbered from 0 to below `holders`. Needs `/proc`.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(id: u32, name: &str, geometry: PoolGeometry, holders: u16) -> io::Result<Pool> {
        let memory = Memory::create(name, geometry.total_bytes())?;
        for chunk in 0..geometry.chunks as usize {
            word(&memory, chunk).store(1, Ordering::Relaxed);
        }
        rustix::fs::fcntl_add_seals(memory.fd(), SealFlags::FUTURE_WRITE)?;
        let account = Account {
            generation: 1,
            kept: false,
            lent: false,
            loans: 0,
        };
        let chunks = geometry.chunks as usize;
        Ok(Pool {
            id,
            geometry,
            read_only: read_only(memory.fd())?,
            memory,
            accounts: vec![account; chunks],
            loans: vec![0; chunks * usize::from(holders)],
            holders,
            free: (0..geometry.chunks).rev().collect(),
            refused: 0,
        })
    }

    /// For a reader.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn descriptors(&self) -> io::Result<PoolDescriptors> {
        Ok(PoolDescriptors {
            id: self.id,
            geometry: self.geometry,
            memory: duplicate(&self.read_only)?,
        })
    }

    /// Takes a free chunk, with whatever was in it.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`].
    pub fn allocate(&mut self) -> Result<Chunk, PoolError> {
        let Some(index) = self.free.pop() else {
            self.refused = self.refused.wrapping_add(1);
            return Err(PoolError::Exhausted);
        };
        let account = &mut self.accounts[index as usize];
        account.kept = true;
        account.lent = false;
        Ok(Chunk {
            index,
            generation: account.generation,
        })
    }

    /// Copies `from` to `offset` in a chunk that nobody has been lent yet.
    ///
    /// # Errors
    /// [`PoolError::Lent`], [`PoolError::TooLong`], or [`PoolError::NotInUse`] if it is another pool's.
    pub fn write(&mut self, chunk: &Chunk, offset: u32, from: &[u8]) -> Result<(), PoolError> {
        self.write_bytes(chunk, offset, Bytes::from(from))
    }

    /// As [`Pool::write`], from bytes that another process may be able to write.
    ///
    /// # Errors
    /// As [`Pool::write`].
    pub fn write_bytes(
        &mut self,
        chunk: &Chunk,
        offset: u32,
        from: Bytes<'_>,
    ) -> Result<(), PoolError> {
        let account = self.account(chunk.index, chunk.generation)?;
        if account.lent {
            return Err(PoolError::Lent);
        }
        let length = u32::try_from(from.len()).map_err(|_| PoolError::TooLong)?;
        let room = self.geometry.chunk_bytes.checked_sub(offset);
        if room.is_none_or(|room| length > room) {
            return Err(PoolError::TooLong);
        }
        let start = chunk.index as usize * self.geometry.chunk_bytes as usize + offset as usize;
        Generation::begin_writing();
        self.memory
            .copy_bytes_in(self.geometry.first_chunk() + start, from);
        Ok(())
    }

    /// Points to `length` bytes at `offset` in a chunk, and counts that `holder` has it from now on.
    /// Each loan must come back by [`Pool::give_back`].
    ///
    /// # Errors
    /// [`PoolError::TooLong`], [`PoolError::NoSuchLoan`], or [`PoolError::NotInUse`].
    pub fn lend(
        &mut self,
        chunk: &Chunk,
        offset: u32,
        length: u32,
        holder: HolderId,
    ) -> Result<RichPointer, PoolError> {
        self.account(chunk.index, chunk.generation)?;
        let room = self.geometry.chunk_bytes.checked_sub(offset);
        if room.is_none_or(|room| length > room) {
            return Err(PoolError::TooLong);
        }
        self.count_loan(chunk.index, holder)?;
        Ok(RichPointer {
            pool: self.id,
            offset: chunk.index * self.geometry.chunk_bytes + offset,
            length,
            generation: chunk.generation,
        })
    }

    fn count_loan(&mut self, index: u32, holder: HolderId) -> Result<(), PoolError> {
        let loans = self.loans_of(index, holder)?;
        *loans = loans.checked_add(1).ok_or(PoolError::NoSuchLoan)?;
        let account = &mut self.accounts[index as usize];
        account.loans += 1;
        account.lent = true;
        Ok(())
    }

    /// A holder says that it is done with what `pointer` points to.
    ///
    /// # Errors
    /// [`PoolError::NotInUse`] or [`PoolError::NoSuchLoan`] if it hasn't got it, which is to be counted
    /// and ignored.
    pub fn give_back(&mut self, pointer: RichPointer, holder: HolderId) -> Result<(), PoolError> {
        let index = match pointer.pool == self.id {
            true => self.geometry.chunk_of(pointer.offset, pointer.length),
            false => None,
        };
        let index = index.ok_or(PoolError::NotInUse)?;
        self.account(index, pointer.generation)?;
        let loans = self.loans_of(index, holder)?;
        *loans = loans.checked_sub(1).ok_or(PoolError::NoSuchLoan)?;
        self.accounts[index as usize].loans -= 1;
        self.free_if_unused(index);
        Ok(())
    }

    /// The creator is done with a chunk. It is free as soon as all loans have come back.
    pub fn free(&mut self, chunk: Chunk) {
        if self.account(chunk.index, chunk.generation).is_ok() {
            self.accounts[chunk.index as usize].kept = false;
            self.free_if_unused(chunk.index);
        }
    }

    /// The account of a chunk in use, if the generation is right.
    fn account(&self, index: u32, generation: u32) -> Result<&Account, PoolError> {
        let account = self.accounts.get(index as usize);
        account
            .filter(|account| account.generation == generation)
            .filter(|account| account.kept || account.loans > 0)
            .ok_or(PoolError::NotInUse)
    }

    fn loans_of(&mut self, index: u32, holder: HolderId) -> Result<&mut u16, PoolError> {
        if holder.0 >= self.holders {
            return Err(PoolError::NoSuchLoan);
        }
        let at = index as usize * usize::from(self.holders) + usize::from(holder.0);
        self.loans.get_mut(at).ok_or(PoolError::NoSuchLoan)
    }

    fn free_if_unused(&mut self, index: u32) {
        let account = &mut self.accounts[index as usize];
        if account.kept || account.loans > 0 {
            return;
        }
        account.generation = account.generation.wrapping_add(1).max(1);
        Generation(word(&self.memory, index as usize)).become_free(account.generation);
        self.free.push(index);
    }

    /// The pool's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its sizes.
    pub fn geometry(&self) -> PoolGeometry {
        self.geometry
    }

    /// How many chunks are free.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// How often there was none.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests;
