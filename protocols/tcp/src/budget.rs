use std::cell::Cell;

/// What rings may take of the machine's memory, and what they take.
///
/// From half of it on memory is *scarce*, and who fills a ring puts less into it. What receive rings take the system knows best
/// ([`Region::taken_to_receive`](skink_memory::Region::taken_to_receive)): it is to be asked again when a part of the budget was put in
/// since.
pub struct Budget {
    bytes: u64,
    /// When it was last asked.
    taken: u64,
    /// Bytes that were put in since.
    put: Cell<u64>,
    is_scarce: bool,
}

/// One in so many of the budget's bytes are put in until it is asked again.
const PARTS: u64 = 16;
/// What a connection may have in a ring while memory is scarce, in bytes,
pub(crate) const LITTLE: usize = 64 << 10;
/// and from so many quarters of the budget on that are taken.
const LESS: [(u64, usize); 2] = [(6, 4 << 10), (5, 16 << 10)];
/// A program may have as much in a send ring: with less a large answer is a call for each packet.
const LEAST_SENT: usize = 16 << 10;

impl Budget {
    /// Of so many bytes. It isn't known what is taken.
    pub fn new(bytes: u64) -> Budget {
        Budget {
            bytes,
            taken: 0,
            put: Cell::new(bytes),
            is_scarce: false,
        }
    }

    /// Bytes go into a ring.
    #[inline]
    pub(crate) fn put(&self, bytes: usize) {
        self.put.set(self.put.get().saturating_add(bytes as u64));
    }

    /// Whether it is to be asked again what is taken.
    #[inline]
    pub(crate) fn is_to_be_asked(&self) -> bool {
        self.put.get() >= (self.bytes / PARTS).max(1)
    }

    /// So much is taken.
    pub fn set_taken(&mut self, taken: u64) {
        self.put.set(0);
        self.taken = taken;
        self.is_scarce = taken >= self.scarce_from();
    }

    /// Memory is scarce if so many bytes are taken: not now, and in the next moment not.
    pub(crate) fn scarce_from(&self) -> u64 {
        match self.is_scarce {
            true => self.bytes / 8 * 3,
            false => self.bytes / 2,
        }
    }

    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        self.is_scarce
    }

    /// Whether more is taken than may be.
    #[inline]
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_scarce && self.quarters() >= 4
    }

    /// How many quarters are taken.
    fn quarters(&self) -> u64 {
        let taken = self.taken.saturating_add(self.put.get());
        taken / (self.bytes / 4).max(1)
    }

    /// How many bytes a connection may have in a ring if it is one that takes more than its share.
    pub(crate) fn limit(&self) -> usize {
        if !self.is_scarce {
            return usize::MAX;
        }
        let quarters = self.quarters();
        let less = LESS.into_iter().find(|(from, _)| quarters >= *from);
        less.map_or(LITTLE, |(_, bytes)| bytes)
    }

    /// How many bytes a program may have in a send ring.
    #[inline]
    pub fn send_limit(&self) -> usize {
        match self.is_scarce {
            true => self.limit().max(LEAST_SENT),
            false => usize::MAX,
        }
    }
}
