//! The map of the addresses that are Skink's, which each object of programs has.

use crate::SteeringError;
use crate::kernel::{map_error, map_of};
use aya::maps::{HashMap as BpfHash, Map, MapData};
use skink_wire::IpCidr;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// Its name in the objects.
pub(crate) const NAME: &str = "addresses";

/// Makes the map hold these and no others.
pub(crate) fn set(map: BorrowedFd<'_>, addresses: &[IpCidr]) -> Result<(), SteeringError> {
    let refused = |error| map_error(NAME, error);
    let mut map: BpfHash<MapData, [u8; 16], u32> = Map::HashMap(map_of(map, NAME)?)
        .try_into()
        .map_err(refused)?;
    let wanted: Vec<[u8; 16]> = addresses.iter().map(|cidr| key(cidr.addr)).collect();
    let present: Vec<[u8; 16]> = map.keys().filter_map(Result::ok).collect();
    for gone in present.iter().filter(|key| !wanted.contains(key)) {
        map.remove(gone).map_err(refused)?;
    }
    for address in &wanted {
        map.insert(address, 1, 0).map_err(refused)?;
    }
    Ok(())
}

/// An address as the programs look it up: IPv4 as `::ffff:a.b.c.d`.
pub(crate) fn key(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
