use crate::addresses::Addresses;
use crate::announcements::Announcements;
use crate::claims::Claims;
use crate::config::is_link_local;
use crate::conflicts::Conflicts;
use crate::errors::Limiter;
use crate::held::Outbox;
use crate::identification::Identifications;
use crate::mld::Reports;
use crate::neighbours::Neighbours;
use crate::path;
use crate::path_mtu::PathMtus;
use crate::reassembly::Reassembly;
use crate::routers::Routers;
use crate::routes::Routes;
use crate::send::HOP_LIMIT;
use crate::whole::WholeQueue;
use crate::{IpConfig, OwnedPacket};
use core::net::{IpAddr, Ipv4Addr};
use skink_messages::{
    Component, Counter, Counters, FrameOutput, Full, LinkLimits, NetworkError, NetworkView,
    Outbound, Path, Progress, RxFrame, RxPacket, TxPacket,
};
use skink_time::Instant;
use skink_wire::{IpCidr, MacAddr};
use std::collections::VecDeque;

/// Most errors that wait to be taken; more are counted and forgotten.
const REPORTS: usize = 64;

/// The IP component; see the crate's description.
///
/// [`Ip::receive`] and [`Ip::send`] are the data path. Whatever else goes up is taken: packets with
/// [`Ip::take_whole`], errors with [`Ip::take_error`], conflicts with [`Ip::take_conflict`]. Look at
/// all three after each batch of frames and after each poll.
pub struct Ip {
    pub(crate) mac: MacAddr,
    pub(crate) answers: bool,
    leaves_link_local: bool,
    pub(crate) addresses: Addresses,
    pub(crate) routes: Routes,
    pub(crate) neighbours: Neighbours,
    pub(crate) reassembly: Reassembly,
    pub(crate) path_mtus: PathMtus,
    /// While there are any about packets to a destination, `last` isn't that.
    pub(crate) claims: Claims,
    pub(crate) identifications: Identifications,
    pub(crate) limiter: Limiter,
    announcements: Announcements,
    pub(crate) routers: Routers,
    /// Of what we send by IPv6 where nobody says otherwise.
    pub(crate) hop_limit_v6: u8,
    pub(crate) reports: Reports,
    /// Frames that the link had no room for.
    pub(crate) outbox: Outbox,
    /// Packets on their way up.
    pub(crate) whole: WholeQueue,
    errors: VecDeque<NetworkError>,
    conflicts: Conflicts,
    /// Where the last packet went: the next one probably goes there too.
    pub(crate) last: Option<LastHop>,
    /// How often the default router changed.
    learned: u64,
    /// For messages of our own, and for packets that are being cut into fragments.
    pub(crate) message: Vec<u8>,
    pub(crate) fragments: Vec<u8>,
    pub(crate) counters: Counters,
}

/// The neighbour to which a destination leads.
#[derive(Clone, Copy)]
pub(crate) struct LastHop {
    pub(crate) destination: IpAddr,
    pub(crate) next_hop: IpAddr,
    pub(crate) slot: u32,
}

impl Ip {
    /// What is below was replaced, and may have lost what was under way: queries that nobody has answered
    /// leave once more with the next poll, and we join our groups anew.
    pub fn link_restarted(&mut self) {
        self.neighbours.hurry();
        self.join_groups();
    }

    /// A component that knows no neighbours yet. It sends nothing before it is polled or used.
    pub fn new(config: IpConfig, counters: Counters) -> Ip {
        let addresses = config.all_addresses();
        let leaves_link_local = !config.has_link_local();
        let routes = Routes::new(&addresses, &config.gateways);
        let speaks_v6 = addresses.iter().any(|own| own.addr.is_ipv6());
        let search = speaks_v6 && !routes.has_default(false);
        Ip {
            mac: config.mac,
            answers: config.answers,
            leaves_link_local,
            addresses: Addresses::new(addresses),
            routes,
            neighbours: Neighbours::new(config.seed),
            reassembly: Reassembly::default(),
            path_mtus: PathMtus::new(config.seed),
            claims: Claims::default(),
            identifications: Identifications::new(config.seed),
            limiter: Limiter::default(),
            announcements: Announcements::default(),
            routers: Routers::new(search, config.answers, config.seed),
            hop_limit_v6: HOP_LIMIT,
            reports: Reports::new(config.seed),
            outbox: Outbox::default(),
            whole: WholeQueue::default(),
            errors: VecDeque::new(),
            conflicts: Conflicts::new(),
            last: None,
            learned: 0,
            message: Vec::new(),
            fragments: Vec::new(),
            counters,
        }
    }

