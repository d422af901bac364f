use super::Host;
use crate::nic::NicHandle;
use crate::random::Random;
use crate::scenario::{HostPlan, Scenario, address};
use crate::wire::Wire;
use skink_library::{Stack, StackConfig};
use skink_memory::{Region, TableConfig};
use skink_messages::{Counters, SoleOwner};
use skink_wire::IpCidr;
use std::collections::BTreeMap;

impl Host {
    pub(super) fn new(
        index: usize,
        plan: &HostPlan,
        scenario: &Scenario,
        random: &mut Random,
    ) -> Host {
        let (nic, handle) = NicHandle::new(plan.nic, random.fork());
        let counters = Counters::create().expect("memory for counters");
        let prefixes = [(address(index, false), 24), (address(index, true), 64)];
        let addresses = prefixes.map(|(addr, prefix)| IpCidr { addr, prefix });
        let sockets = scenario.connections.len() as u32 * 2 + 16;
        let config = StackConfig {
            addresses: addresses.to_vec(),
            gateways: Vec::new(),
            seed: random.next(),
            answers: true,
            tcp_table: TableConfig {
                sockets,
                send_bytes: plan.send_bytes,
                receive_bytes: plan.receive_bytes,
            },
            udp_table: TableConfig {
                sockets: 16,
                send_bytes: 1 << 17,
                receive_bytes: 1 << 17,
            },
            counters: counters.clone(),
        };
        let (tcp, udp) = (config.tcp_table, config.udp_table);
        let mut stack = Stack::for_programs(config, nic, Box::new(SoleOwner));
        for program in 0..plan.programs {
            let tcp = Region::create("tcp", tcp).expect("memory for a program");
            let udp = Region::create("udp", udp).expect("memory for a program");
            let added = stack.add_program(program, tcp, udp);
            added.expect("a number that is free");
        }
        Host {
            stack,
            counters,
            nic: handle,
            wire: Wire::new(plan.wire.clone(), random.fork()),
            lag_us: plan.lag_us,
            next_poll: None,
            sockets: BTreeMap::new(),
            dead: None,
            finished: false,
        }
    }
}
