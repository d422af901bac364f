use super::Host;
use crate::doom::{Doom, DoomedPorts};
use crate::nic::NicHandle;
use crate::random::{Random, mix};
use crate::scenario::{HostPlan, Scenario, address};
use crate::wire::Wire;
use skink_library::{Stack, StackConfig};
use skink_memory::{Region, TableConfig};
use skink_messages::Counters;
use skink_wire::IpCidr;
use std::collections::BTreeMap;

impl Host {
    pub(super) fn new(
        index: usize,
        plan: &HostPlan,
        scenario: &Scenario,
        random: &mut Random,
    ) -> Host {
        let doom = Doom::default();
        let nic = NicHandle::new(plan.nic, random.fork(), doom.clone());
        let counters = Counters::create().expect("memory for counters");
        let prefixes = [(address(index, false), 24), (address(index, true), 64)];
        let addresses = prefixes.map(|(addr, prefix)| IpCidr { addr, prefix });
        let sockets = scenario.connections.len() as u32 * 2 + 16;
        let mut life = Life {
            addresses: addresses.to_vec(),
            seed: random.next(),
            tcp: TableConfig {
                sockets,
                send_bytes: plan.send_bytes,
                receive_bytes: plan.receive_bytes,
            },
            udp: TableConfig {
                sockets: 16,
                send_bytes: 1 << 17,
                receive_bytes: 1 << 17,
            },
        };
        let mut stack = life.stack(&nic, &doom, &counters);
        let mut regions = Vec::new();
        for program in 0..plan.programs {
            let tcp = Region::create("tcp", life.tcp).expect("memory for a program");
            let udp = Region::create("udp", life.udp).expect("memory for a program");
            regions.push((program, tcp.clone(), udp.clone()));
            let added = stack.add_program(program, tcp, udp);
            added.expect("a number that is free");
        }
        if !scenario.crashes.is_empty() {
            let all = regions.iter();
            doom.watch(all.flat_map(|(_, tcp, udp)| [tcp, udp]));
        }
        Host {
            stack,
            life,
            doom,
            crash: None,
            regions,
            spoilt: Vec::new(),
            counters,
            nic,
            wire: Wire::new(plan.wire.clone(), random.fork()),
            lag_us: plan.lag_us,
            next_poll: None,
            sockets: BTreeMap::new(),
            dead: None,
            finished: false,
        }
    }

    /// A successor's stack, which serves nobody yet.
    pub(super) fn new_stack(&mut self) -> Stack {
        self.life.stack(&self.nic, &self.doom, &self.counters)
    }
}

/// What each of a host's stacks begins with.
pub(super) struct Life {
    addresses: Vec<IpCidr>,
    seed: u64,
    tcp: TableConfig,
    udp: TableConfig,
}

impl Life {
    fn stack(&mut self, nic: &NicHandle, doom: &Doom, counters: &Counters) -> Stack {
        let config = StackConfig {
            addresses: self.addresses.clone(),
            gateways: Vec::new(),
            seed: self.seed,
            answers: true,
            tcp_table: self.tcp,
            udp_table: self.udp,
            counters: counters.clone(),
        };
        // Nothing depends on the next one's being the same.
        self.seed = mix(self.seed);
        Stack::for_programs(config, nic.nic(), Box::new(DoomedPorts(doom.clone())))
    }
}
