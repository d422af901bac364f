//! How slots and the queue of larger frames keep in step.

use super::Ring;
use crate::packet::queue::{BEGINNING, Beginning};
use std::os::fd::AsFd;
use std::ptr::NonNull;

impl Ring {
    /// Takes the current slot's frame out of the queue; answers whether it was there.
    ///
    /// Slots and queue are in step, but for a slot whose frame a process took that died before it gave the slot
    /// back, and for what a process did that wasn't in its right mind.
    pub(super) fn fetch(&mut self) -> bool {
        for _ in 0..self.geometry.frames() {
            let Some(queue) = &mut self.queue else {
                return false;
            };
            if !queue.fetch(self.socket.as_fd()) {
                return false;
            }
            if self.has_begun_with_it() {
                return true;
            }
            if self.is_for_another() {
                // It waits until that one is reached.
                return false;
            }
            self.discard();
        }
        false
    }

    /// Whether the current slot has the beginning of the frame that was taken out of the queue.
    fn has_begun_with_it(&self) -> bool {
        let queue = self.queue.as_ref();
        self.is_filled()
            && queue.is_some_and(|queue| {
                let beginning = self.beginning(self.slot());
                beginning.is_some_and(|beginning| queue.begins_with(&beginning))
            })
    }

    /// Whether any other slot has.
    #[cold]
    fn is_for_another(&mut self) -> bool {
        let here = (self.block, self.frame);
        let found = (1..self.geometry.frames()).any(|_| {
            self.advance();
            self.has_begun_with_it()
        });
        (self.block, self.frame) = here;
        found
    }

    /// No slot is for the frame that was taken out of the queue.
    #[cold]
    fn discard(&mut self) {
        if let Some(queue) = &mut self.queue {
            self.unusable += queue.discard();
        }
    }

    /// No slot is filled. A frame in the queue is one whose slot the kernel is just filling, or nobody's: that
    /// would keep the socket readable.
    #[cold]
    pub(super) fn look_into_queue(&mut self) {
        self.discard();
        if let Some(queue) = &mut self.queue {
            queue.fetch(self.socket.as_fd());
        }
    }

    /// What a slot that the kernel has handed over says of a frame that is in the queue.
    pub(super) fn beginning(&self, slot: NonNull<u8>) -> Option<Beginning<'_>> {
        let (header, start) = self.header(slot)?;
        let bytes = (header.tp_snaplen as usize).min(BEGINNING);
        Some(Beginning {
            frame_bytes: header.tp_len as usize,
            // SAFETY: checked to lie in the slot; the kernel doesn't write it until the slot is given
            // back, which needs `&mut self`.
            bytes: unsafe { std::slice::from_raw_parts(slot.add(start).as_ptr(), bytes) },
        })
    }
}
