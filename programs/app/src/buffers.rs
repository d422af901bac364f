//! The program's buffers.
use crate::errno::{Answer, fail};
use libc::iovec;

/// Buffers of one call, in order, and how many bytes they have in all.
#[derive(Clone, Copy)]
pub struct Buffers<'a>(&'a [iovec], usize);

impl<'a> Buffers<'a> {
    /// # Safety
    /// The list must describe memory that the call may use for `'a`: to read for a sending call, to
    /// write for a receiving one.
    pub unsafe fn new(list: &'a [iovec]) -> Answer<Buffers<'a>> {
        let (mut bad, mut total) = (false, 0usize);
        for entry in list {
            bad |= entry.iov_base.is_null() && entry.iov_len > 0;
            total = total.saturating_add(entry.iov_len);
        }
        match isize::try_from(total) {
            _ if bad => fail(libc::EFAULT),
            Ok(_) => Ok(Buffers(list, total)),
            Err(_) => fail(libc::EINVAL),
        }
    }

    /// # Safety
    /// `count` entries at `list` must be readable, and as for [`Buffers::new`].
    pub unsafe fn from_raw(list: *const iovec, count: usize) -> Answer<Buffers<'a>> {
        if count > 1024 {
            return fail(libc::EINVAL);
        }
        if count == 0 {
            return Ok(Buffers(&[], 0));
        }
        if list.is_null() {
            return fail(libc::EFAULT);
        }
        // SAFETY: the caller's promise.
        unsafe { Buffers::new(core::slice::from_raw_parts(list, count)) }
    }

    /// The list, as the program has given it.
    pub fn list(&self) -> &'a [iovec] {
        self.0
    }

    /// Bytes in all.
    pub fn total(&self) -> usize {
        self.1
    }

    /// The pieces from byte `skip` on, as address and length.
    fn pieces(self, skip: usize) -> impl Iterator<Item = (*mut u8, usize)> + 'a {
        let mut skip = skip;
        self.0.iter().filter_map(move |entry| {
            let over = skip.min(entry.iov_len);
            skip -= over;
            let length = entry.iov_len - over;
            // SAFETY: at most one past the end of the entry's buffer.
            let at = || unsafe { entry.iov_base.cast::<u8>().add(over) };
            (length > 0).then(|| (at(), length))
        })
    }

    /// Lets `fill` fill the buffers from byte `skip` on, piece by piece, until it fills one only in
    /// part. Answers how many bytes that were.
    pub fn fill(&self, skip: usize, mut fill: impl FnMut(usize, &mut [u8]) -> usize) -> usize {
        let mut done = 0;
        for (at, length) in self.pieces(skip) {
            // SAFETY: the promise made to `new`.
            let piece = unsafe { core::slice::from_raw_parts_mut(at, length) };
            let count = fill(done, piece);
            done += count;
            if count < length {
                break;
            }
        }
        done
    }

    /// Hands the buffers from byte `skip` on to `take`, piece by piece, until it takes one only in
    /// part. Answers how many bytes that were.
    pub fn drain(&self, skip: usize, mut take: impl FnMut(&[u8]) -> usize) -> usize {
        let mut done = 0;
        for (at, length) in self.pieces(skip) {
            // SAFETY: the promise made to `new`.
            let piece = unsafe { core::slice::from_raw_parts(at, length) };
            let count = take(piece);
            done += count;
            if count < length {
                break;
            }
        }
        done
    }

    /// All pieces at once, as slices.
    pub fn with_slices<T>(&self, call: impl FnOnce(&[&[u8]]) -> T) -> T {
        let mut few: [&[u8]; 8] = [&[]; 8];
        let mut used = 0;
        if self.0.len() <= few.len() {
            for (at, length) in self.pieces(0) {
                // SAFETY: the promise made to `new`.
                few[used] = unsafe { core::slice::from_raw_parts(at, length) };
                used += 1;
            }
            return call(&few[..used]);
        }
        let slice = |(at, length): (*mut u8, usize)| {
            // SAFETY: the promise made to `new`.
            unsafe { core::slice::from_raw_parts(at.cast_const(), length) }
        };
        let many: Vec<&[u8]> = self.pieces(0).map(slice).collect();
        call(&many)
    }
}

#[cfg(test)]
mod tests;
