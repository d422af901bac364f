//! The programs of a machine, and who is told of them.

use super::broker::{map, read_only};
use super::succession::{add_pool, apart};
use super::{Machine, Who};
use skink_channel::QueueDescriptors;
use skink_lanes::Transport;
use skink_memory::{Region, SocketId, SocketTable};
use skink_messages::Protocol;
use skink_sockets::{ChannelParts, Client, Routes, Server};
use skink_split::{Arrival, Front, TcpHost, UdpHost};
use skink_time::Instant;

/// To `syscall`, `tcp` and `udp`.
const CHANNELS: usize = 3;
/// The user of all programs.
const UID: u32 = 1000;

/// Who knows it may share a program's sockets.
fn secret(program: u32) -> u64 {
    (u64::from(program) + 1) << 32 | 7
}

impl Machine {
    /// Each maps what it reads of the others', and is told of the programs.
    pub(super) fn introduce_all(&mut self) {
        for program in 0..self.config.programs {
            self.introduce(Instant::ZERO, program);
        }
        let (Some(link), Some(ip)) = (&mut self.link, &mut self.ip) else {
            return;
        };
        for (front, protocol) in [
            (&mut self.tcp, Protocol::Tcp),
            (&mut self.udp, Protocol::Udp),
        ] {
            for pool in [ip.pool(), link.pool()] {
                add_pool(apart(front), pool);
            }
            apart(front).go(protocol);
        }
        link.add_pool(map(ip.pool()));
        ip.add_pool(map(link.pool()));
        self.syscall
            .iter_mut()
            .for_each(|syscall| syscall.syscall_goes(false));
    }

    /// A program starts, whose number is free.
    ///
    /// # Panics
    /// If the system has no memory.
    pub fn introduce(&mut self, now: Instant, program: u32) {
        let tcp = Region::create("tcp", self.config.tcp).expect("a region");
        let udp = Region::create("udp", self.config.udp).expect("a region");
        for (transport, region) in [(Transport::Tcp, &tcp), (Transport::Udp, &udp)] {
            if let Some(link) = &mut self.link {
                link.add_region(transport, program, read_only(region));
            }
            if let Some(ip) = &mut self.ip {
                ip.add_region(transport, program, read_only(region));
            }
        }
        let channel = ChannelParts::create(CHANNELS).expect("memory");
        self.channels.insert(program, channel);
        self.regions.push((program, tcp, udp));
        for who in [Who::Tcp, Who::Udp, Who::Syscall] {
            self.attach(now, who, program);
        }
    }

    /// A component is told of a program.
    pub fn attach(&mut self, now: Instant, who: Who, program: u32) {
        let Some(index) = who.channel() else { return };
        let channel = &self.channels[&program];
        let server = channel.for_stack(index).expect("descriptors");
        let mut regions = self.regions.iter();
        let region = regions.find(|(number, _, _)| *number == program);
        let region = |protocol| {
            let (_, tcp, udp) = region?;
            match (who, protocol) {
                (Who::Tcp, Protocol::Tcp) => Some(tcp.clone()),
                (Who::Udp, Protocol::Udp) => Some(udp.clone()),
                _ => None,
            }
        };
        let arrival = Arrival {
            program,
            pid: program,
            uid: UID,
            secret: secret(program),
            server: Server::attach(server).expect("a channel"),
            regions: [region(Protocol::Tcp), region(Protocol::Udp)],
        };
        let front = match who {
            Who::Tcp => &mut self.tcp,
            Who::Udp => &mut self.udp,
            _ => match &mut self.syscall {
                Some(syscall) => syscall,
                None => return,
            },
        };
        let attached = front.attach(now, arrival);
        attached.expect("a number that is free");
    }

    /// What a program is handed.
    pub fn client(&self, program: u32) -> Client {
        let stacks = [Who::Syscall, Who::Tcp, Who::Udp].map(|who| &self.sleepers[who as usize]);
        let channel = &self.channels[&program];
        let descriptors = channel.for_program(&stacks).expect("descriptors");
        let routes = Routes::new([0, 1, 2]).expect("three channels");
        Client::attach(descriptors, routes).expect("channels")
    }

    /// Who knows it may share a program's sockets.
    pub fn secret(&self, program: u32) -> u64 {
        secret(program)
    }

    /// A program has ended.
    pub fn program_ended(&mut self, now: Instant, program: u32) {
        self.ended.push(program);
        if let Some(syscall) = &mut self.syscall {
            syscall.program_ended(now, program);
        }
    }

    /// What programs have a channel to, if it is that.
    pub fn front(&mut self, who: Who) -> Option<&mut Front> {
        match who {
            _ if self.is_dead(who) => None,
            Who::Tcp => Some(&mut self.tcp),
            Who::Udp => Some(&mut self.udp),
            Who::Syscall => self.syscall.as_mut(),
            Who::Link | Who::Ip | Who::Filter | Who::Store => None,
        }
    }

    /// All sockets of a transport, dead or alive.
    ///
    /// # Panics
    /// Never: they are always there.
    pub fn table(&self, protocol: Protocol) -> &SocketTable {
        let front = match protocol {
            Protocol::Tcp => &self.tcp,
            Protocol::Udp => &self.udp,
        };
        front.stack.table(protocol).expect("a transport")
    }

    /// The program that a socket is of.
    pub fn owner(&self, protocol: Protocol, socket: SocketId) -> u32 {
        self.table(protocol).region_of(socket.slot)
    }

    /// `tcp` itself, dead or alive.
    ///
    /// # Panics
    /// Never: it is always there.
    pub fn tcp(&mut self) -> &mut TcpHost {
        let apart = self.tcp.stack.apart();
        apart.and_then(|apart| apart.tcp_host()).expect("tcp")
    }

    /// `udp` itself, dead or alive.
    ///
    /// # Panics
    /// Never: it is always there.
    pub fn udp(&mut self) -> &mut UdpHost {
        let apart = self.udp.stack.apart();
        apart.and_then(|apart| apart.udp_host()).expect("udp")
    }

    /// A component's queues to and from programs.
    pub(super) fn program_queues(&self, who: Who) -> Vec<(&QueueDescriptors, &QueueDescriptors)> {
        let Some(index) = who.channel() else {
            return Vec::new();
        };
        let channels = self.channels.values();
        channels
            .filter_map(|channel| channel.queues(index))
            .collect()
    }
}
