//! What the broker asks for programs and tools.
use super::{Served, Stack};
use crate::up::programs::{Program, Stage};
use skink_control::{
    Answered, ComponentInfo, FIRST_COMPONENT, Grant, Order, Owners, Part, Peer, Question,
    QueueInfo, RegionKind, TetherParts,
};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

impl Owners for Served {
    fn grant(&mut self, owner: u16, peer: &Peer) -> Result<Grant, String> {
        let others = self.programs.values();
        let others = others.filter(|program| program.uid == peer.uid).count();
        if others >= usize::from(self.limits.per_user) {
            return Err(format!(
                "user {} has {others} programs on {} already, the most that one user may have: end some, or \
                 raise `programs-per-user` in its configuration",
                peer.uid, self.name
            ));
        }
        let Stack { plant, processes } = &self.stack;
        let layout = &plant.layout;
        let channels = layout.channels().into_iter();
        let stack = channels.filter_map(|place| Some(&processes.get(place)?.sleeper));
        let stack: Vec<_> = stack.collect();
        let tables = self.limits.tables;
        let program = Program::make(owner, peer, tables, layout.routes(), &stack)?;
        self.programs.insert(owner, program);
        // Introduced when the standby knows of it.
        self.newcomers.push(owner);
        Ok(Grant::Later)
    }

    fn retire(
        &mut self,
        _owner: u16,
        _memory: BTreeMap<RegionKind, OwnedFd>,
        _tethers: Vec<TetherParts>,
    ) -> bool {
        false
    }

    /// It has no part of the NIC. Its process may live on as another program, by `exec`: its sockets are closed as the kernel's would be.
    fn is_waited_for(&self) -> bool {
        false
    }

    fn release(&mut self, owner: u16) {
        let Some(program) = self.programs.get_mut(&owner) else {
            return;
        };
        if matches!(program.stage, Stage::Ending) {
            return;
        }
        program.stage = Stage::Ending;
        match program.holders.introduced {
            true => self.advance(owner),
            false => {
                // No stack knows it.
                self.programs.remove(&owner);
            }
        }
    }

    fn answering(&mut self, _owner: u16) {}

    fn capacity(&self) -> u16 {
        self.limits.programs
    }

    fn is_free(&self, owner: u16) -> bool {
        !self.programs.contains_key(&owner)
    }

    fn admit(&self, peer: &Peer) -> Result<(), String> {
        let Some(allow) = &self.limits.allow else {
            return Ok(());
        };
        let own = rustix::process::geteuid().as_raw();
        let member = || peer.groups.iter().any(|group| allow.groups.contains(group));
        if peer.uid == 0 || peer.uid == own || allow.users.contains(&peer.uid) || member() {
            return Ok(());
        }
        Err(format!(
            "user {} may not use {}: its configuration names those who may in `allow`",
            peer.uid, self.name
        ))
    }

    fn region(&self, program: u32, secret: u64) -> Result<[[OwnedFd; 3]; 2], String> {
        let number = u16::try_from(program).ok();
        let program = number.and_then(|number| self.programs.get(&number));
        let program =
            program.ok_or_else(|| "the program whose socket it is has ended".to_owned())?;
        program.regions(secret)
    }

    fn memory(&self, owner: u16, kind: RegionKind) -> Option<BorrowedFd<'_>> {
        if let Some(place) = owner.checked_sub(FIRST_COMPONENT) {
            let place = usize::from(place);
            let process = self.stack.processes.get(place)?;
            return match kind {
                RegionKind::Counters => Some(process.counters()),
                RegionKind::Capture => self.stack.plant.capture(place),
                RegionKind::TcpTable
                | RegionKind::TcpSendRings
                | RegionKind::TcpReceiveRings
                | RegionKind::UdpTable
                | RegionKind::UdpSendRings
                | RegionKind::UdpReceiveRings
                | RegionKind::Fallbacks => None,
            };
        }
        let [
            [tcp_records, tcp_send_rings, tcp_receive_rings],
            [udp_records, udp_send_rings, udp_receive_rings],
        ] = self.programs.get(&owner)?.files();
        match kind {
            RegionKind::TcpTable => Some(tcp_records.as_fd()),
            RegionKind::TcpSendRings => Some(tcp_send_rings.as_fd()),
            RegionKind::TcpReceiveRings => Some(tcp_receive_rings.as_fd()),
            RegionKind::UdpTable => Some(udp_records.as_fd()),
            RegionKind::UdpSendRings => Some(udp_send_rings.as_fd()),
            RegionKind::UdpReceiveRings => Some(udp_receive_rings.as_fd()),
            RegionKind::Counters | RegionKind::Fallbacks | RegionKind::Capture => None,
        }
    }

    fn components(&self) -> Vec<ComponentInfo> {
        let processes = self.stack.processes.iter().enumerate();
        let all = processes.map(|(place, process)| process.info(self.waiting(place)));
        all.collect()
    }

    fn standby(&self) -> Option<u32> {
        self.standby
    }

    fn queues(&self, owner: u16) -> Vec<QueueInfo> {
        self.waiting_for_program(owner)
    }

    fn load_filter(&mut self, rules: &str) -> Result<String, String> {
        let accepted = crate::filter::accept(rules)?;
        self.rules = accepted.rules.len();
        let order = Order::Filter {
            rules: rules.to_owned(),
        };
        rules.clone_into(&mut self.stack.plant.start.rules);
        self.unsaved = true;
        // Whether the filter can hear of them or not, nothing passes from now on that it would let pass without rules.
        if self.rules > 0 && self.stack.plant.split.is_some() {
            self.process(Part::Ip)
                .order(Order::AskFilter {}, Vec::new());
        }
        self.filtering().order(order, Vec::new());
        self.on_new_rules();
        let interface = &self.stack.plant.start.interface;
        Ok(crate::filter::in_force(&accepted, interface))
    }

    fn upgrade(
        &mut self,
        question: Question,
        component: Option<&str>,
        executable: OwnedFd,
    ) -> Answered {
        self.begin_upgrade(question, component, executable)
    }

    fn show_filter(&mut self, question: Question) -> Answered {
        if !self.filtering().serves() {
            return Err("the stack is being started: ask later".to_owned());
        }
        self.questions.push_back(question);
        self.filtering().order(Order::ShowFilter {}, Vec::new());
        Ok(None)
    }
}
