#![allow(unsafe_code, reason = "raw pointers into shared memory")]
use std::marker::PhantomData;

/// A span of bytes that may lie in memory which another process can write: it can be copied out of
/// or handed to the kernel, but never be looked at in place.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    at: *const u8,
    len: usize,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Bytes<'a> {
    /// No bytes.
    pub const EMPTY: Bytes<'static> = Bytes {
        at: std::ptr::NonNull::<u8>::dangling().as_ptr(),
        len: 0,
        memory: PhantomData,
    };

    /// # Safety
    /// `len` bytes at `at` must stay mapped for `'a`.
    pub(crate) unsafe fn new(at: *const u8, len: usize) -> Bytes<'a> {
        Bytes {
            at,
            len,
            memory: PhantomData,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address, for an iovec. Valid for [`Bytes::len`] bytes while `'a` lasts.
    pub fn as_ptr(&self) -> *const u8 {
        self.at
    }

    /// Copies all of it to the front of `to`.
    ///
    /// # Panics
    /// If `to` is shorter.
    pub fn copy_to(&self, to: &mut [u8]) {
        assert!(to.len() >= self.len);
        // Often so: a ring seldom wraps, and most segments of a short connection carry nothing.
        if self.len == 0 {
            return;
        }
        // SAFETY: both spans are valid for `len` bytes, and an exclusive borrow doesn't overlap
        // shared memory. A racing writer can only make the copied values arbitrary.
        unsafe { std::ptr::copy_nonoverlapping(self.at, to.as_mut_ptr(), self.len) };
    }

    /// Splits off what comes after the first `at` bytes (or the whole, if it is shorter).
    pub fn split_at(self, at: usize) -> (Bytes<'a>, Bytes<'a>) {
        let at = at.min(self.len);
        // SAFETY: both halves lie within `self`.
        unsafe {
            (
                Bytes::new(self.at, at),
                Bytes::new(self.at.add(at), self.len - at),
            )
        }
    }
}

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(slice: &'a [u8]) -> Bytes<'a> {
        // SAFETY: the borrow keeps the slice in place for `'a`.
        unsafe { Bytes::new(slice.as_ptr(), slice.len()) }
    }
}
