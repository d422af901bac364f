use super::{AttachError, PoolDescriptors, PoolGeometry, RichPointer};
use crate::generation::Generation;
use crate::memory::{Memory, word};
use skink_memory::Bytes;
use std::fmt;

/// Why a rich pointer leads nowhere: to be counted, and what it belongs to dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResolveError {
    /// No pool of that id is mapped here: it is a predecessor's, or was made up.
    UnknownPool,
    /// It isn't inside one chunk.
    OutOfBounds,
    /// The chunk was freed since.
    Stale,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResolveError::UnknownPool => "the pointer is to a pool that isn't mapped",
            ResolveError::OutOfBounds => "the pointer isn't to one chunk of its pool",
            ResolveError::Stale => "the pointer is to a chunk that was freed",
        })
    }
}

impl std::error::Error for ResolveError {}

/// A pool of another component, mapped for reading.
pub struct PoolReader {
    id: u32,
    geometry: PoolGeometry,
    memory: Memory,
}

impl PoolReader {
    /// Maps a pool.
    ///
    /// # Errors
    /// If the memory isn't a pool of these sizes.
    pub fn attach(descriptors: PoolDescriptors) -> Result<PoolReader, AttachError> {
        let PoolDescriptors {
            id,
            geometry,
            memory,
        } = descriptors;
        let memory = Memory::from_fd_read_only(memory)?;
        if memory.len() != geometry.total_bytes() {
            return Err(AttachError::OtherLayout);
        }
        Ok(PoolReader {
            id,
            geometry,
            memory,
        })
    }

    /// The pool's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    fn copy_out(&self, pointer: RichPointer, to: &mut [u8]) -> Result<(), ResolveError> {
        let (generation, bytes) = self.find(pointer)?;
        let to = to.get_mut(..bytes.len()).ok_or(ResolveError::OutOfBounds)?;
        bytes.copy_to(to);
        match generation.was(pointer.generation) {
            true => Ok(()),
            false => Err(ResolveError::Stale),
        }
    }

    fn find(&self, pointer: RichPointer) -> Result<(Generation<'_>, Bytes<'_>), ResolveError> {
        let RichPointer {
            pool: _,
            offset,
            length,
            generation: lent,
        } = pointer;
        let chunk = self.geometry.chunk_of(offset, length);
        let chunk = chunk.ok_or(ResolveError::OutOfBounds)?;
        let generation = Generation(word(&self.memory, chunk as usize));
        if !generation.is(lent) {
            return Err(ResolveError::Stale);
        }
        let start = self.geometry.first_chunk() + offset as usize;
        let bytes = self.memory.bytes(start, length as usize);
        Ok((generation, bytes.ok_or(ResolveError::OutOfBounds)?))
    }
}

/// The pools that a component has mapped.
#[derive(Default)]
pub struct PoolSet {
    /// By id.
    pools: Vec<PoolReader>,
}

impl PoolSet {
    /// None.
    pub fn new() -> PoolSet {
        PoolSet::default()
    }

    /// Adds a pool; answers the one that had the same id, if there was one.
    pub fn insert(&mut self, pool: PoolReader) -> Option<PoolReader> {
        match self.find(pool.id) {
            Ok(at) => Some(std::mem::replace(&mut self.pools[at], pool)),
            Err(at) => {
                self.pools.insert(at, pool);
                None
            }
        }
    }

    /// Unmaps a pool, once nothing points into it: its creator died, and the requests that came from
    /// it are done. Answers whether it was there.
    pub fn remove(&mut self, id: u32) -> bool {
        let found = self.find(id);
        found.is_ok_and(|at| self.pools.remove(at).id == id)
    }

    fn find(&self, id: u32) -> Result<usize, usize> {
        self.pools.binary_search_by_key(&id, |pool| pool.id)
    }

    /// The bytes that a pointer leads to, in place. They stay mapped for as long as they are borrowed,
    /// and stay as they are for as long as their creator has lent them: a creator that breaks its word
    /// changes them meanwhile.
    ///
    /// # Errors
    /// If it leads nowhere.
    pub fn resolve(&self, pointer: RichPointer) -> Result<Bytes<'_>, ResolveError> {
        let at = self.find(pointer.pool);
        let pool = at.ok().and_then(|at| self.pools.get(at));
        let found = pool.ok_or(ResolveError::UnknownPool)?.find(pointer);
        found.map(|(_, bytes)| bytes)
    }

    /// Copies the bytes that a pointer leads to, to the front of `to`. What was copied is whole: if the
    /// chunk was freed meanwhile, since its creator thought us dead, that is noticed.
    ///
    /// # Errors
    /// If it leads nowhere, or `to` is too small ([`ResolveError::OutOfBounds`]).
    pub fn copy_out(&self, pointer: RichPointer, to: &mut [u8]) -> Result<(), ResolveError> {
        let at = self.find(pointer.pool);
        let pool = at.ok().and_then(|at| self.pools.get(at));
        pool.ok_or(ResolveError::UnknownPool)?.copy_out(pointer, to)
    }
}
