//! How a socket was bound, as its record says it.

use crate::demux::unspecified_like;
use core::sync::atomic::Ordering::Relaxed;
use skink_memory::Record;
use skink_messages::BindOptions;
use skink_wire::Endpoint;

/// Bits of [`Record::binding`]: bound by the program, not just by `connect`;
const BOUND: u8 = 1;
/// to all addresses;
const ANY: u8 = 2;
/// the end may be shared while nobody listens;
const REUSE: u8 = 4;
/// or by several that listen;
const SHARED: u8 = 8;
/// and the socket rests.
const RESTING: u8 = 16;

/// The bits for a socket that its program bound to `local`.
pub fn bits(local: Endpoint, sharing: BindOptions, resting: bool) -> u8 {
    let BindOptions {
        reuse_address,
        shared,
    } = sharing;
    let optional = [
        (local.addr.is_unspecified(), ANY),
        (reuse_address, REUSE),
        (shared, SHARED),
        (resting, RESTING),
    ];
    optional
        .into_iter()
        .fold(BOUND, |all, (on, bit)| all | (u8::from(on) * bit))
}

/// How a predecessor's socket was bound.
#[derive(Clone, Copy)]
pub struct Binding {
    /// What the program bound it to, if it did.
    pub local: Option<Endpoint>,
    pub sharing: BindOptions,
    pub resting: bool,
}

impl Binding {
    /// What the record says. Its ends may have been overwritten in part by a `connect` that was never
    /// finished.
    pub fn load(record: &Record) -> Binding {
        let bits = record.binding.load(Relaxed);
        let end = record.four_tuple().local;
        let known = matches!(record.family.load(Relaxed), 4 | 6) && end.port != 0;
        let addr = match bits & ANY != 0 {
            true => unspecified_like(end.addr),
            false => end.addr,
        };
        let bound = known && bits & BOUND != 0;
        Binding {
            local: bound.then_some(Endpoint::new(addr, end.port)),
            sharing: BindOptions {
                reuse_address: bits & REUSE != 0,
                shared: bits & SHARED != 0,
            },
            resting: bound && bits & RESTING != 0,
        }
    }
}
