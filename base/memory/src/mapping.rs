#![allow(unsafe_code, reason = "raw pointers into shared memory")]
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// A memfd mapped shared and writable for as long as this value lives.
///
/// Pages are taken when they are first touched, so a large mapping costs nothing until it is used.
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping is only reached through atomics and raw copies, whatever the thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes a memfd called `name` (shown in `/proc/PID/maps`) of `bytes` bytes, all zero, that
    /// can't shrink, and maps it.
    pub fn create(name: &str, bytes: usize) -> io::Result<Mapping> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, bytes as u64)?;
        // A neighbour that shrank the file could kill us with SIGBUS.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        Self::map(fd, bytes, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps a memfd that another process made; refuses one that could still shrink.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Mapping> {
        Self::open(fd, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// As [`Mapping::from_fd`], for reading only: a store to it ends the process.
    pub fn from_fd_read_only(fd: OwnedFd) -> io::Result<Mapping> {
        Self::open(fd, ProtFlags::READ)
    }

    fn open(fd: OwnedFd, protection: ProtFlags) -> io::Result<Mapping> {
        if !rustix::fs::fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the shared memory handed over is not sealed against shrinking",
            ));
        }
        let bytes = usize::try_from(rustix::fs::fstat(&fd)?.st_size)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Self::map(fd, bytes, protection)
    }

    fn map(fd: OwnedFd, bytes: usize, protection: ProtFlags) -> io::Result<Mapping> {
        // SAFETY: a fresh mapping at an address the kernel chooses aliases nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, bytes, fd })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The memfd, to be handed to another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The address of byte `offset`, good for `bytes` bytes.
    ///
    /// # Panics
    /// If the span isn't inside the mapping: the caller computed it from its own constants.
    #[inline]
    pub(crate) fn span(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset);
        // SAFETY: checked to be inside the mapping.
        unsafe { self.base.add(offset) }
    }

    /// A value of atomics at `offset`.
    ///
    /// # Panics
    /// If it isn't inside the mapping or isn't aligned.
    #[inline]
    pub(crate) fn atomics<T: Atomics>(&self, offset: usize) -> &T {
        let at = self.span(offset, size_of::<T>()).cast::<T>();
        assert!(at.is_aligned());
        // SAFETY: in bounds and aligned; every bit pattern is a valid `T`, and a `T` is made of
        // atomics only, so that others may write it at the same time.
        unsafe { at.as_ref() }
    }

    /// Gives the pages of a span back to the system; it then reads as zeros.
    pub fn discard(&self, offset: usize, bytes: usize) {
        let _ = self.span(offset, bytes);
        let _ = rustix::fs::fallocate(
            &self.fd,
            rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
            offset as u64,
            bytes as u64,
        );
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is our mapping, and nothing borrowed from it can outlive `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A type made of nothing but atomics.
///
/// # Safety
/// Every field is an atomic, and every bit pattern (all zeros too) is a valid value.
pub(crate) unsafe trait Atomics {}

// SAFETY: an atomic itself.
unsafe impl Atomics for std::sync::atomic::AtomicU64 {}
