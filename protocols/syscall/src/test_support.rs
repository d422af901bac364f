//! What tests of several modules use.
use crate::SyscallOutput;
use skink_messages::{Answer, Protocol, SocketError, StoreKey, StoreValue, TransportCall};
use std::collections::{BTreeMap, VecDeque};

/// Program, serial number, result.
pub(crate) type Answered = (u32, u32, Result<Answer, SocketError>);

/// Keeps all that is said.
#[derive(Default)]
pub(crate) struct Recorder {
    pub calls: [VecDeque<TransportCall>; 2],
    pub answers: Vec<Answered>,
    /// What a store would have.
    pub stored: BTreeMap<StoreKey, StoreValue>,
    random: u64,
}

impl SyscallOutput for Recorder {
    fn call(&mut self, protocol: Protocol, call: TransportCall) {
        self.calls[protocol.index()].push_back(call);
    }

    fn answer(&mut self, program: u32, serial: u32, result: Result<Answer, SocketError>) {
        self.answers.push((program, serial, result));
    }

    fn store(&mut self, key: StoreKey, value: Option<StoreValue>) {
        match value {
            Some(value) => self.stored.insert(key, value),
            None => self.stored.remove(&key),
        };
    }

    fn store_last(&mut self, key: StoreKey) {
        self.store(key, None);
    }

    fn random(&mut self) -> u64 {
        self.random += 1;
        0x7_0000_0000 + self.random
    }
}

/// A sequence that looks random (SplitMix64).
pub(crate) struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % u64::from(sides)) as u32
    }
}
