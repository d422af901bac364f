//! The options of a header (RFC 9293 section 3.2, RFC 2018, RFC 7323).

use crate::{Malformed, SeqNum};

use super::MAXIMUM_OPTIONS_LEN;

/// The largest window scale: a larger one counts as this (RFC 7323 section 2.3).
pub const MAXIMUM_WINDOW_SCALE: u8 = 14;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// The first word of the layout that RFC 7323 appendix A recommends, and that nearly every segment of a
/// connection with timestamps has as its only option.
const ALIGNED_TIMESTAMPS: [u8; 4] = [NO_OPERATION, NO_OPERATION, TIMESTAMPS, 10];

/// The timestamps option (RFC 7323 section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timestamps {
    /// TSval: the sender's clock, in ticks of its own choice.
    pub value: u32,
    /// TSecr: the receiver's clock that the sender echoes, where ACK is set.
    pub echo: u32,
}

/// The blocks of a selective acknowledgement (RFC 2018 section 3), in their order on the wire.
#[derive(Clone, Copy, Default, Debug)]
pub struct SackBlocks {
    blocks: [(SeqNum, SeqNum); SackBlocks::CAPACITY],
    len: u8,
}

impl SackBlocks {
    /// As many as fit into a header; with timestamps, one fewer.
    pub const CAPACITY: usize = 4;
    /// No blocks.
    pub const EMPTY: SackBlocks = SackBlocks {
        blocks: [(SeqNum(0), SeqNum(0)); SackBlocks::CAPACITY],
        len: 0,
    };

    /// Adds the block from `start` up to but not including `end`; `false` where it is full.
    pub fn push(&mut self, start: SeqNum, end: SeqNum) -> bool {
        let Some(slot) = self.blocks.get_mut(usize::from(self.len)) else {
            return false;
        };
        *slot = (start, end);
        self.len += 1;
        true
    }

    /// The blocks, each from its first sequence number to the one after its last.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (SeqNum, SeqNum)> + '_ {
        self.as_slice().iter().copied()
    }

    /// The blocks as a slice.
    pub fn as_slice(&self) -> &[(SeqNum, SeqNum)] {
        self.blocks.get(..self.len()).unwrap_or_default()
    }

    /// How many there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

/// The options that Skink understands. Whether MSS, window scale and SACK-permitted count is for the
/// receiver to decide: they have a meaning in segments with SYN only.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Options {
    /// The largest segment payload that the sender takes, in bytes.
    pub mss: Option<u16>,
    /// The shift count of the sender's window, at most [`MAXIMUM_WINDOW_SCALE`].
    pub window_scale: Option<u8>,
    /// The sender understands selective acknowledgements.
    pub sack_permitted: bool,
    /// The timestamps.
    pub timestamps: Option<Timestamps>,
    /// What arrived out of order.
    pub sack: SackBlocks,
}

impl Options {
    /// No options.
    pub const NONE: Options = Options {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        timestamps: None,
        sack: SackBlocks::EMPTY,
    };

    /// Only timestamps: the options of most segments.
    #[inline]
    pub const fn only_timestamps(value: u32, echo: u32) -> Options {
        Options {
            timestamps: Some(Timestamps { value, echo }),
            ..Options::NONE
        }
    }

    #[inline]
    pub(super) fn parse(bytes: &[u8]) -> Result<Options, Malformed> {
        if bytes.is_empty() {
            return Ok(Options::NONE);
        }
        if let Ok([n0, n1, kind, len, v0, v1, v2, v3, e0, e1, e2, e3]) = <[u8; 12]>::try_from(bytes)
            && [n0, n1, kind, len] == ALIGNED_TIMESTAMPS
        {
            return Ok(Options::only_timestamps(
                u32::from_be_bytes([v0, v1, v2, v3]),
                u32::from_be_bytes([e0, e1, e2, e3]),
            ));
        }
        Options::parse_any(bytes)
    }

    fn parse_any(mut bytes: &[u8]) -> Result<Options, Malformed> {
        let mut options = Options::NONE;
        loop {
            match *bytes {
                [] | [END, ..] => return Ok(options),
                [NO_OPERATION, ref rest @ ..] => bytes = rest,
                [_] => return Err(Malformed::BadOption),
                [kind, len, ..] => {
                    let (option, rest) = bytes
                        .split_at_checked(usize::from(len))
                        .ok_or(Malformed::BadOption)?;
                    let value = option.get(2..).ok_or(Malformed::BadOption)?;
                    options.take(kind, value);
                    bytes = rest;
                }
            }
        }
    }

