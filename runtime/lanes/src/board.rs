//! A board: what one component writes now and then, and others read whenever they like.
//!
//! A memfd of 64-bit words: magic and version; a *revision*, odd while the board is being written; the
//! number of words that count; the words. The writer stores the revision, the words, and the revision
//! again; a reader copies the words out between two looks at the revision, and takes them only if it was
//! even and the same. So a reader never waits, and a writer that dies leaves readers with what they had.
//!
//! `ip` writes what [`skink_messages::Network::path`] and `is_local` depend on ([`encode`]); `tcp` and
//! `udp` read it ([`decode`]).

use crate::codec::{family, get_address, put_address};
use core::net::IpAddr;
use rustix::fs::{Mode, OFlags};
use skink_memory::Mapping;
use skink_messages::{LinkLimits, NetworkView};
use skink_wire::{IpCidr, MacAddr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

/// "SKINKBRD" and a version that changes with the layout.
const MAGIC: u64 = 0x534b_494e_4b42_0001;
const REVISION: usize = 1;
const LENGTH: usize = 2;
const WORDS: usize = 16;

/// How much a board of [`encode`] holds: more addresses, routers or path MTUs are left out.
const ADDRESSES: usize = 64;
const GATEWAYS: usize = 16;
const PATH_MTUS: usize = 1024;
const HEADER_WORDS: usize = 4;
const ENTRY_WORDS: usize = 3;
const MOST_WORDS: usize = HEADER_WORDS + ENTRY_WORDS * (ADDRESSES + GATEWAYS + PATH_MTUS);

/// What a board's writer and readers are handed. Keep it, and the writer can have a successor.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct BoardDescriptors {
    #[serde(with = "skink_inherit::descriptors")]
    writer: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    reader: OwnedFd,
}

impl BoardDescriptors {
    /// Makes an empty board, called `name` in `/proc/PID/maps`. Needs `/proc`.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(name: &str) -> io::Result<BoardDescriptors> {
        let memory = Mapping::create(name, (WORDS + MOST_WORDS) * 8)?;
        if let Some(word) = memory.words().first() {
            word.store(MAGIC, Ordering::Release);
        }
        // As for queues: who has another user id can't open it anew for writing.
        rustix::fs::fchmod(memory.fd(), Mode::RUSR | Mode::WUSR)?;
        let path = format!("/proc/self/fd/{}", memory.fd().as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(BoardDescriptors {
            reader: rustix::fs::open(path, flags, Mode::empty())?,
            writer: memory.fd().try_clone_to_owned()?,
        })
    }

    /// For the writer, or its successor once it is dead.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn writer(&self) -> io::Result<OwnedFd> {
        self.writer.try_clone()
    }

    /// For a reader.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn reader(&self) -> io::Result<OwnedFd> {
        self.reader.try_clone()
    }
}

fn check(memory: Mapping) -> io::Result<Mapping> {
    let magic = memory.words().first();
    let good = memory.len() == (WORDS + MOST_WORDS) * 8
        && magic.is_some_and(|magic| magic.load(Ordering::Relaxed) == MAGIC);
    match good {
        true => Ok(memory),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the board's memory has another layout than agreed on: are both components from one release?",
        )),
    }
}

/// The writing end.
pub struct BoardWriter(Mapping);

impl BoardWriter {
    /// Takes what [`BoardDescriptors::writer`] answered.
    ///
    /// # Errors
    /// If it isn't a board.
    pub fn attach(fd: OwnedFd) -> io::Result<BoardWriter> {
        check(Mapping::from_fd(fd)?).map(BoardWriter)
    }

    /// Replaces what is on the board. Words beyond what it holds are left out.
    pub fn write(&mut self, words: &[u64]) {
        let all = self.0.words();
        let (Some(revision), Some(length)) = (all.get(REVISION), all.get(LENGTH)) else {
            return;
        };
        // Odd already if a predecessor died here.
        let writing = revision.load(Ordering::Relaxed) | 1;
        revision.store(writing, Ordering::Relaxed);
        fence(Ordering::Release);
        let words = words.get(..MOST_WORDS).unwrap_or(words);
        length.store(words.len() as u64, Ordering::Relaxed);
        for (to, from) in all.iter().skip(WORDS).zip(words) {
            to.store(*from, Ordering::Relaxed);
        }
        revision.store(writing.wrapping_add(1), Ordering::Release);
    }
}

/// A reading end.
pub struct BoardReader {
    memory: Mapping,
    seen: u64,
    words: Vec<u64>,
}

