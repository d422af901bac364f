//! Whose each chunk is after the process died that had the rings, at any instruction.
//!
//! Nothing is kept for this but the rings themselves: what that process knew follows from their
//! indices, which it advanced in an order that leaves no doubt.
//!
//! **Receiving.** Each chunk that is taken out of *rx* goes into *fill* again, and *fill* began with all
//! of them. So between two batches its producer is as many ahead of *rx*'s consumer as there are chunks. (Where
//! several sockets share the memory, ahead of the sum of their consumers; each batch is of one of them.)
//! In a batch, chunks are first written to *fill*'s slots, then *rx* is released, then *fill* published.
//! A process that died before the release gave nothing back: its successor sees those frames again. If
//! it died after it, *fill* lags behind by the chunks that are in neither ring, and they are in
//! *fill*'s next slots already. Which chunks are with the kernel needn't be known.
//!
//! **Sending.** Each chunk that is published in *tx* comes back by *completion*. So the distance between
//! *tx*'s producer and *completion*'s consumer is how many are under way. Which they are isn't known
//! (they come back in any order), and which are free was known to the dead process alone. So a chunk is
//! used when it has come back; and once as many have come back as were under way, all others are free.

use super::Geometry;
use super::memory::Umem;
use super::receiver::Ring;
use super::ring::{Consumer, Producer};
use std::io;

fn spoilt(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the rings of the AF_XDP queue handed over are spoilt: {what}"),
    )
}

/// Puts chunks that are in neither ring back into *fill*. Fails if the rings make no sense.
pub(super) fn complete_fill(
    fill: &mut Producer<u64>,
    rings: &[Ring],
    memory: &Umem,
    geometry: Geometry,
) -> io::Result<()> {
    let (mut next, mut produced) = (0u32, 0u32);
    for ring in rings {
        let (its_next, its_produced) = ring.indices();
        next = next.wrapping_add(its_next);
        produced = produced.wrapping_add(its_produced);
    }
    let end = next.wrapping_add(geometry.chunks);
    let missing = end.wrapping_sub(fill.next());
    let waiting = produced.wrapping_sub(next);
    if missing > geometry.chunks || waiting > geometry.chunks {
        return Err(spoilt("more frames arrived than there is room for"));
    }
    let pending = fill.pending();
    if pending > geometry.chunks - missing {
        return Err(spoilt(
            "more memory waits to be received into than there is",
        ));
    }
    // What the kernel has taken says nothing: a card that receives into this memory by itself keeps chunks whose frames were
    // passed to the kernel, and hands over others sooner.
    let taken = fill.next().wrapping_sub(pending);
    let mut there = vec![false; geometry.chunks as usize];
    for at in 0..pending + missing {
        let chunk = fill.written(taken.wrapping_add(at));
        let before = there.get_mut(memory.number_of(chunk));
        let twice = before.is_none_or(|before| std::mem::replace(before, true));
        if twice || !memory.is_receive_chunk(chunk) {
            return Err(spoilt("memory to receive into is there twice, or none"));
        }
    }
    fill.adopt(missing);
    fill.publish();
    Ok(())
}

/// Chunks to send from that a dead process had.
pub(super) struct Inherited {
    /// By number: has come back since.
    back: Box<[bool]>,
    /// How many are still under way.
    left: u32,
}

impl Inherited {
    /// What the rings say. Fails if they make no sense; `refused` is how many descriptors the kernel
    /// didn't take for any: those don't come back.
    pub(super) fn of(
        tx: &Producer<libc::xdp_desc>,
        completion: &Consumer<u64>,
        memory: &Umem,
        geometry: Geometry,
        refused: u64,
    ) -> io::Result<Inherited> {
        let left = tx.next().wrapping_sub(completion.next());
        // In this order: a card that takes frames by itself goes on meanwhile, and has taken what it has sent.
        let sent = completion.produced().wrapping_sub(completion.next());
        let pending = tx.pending();
        if left > geometry.chunks || pending > left || sent > left - pending || refused > 0 {
            return Err(spoilt("other frames were sent than were to be"));
        }
        for at in 1..=pending {
            let frame = tx.written(tx.next().wrapping_sub(at));
            if !memory.is_send_chunk(frame.addr) || frame.len > geometry.chunk_bytes {
                return Err(spoilt("a frame to be sent isn't in their memory"));
            }
        }
        Ok(Inherited {
            back: vec![false; geometry.chunks as usize].into(),
            left,
        })
    }

    /// A chunk has come back.
    pub(super) fn came_back(&mut self, number: usize) {
        if let Some(back) = self.back.get_mut(number)
            && !std::mem::replace(back, true)
        {
            self.left = self.left.saturating_sub(1);
        }
    }

    /// Whether nothing is under way any more that the dead process sent.
    pub(super) fn is_settled(&self) -> bool {
        self.left == 0
    }

    /// By number: whether the chunk hasn't come back.
    pub(super) fn others(&self) -> impl Iterator<Item = bool> {
        self.back.iter().map(|back| !back)
    }
}

#[cfg(test)]
mod tests;
