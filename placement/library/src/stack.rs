use crate::below::{Below, Tap};
use crate::events::EventQueues;
use crate::guard::{Guard, Guarded};
use crate::up::Up;
use core::net::IpAddr;
use skink_filter::Filter;
use skink_ip::{Ip, IpConfig};
use skink_link::{Link, LinkConfig, LinkOutput};
use skink_memory::{
    CaptureRing, Parcel, Region, SocketId, SocketTable, StoredTable, TableConfig, TableError,
};
use skink_messages::{
    Component, Counter, Counters, NetworkError, Ports, Progress, Protocol, SocketEvent,
};
use skink_nic::{BatchBytes, Budget, Doorbell, FlowRings, Nic, Receiver, Room, Sender};
use skink_tcp::{Tcp, TcpConfig};
use skink_time::{Duration, Instant};
use skink_udp::Udp;
use skink_wire::{FourTuple, IpCidr, MacAddr, SeqNum, protocol};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;

/// Frames received in one poll, so that the way down has its turn.
pub(crate) const RECEIVE_BUDGET: usize = 64;
/// So many turns at receiving are made at most to find all that came for a connection which has gone elsewhere.
const DRAIN_TURNS: usize = 16;
/// How often the NIC is asked what it dropped, which may take a system call.
const DROPPED_EVERY: Duration = Duration::from_secs(1);

/// What a stack needs to know besides its NIC.
pub struct StackConfig {
    /// Our addresses, each with the length of its network's prefix.
    pub addresses: Vec<IpCidr>,
    /// Default routes, at most one for each family.
    pub gateways: Vec<IpAddr>,
    /// Whatever must be hard to guess or vary from run to run comes from this seed.
    pub seed: u64,
    /// Whether this instance answers ARP, NDP and echo requests.
    pub answers: bool,
    /// Size of each program's region of TCP sockets.
    pub tcp_table: TableConfig,
    /// Size of each program's region of UDP sockets.
    pub udp_table: TableConfig,
    /// What the data of TCP sockets may take of the machine's memory, in bytes: [`Tcp::set_memory`].
    pub socket_memory: u64,
    /// Where to count.
    pub counters: Counters,
}

/// One whole stack. All calls come from one thread at a time.
///
/// It serves the program that it is part of, which has the number 0 ([`Stack::new`]), or any number of
/// others that come and go ([`Stack::for_programs`]).
///
/// A call such as [`Stack::tcp_request`] only notes what is to be done. What it leads to leaves with
/// the next [`Stack::poll`] or [`Stack::flush`], so that a program's calls between two sleeps make
/// one batch: flush at the end of the batch, or at the latest before sleeping, and look at
/// [`Stack::take_event`] and [`Stack::next_deadline`] after that.
pub struct Stack {
    receiver: Box<dyn Receiver>,
    sender: Box<dyn Sender>,
    link: Link,
    ip: Ip,
    tcp: Tcp,
    udp: Udp,
    ports: Box<dyn Ports + Send>,
    events: EventQueues,
    programs: programs::Ending,
    /// Made when rules are first loaded.
    filter: Option<Box<Filter>>,
    /// Where the filter keeps flows of datagrams, until there is one.
    flows: Option<StoredTable>,
    /// What transports haven't been told yet of packets that the filter didn't let out.
    prohibited: VecDeque<NetworkError>,
    seed: u64,
    counters: Counters,
    capture: Option<CaptureRing>,
    /// The latest time that a caller gave.
    now: Instant,
    /// The last poll left something that can be done at once.
    more: bool,
    /// Something was asked for since the last poll or flush.
    requested: bool,
    /// Frames that the last poll received.
    received: usize,
    dropped_asked: Instant,
    /// Our addresses must still be announced on the link.
    announces: bool,
    /// Whether `udp` sends before `tcp` the next time: the NIC may have no room for what comes second.
    udp_first: bool,
    /// The last turn at sending left something to be sent.
    sending: bool,
    batch_bytes: BatchBytes,
}