impl BoardReader {
    /// Takes what [`BoardDescriptors::reader`] answered.
    ///
    /// # Errors
    /// If it isn't a board.
    pub fn attach(fd: OwnedFd) -> io::Result<BoardReader> {
        Ok(BoardReader {
            memory: check(Mapping::from_fd_read_only(fd)?)?,
            seen: 0,
            words: Vec::with_capacity(MOST_WORDS),
        })
    }

    /// What is on the board, if that has changed since the last time. It costs one load if not.
    pub fn changed(&mut self) -> Option<&[u64]> {
        let all = self.memory.words();
        let revision = all.get(REVISION)?;
        let before = revision.load(Ordering::Relaxed);
        if before == self.seen || before & 1 == 1 {
            return None;
        }
        fence(Ordering::Acquire);
        let length = all.get(LENGTH)?.load(Ordering::Relaxed);
        let length = usize::try_from(length).ok()?.min(MOST_WORDS);
        self.words.clear();
        let words = all.iter().skip(WORDS).take(length);
        self.words
            .extend(words.map(|word| word.load(Ordering::Relaxed)));
        fence(Ordering::Acquire);
        if revision.load(Ordering::Relaxed) != before {
            return None;
        }
        self.seen = before;
        Some(&self.words)
    }
}

fn entry(address: IpAddr, prefix: u8, number: u32) -> [u64; ENTRY_WORDS] {
    let bits = u128::from_be_bytes(put_address(address));
    let rest = u64::from(number) << 32 | u64::from(prefix) << 8 | u64::from(family(address));
    [(bits >> 64) as u64, bits as u64, rest]
}

fn read(entry: &[u64]) -> Option<(IpAddr, u8, u32)> {
    let &[high, low, rest] = entry else {
        return None;
    };
    let bits = u128::from(high) << 64 | u128::from(low);
    let address = get_address(bits.to_be_bytes(), rest as u8)?;
    Some((address, (rest >> 8) as u8, (rest >> 32) as u32))
}

/// What transports ask of `ip`, as words for a board.
pub fn encode(view: &NetworkView, limits: &LinkLimits) -> Vec<u64> {
    let addresses = view.addresses.iter().take(ADDRESSES);
    let gateways = view.gateways.iter().take(GATEWAYS);
    let path_mtus = view.path_mtus.iter().take(PATH_MTUS);
    let [a, b, c, d, e, f] = limits.mac.0;
    let mut words = vec![
        u64::from(limits.mtu) << 32 | u64::from(limits.cut_bytes),
        u64::from_be_bytes([0, u8::from(limits.cuts), a, b, c, d, e, f]),
        (addresses.len() as u64) << 32 | gateways.len() as u64,
        path_mtus.len() as u64,
    ];
    words.extend(addresses.flat_map(|cidr| entry(cidr.addr, cidr.prefix, 0)));
    words.extend(gateways.flat_map(|gateway| entry(*gateway, 0, 0)));
    words.extend(path_mtus.flat_map(|(to, mtu)| entry(*to, 0, *mtu)));
    words
}

/// What [`encode`] was told; `None` if it makes no sense.
pub fn decode(words: &[u64]) -> Option<(NetworkView, LinkLimits)> {
    let (&[sizes, mac, counts, path_mtus], entries) = words.split_first_chunk::<HEADER_WORDS>()?;
    let [_, cuts, a, b, c, d, e, f] = mac.to_be_bytes();
    let limits = LinkLimits {
        mac: MacAddr([a, b, c, d, e, f]),
        mtu: (sizes >> 32) as u32,
        cut_bytes: sizes as u32,
        cuts: cuts != 0,
    };
    let addresses = (counts >> 32) as usize;
    let gateways = counts as u32 as usize;
    let path_mtus = usize::try_from(path_mtus).ok()?;
    let total = addresses.checked_add(gateways)?.checked_add(path_mtus)?;
    if entries.len() != total.checked_mul(ENTRY_WORDS)? {
        return None;
    }
    let mut view = NetworkView::default();
    for (index, words) in entries.chunks_exact(ENTRY_WORDS).enumerate() {
        let (address, prefix, number) = read(words)?;
        if index < addresses {
            view.addresses.push(IpCidr::new(address, prefix).ok()?);
        } else if index < addresses + gateways {
            view.gateways.push(address);
        } else {
            view.path_mtus.push((address, number));
        }
    }
    Some((view, limits))
}

#[cfg(test)]
mod tests;
