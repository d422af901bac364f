#![allow(unsafe_code, reason = "raw pointers into shared memory")]
use crate::mapping::{Atomics, Mapping};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_wire::Endpoint;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptors below this number can be told about.
const DESCRIPTORS: usize = 4096;

macro_rules! reasons {
    ($($number:literal $name:ident $label:literal $help:literal;)*) => {
        /// Why a socket is the kernel's and not Skink's.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum FallbackReason {
            $(#[doc = $help] $name = $number,)*
        }

        impl FallbackReason {
            /// A stable name such as `loopback`.
            pub const fn label(self) -> &'static str {
                match self { $(FallbackReason::$name => $label,)* }
            }

            /// A sentence for people.
            pub const fn help(self) -> &'static str {
                match self { $(FallbackReason::$name => $help,)* }
            }

            fn from_number(number: u64) -> Option<FallbackReason> {
                match number {
                    $($number => Some(FallbackReason::$name),)*
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    1 Loopback "loopback" "The address is on the loopback network, which is the kernel's.";
    2 KernelAddress "kernel-address" "The address belongs to an interface of the kernel.";
    3 NoRoute "no-route" "Skink has no route to the address.";
    4 UnsupportedType "unsupported-type" "Skink doesn't serve this type of socket or protocol.";
    5 UnsupportedOption "unsupported-option" "An option was set that Skink doesn't have.";
    6 NotAttached "not-attached" "The process could not get a stack of its own from skink run.";
    7 Inherited "inherited" "The socket was inherited or passed by another process.";
    8 TableFull "table-full" "All socket slots of the process are in use.";
    9 Configured "configured" "The configuration leaves this socket to the kernel.";
}

/// One socket that went to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fallback {
    /// Its descriptor.
    pub fd: u32,
    /// Why.
    pub reason: FallbackReason,
    /// IP protocol number, 0 if it isn't known.
    pub protocol: u8,
    /// What the reason is about in numbers, such as the option; 0 if there is nothing to say.
    pub detail: u32,
    /// The address it was bound or connected to; unspecified if there was none yet.
    pub endpoint: Endpoint,
}

/// Packed so that each word is stored at once: reason (bits 0 to 7, 0 if free), protocol (8 to 15),
/// family 4 or 6 (16 to 23), port (24 to 39).
#[repr(C)]
struct Entry {
    word: AtomicU64,
    detail: AtomicU64,
    address: [AtomicU64; 2],
}

// SAFETY: only atomics.
unsafe impl Atomics for Entry {}

/// Which sockets of a process went to the kernel and why, in memory that tools can read.
///
/// It is for people to look at: a reader may see an entry half changed, and descriptors from 4096
/// on are left out.
#[derive(Clone)]
pub struct FallbackTable {
    mapping: Arc<Mapping>,
    entries: usize,
}

impl FallbackTable {
    /// An empty table.
    pub fn create() -> io::Result<FallbackTable> {
        let bytes = DESCRIPTORS * size_of::<Entry>();
        let mapping = Arc::new(Mapping::create("skink-fallbacks", bytes)?);
        let entries = DESCRIPTORS;
        Ok(FallbackTable { mapping, entries })
    }

    /// The table of another process, for reading.
    pub fn open_read_only(fd: OwnedFd) -> io::Result<FallbackTable> {
        let mapping = Arc::new(Mapping::from_fd_read_only(fd)?);
        let entries = (mapping.len() / size_of::<Entry>()).min(DESCRIPTORS);
        Ok(FallbackTable { mapping, entries })
    }

    /// The memfd, to be handed to a reader.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd()
    }

    fn entry(&self, fd: u32) -> Option<&Entry> {
        let index = usize::try_from(fd)
            .ok()
            .filter(|index| *index < self.entries)?;
        Some(self.mapping.atomics(index * size_of::<Entry>()))
    }

    /// Notes that a socket is the kernel's. An earlier entry for the same descriptor is replaced.
    pub fn set(&self, fallback: &Fallback) {
        let Some(entry) = self.entry(fallback.fd) else {
            return;
        };
        let (family, bits) = match fallback.endpoint.addr {
            IpAddr::V4(address) => (4u64, u128::from(address.to_bits())),
            IpAddr::V6(address) => (6, address.to_bits()),
        };
        entry.word.store(0, Ordering::Release);
        entry.address[0].store((bits >> 64) as u64, Ordering::Relaxed);
        entry.address[1].store(bits as u64, Ordering::Relaxed);
        entry
            .detail
            .store(u64::from(fallback.detail), Ordering::Relaxed);
        let word = fallback.reason as u64
            | u64::from(fallback.protocol) << 8
            | family << 16
            | u64::from(fallback.endpoint.port) << 24;
        entry.word.store(word, Ordering::Release);
    }

    /// The descriptor was closed, or its socket is Skink's after all.
    #[inline]
    pub fn clear(&self, fd: u32) {
        if let Some(entry) = self.entry(fd) {
            entry.word.store(0, Ordering::Release);
        }
    }

    /// All entries, by descriptor.
    pub fn iter(&self) -> impl Iterator<Item = Fallback> + '_ {
        (0..self.entries as u32).filter_map(|fd| self.get(fd))
    }

    /// The entry of one descriptor.
    pub fn get(&self, fd: u32) -> Option<Fallback> {
        let entry = self.entry(fd)?;
        let word = entry.word.load(Ordering::Acquire);
        let reason = FallbackReason::from_number(word & 0xff)?;
        let high = entry.address[0].load(Ordering::Relaxed);
        let low = entry.address[1].load(Ordering::Relaxed);
        let addr = if word >> 16 & 0xff == 6 {
            IpAddr::V6(Ipv6Addr::from_bits(
                u128::from(high) << 64 | u128::from(low),
            ))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(low as u32))
        };
        Some(Fallback {
            fd,
            reason,
            protocol: (word >> 8) as u8,
            detail: entry.detail.load(Ordering::Relaxed) as u32,
            endpoint: Endpoint::new(addr, (word >> 24) as u16),
        })
    }
}

#[cfg(test)]
mod tests;