    /// Our addresses, the link-local one included: what `link` must let out as sources.
    pub fn addresses(&self) -> &[IpCidr] {
        self.addresses.all()
    }

    /// Whether `address` is ours, or a group or broadcast address on which we listen.
    #[inline]
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.addresses.is_own(address) || self.addresses.is_joined(address)
    }

    /// Whether `address` is a broadcast address, and none of ours.
    #[inline]
    pub fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        self.addresses.is_for_all(address)
    }

    /// Whether programs use `address` by the kernel, if at all: one on the link, where we have none but what we made up for ourselves.
    /// They say by a number of the kernel's interfaces which link they mean, and the kernel has its own address on ours.
    pub fn is_left_to_kernel(&self, address: IpAddr) -> bool {
        self.leaves_link_local && is_link_local(address)
    }

    /// Whether a packet to `destination` can be sent.
    pub fn has_route(&self, destination: IpAddr) -> bool {
        self.addresses.is_own(destination) || self.hop(destination).is_some()
    }

    /// The way to `destination` over a link that takes `limits`, from `source` if the flow is bound
    /// to one; `None` if there is no route or `source` isn't ours.
    pub fn path(
        &self,
        source: Option<IpAddr>,
        destination: IpAddr,
        limits: &LinkLimits,
    ) -> Option<Path> {
        let known = self.path_mtus.get(destination);
        path::find(
            &self.addresses,
            &self.routes,
            source,
            destination,
            known,
            limits,
        )
    }

    /// Another number whenever a router has said that the link takes more than it had said before (RFC 4861 section
    /// 6.3.4): what [`Ip::path`] answered may be too small since.
    #[inline(always)]
    pub fn raises(&self) -> u32 {
        self.path_mtus.raises()
    }

    /// What `path` and `is_local` depend on, for transports that are somewhere else.
    pub fn view(&self) -> NetworkView {
        NetworkView {
            addresses: self.addresses.all().to_vec(),
            gateways: self.routes.gateways().collect(),
            path_mtus: self.path_mtus.all().collect(),
        }
    }

    /// Another number whenever [`Ip::view`] has changed.
    #[inline]
    pub fn view_revision(&self) -> u64 {
        self.learned.wrapping_add(self.path_mtus.revision())
    }

    /// Takes a packet that was sent to ourselves or came in fragments. Its protocol is TCP or UDP.
    #[inline]
    pub fn take_whole(&mut self) -> Option<OwnedPacket> {
        self.whole.pop()
    }

    /// Gives a packet's memory back for reuse.
    pub fn recycle(&mut self, packet: OwnedPacket) {
        self.whole.recycle(packet.payload);
    }

    /// Takes an error for the transport that [`NetworkError::protocol`] names.
    #[inline]
    pub fn take_error(&mut self) -> Option<NetworkError> {
        self.errors.pop_front()
    }

    /// Whether packets wait until a neighbour's address is known.
    pub fn holds_packets(&self) -> bool {
        self.neighbours.held_bytes() > 0
    }

    /// Takes a conflict: an address that is ours, and the station that claims it too. There is one a minute for each address at
    /// most; [`Counter::IpConflicts`] counts all.
    pub fn take_conflict(&mut self) -> Option<(IpAddr, MacAddr)> {
        self.conflicts.take()
    }

    /// From now on ARP, neighbour discovery and echo requests are answered here, or not any more; see
    /// [`IpConfig::answers`].
    pub fn set_answers(&mut self, answers: bool) {
        let begins = answers && !self.answers;
        self.answers = answers;
        self.routers.set_asks(answers);
        if begins {
            self.join_groups();
        }
    }

    /// Tells the link that our addresses are ours (RFC 5227 2.3, RFC 4861 7.2.6), and that we are in their
    /// groups (RFC 4861 7.2.1), twice, beginning with the next poll.
    pub fn announce(&mut self, now: Instant) {
        self.join_groups();
        for own in self.addresses.all() {
            self.announcements.begin(now, own.addr);
        }
    }

    pub(crate) fn push_error(&mut self, error: NetworkError) {
        if self.errors.len() < REPORTS {
            self.errors.push_back(error);
        } else {
            self.counters.count(Counter::IpDropIcmp);
        }
    }

    pub(crate) fn conflict(&mut self, now: Instant, address: IpAddr, mac: MacAddr) {
        self.counters.count(Counter::IpConflicts);
        self.conflicts.note(now, address, mac);
    }

    /// Sends what had found no room, and does what is due. [`Progress::More`] if something waits to
    /// be taken, or for the link to have room.
    pub fn poll<O: FrameOutput + ?Sized>(&mut self, now: Instant, out: &mut O) -> Progress {
        if !self.outbox.is_empty() {
            let _ = self.flush_outbox(now, out);
        }
        self.run_neighbours(now, out);
        while let Some(report) = self.reports.pop_due(now) {
            self.send_report(now, report, out);
        }
        while let Some(address) = self.announcements.pop_due(now) {
            self.send_announcement(now, address, out);
        }
        if self.routers.expire(now) {
            self.use_learned_router();
        }
        if self.routers.solicit(now) {
            self.solicit_routers(now, out);
        }
        while let Some(datagram) = self.reassembly.pop_expired(now) {
            self.on_unfinished(now, &datagram, out);
        }
        self.path_mtus.expire(now);
        match self.outbox.is_empty() && self.whole.is_empty() && self.errors.is_empty() {
            true => Progress::Idle,
            false => Progress::More,
        }
    }

    /// When to poll at the latest, if nothing else happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        [
            self.neighbours.next_deadline(),
            self.announcements.next_deadline(),
            self.reports.next_deadline(),
            self.routers.next_deadline(),
            self.reassembly.next_deadline(),
            self.path_mtus.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(crate) fn use_learned_router(&mut self) {
        self.routes.learn_default(self.routers.router());
        self.learned = self.learned.wrapping_add(1);
        self.last = None;
    }
}

