//! Memory shared with the kernel: the chunks of frames, and the rings' pages.

use super::Geometry;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A mapping that lasts as long as this value.
pub(super) struct Mapped {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory; who reads and writes which part of it is up to the users.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    pub(super) fn map(fd: BorrowedFd<'_>, bytes: usize, offset: u64) -> io::Result<Mapped> {
        // SAFETY: a fresh mapping at an address that the kernel chooses aliases nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                fd,
                offset,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapped { base, bytes })
    }

    /// Where the mapping begins.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The address of a `T` at `offset`, if it lies inside and is aligned there.
    pub(super) fn at<T>(&self, offset: u64, count: u32) -> Option<NonNull<T>> {
        let offset = usize::try_from(offset).ok()?;
        let bytes = size_of::<T>().checked_mul(count as usize)?;
        if offset > self.bytes || bytes > self.bytes - offset {
            return None;
        }
        // SAFETY: checked to be inside the mapping.
        let at = unsafe { self.base.add(offset) }.cast::<T>();
        at.is_aligned().then_some(at)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this is our mapping, and nothing borrowed from it can outlive `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The chunks of frames: first those to receive into, then those to send from.
pub(super) struct Umem {
    memory: Mapped,
    geometry: Geometry,
}

impl Umem {
    /// Maps the memory behind `fd`; refuses a file that is too short for it.
    pub(super) fn map(fd: BorrowedFd<'_>, geometry: Geometry) -> io::Result<Umem> {
        let bytes = geometry.bytes();
        if usize::try_from(rustix::fs::fstat(fd)?.st_size).is_ok_and(|size| size < bytes) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the memory of the AF_XDP queue handed over is too small",
            ));
        }
        Ok(Umem {
            memory: Mapped::map(fd, bytes, 0)?,
            geometry,
        })
    }

    /// Addresses of the chunks to receive into.
    pub(super) fn receive_chunks(geometry: Geometry) -> impl Iterator<Item = u64> {
        (0..u64::from(geometry.chunks)).map(move |chunk| chunk * u64::from(geometry.chunk_bytes))
    }

    /// Addresses of the chunks to send from.
    pub(super) fn send_chunks(geometry: Geometry) -> impl Iterator<Item = u64> {
        let first = u64::from(geometry.chunks) * u64::from(geometry.chunk_bytes);
        Self::receive_chunks(geometry).map(move |chunk| first + chunk)
    }

    /// Where the chunk begins that `address` lies in.
    pub(super) fn chunk_of(&self, address: u64) -> u64 {
        address & !(u64::from(self.geometry.chunk_bytes) - 1)
    }

    /// Whether `address` is that of a chunk to send from.
    pub(super) fn is_send_chunk(&self, address: u64) -> bool {
        let half = self.geometry.bytes() as u64 / 2;
        (half..half * 2).contains(&address) && self.chunk_of(address) == address
    }

    /// Whether `address` is that of a chunk to receive into.
    pub(super) fn is_receive_chunk(&self, address: u64) -> bool {
        address < self.geometry.bytes() as u64 / 2 && self.chunk_of(address) == address
    }

    /// The number of a chunk among those to receive into, or to send from.
    pub(super) fn number_of(&self, address: u64) -> usize {
        let chunk = address / u64::from(self.geometry.chunk_bytes);
        (chunk % u64::from(self.geometry.chunks)) as usize
    }

    /// The `len` bytes that the kernel received to `address`, if they lie within one chunk to
    /// receive into.
    ///
    /// # Safety
    /// The kernel has handed the chunk over, and gets it back only when the slice is gone.
    pub(super) unsafe fn received(&self, address: u64, len: u32) -> Option<&[u8]> {
        let within = address.checked_sub(self.chunk_of(address))? + u64::from(len);
        let half = self.geometry.bytes() as u64 / 2;
        if address >= half || within > u64::from(self.geometry.chunk_bytes) {
            return None;
        }
        let at = self.memory.at::<u8>(address, len)?;
        // SAFETY: inside the mapping; the caller says that the kernel leaves it alone, and no other
        // process has it mapped (the opener keeps no mapping of it).
        Some(unsafe { std::slice::from_raw_parts(at.as_ptr(), len as usize) })
    }

    /// The chunk at `address`, to be written.
    ///
    /// # Safety
    /// The chunk is the caller's: the kernel has handed it back, and no other slice of it exists.
    #[allow(clippy::mut_from_ref, reason = "the caller vouches for the chunk")]
    pub(super) unsafe fn chunk_mut(&self, address: u64) -> Option<&mut [u8]> {
        if self.chunk_of(address) != address {
            return None;
        }
        let at = self.memory.at::<u8>(address, self.geometry.chunk_bytes)?;
        // SAFETY: inside the mapping; the caller says that nobody else uses it.
        Some(unsafe {
            std::slice::from_raw_parts_mut(at.as_ptr(), self.geometry.chunk_bytes as usize)
        })
    }
}
