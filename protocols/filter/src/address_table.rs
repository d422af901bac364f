//! Tables of addresses, for look-up.

use crate::rules::Table;
use crate::summary::{Family, number};
use foldhash::fast::FixedState;
use std::collections::HashMap;

/// The networks of one prefix length.
struct Length {
    mask: u128,
    /// Whether the entry is one that takes addresses out.
    networks: HashMap<u128, bool, FixedState>,
}

/// One table: a hash look-up for each prefix length that occurs in it, the longest first.
#[derive(Default)]
pub(crate) struct AddressTable {
    v4: Vec<Length>,
    v6: Vec<Length>,
}

/// The mask of a prefix, in 128 bits; that of an IPv4 prefix covers the mapped form.
pub(crate) const fn mask(family: Family, prefix: u8) -> u128 {
    let bits = match family {
        Family::V4 => 96 + prefix as u32,
        Family::V6 => prefix as u32,
    };
    match bits {
        0 => 0,
        1..128 => u128::MAX << (128 - bits),
        128.. => u128::MAX,
    }
}

impl AddressTable {
    pub(crate) fn new(table: &Table, seed: u64) -> AddressTable {
        let mut addresses = AddressTable::default();
        for (negated, network) in &table.entries {
            let family = Family::of(network.addr);
            let mask = mask(family, network.prefix);
            let lengths = match family {
                Family::V4 => &mut addresses.v4,
                Family::V6 => &mut addresses.v6,
            };
            let at = match lengths.iter().position(|length| length.mask == mask) {
                Some(at) => at,
                None => {
                    lengths.push(Length {
                        mask,
                        networks: HashMap::with_hasher(FixedState::with_seed(seed)),
                    });
                    lengths.len() - 1
                }
            };
            if let Some(length) = lengths.get_mut(at) {
                let key = number(network.addr) & mask;
                length.networks.insert(key, *negated);
            }
        }
        for lengths in [&mut addresses.v4, &mut addresses.v6] {
            lengths.sort_by_key(|length| core::cmp::Reverse(length.mask));
        }
        addresses
    }

    /// Whether an address is in the table.
    pub(crate) fn contains(&self, family: Family, address: u128) -> bool {
        let lengths = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        let found = lengths
            .iter()
            .find_map(|length| length.networks.get(&(address & length.mask)));
        found.is_some_and(|negated| !negated)
    }
}
