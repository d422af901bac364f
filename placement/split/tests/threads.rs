//! Each component in a thread of its own that sleeps when it has nothing to do, as processes do.

mod machine;

use machine::programs::{ADDRESSES, Talker, connect, listen, udp_bind, udp_receive, udp_send};
use machine::{Filtering, Machine, Who, start};
use rustix::event::{PollFd, PollFlags, Timespec};
use skink_channel::{Sleeper, SpinBudget};
use skink_filter::RuleSet;
use skink_messages::Progress;
use skink_nic::{MemoryConfig, pair};
use skink_split::{Host, TcpHost, UdpHost};
use skink_time::{Duration, Instant};
use skink_wire::Endpoint;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes in each direction.
const TOTAL: u64 = 4_000_000;
const DATAGRAMS: u32 = 200;
/// After this it counts as stuck.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// What all threads share.
struct Shared {
    start: std::time::Instant,
    /// Programs that aren't done yet.
    running: AtomicU32,
    ready: Barrier,
}

impl Shared {
    fn now(&self) -> Instant {
        let elapsed = self.start.elapsed();
        assert!(elapsed < PATIENCE, "stuck");
        Instant::from_millis(1) + elapsed
    }

    fn is_over(&self) -> bool {
        self.running.load(Ordering::Relaxed) == 0
    }
}

/// The loop of a process. `program` answers whether it is done; one that waits for something other than
/// events is looked after now and then.
fn run<H: Host>(
    host: &mut H,
    sleeper: &mut Sleeper,
    shared: &Shared,
    mut program: impl FnMut(&mut H, Instant) -> bool,
) {
    let mut done = false;
    while !shared.is_over() {
        let now = shared.now();
        let progress = host.poll(now);
        if !done && program(host, now) {
            done = true;
            shared.running.fetch_sub(1, Ordering::Relaxed);
        }
        if progress == Progress::Idle {
            let most = Duration::from_millis(1000);
            let until = host.next_deadline();
            let time = until.map_or(most, |until| until.since(shared.now()).min(most));
            sleep(host, sleeper, time);
        }
    }
}

/// Sleeps until a neighbour rings, a descriptor is ready, or the time is over; not if there is something to do.
fn sleep(host: &impl Host, sleeper: &mut Sleeper, most: Duration) {
    sleeper.announce();
    if !host.is_ready() {
        let mut all = vec![PollFd::from_borrowed_fd(sleeper.bell(), PollFlags::IN)];
        host.descriptors(&mut |fd, flags| all.push(PollFd::from_borrowed_fd(fd, flags)));
        let timeout = Timespec::try_from(most).expect("a time");
        rustix::event::poll(&mut all, Some(&timeout)).expect("polls");
    }
    sleeper.retract();
}

fn tcp_client(server: Endpoint) -> impl FnMut(&mut TcpHost, Instant) -> bool {
    let mut talker: Option<Talker> = None;
    move |host, now| {
        while host.take_event().is_some() {}
        let talker = talker.get_or_insert_with(|| Talker::new(connect(host, now, server), 1, 2));
        talker.talk(host, now, TOTAL);
        talker.read == TOTAL && talker.written == TOTAL
    }
}

fn tcp_server(listener: skink_memory::SocketId) -> impl FnMut(&mut TcpHost, Instant) -> bool {
    let mut talker: Option<Talker> = None;
    move |host, now| {
        while host.take_event().is_some() {}
        if talker.is_none() {
            let accepted = host.call(|tcp, _| tcp.accept(listener));
            talker = accepted.map(|socket| Talker::new(socket, 2, 1));
        }
        let Some(talker) = &mut talker else {
            return false;
        };
        talker.talk(host, now, TOTAL);
        talker.read == TOTAL && talker.written == TOTAL
    }
}

fn udp_client(
    socket: skink_memory::SocketId,
    server: Endpoint,
) -> impl FnMut(&mut UdpHost, Instant) -> bool {
    let (mut sent, mut answered) = (0, 0);
    move |host, now| {
        while host.take_event().is_some() {}
        while let Some((from, data)) = udp_receive(host, socket) {
            assert_eq!((from, data.len()), (server, 1 + answered as usize * 40));
            answered += 1;
        }
        // One at a time, so that none is dropped for want of room.
        if sent == answered && sent < DATAGRAMS {
            udp_send(
                host,
                now,
                socket,
                server,
                &vec![sent as u8; 1 + sent as usize * 40],
            );
            sent += 1;
        }
        answered == DATAGRAMS
    }
}

