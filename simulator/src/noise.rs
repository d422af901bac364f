//! Frames that no honest station sends.

use crate::frame::{self, Frame};
use crate::random::Random;
use skink_messages::RxChecksum;

/// A damaged copy of `original`: cut short, overwritten or lengthened, but never so that a checksum
/// happens to fit, as one in 65,536 does: that would be a forgery, which no stack can tell.
pub fn mangle(original: &[u8], random: &mut Random) -> Frame {
    let mut bytes = original.to_vec();
    let bytes_there = bytes.len() as u64;
    match random.range(0, 3) {
        0 => bytes.truncate(random.range(0, bytes_there) as usize),
        1 => {
            // Nonsense behind the Ethernet header.
            for byte in bytes.iter_mut().skip(14) {
                *byte = random.next() as u8;
            }
        }
        2 => {
            let extra = random.range(1, 40);
            bytes.extend((0..extra).map(|_| random.next() as u8));
        }
        _ => {
            // One field of a header gets a value that nobody expects.
            let at = random.range(14, 80) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.pick(&[0, 1, 0x7f, 0x80, 0xff, byte.wrapping_add(1)]);
            }
        }
    }
    if frame::checksum_is_right(&bytes) && bytes.get(..original.len()) != Some(original) {
        bytes.clear();
    }
    Frame {
        bytes,
        checksum: RxChecksum::Unverified,
        segment_bytes: 0,
    }
}
