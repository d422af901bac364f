//! How a component gets a successor, and its neighbours are told.

use super::broker::{map, read_only};
use super::{Machine, Who};
use skink_channel::Pool;
use skink_lanes::Transport;
use skink_messages::Protocol;
use skink_split::{Apart, Front};
use skink_time::Instant;

/// A successor that dies before all know of it: how many steps it still lives.
struct Steps(Option<u32>);

impl Steps {
    /// Whether the next one is still done.
    fn next(&mut self) -> bool {
        match &mut self.0 {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}

impl Machine {
    /// Starts a successor, and tells the neighbours. `false` if it can't start yet: `filter` must be told
    /// by `tcp` which connections there are.
    pub fn restart(&mut self, who: Who, now: Instant) -> bool {
        self.succeed(who, now, Steps(None))
    }

    /// Starts a successor that dies when it has got so far: a step is a program's sockets adopted, or a
    /// neighbour told. `false` as for [`Machine::restart`].
    pub fn restart_and_die(&mut self, who: Who, now: Instant, steps: u32) -> bool {
        let starts = self.succeed(who, now, Steps(Some(steps)));
        if starts {
            self.kill(who);
        }
        starts
    }

    fn succeed(&mut self, who: Who, now: Instant, mut steps: Steps) -> bool {
        let waits = who == Who::Filter && self.is_dead(Who::Tcp);
        if waits || !self.is_dead(who) {
            return false;
        }
        self.incarnations[who as usize] += 1;
        self.dead[who as usize] = false;
        match who {
            Who::Link => self.succeed_link(now, &mut steps),
            Who::Ip => self.succeed_ip(now, &mut steps),
            Who::Filter => self.succeed_filter(now, &mut steps),
            Who::Tcp => self.succeed_tcp(now, &mut steps),
            Who::Udp => self.succeed_udp(now, &mut steps),
            Who::Syscall => self.succeed_syscall(now, &mut steps),
            Who::Store => self.succeed_store(&mut steps),
        }
        true
    }

    /// The number of a new one's pool, and those that the others may forget once they know it.
    fn new_pool(&mut self, who: Who) -> (u32, Vec<u32>) {
        self.next_pool += 1;
        let old = self.pools[who as usize].clone();
        self.pools[who as usize].push(self.next_pool);
        (self.next_pool, old)
    }

    fn remove_pools(&mut self, who: Who, old: &[u32]) {
        self.pools[who as usize].retain(|pool| !old.contains(pool));
        for pool in old {
            self.link.iter_mut().for_each(|it| it.remove_pool(*pool));
            self.ip.iter_mut().for_each(|it| it.remove_pool(*pool));
            self.tcp().remove_pool(*pool);
            self.udp().remove_pool(*pool);
        }
    }

    /// The transports that live are told of one below them.
    fn tell_transports(&mut self, now: Instant, pool: &Pool, ip: Option<u32>, steps: &mut Steps) {
        if !self.is_dead(Who::Tcp) && steps.next() {
            let tcp = apart(&mut self.tcp);
            add_pool(tcp, pool);
            ip.into_iter().for_each(|ip| tcp.ip_restarted(ip));
            tcp.network_restarted(now);
        }
        if !self.is_dead(Who::Udp) && steps.next() {
            let udp = apart(&mut self.udp);
            add_pool(udp, pool);
            ip.into_iter().for_each(|ip| udp.ip_restarted(ip));
        }
    }

    fn succeed_link(&mut self, now: Instant, steps: &mut Steps) {
        let Some(nic) = self.spare_nic.take() else {
            return;
        };
        let incarnation = self.incarnations[Who::Link as usize];
        let (pool, old) = self.new_pool(Who::Link);
        let mut link = self.broker().link(nic, pool);
        for (program, tcp, udp) in &self.regions {
            link.add_region(Transport::Tcp, *program, read_only(tcp));
            link.add_region(Transport::Udp, *program, read_only(udp));
        }
        if let Some(ip) = &mut self.ip {
            link.add_pool(map(ip.pool()));
            if steps.next() {
                ip.add_pool(map(link.pool()));
                ip.link_restarted(incarnation);
            }
        }
        self.tell_transports(now, link.pool(), None, steps);
        self.link = Some(link);
        if steps.next() {
            self.remove_pools(Who::Link, &old);
        }
    }

    fn succeed_ip(&mut self, now: Instant, steps: &mut Steps) {
        let incarnation = self.incarnations[Who::Ip as usize];
        let (pool, old) = self.new_pool(Who::Ip);
        let seed = self.config.seed.wrapping_add(u64::from(pool));
        let mut ip = self.broker().ip(pool, seed);
        for (program, tcp, udp) in &self.regions {
            ip.add_region(Transport::Tcp, *program, read_only(tcp));
            ip.add_region(Transport::Udp, *program, read_only(udp));
        }
        if let Some(link) = &mut self.link {
            ip.add_pool(map(link.pool()));
            if steps.next() {
                link.add_pool(map(ip.pool()));
                link.ip_restarted(now, incarnation);
            }
        }
        if let Some(filter) = &mut self.filter
            && steps.next()
        {
            filter.ip_restarted(incarnation);
        }
        self.tell_transports(now, ip.pool(), Some(incarnation), steps);
        self.ip = Some(ip);
        if steps.next() {
            self.remove_pools(Who::Ip, &old);
        }
    }

    fn succeed_filter(&mut self, now: Instant, steps: &mut Steps) {
        let incarnation = self.incarnations[Who::Filter as usize];
        let Some(mut filter) = self.broker().filter(now, &self.flows) else {
            return;
        };
        filter.rebuild(now, apart(&mut self.tcp).flows());
        self.filter = Some(filter);
        if let Some(ip) = &mut self.ip
            && steps.next()
        {
            ip.filter_restarted(incarnation);
        }
    }

    /// It maps what it reads.
    fn give_pools(&mut self, front: &mut Front) {
        let link = self.link.iter().map(|link| link.pool());
        link.for_each(|pool| add_pool(apart(front), pool));
        let ip = self.ip.iter_mut().map(|ip| ip.pool());
        ip.for_each(|pool| add_pool(apart(front), pool));
    }

    /// It is told of the programs.
    fn attach_all(&mut self, now: Instant, who: Who, steps: &mut Steps) {
        let programs = self.regions.iter().map(|(program, _, _)| *program);
        for program in programs.collect::<Vec<_>>() {
            if steps.next() {
                self.attach(now, who, program);
            }
        }
    }

    fn succeed_tcp(&mut self, now: Instant, steps: &mut Steps) {
        let incarnation = self.incarnations[Who::Tcp as usize];
        let mut tcp = self.broker().tcp();
        self.give_pools(&mut tcp);
        self.dropped = self.dropped.plus(self.tcp.dropped());
        self.tcp = tcp;
        self.attach_all(now, Who::Tcp, steps);
        if let Some(ip) = &mut self.ip
            && steps.next()
        {
            ip.transport_restarted(now, Transport::Tcp, incarnation);
        }
        if let Some(syscall) = &mut self.syscall
            && steps.next()
        {
            syscall.transport_restarted(Protocol::Tcp, incarnation);
        }
        if steps.next() {
            apart(&mut self.tcp).go(Protocol::Tcp);
            self.tcp.greet_programs(now);
        }
    }

    fn succeed_udp(&mut self, now: Instant, steps: &mut Steps) {
        let incarnation = self.incarnations[Who::Udp as usize];
        let mut udp = self.broker().udp();
        self.give_pools(&mut udp);
        self.dropped = self.dropped.plus(self.udp.dropped());
        self.udp = udp;
        self.attach_all(now, Who::Udp, steps);
        if let Some(ip) = &mut self.ip
            && steps.next()
        {
            ip.transport_restarted(now, Transport::Udp, incarnation);
        }
        if let Some(syscall) = &mut self.syscall
            && steps.next()
        {
            syscall.transport_restarted(Protocol::Udp, incarnation);
        }
        if steps.next() {
            apart(&mut self.udp).go(Protocol::Udp);
            self.udp.greet_programs(now);
        }
    }

    fn succeed_syscall(&mut self, now: Instant, steps: &mut Steps) {
        let incarnation = self.incarnations[Who::Syscall as usize];
        self.syscall = Some(self.broker().syscall());
        self.attach_all(now, Who::Syscall, steps);
        for who in [Who::Tcp, Who::Udp] {
            if let Some(front) = self.front(who)
                && steps.next()
            {
                front.syscall_restarted(incarnation);
            }
        }
        if let Some(store) = &mut self.store
            && steps.next()
        {
            store.syscall_restarted(incarnation);
        }
        let Some(syscall) = &mut self.syscall else {
            return;
        };
        for program in &self.ended {
            if steps.next() {
                syscall.program_ended(now, *program);
            }
        }
        if steps.next() {
            syscall.syscall_goes(true);
            syscall.greet_programs(now);
        }
    }

    fn succeed_store(&mut self, steps: &mut Steps) {
        let incarnation = self.incarnations[Who::Store as usize];
        self.store = Some(self.broker().store(&self.stored));
        if let Some(syscall) = &mut self.syscall
            && steps.next()
        {
            syscall.store_restarted(incarnation);
        }
    }
}

/// The transport that is there.
pub(super) fn apart(front: &mut Front) -> &mut Apart {
    front.stack.apart().expect("a divided stack")
}

pub(super) fn add_pool(apart: &mut Apart, pool: &Pool) {
    let mapped = apart.add_pool(|| Ok::<_, ()>(map(pool)));
    mapped.expect("always");
}
