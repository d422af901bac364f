//! The regions of sockets that are mapped here for reading.

use crate::{Payload, Transport};
use skink_channel::PoolSet;
use skink_memory::{Bytes, SendRegion};

/// Regions by their transport and index, that of the program.
#[derive(Default)]
pub struct Regions([Vec<Option<SendRegion>>; 2]);

/// Programs that a stack serves at the most.
const MOST: usize = 1 << 16;

impl Regions {
    /// None.
    pub fn new() -> Regions {
        Regions::default()
    }

    /// Maps a region, opened for reading, in place of the one that had its index; `false` if there can't
    /// be that many.
    pub fn insert(&mut self, transport: Transport, index: u32, region: SendRegion) -> bool {
        let at = index as usize;
        if at >= MOST {
            return false;
        }
        let regions = &mut self.0[transport.index()];
        if at >= regions.len() {
            regions.resize_with(at + 1, || None);
        }
        if let Some(place) = regions.get_mut(at) {
            *place = Some(region);
        }
        true
    }

    /// Unmaps a region.
    pub fn remove(&mut self, transport: Transport, index: u32) -> Option<SendRegion> {
        self.0[transport.index()].get_mut(index as usize)?.take()
    }

    /// The name of bytes in a send ring of one of a transport's regions.
    pub(crate) fn name(&self, transport: Transport, payload: &[Bytes<'_>; 2]) -> Option<Payload> {
        let numbered = (0u32..).zip(&self.0[transport.index()]);
        let mut all = numbered.filter_map(|(index, region)| Some((index, region.as_ref()?)));
        all.find_map(|(index, region)| {
            let span = region.name_span(payload)?;
            Some(Payload::Ring(transport, index, span))
        })
    }

    /// Where a payload is; `None` if it is nowhere any more. What is in a pool may be freed while it is
    /// looked at, if its maker thinks that we have died: who lets it out copies it by
    /// [`PoolSet::copy_out`] instead.
    pub fn resolve<'a>(&'a self, pools: &'a PoolSet, payload: &Payload) -> Option<[Bytes<'a>; 2]> {
        match *payload {
            Payload::Empty => Some([Bytes::EMPTY; 2]),
            Payload::Ring(transport, region, span) => {
                let regions = &self.0[transport.index()];
                let region = regions.get(region as usize)?.as_ref()?;
                region.find_span(span)
            }
            Payload::Pool(pointer) => {
                let bytes = pools.resolve(pointer).ok()?;
                Some([bytes, Bytes::EMPTY])
            }
        }
    }
}
