use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// A type that others may write while it is borrowed.
///
/// # Safety
/// Every field is an atomic, every bit pattern is a valid value, and the alignment is at most a
/// page's.
pub(crate) unsafe trait Shared {}

/// The values of a `BPF_F_MMAPABLE` array, mapped for reading and writing.
pub(crate) struct MappedArray<T: Shared> {
    base: NonNull<T>,
    entries: usize,
}

// SAFETY: it is reached through atomics only, whatever the thread.
unsafe impl<T: Shared> Send for MappedArray<T> {}
// SAFETY: as above.
unsafe impl<T: Shared> Sync for MappedArray<T> {}

impl<T: Shared> MappedArray<T> {
    /// Maps the `entries` values of the map behind `fd`. The kernel lays them out one after the
    /// other, each rounded up to 8 bytes, and refuses to map more than there are pages of them.
    pub(crate) fn map(fd: impl AsFd, entries: usize) -> io::Result<MappedArray<T>> {
        const {
            assert!(
                size_of::<T>().is_multiple_of(8),
                "the kernel rounds values up"
            )
        };
        // SAFETY: a fresh mapping at an address that the kernel chooses aliases nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                entries * size_of::<T>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(MappedArray { base, entries })
    }

    /// All values.
    pub(crate) fn entries(&self) -> &[T] {
        // SAFETY: `entries` values are mapped for as long as `self` lives, page-aligned; `Shared`
        // says that others may write them and that any bits will do.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.entries) }
    }
}

impl<T: Shared> Drop for MappedArray<T> {
    fn drop(&mut self) {
        let (at, bytes) = (self.base.as_ptr().cast(), self.entries * size_of::<T>());
        // SAFETY: this is our mapping, and nothing borrowed from it can outlive `self`.
        let _ = unsafe { rustix::mm::munmap(at, bytes) };
    }
}