    fn take(&mut self, kind: u8, value: &[u8]) {
        match (kind, value) {
            (MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(MAXIMUM_WINDOW_SCALE)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, &[v0, v1, v2, v3, e0, e1, e2, e3]) => {
                self.timestamps = Some(Timestamps {
                    value: u32::from_be_bytes([v0, v1, v2, v3]),
                    echo: u32::from_be_bytes([e0, e1, e2, e3]),
                });
            }
            (SACK, value) => {
                let (blocks, rest) = value.as_chunks::<8>();
                if rest.is_empty() {
                    for &[s0, s1, s2, s3, e0, e1, e2, e3] in blocks {
                        self.sack.push(
                            SeqNum(u32::from_be_bytes([s0, s1, s2, s3])),
                            SeqNum(u32::from_be_bytes([e0, e1, e2, e3])),
                        );
                    }
                }
            }
            // Unknown, or known but of the wrong length.
            _ => {}
        }
    }

    /// The length of everything but selective acknowledgements: 20 at most, each a multiple of four.
    #[inline]
    fn len_before_sack(&self) -> usize {
        let mut len = 0;
        if self.mss.is_some() {
            len += 4;
        }
        if self.timestamps.is_some() {
            len += 12;
        } else if self.sack_permitted {
            len += 4;
        }
        if self.window_scale.is_some() {
            len += 4;
        }
        len
    }

    /// How many SACK blocks fit beside the other options.
    #[inline]
    fn emitted_blocks(&self) -> usize {
        let room = MAXIMUM_OPTIONS_LEN - self.len_before_sack() - 4;
        self.sack.len().min(room / 8)
    }

    /// How many bytes [`emit`](Self::emit) writes: a multiple of four, at most 40.
    #[inline]
    pub(super) fn emitted_len(&self) -> usize {
        let sack = match self.emitted_blocks() {
            0 => 0,
            blocks => 4 + 8 * blocks,
        };
        self.len_before_sack() + sack
    }

    /// Writes the options in Linux's order, in which every multi-byte value is aligned: MSS, timestamps
    /// (with SACK-permitted in place of their padding), window scale, SACK. `out` is
    /// [`emitted_len`](Self::emitted_len) long.
    #[inline]
    pub(super) fn emit(&self, out: &mut [u8]) {
        let mut words = Words { rest: out };
        if let Some(mss) = self.mss {
            let [a, b] = mss.to_be_bytes();
            words.put([MSS, 4, a, b]);
        }
        let sack_permitted = if self.sack_permitted {
            [SACK_PERMITTED, 2]
        } else {
            [NO_OPERATION, NO_OPERATION]
        };
        if let Some(Timestamps { value, echo }) = self.timestamps {
            let [a, b] = sack_permitted;
            words.put([a, b, TIMESTAMPS, 10]);
            words.put(value.to_be_bytes());
            words.put(echo.to_be_bytes());
        } else if self.sack_permitted {
            let [a, b] = sack_permitted;
            words.put([NO_OPERATION, NO_OPERATION, a, b]);
        }
        if let Some(shift) = self.window_scale {
            words.put([
                NO_OPERATION,
                WINDOW_SCALE,
                3,
                shift.min(MAXIMUM_WINDOW_SCALE),
            ]);
        }
        let blocks = self.emitted_blocks();
        if blocks > 0 {
            // At most four blocks, so the length fits a byte.
            words.put([NO_OPERATION, NO_OPERATION, SACK, (2 + 8 * blocks) as u8]);
            for (start, end) in self.sack.iter().take(blocks) {
                words.put(start.0.to_be_bytes());
                words.put(end.0.to_be_bytes());
            }
        }
    }
}

/// Writes words of four bytes one after another.
struct Words<'a> {
    rest: &'a mut [u8],
}

impl Words<'_> {
    #[inline]
    fn put(&mut self, word: [u8; 4]) {
        if let Some((front, rest)) = core::mem::take(&mut self.rest).split_first_chunk_mut() {
            *front = word;
            self.rest = rest;
        }
    }
}
