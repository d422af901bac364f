use super::Host;
use crate::apart::Apart;
use crate::doom::{Doom, DoomedPorts};
use crate::machine::{Filtering, Machine, MachineConfig, Who};
use crate::nic::NicHandle;
use crate::place::Place;
use crate::random::{Random, mix};
use crate::scenario::{ApartPlan, HostPlan, Scenario, address};
use crate::wire::Wire;
use skink_filter::RuleSet;
use skink_library::{Stack, StackConfig};
use skink_memory::{Region, TableConfig};
use skink_messages::Counters;
use skink_time::Instant;
use skink_wire::IpCidr;
use std::collections::BTreeMap;

/// What a host's filter lets through: TCP that begins with a handshake, and all else.
const RULES: &str = "\
block all
pass proto { tcp, udp } all
pass inet proto icmp all no state
pass inet6 proto icmp6 all no state
";

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
                send_bytes: 1 << 18,
                receive_bytes: 1 << 17,
            },
            socket_memory: plan.socket_memory,
        };
        let (stack, regions) = match &scenario.apart {
            None => life.whole(plan.programs, &nic, &doom, &counters),
            Some(apart) => life.apart(plan.programs, apart, &nic, &doom, &counters),
        };
        if !scenario.is_immortal() {
            let all = regions.iter();
            doom.watch(all.flat_map(|(_, tcp, udp)| [tcp, udp]));
        }
        Host {
            stack,
            parts: super::parts::Turns::default(),
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
    socket_memory: u64,
}

type Regions = Vec<(u32, Region, Region)>;

impl Life {
    fn whole(
        &mut self,
        programs: u32,
        nic: &NicHandle,
        doom: &Doom,
        counters: &Counters,
    ) -> (Place, Regions) {
        let mut stack = self.stack(nic, doom, counters);
        let mut regions = Vec::new();
        for program in 0..programs {
            let tcp = Region::create("tcp", self.tcp).expect("memory for a program");
            let udp = Region::create("udp", self.udp).expect("memory for a program");
            regions.push((program, tcp.clone(), udp.clone()));
            let added = stack.add_program(program, tcp, udp);
            added.expect("a number that is free");
        }
        (Place::Whole(Box::new(stack)), regions)
    }

    fn apart(
        &mut self,
        programs: u32,
        plan: &ApartPlan,
        nic: &NicHandle,
        doom: &Doom,
        counters: &Counters,
    ) -> (Place, Regions) {
        let filtering = match plan.filters {
            true => Filtering::Apart(RuleSet::parse(RULES).expect("rules")),
            false => Filtering::None,
        };
        let doom = doom.clone();
        let config = MachineConfig {
            addresses: self.addresses.clone(),
            seed: self.seed,
            filtering,
            tcp: self.tcp,
            udp: self.udp,
            socket_memory: self.socket_memory,
            programs,
            ports: Box::new(move || Box::new(DoomedPorts(doom.clone()))),
        };
        let mut machine = Machine::new(nic.nic(), config, counters.clone());
        // So that transports know their addresses.
        machine.poll(Who::Ip, Instant::ZERO);
        let regions = machine.regions().to_vec();
        let mut apart = Apart::new(machine);
        if plan.shares {
            apart.share(mix(self.seed ^ 0x7368_6172_6500), [0, programs - 1]);
        }
        (Place::Apart(Box::new(apart)), regions)
    }

    fn stack(&mut self, nic: &NicHandle, doom: &Doom, counters: &Counters) -> Stack {
        let config = StackConfig {
            addresses: self.addresses.clone(),
            gateways: Vec::new(),
            seed: self.seed,
            answers: true,
            tcp_table: self.tcp,
            udp_table: self.udp,
            socket_memory: self.socket_memory,
            counters: counters.clone(),
        };
        // Nothing depends on the next one's being the same.
        self.seed = mix(self.seed);
        Stack::for_programs(config, nic.nic(), Box::new(DoomedPorts(doom.clone())))
    }
}
