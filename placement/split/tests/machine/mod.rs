//! The simulator's machine whose components are on their own, as the tests here start it.
#![allow(dead_code, unused_imports, reason = "each test uses a part")]

pub mod programs;

pub use skink_simulator::machine::{Filtering, Machine, Shown, Who};

use skink_lanes::Transport;
use skink_memory::TableConfig;
use skink_messages::{Counters, SoleOwner};
use skink_nic::Nic;
use skink_simulator::machine::MachineConfig;

pub const ALL: [Who; Who::COUNT] = Who::ALL;

pub const TABLE: TableConfig = TableConfig {
    sockets: 16,
    send_bytes: 64 * 1024,
    receive_bytes: 64 * 1024,
};

/// With more room than what is told at once when it is free.
pub const UDP_TABLE: TableConfig = TableConfig {
    send_bytes: 256 * 1024,
    ..TABLE
};

/// Starts a machine that serves one program.
pub fn start(nic: Nic, addresses: &[&str], seed: u64, filtering: Filtering) -> Machine {
    start_for(1, nic, addresses, seed, filtering)
}

/// Starts a machine that serves so many programs.
pub fn start_for(
    programs: u32,
    nic: Nic,
    addresses: &[&str],
    seed: u64,
    filtering: Filtering,
) -> Machine {
    let addresses = addresses.iter();
    let config = MachineConfig {
        addresses: addresses
            .map(|text| text.parse().expect("an address"))
            .collect(),
        seed,
        filtering,
        tcp: TABLE,
        udp: UDP_TABLE,
        socket_memory: u64::MAX,
        programs,
        ports: Box::new(|| Box::new(SoleOwner)),
    };
    Machine::new(nic, config, Counters::create().expect("counters"))
}

/// A generator of numbers that are the same in each run with one seed (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }
}

pub const TRANSPORTS: [Transport; 2] = Transport::ALL;