/// Splits a stack into what is below `tcp` and `udp`, and these two themselves.
macro_rules! split {
    ($stack:ident, $now:expr, |$tcp:ident, $udp:ident, $below:ident| $body:expr) => {{
        let mut tap = Tap {
            sender: $stack.sender.as_mut(),
            capture: $stack.capture.as_ref(),
            now: $now,
        };
        let mut below = Below {
            ip: &mut $stack.ip,
            link: Guarded {
                output: LinkOutput {
                    link: &mut $stack.link,
                    nic: &mut tap,
                },
                guard: Guard::new($stack.filter.as_deref_mut(), &mut $stack.prohibited),
            },
            ports: $stack.ports.as_mut(),
            events: &mut $stack.events,
        };
        #[allow(unused_variables, reason = "few need all three")]
        let ($tcp, $udp, $below) = (&mut $stack.tcp, &mut $stack.udp, &mut below);
        $body
    }};
}

mod filter;
pub use filter::flow;
mod programs;
mod sockets;

impl Stack {
    /// Builds a stack for one program on `nic`, which calls it on the same thread; `ports` is the port table shared with the NIC's
    /// other owners.
    ///
    /// # Errors
    /// If there is no memory for the sockets, or their ring sizes are no powers of two.
    pub fn new(
        config: StackConfig,
        nic: Nic,
        ports: Box<dyn Ports + Send>,
    ) -> Result<Stack, TableError> {
        let tcp = region("skink-tcp", config.tcp_table)?;
        let udp = region("skink-udp", config.udp_table)?;
        let mut stack = Stack::for_programs(config, nic, ports);
        stack.tcp.set_beside_programs();
        stack.add_program(0, tcp, udp)?;
        Ok(stack)
    }

    /// Builds a stack that serves no program yet; see [`Stack::add_program`].
    pub fn for_programs(config: StackConfig, nic: Nic, ports: Box<dyn Ports + Send>) -> Stack {
        let StackConfig {
            addresses,
            gateways,
            seed,
            answers,
            tcp_table,
            udp_table,
            socket_memory,
            counters,
        } = config;
        let mac = nic.capabilities.mac;
        let ip_config = IpConfig {
            gateways,
            seed: seed.rotate_left(31),
            answers,
            ..IpConfig::new(mac, addresses)
        };
        let ip = Ip::new(ip_config, counters.clone());
        let ours = ip.addresses().iter().map(|address| address.addr).collect();
        let link_config = LinkConfig {
            addresses: Some(ours),
        };
        let link = Link::new(nic.capabilities, link_config, counters.clone());
        let tcp = SocketTable::new(tcp_table.sockets);
        let udp = SocketTable::new(udp_table.sockets);
        let events = EventQueues::new(tcp.stride(), udp.stride());
        let mut tcp = Tcp::new(TcpConfig { seed }, tcp, counters.clone());
        tcp.set_memory(socket_memory);
        // Each component draws from a seed of its own.
        let udp_seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        Stack {
            receiver: nic.receiver,
            sender: nic.sender,
            link,
            ip,
            tcp,
            udp: Udp::new(udp_seed, udp, counters.clone()),
            ports,
            events,
            programs: programs::Ending::default(),
            filter: None,
            flows: None,
            prohibited: VecDeque::new(),
            seed,
            counters,
            capture: None,
            now: Instant::ZERO,
            more: false,
            requested: false,
            received: 0,
            dropped_asked: Instant::ZERO,
            announces: answers,
            udp_first: false,
            sending: false,
            batch_bytes: BatchBytes::default(),
        }
    }

    /// From now on this instance answers ARP, NDP and echo requests, or not any more: the owner of the
    /// NIC that did so is gone.
    pub fn set_answers(&mut self, answers: bool) {
        self.ip.set_answers(answers);
    }

    /// See [`Tcp::set_sequence_secret`].
    pub fn set_sequence_secret(&mut self, secret: u64) {
        self.tcp.set_sequence_secret(secret);
    }

    /// See [`Tcp::set_hands_over`].
    pub fn set_hands_over(&mut self) {
        self.tcp.set_hands_over();
    }

    /// See [`Tcp::expect_heirs`].
    pub fn expect_heirs(&mut self, until: Instant) {
        self.tcp.expect_heirs(until);
    }

    /// See [`Tcp::has_away`].
    pub fn has_away(&self) -> bool {
        self.tcp.has_away()
    }

    /// See [`Ports::is_relieved`], of TCP.
    pub fn is_relieved(&mut self, port: u16) -> bool {
        self.ports.is_relieved(protocol::TCP, port)
    }

    /// See [`Tcp::owes_parcels`].
    pub fn owes_parcels(&self) -> bool {
        self.tcp.owes_parcels()
    }

