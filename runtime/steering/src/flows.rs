//! The map of the flows whose owner is known, which the programs fill.

use crate::addresses::key;
use crate::kernel::{map_error, map_of};
use crate::{Owner, SteeringError};
use aya::maps::{HashMap as BpfHash, Map, MapData};
use skink_wire::{FourTuple, protocol};
use std::os::fd::BorrowedFd;

/// Its name in the object.
pub(crate) const NAME: &str = "flows";

/// `struct flow` of `bpf/steer.bpf.c`: the remote and the local address, their ports in network byte order, and the protocol.
fn key_of(flow: &FourTuple) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..16].copy_from_slice(&key(flow.remote.addr));
    bytes[16..32].copy_from_slice(&key(flow.local.addr));
    bytes[32..34].copy_from_slice(&flow.remote.port.to_be_bytes());
    bytes[34..36].copy_from_slice(&flow.local.port.to_be_bytes());
    bytes[36..].copy_from_slice(&u32::from(protocol::TCP).to_ne_bytes());
    bytes
}

/// The TCP connection `flow` is `owner`'s.
pub(crate) fn bind(
    map: BorrowedFd<'_>,
    flow: &FourTuple,
    owner: Owner,
) -> Result<(), SteeringError> {
    let refused = |error| map_error(NAME, error);
    // `struct entry`: no request with that sequence number came.
    let mut map: BpfHash<MapData, [u8; 40], [u32; 2]> = Map::LruHashMap(map_of(map, NAME)?)
        .try_into()
        .map_err(refused)?;
    map.insert(key_of(flow), [u32::from(owner.number()), 0], 0)
        .map_err(refused)
}