/// What `ip` can be told.
pub enum IpInput<'a> {
    /// A frame arrived.
    Frame(RxFrame<'a>),
    /// A transport's packet is to leave. If it is refused, its sender keeps what it stood for.
    Packet(Outbound, TxPacket<'a>),
}

/// The transports as `ip` sees them, where it is called as a [`Component`].
pub trait Transports {
    /// Takes a packet's payload; `false` if the protocol isn't spoken, or (for UDP) nobody has the
    /// port: then the sender is told.
    fn packet(&mut self, now: Instant, protocol: u8, packet: RxPacket<'_>) -> bool;

    /// Takes an error about a packet that was sent.
    fn error(&mut self, now: Instant, error: NetworkError);
}

impl Ip {
    /// Hands up a packet, and tells its sender if nobody wants it.
    fn hand_up<O: FrameOutput + Transports + ?Sized>(
        &mut self,
        now: Instant,
        protocol: u8,
        packet: RxPacket<'_>,
        out: &mut O,
    ) {
        if !out.packet(now, protocol, packet) {
            self.port_unreachable(now, protocol, &packet, out);
        }
    }

    fn hand_up_rest<O: FrameOutput + Transports + ?Sized>(&mut self, now: Instant, out: &mut O) {
        while let Some(whole) = self.take_whole() {
            self.hand_up(now, whole.protocol(), whole.as_packet(), out);
            self.recycle(whole);
        }
        while let Some(error) = self.take_error() {
            out.error(now, error);
        }
    }
}

impl<Out: FrameOutput + Transports + ?Sized> Component<Out> for Ip {
    type Input<'a> = IpInput<'a>;

    fn handle(&mut self, now: Instant, input: IpInput<'_>, out: &mut Out) -> Result<(), Full> {
        match input {
            IpInput::Frame(frame) => {
                if let Some((protocol, packet)) = self.receive(now, &frame, out) {
                    self.hand_up(now, protocol, packet, out);
                }
            }
            IpInput::Packet(to, mut packet) => self.send(now, &to, &mut packet, out)?,
        }
        self.hand_up_rest(now, out);
        Ok(())
    }

    fn poll(&mut self, now: Instant, out: &mut Out) -> Progress {
        let _ = Ip::poll(self, now, out);
        self.hand_up_rest(now, out);
        match self.outbox.is_empty() {
            true => Progress::Idle,
            false => Progress::More,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        Ip::next_deadline(self)
    }
}
