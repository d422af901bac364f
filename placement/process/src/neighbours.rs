//! What a part knows of the others.
use skink_channel::{PoolDescriptors, PoolGeometry, PoolReader};
use skink_control::{Part, PoolSizes};
use std::os::fd::OwnedFd;

/// The other parts, by [`Part::index`].
pub(crate) struct Neighbours {
    incarnations: [u32; Part::COUNT],
    pools: [Option<u32>; Part::COUNT],
}

/// What is to be done when one is met.
pub(crate) struct Met {
    /// It is a successor of the one that was known.
    pub restarted: bool,
    /// The pool of its predecessor, to be unmapped.
    pub old_pool: Option<u32>,
}

impl Neighbours {
    /// Those that will be met first.
    pub fn new(incarnations: [u32; Part::COUNT]) -> Neighbours {
        Neighbours {
            incarnations,
            pools: [None; Part::COUNT],
        }
    }

    /// Which restart of a part it is, as far as is known; 0 if that is nothing.
    pub fn incarnation(&self, part: Part) -> u32 {
        self.incarnations.get(part.index()).copied().unwrap_or(0)
    }

    /// One of them runs.
    pub fn meet(&mut self, part: Part, incarnation: u32, pool: Option<u32>) -> Met {
        let known = self.incarnations.get_mut(part.index());
        let known = known.map(|known| std::mem::replace(known, incarnation));
        let old_pool = self.pools.get_mut(part.index());
        Met {
            restarted: known != Some(incarnation),
            old_pool: old_pool
                .and_then(|place| std::mem::replace(place, pool))
                .filter(|old| pool != Some(*old)),
        }
    }
}

/// Maps a neighbour's pool for reading.
pub(crate) fn map_pool(sizes: PoolSizes, memory: OwnedFd) -> Result<PoolReader, String> {
    let geometry = PoolGeometry::new(sizes.chunk_bytes, sizes.chunks);
    let geometry = geometry.ok_or_else(|| "impossible sizes of a pool".to_owned())?;
    let descriptors = PoolDescriptors {
        id: sizes.id,
        geometry,
        memory,
    };
    PoolReader::attach(descriptors).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
