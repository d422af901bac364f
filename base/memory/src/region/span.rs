//! Names for bytes in send rings, with which another process that maps the region finds them.

use super::SendRegion;
use crate::{Bytes, SocketId};
use std::sync::atomic::Ordering;

/// Bytes of a socket's send ring.
///
/// It names the socket and the position in its stream, not a place in memory: once the bytes were
/// acknowledged, or the slot was given to another socket, the name leads nowhere, rather than to the
/// bytes that have overwritten them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingSpan {
    /// The socket's slot in the region.
    pub slot: u32,
    /// The slot's generation.
    pub generation: u32,
    /// Of the first byte, counted from the first that was ever in the ring.
    pub position: u64,
    /// How many.
    pub bytes: u32,
}

impl SendRegion {
    /// Owner: the name of what [`Ring::spans`](crate::Ring::spans) of a send ring answered. `None` if
    /// the bytes aren't those of one send ring of this region.
    pub fn name_span(&self, payload: &[Bytes<'_>; 2]) -> Option<RingSpan> {
        let [first, second] = payload;
        let first_ring = self.first_send_ring.as_ptr() as usize;
        let offset = (first.as_ptr() as usize).checked_sub(first_ring)?;
        let send_bytes = self.config.send_bytes as usize;
        let slot = u32::try_from(offset / send_bytes).ok()?;
        let inside = offset % send_bytes;
        if slot >= self.config.sockets {
            return None;
        }
        let ring = self.send_ring(slot);
        let to_end = ring.size().checked_sub(inside)?;
        let goes_on = second.is_empty()
            || (first.len() == to_end && second.as_ptr() as usize == first_ring + offset - inside);
        if first.len() > to_end || !goes_on {
            return None;
        }
        Some(RingSpan {
            slot,
            generation: self.record(slot).generation.load(Ordering::Relaxed),
            position: ring.position_of(inside),
            bytes: u32::try_from(first.len().checked_add(second.len())?).ok()?,
        })
    }

    /// The bytes of that name, in place: read-only mappings ([`SendRegion::open_read_only`]) do. `None` if
    /// the socket is gone, or not all of them are in its send ring any more.
    pub fn find_span(&self, span: RingSpan) -> Option<[Bytes<'_>; 2]> {
        let RingSpan {
            slot,
            generation,
            position,
            bytes,
        } = span;
        self.find(SocketId { slot, generation })?;
        self.send_ring(slot).spans_at(position, bytes as usize)
    }
}