fn udp_server(socket: skink_memory::SocketId) -> impl FnMut(&mut UdpHost, Instant) -> bool {
    let mut answered = 0;
    move |host, now| {
        while host.take_event().is_some() {}
        while let Some((from, data)) = udp_receive(host, socket) {
            udp_send(host, now, socket, from, &data);
            answered += 1;
        }
        answered == DATAGRAMS
    }
}

#[test]
fn two_machines_of_five_threads_each_talk() {
    let nic = MemoryConfig {
        cut_bytes: 65_535,
        checksum: true,
        ..MemoryConfig::default()
    };
    let rules = || Filtering::Apart(RuleSet::parse("pass all\n").expect("rules"));
    let (first, second) = pair(nic).expect("a link");
    let mut machines = [(first, 0), (second, 1)]
        .map(|(nic, at)| start(nic, &ADDRESSES[at], at as u64 + 1, rules()));
    // So that transports know their addresses.
    for machine in &mut machines {
        machine.poll(Who::Ip, Instant::ZERO);
    }
    let server = Endpoint::new(machines[1].address(0), 80);
    let listener = listen(machines[1].tcp(), server);
    let udp_ends = [0, 1].map(|at| Endpoint::new(machines[at].address(1), 4000));
    let udp_sockets = [0, 1].map(|at| udp_bind(machines[at].udp(), udp_ends[at]));

    let shared = Shared {
        start: std::time::Instant::now(),
        running: AtomicU32::new(4),
        ready: Barrier::new(10),
    };
    let [one, other] = machines.each_mut();
    std::thread::scope(|scope| {
        let shared = &shared;
        for machine in [one, other] {
            let is_client = machine.address(0) != server.addr;
            let sleepers = machine.sleepers.each_ref().map(|it| {
                let parts = it.sleeper().expect("a sleeper");
                Sleeper::attach(parts, SpinBudget::new(0)).expect("a sleeper")
            });
            let Machine {
                link,
                ip,
                filter,
                tcp,
                udp,
                ..
            } = machine;
            let [
                mut link_sleeper,
                mut ip_sleeper,
                mut filter_sleeper,
                mut tcp_sleeper,
                mut udp_sleeper,
                ..,
            ] = sleepers;
            let tcp = tcp.stack.apart().and_then(|it| it.tcp_host());
            let udp = udp.stack.apart().and_then(|it| it.udp_host());
            let (tcp, udp) = (tcp.expect("tcp"), udp.expect("udp"));
            let (link, ip) = (link.as_mut().expect("alive"), ip.as_mut().expect("alive"));
            let filter = filter.as_mut().expect("alive");
            scope.spawn(move || {
                shared.ready.wait();
                run(link, &mut link_sleeper, shared, |_, _| false);
            });
            scope.spawn(move || {
                shared.ready.wait();
                run(ip, &mut ip_sleeper, shared, |_, _| false);
            });
            scope.spawn(move || {
                shared.ready.wait();
                run(filter, &mut filter_sleeper, shared, |_, _| false);
            });
            scope.spawn(move || {
                shared.ready.wait();
                match is_client {
                    true => run(tcp, &mut tcp_sleeper, shared, tcp_client(server)),
                    false => run(tcp, &mut tcp_sleeper, shared, tcp_server(listener)),
                }
            });
            scope.spawn(move || {
                shared.ready.wait();
                match is_client {
                    true => run(
                        udp,
                        &mut udp_sleeper,
                        shared,
                        udp_client(udp_sockets[0], udp_ends[1]),
                    ),
                    false => run(udp, &mut udp_sleeper, shared, udp_server(udp_sockets[1])),
                }
            });
        }
    });
    // What was under way comes to its end.
    for round in 0..2000 {
        for machine in &mut machines {
            for who in machine::ALL {
                machine.poll(who, shared.now() + Duration::from_millis(round));
            }
        }
    }
    machines.iter_mut().for_each(Machine::assert_no_leak);
}