    /// Sends connections on their way that other stacks are to have ([`Tcp::take_parcel`]), until there is no room for more: flow,
    /// parcel, and whether it may stay here.
    pub fn hand_over(
        &mut self,
        now: Instant,
        mut send: impl FnMut(&FourTuple, Vec<u8>, bool) -> io::Result<()>,
    ) {
        while let Some((parcel, may_stay)) = self.tcp.take_parcel(now) {
            let flow = parcel.four_tuple();
            match send(&flow, parcel.to_bytes(), may_stay) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.tcp.put_back(now, &flow);
                }
                // Nobody hears it any more.
                Err(_) => self.on_handed_over(now, &flow, 0, None, |_, _| {}),
            }
        }
    }

    /// The stack of the process `heir` has it, or nobody will ([`Tcp::on_handed_over`]). What has come for it meanwhile is to be brought
    /// there: heir, and segment ([`Stack::on_late`]).
    pub fn on_handed_over(
        &mut self,
        now: Instant,
        flow: &FourTuple,
        serial: u32,
        heir: Option<u16>,
        mut late: impl FnMut(u16, Vec<u8>),
    ) {
        self.asked(now);
        if heir.is_some() {
            // What was steered here until then is in the NIC's queue by now.
            for _ in 0..DRAIN_TURNS {
                if self.receive(now) == Progress::Idle {
                    break;
                }
            }
        }
        split!(self, now, |tcp, udp, below| tcp.on_handed_over(
            now,
            flow,
            Some(serial),
            heir.is_some(),
            below
        ));
        while let Some(segment) = self.tcp.take_late() {
            if let Some(heir) = heir {
                late(heir, segment);
            }
        }
    }

    /// Adopts a connection of another stack's ([`Tcp::take_in`]).
    pub fn take_in(&mut self, now: Instant, parcel: &Parcel) -> bool {
        self.asked(now);
        let taken = split!(self, now, |tcp, udp, below| tcp.take_in(now, parcel, below));
        if taken {
            self.let_in(now, parcel);
        }
        taken
    }

    /// The process that has taken a connection in, which was passed to it, can't say so ([`Tcp::on_handed_over`]).
    pub fn forget_passed(&mut self, now: Instant, flow: &FourTuple, serial: u32) {
        self.asked(now);
        split!(self, now, |tcp, udp, below| tcp.on_handed_over(
            now,
            flow,
            Some(serial),
            true,
            below
        ));
        while self.tcp.take_late().is_some() {}
    }

    /// See [`Tcp::may_pass`].
    pub fn tcp_may_pass(&mut self, id: SocketId) -> bool {
        let now = self.now;
        split!(self, now, |tcp, udp, below| tcp.may_pass(id, &*below))
    }

    /// The program passes a connection to another process ([`Tcp::pass`]).
    pub fn tcp_pass(&mut self, now: Instant, id: SocketId, serial: u32) -> Option<Parcel> {
        self.asked(now);
        split!(self, now, |tcp, udp, below| tcp
            .pass(now, id, serial, &*below))
    }

    /// See [`Tcp::take_question`].
    pub fn take_question(&mut self, now: Instant) -> Option<FourTuple> {
        self.tcp.take_question(now)
    }

    /// Adopts a connection that the program was passed ([`Tcp::adopt_passed`]).
    pub fn tcp_adopt(&mut self, now: Instant, parcel: &Parcel) -> Option<SocketId> {
        self.asked(now);
        let adopted = split!(self, now, |tcp, udp, below| tcp
            .adopt_passed(now, parcel, below));
        if adopted.is_some() {
            self.let_in(now, parcel);
        }
        adopted
    }

    /// The filter has let a connection in once, in another process: before anything of it leaves or comes.
    fn let_in(&mut self, now: Instant, parcel: &Parcel) {
        let state = skink_tcp::State::from_number(parcel.state());
        if let (Some(filter), Some(state)) = (&mut self.filter, state) {
            let known = (parcel.four_tuple(), state, SeqNum(parcel.iss()));
            filter.rebuild(now, flow(known));
        }
    }

    /// See [`Tcp::take_stray`].
    pub fn take_stray(&mut self) -> Option<(FourTuple, Vec<u8>)> {
        self.tcp.take_stray()
    }

    /// See [`Tcp::on_late`].
    pub fn on_late(&mut self, now: Instant, flow: &FourTuple, segment: &[u8]) {
        self.asked(now);
        split!(self, now, |tcp, udp, below| tcp
            .on_late(now, flow, segment, below));
    }

    /// See [`Tcp::set_stateless`].
    pub fn set_stateless(&mut self, stateless: bool) {
        self.tcp.set_stateless(stateless);
    }

    /// From now on frames are copied to `capture` while a reader wants them.
    pub fn set_capture(&mut self, capture: Option<CaptureRing>) {
        self.capture = capture;
    }

    /// Receives a batch, lets every component do what is due, and flushes the NIC.
    ///
    /// [`Progress::More`] if there is more to do at once: poll again after others had their turn,
    /// unless output is stuck: see [`Stack::send_blocked_on`].
    pub fn poll(&mut self, now: Instant) -> Progress {
        if std::mem::take(&mut self.announces) {
            self.ip.announce(now);
        }
        let busy = self.receive(now) == Progress::More;
        let progress = self.work(now);
        if now.since(self.dropped_asked) >= DROPPED_EVERY {
            self.dropped_asked = now;
            let received = self.receiver.take_dropped();
            self.counters.add(Counter::LinkDropNic, received);
            let beside = self.receiver.take_beside();
            self.counters.add(Counter::LinkBeside, beside);
            let sent = self.sender.take_dropped();
            self.counters.add(Counter::LinkDropSend, sent);
        }
        self.more = busy || progress == Progress::More;
        if self.more {
            Progress::More
        } else {
            Progress::Idle
        }
    }

    /// Receives a batch and does nothing else: what is to be said in answer, and all that is due, waits for
    /// the next [`Stack::poll`] or [`Stack::flush`], which must come soon.
    ///
    /// [`Progress::More`] if there may be more to receive.
    pub fn receive(&mut self, now: Instant) -> Progress {
        self.now = self.now.max(now);
        let overtaken = self.receiver.take_overtaken();
        self.counters.add(Counter::LinkOvertook, overtaken);
        let bytes = self.batch_bytes.next(now, overtaken);
        let bytes = match self.sending {
            // About as much as that has in its turn.
            true => bytes.min(BatchBytes::IN_COMPANY),
            false => bytes,
        };
        let mut budget = Budget::new(RECEIVE_BUDGET, bytes);
        let receiver = &mut self.receiver;
        let received = split!(self, now, |tcp, udp, below| {
            let mut up = Up {
                now,
                tcp,
                udp,
                below,
            };
            receiver.receive(now, &mut budget, &mut |frame| up.frame(&frame))
        });
        self.received = received;
        self.requested |= received > 0;
        match budget.is_spent() {
            true => Progress::More,
            false => Progress::Idle,
        }
    }

    /// Lets what was asked for since the last poll leave: what can be sent in one turn, in one batch.
    pub fn flush(&mut self) {
        if self.requested {
            let progress = self.work(self.now);
            self.more |= progress == Progress::More;
        }
    }

    /// Packets that `ip` holds, and whatever is due in the components; then the doorbell.
    fn work(&mut self, now: Instant) -> Progress {
        self.requested = false;
        let (udp_first, counters) = (self.udp_first, &self.counters);
        let mut first_has_sent = false;
        let [sent, rest] = split!(self, now, |tcp, udp, below| {
            let mut up = Up {
                now,
                tcp,
                udp,
                below,
            };
            up.rest();
            let Up {
                tcp, udp, below, ..
            } = up;
            let mut sent = Progress::Idle;
            for is_udp in [udp_first, !udp_first] {
                let before = counters.get(Counter::LinkFramesOut);
                let progress = match is_udp {
                    true => udp.poll(now, below),
                    false => tcp.poll(now, below),
                };
                if progress == Progress::More {
                    sent = progress;
                }
                let after = counters.get(Counter::LinkFramesOut);
                first_has_sent |= is_udp == udp_first && before != after;
            }
            // Last, since both may have left something in `ip`.
            let ip = below.ip.poll(now, &mut below.link);
            let guard = &mut below.link.guard;
            let filter = match guard.checks() {
                true => guard.poll(now, |number, flow| {
                    number == protocol::TCP && tcp.has_flow(flow)
                }),
                false => Progress::Idle,
            };
            let rest = match [ip, filter] {
                [Progress::Idle, Progress::Idle] => Progress::Idle,
                _ => Progress::More,
            };
            [sent, rest]
        });
        self.sender.flush();
        // There may have been room for one of them only.
        self.udp_first ^= first_has_sent;
        self.sending = sent == Progress::More;
        match self.sending {
            true => Progress::More,
            false => rest,
        }
    }

    /// Whether nothing is left to be done at once, as far as is known without a look at the NIC and the time.
    pub fn is_settled(&self) -> bool {
        !self.more && !self.requested
    }

    /// When to poll at the latest, if no frame comes and no call is made. In the past if there is
    /// something to do at once; while output is stuck, see [`Stack::send_blocked_on`] first.
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.is_settled() {
            return Some(Instant::ZERO);
        }
        let tcp = Component::<Below<'_>>::next_deadline(&self.tcp);
        let udp = Component::<Below<'_>>::next_deadline(&self.udp);
        let filter = self.filter.as_ref().filter(|filter| filter.is_active());
        let filter = filter.and_then(|filter| filter.next_deadline());
        [tcp, udp, self.ip.next_deadline(), filter]
            .into_iter()
            .flatten()
            .min()
    }

    /// Descriptors that poll readable when frames wait.
    pub fn receive_descriptors(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.receiver.descriptors(each);
    }

    /// What brings frames to the threads that wait for them, if the NIC has that.
    pub fn flow_rings(&mut self) -> Option<&mut dyn FlowRings> {
        self.receiver.flow_rings()
    }

    /// From now on the NIC's doorbell may be left to the caller of what makes frames leave, or not any more.
    pub fn set_deferring(&mut self, deferring: bool) {
        self.sender.set_deferring(deferring);
    }

    /// A doorbell that was left to the caller. If it fails, poll again without that.
    pub fn take_doorbell(&mut self) -> Option<Doorbell> {
        self.sender.take_doorbell()
    }

    /// Whether packets wait until a neighbour's address is known.
    pub fn asks(&self) -> bool {
        self.ip.holds_packets()
    }

    /// If output is stuck: what tells that it isn't any more.
    pub fn send_blocked_on(&self) -> Option<Room<'_>> {
        self.sender.blocked_on()
    }

    /// Frames that the last poll received.
    pub fn received(&self) -> usize {
        self.received
    }

    /// Takes the next event of the one program.
    pub fn take_event(&mut self) -> Option<(Protocol, SocketEvent)> {
        self.events.pop(0)
    }

    /// Takes a conflict: an address of ours that another station on the link claims to have.
    pub fn take_conflict(&mut self) -> Option<(IpAddr, MacAddr)> {
        self.ip.take_conflict()
    }

    /// Takes a flow that came here and that another process of the program may have.
    pub fn take_misled(&mut self) -> Option<FourTuple> {
        self.tcp.take_misled()
    }

    /// The NIC takes packets of so many bytes from now on, as far as it could at the beginning.
    pub fn set_mtu(&mut self, mtu: u32) {
        self.link.set_mtu(mtu);
    }

    /// The largest packet that reaches `destination`, in bytes, as far as that is known.
    pub fn path_mtu(&self, destination: IpAddr) -> Option<u32> {
        let path = self.ip.path(None, destination, &self.link.limits())?;
        Some(path.mtu)
    }

    /// Whether a packet of a program to `destination` can be sent: a connected network or a default route.
    pub fn has_route(&self, destination: IpAddr) -> bool {
        self.ip.has_route(destination) && !self.ip.is_left_to_kernel(destination)
    }

    /// Whether programs have the address by us.
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.ip.is_local(address) && !self.ip.is_left_to_kernel(address)
    }

    fn asked(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.requested = true;
    }
}

/// A region of that size, or, where the process has no addresses left for it (`ulimit -v`, valgrind), with smaller rings: a
/// quarter each time.
fn region(name: &str, mut config: TableConfig) -> Result<Region, TableError> {
    const LEAST: u32 = 64 * 1024;
    loop {
        match Region::create(name, config) {
            // The one says `ENOMEM` then, the other `EINVAL`.
            Err(TableError::Memory(_)) if config.send_bytes.min(config.receive_bytes) > LEAST => {
                config.send_bytes /= 4;
                config.receive_bytes /= 4;
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_smaller_where_there_are_no_addresses_for_larger_ones() {
        // 128 TiB each way are all that a process has.
        let table = TableConfig {
            sockets: 1 << 17,
            send_bytes: 1 << 30,
            receive_bytes: 1 << 30,
        };
        let region = region("library-test", table).expect("smaller ones");
        let config = region.config();
        assert!(config.send_bytes < 1 << 30, "{config:?}");
        assert_eq!(config.send_bytes, config.receive_bytes);
    }
}
