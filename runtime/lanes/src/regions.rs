//! The regions of TCP sockets that are mapped here for reading.

use crate::Payload;
use skink_channel::PoolSet;
use skink_memory::{Bytes, Region};

/// Regions by their index, that of the program.
#[derive(Default)]
pub struct Regions(Vec<Option<Region>>);

/// Programs that a stack serves at the most.
const MOST: usize = 1 << 16;

impl Regions {
    /// None.
    pub fn new() -> Regions {
        Regions::default()
    }

    /// Maps a region, opened for reading, in place of the one that had its index; `false` if there can't
    /// be that many.
    pub fn insert(&mut self, index: u32, region: Region) -> bool {
        let at = index as usize;
        if at >= MOST {
            return false;
        }
        if at >= self.0.len() {
            self.0.resize_with(at + 1, || None);
        }
        if let Some(place) = self.0.get_mut(at) {
            *place = Some(region);
        }
        true
    }

    /// Unmaps a region.
    pub fn remove(&mut self, index: u32) -> Option<Region> {
        self.0.get_mut(index as usize)?.take()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Region)> {
        let numbered = (0u32..).zip(&self.0);
        numbered.filter_map(|(index, region)| Some((index, region.as_ref()?)))
    }

    /// The name of bytes in a send ring of one of the regions.
    pub(crate) fn name(&self, payload: &[Bytes<'_>; 2]) -> Option<Payload> {
        self.iter().find_map(|(index, region)| {
            let span = region.name_span(payload)?;
            Some(Payload::Ring(index, span))
        })
    }

    /// Where a payload is; `None` if it is nowhere any more. What is in a pool may be freed while it is
    /// looked at, if its maker thinks that we have died: who lets it out copies it by
    /// [`PoolSet::copy_out`] instead.
    pub fn resolve<'a>(&'a self, pools: &'a PoolSet, payload: &Payload) -> Option<[Bytes<'a>; 2]> {
        match *payload {
            Payload::Empty => Some([Bytes::EMPTY; 2]),
            Payload::Ring(region, span) => {
                let region = self.0.get(region as usize)?.as_ref()?;
                region.find_span(span)
            }
            Payload::Pool(pointer) => {
                let bytes = pools.resolve(pointer).ok()?;
                Some([bytes, Bytes::EMPTY])
            }
        }
    }
}
