//! VLAN tags (IEEE 802.1Q): a tagged frame belongs to another, virtual interface, unless the tag names no VLAN and just
//! tells a priority (802.1p).

use skink_wire::ethernet;

/// What of a tag names its VLAN.
pub(crate) const ID: u16 = 0xfff;

const TAG: usize = 4;
const ADDRESSES: usize = 12;

/// Takes a tag out of the frame that names no VLAN. In the memory before the frame nothing is left as it was.
pub(crate) fn without_priority(frame: &mut [u8]) -> &mut [u8] {
    let Some([type_high, type_low, high, low]) = frame.get(ADDRESSES..ADDRESSES + TAG) else {
        return frame;
    };
    let tagged = u16::from_be_bytes([*type_high, *type_low]) == ethernet::VLAN;
    if !tagged || u16::from_be_bytes([*high, *low]) & ID != 0 {
        return frame;
    }
    frame.copy_within(..ADDRESSES, TAG);
    frame.split_at_mut(TAG).1
}
