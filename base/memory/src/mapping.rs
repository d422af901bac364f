#![allow(unsafe_code, reason = "raw pointers into shared memory")]
use crate::Bytes;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// See [`keep_descriptors_from`].
static LOWEST: AtomicI32 = AtomicI32::new(0);

/// Descriptors of memory that is made from now on get numbers from `lowest` on, if the system has any
/// there. For a library in a program that counts on low numbers for itself.
pub fn keep_descriptors_from(lowest: i32) {
    LOWEST.store(lowest, Ordering::Relaxed);
}

/// See [`keep_out_of_dumps`].
static UNDUMPED: AtomicBool = AtomicBool::new(false);

/// Memory that is mapped from now on is left out of core dumps. For a library in a program, which may crash: a dump would read, and so
/// take, each page of it, which are gigabytes that were never touched.
pub fn keep_out_of_dumps() {
    UNDUMPED.store(true, Ordering::Relaxed);
}

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
        let mut fd =
            rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let lowest = LOWEST.load(Ordering::Relaxed);
        if lowest > 0
            && let Ok(moved) = rustix::io::fcntl_dupfd_cloexec(&fd, lowest)
        {
            fd = moved;
        }
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
        if UNDUMPED.load(Ordering::Relaxed) {
            // SAFETY: the mapping is ours, and stays as it is. (That it can't be left out is no reason to fail.)
            let _ = unsafe { rustix::mm::madvise(base, bytes, rustix::mm::Advice::LinuxDontDump) };
        }
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

    /// All of it as 64-bit words (bytes that don't fill one are left out). Where the mapping is for
    /// reading only, the words may only be loaded, and only with `Relaxed`: a stronger load is made of
    /// one and a fence.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: in bounds; a mapping begins at a page, so the words are aligned; atomics may be
        // written by others at the same time.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.bytes / 8) }
    }

    /// The span of `length` bytes at `offset`, unless it isn't inside the mapping.
    pub fn bytes(&self, offset: usize, length: usize) -> Option<Bytes<'_>> {
        if offset > self.bytes || length > self.bytes - offset {
            return None;
        }
        // SAFETY: checked to be inside the mapping, which stays as long as `self` is borrowed.
        Some(unsafe { Bytes::new(self.base.add(offset).as_ptr(), length) })
    }

    /// Copies `from` to `offset`. Whoever reads there meanwhile gets some of the old bytes and some of
    /// the new.
    ///
    /// # Panics
    /// If it doesn't fit there: the caller computed the place from its own constants.
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        let to = self.span(offset, from.len());
        // SAFETY: checked to be inside the mapping, which no `&[u8]` ever lies in.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
    }

    /// As [`Mapping::copy_in`], from bytes that another process may be able to write.
    ///
    /// # Panics
    /// As [`Mapping::copy_in`].
    pub fn copy_bytes_in(&self, offset: usize, from: Bytes<'_>) {
        let to = self.span(offset, from.len());
        // SAFETY: checked to be inside the mapping; both spans are reached through raw copies only, and
        // `copy` allows for overlap.
        unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr(), from.len()) };
    }

    /// How many bytes of it the system keeps, in memory or swapped out: pages that were touched and not [given
    /// back](Mapping::discard).
    pub fn taken(&self) -> u64 {
        rustix::fs::fstat(&self.fd).map_or(0, |stat| stat.st_blocks.unsigned_abs() * 512)
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
