use crate::crowding::Crowding;
use crate::cubic::Cubic;
use crate::distance::Arrivals;
use crate::memory::Memory;
use crate::ranges::Ranges;
use crate::recovery::Recovery;
use crate::rtt::RttEstimator;
use crate::settings::Settings;
use crate::state::State;
use core::sync::atomic::Ordering::{Relaxed, Release};
use skink_memory::{Record, Ring, SocketId, SocketTable};
use skink_messages::{Counter, Counters, Events, Network, Outbound, Path, SocketError};
use skink_time::{Duration, Instant};
use skink_wire::tcp::{Options, Timestamps};
use skink_wire::{FourTuple, SeqNum, protocol};

/// Segments in a large one at most: a peer that asks for tiny ones doesn't make thousands of frames of it.
const MOST_SEGMENTS: u32 = 64;

/// What every part of a connection's work may look at besides the connection.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub table: &'a SocketTable,
    pub memory: &'a Memory,
    pub counters: &'a Counters,
    pub now: Instant,
}

/// Who holds the socket on the program's side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// Nobody yet: it waits in the accept queue of this listener (slot) or for its handshake.
    Awaited(u32),
    /// A program.
    Attached,
    /// Nobody any more.
    Gone,
}

/// When to do what, if nothing happens before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadlines {
    /// Retransmission timeout (RFC 6298).
    pub retransmit: Option<Instant>,
    /// Delayed acknowledgement (RFC 9293 3.8.6.3).
    pub acknowledge: Option<Instant>,
    /// Zero-window probe (RFC 9293 3.8.6.1).
    pub probe: Option<Instant>,
    /// Keepalive (RFC 9293 3.8.4).
    pub keep_alive: Option<Instant>,
    /// A corked segment leaves.
    pub cork: Option<Instant>,
    /// FIN-WAIT-2 without a program is given up, or a connection that is to be reset.
    pub linger: Option<Instant>,
}

impl Deadlines {
    pub fn first(&self) -> Option<Instant> {
        let Deadlines {
            retransmit,
            acknowledge,
            probe,
            keep_alive,
            cork,
            linger,
        } = *self;
        let mut first = retransmit;
        for other in [acknowledge, probe, keep_alive, cork, linger] {
            if let Some(other) = other
                && first.is_none_or(|first| other < first)
            {
                first = Some(other);
            }
        }
        first
    }
}

/// One connection: the transmission control block of RFC 9293 section 3.3.1.
///
/// What an adopter needs is *saved* in the record ([`Connection::save`]); the rest is *dropped*.
pub struct Connection {
    pub id: SocketId,
    /// Saved.
    pub tuple: FourTuple,
    /// Saved. Changed by [`Connection::enter`] alone.
    state: State,
    /// Saved. Changed by [`Connection::set_program`] alone.
    pub(crate) program: Program,
    /// Saved ([`Settings::save`]).
    pub settings: Settings,

    /// Saved: sequence numbers of RFC 9293 section 3.3.1. `snd_nxt` never goes back: what is sent
    /// again is `recovery`'s business.
    pub iss: SeqNum,
    pub snd_una: SeqNum,
    pub snd_nxt: SeqNum,
    pub snd_wnd: u32,
    pub snd_wl1: SeqNum,
    /// The largest window the peer ever offered.
    pub max_window: u32,
    /// Sequence number of our FIN, once the program has finished sending.
    pub fin: Option<SeqNum>,
    /// End of the last segment that was less than full (Minshall's Nagle).
    pub small_end: SeqNum,
    /// Where the data ends that was in flight when the congestion window was last found full.
    pub limited_end: SeqNum,

    pub irs: SeqNum,
    /// Saved.
    pub rcv_nxt: SeqNum,
    /// Saved: right edge of the window last offered.
    pub rcv_adv: SeqNum,
    /// So far beyond that the peer was offered once: it moves left while memory is exhausted.
    pub taken_back: u32,
    /// Bounds the window while data waits.
    pub crowding: Crowding,
    pub arrivals: Arrivals,
    /// `Last.ACK.sent` of RFC 7323 section 4.3.
    pub last_ack: SeqNum,
    /// Sequence number of the peer's FIN, once seen.
    pub peer_fin: Option<SeqNum>,
    /// What arrived ahead of `rcv_nxt`; its bytes are in the receive ring, ahead of the tail.
    pub ahead: Ranges,
    /// Start of the last range that grew: the first to be reported (RFC 2018 section 4).
    pub ahead_latest: SeqNum,
    /// What of `ahead` hasn't been reported yet.
    pub ahead_untold: Ranges,
    /// Start of the range that was reported last: what is told again begins after it.
    pub ahead_told: SeqNum,

    /// Saved: what was negotiated.
    pub peer_mss: u16,
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    pub sack: bool,
    pub timestamps: bool,
    pub window_scaling: bool,
    pub ts_recent: u32,
    pub ts_recent_at: Instant,
    pub ts_offset: u32,
    /// Adopted, and not heard of the peer since: a predecessor that was out of its mind may have kept, and told
    /// the peer, any timestamps.
    pub doubts_stamps: bool,

    /// Payload of a full segment, and of the largest packet that may be cut, in bytes.
    pub mss: u32,
    pub cut_bytes: u32,
    /// Payload of the peer's full segments, as far as is known: it keeps to the size that it was told in the beginning.
    pub receive_mss: u32,
    /// What the route offers: the largest packet, and the largest that may be cut.
    pub path_mtu: u32,
    pub path_cut_bytes: u32,
    /// [`Network::raises`] when the route was last asked.
    pub raises: u32,

    pub rtt: RttEstimator,
    /// Segments that have left, modulo 2^32: what a turn at sending costs goes by it.
    pub emitted: u32,
    /// A sequence number whose acknowledgement gives a round-trip time, and when it was sent.
    pub timed: Option<(SeqNum, Instant)>,
    pub congestion: Cubic,
    pub recovery: Recovery,
    /// How many times the timeout is doubled: once for each timeout or probe since a round trip was measured (RFC 6298
    /// section 5).
    pub backoff: u32,
    /// When the last of these timeouts was.
    pub timed_out: Instant,
    /// Timeouts and probes in a row, since the peer took something.
    pub retries: u32,
    /// Since when nothing was acknowledged although something is due.
    pub stalled_since: Option<Instant>,
    pub keep_alive_sent: u32,
    /// Window probes since the peer was last heard of.
    pub probes_unanswered: u32,
    /// When a senseless segment was last answered.
    pub challenged: Option<Instant>,
    /// When the last segment arrived and when data was last sent.
    pub heard: Instant,
    pub sent_at: Instant,

    pub deadlines: Deadlines,
    /// What the timer wheel is armed for.
    pub armed: Option<Instant>,
    /// The peer has acknowledged our SYN-ACK, and waits for room in the accept queue.
    pub acknowledged: bool,
    /// In its listener's queue of those that do, and weren't asked again.
    pub turned_away: bool,
    /// It has waited at another program's listener before.
    pub moved: bool,
    /// It is on its way to another stack.
    pub away: bool,
    /// It was asked to acknowledge again, a place in the accept queue is free for it, and it has had the time of one timeout at
    /// most.
    pub asked: bool,
    /// SYN (or SYN-ACK) must be sent.
    pub syn_due: bool,
    /// An acknowledgement must be sent now.
    pub ack_due: bool,
    /// So many acknowledgements, one like the other: see [`Connection::note_ahead`].
    pub repeats_due: u32,
    /// A segment with an old sequence number must be sent, to make the peer answer.
    pub probe_due: bool,
    /// A segment smaller than the silly-window rules like may leave (RFC 9293 3.8.6.2.1).
    pub override_due: bool,
    /// `TCP_CORK` has held the next segment back for long enough.
    pub cork_over: bool,
    /// Bytes received and not yet acknowledged.
    pub unacknowledged: u32,
    /// When data came last that was next in order.
    pub data_at: Instant,
    /// Our program answers what comes: an acknowledgement that waits for that goes with the answer.
    pub interactive: bool,
    /// Segments that are still acknowledged soon: full ones at once, for the peer's slow start.
    pub quick_acks: u8,
    /// In the queue of connections that have something to send.
    pub queued: bool,
    pub events: Events,
    /// In the queue of connections that have something to tell.
    pub notified: bool,
    /// Whether the local port was taken for this connection.
    pub holds_port: bool,
    /// The program has said that it reads no more. (A successor doesn't know: it goes on to take in what comes.)
    pub reading_over: bool,
    /// A ring has taken more memory than an idle one keeps.
    pub spread: bool,
    /// Among those that are looked at for that.
    pub listed: bool,
    /// The sums of both ends of what is in its rings when these last gave back what they kept without need.
    pub stripped_at: [u64; 2],
}

impl Connection {
    pub fn new(id: SocketId, settings: Settings, program: Program, now: Instant) -> Connection {
        let unspecified = skink_wire::Endpoint::new(core::net::Ipv4Addr::UNSPECIFIED.into(), 0);
        Connection {
            id,
            tuple: FourTuple::new(unspecified, unspecified),
            state: State::Closed,
            program,
            settings,
            iss: SeqNum(0),
            snd_una: SeqNum(0),
            snd_nxt: SeqNum(0),
            snd_wnd: 0,
            snd_wl1: SeqNum(0),
            max_window: 0,
            fin: None,
            small_end: SeqNum(0),
            limited_end: SeqNum(0),
            irs: SeqNum(0),
            rcv_nxt: SeqNum(0),
            rcv_adv: SeqNum(0),
            taken_back: 0,
            crowding: Crowding::new(),
            arrivals: Arrivals::new(now),
            last_ack: SeqNum(0),
            peer_fin: None,
            ahead: Ranges::default(),
            ahead_latest: SeqNum(0),
            ahead_untold: Ranges::default(),
            ahead_told: SeqNum(0),
            peer_mss: 536,
            snd_wscale: 0,
            rcv_wscale: 0,
            sack: false,
            timestamps: false,
            window_scaling: false,
            ts_recent: 0,
            ts_recent_at: now,
            ts_offset: 0,
            doubts_stamps: false,
            mss: 536,
            cut_bytes: 536,
            receive_mss: 536,
            path_mtu: 576,
            path_cut_bytes: 576,
            raises: 0,
            rtt: RttEstimator::new(),
            emitted: 0,
            timed: None,
            congestion: Cubic::new(536),
            recovery: Recovery::default(),
            backoff: 0,
            timed_out: now,
            retries: 0,
            stalled_since: None,
            keep_alive_sent: 0,
            probes_unanswered: 0,
            challenged: None,
            heard: now,
            sent_at: now,
            deadlines: Deadlines::default(),
            armed: None,
            acknowledged: false,
            turned_away: false,
            moved: false,
            away: false,
            asked: false,
            syn_due: false,
            ack_due: false,
            repeats_due: 0,
            probe_due: false,
            override_due: false,
            cork_over: false,
            unacknowledged: 0,
            data_at: now,
            interactive: false,
            quick_acks: 16,
            queued: false,
            events: Events::empty(),
            notified: false,
            holds_port: false,
            reading_over: false,
            spread: false,
            listed: false,
            stripped_at: [0; 2],
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// The one place where the state changes.
    pub fn enter(&mut self, state: State, context: &Context<'_>) {
        if state == State::Established {
            context.counters.count(Counter::TcpEstablished);
        }
        self.state = state;
        self.record(context).state.store(state as u8, Release);
    }

    /// For an adoption: the state that the record has.
    pub fn restore_state(&mut self, state: State) {
        self.state = state;
    }

    pub fn program(&self) -> Program {
        self.program
    }

    pub fn record<'a>(&self, context: &Context<'a>) -> &'a Record {
        context.table.record(self.id.slot)
    }

    pub fn send_ring<'a>(&self, context: &Context<'a>) -> Ring<'a> {
        context.table.send_ring(self.id.slot)
    }

    pub fn receive_ring<'a>(&self, context: &Context<'a>) -> Ring<'a> {
        context.table.receive_ring(self.id.slot)
    }

    /// Gives the connection its ends and the route between them, which `out` has answered.
    pub fn set_path<O: Network + ?Sized>(
        &mut self,
        tuple: FourTuple,
        path: &Path,
        context: &Context<'_>,
        out: &O,
    ) {
        self.tuple = tuple;
        self.take_path(path, out);
        self.record(context).set_four_tuple(&tuple);
    }

    /// Takes what the route offers.
    pub fn take_path<O: Network + ?Sized>(&mut self, path: &Path, out: &O) {
        self.path_mtu = path.mtu;
        self.path_cut_bytes = path.cut_bytes;
        self.raises = out.raises();
    }

    /// If the link takes more than it did, the path may, too. What is in flight stays as it was cut.
    #[inline]
    pub fn follow_raises<O: Network + ?Sized>(&mut self, out: &O) {
        if self.raises != out.raises() {
            self.ask_path_again(out);
        }
    }

    #[cold]
    fn ask_path_again<O: Network + ?Sized>(&mut self, out: &O) {
        let Some(path) = out.path(Some(self.tuple.local.addr), self.tuple.remote.addr) else {
            return;
        };
        self.raises = out.raises();
        if path.mtu > self.path_mtu {
            self.take_path(&path, out);
            self.update_segment_sizes();
        }
    }

    fn fixed_header_bytes(&self) -> u32 {
        let network = if self.tuple.local.addr.is_ipv4() {
            20
        } else {
            40
        };
        network + skink_wire::tcp::LEN as u32
    }

    /// The largest segment that we take, for the MSS option (RFC 6691: without any options).
    pub fn own_mss(&self) -> u16 {
        // No IPv4 packet is longer than 65,535 bytes, whatever the link takes.
        let mtu = self.path_mtu.min(65_535);
        let bytes = mtu.saturating_sub(self.fixed_header_bytes());
        // The smallest link of IPv4 has 68 bytes (RFC 791 section 3.2).
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX).max(28);
        self.settings
            .maximum_segment
            .map_or(bytes, |limit| bytes.min(limit.max(64)))
    }

    /// Works out the payload of full and of large segments, from the path and what was negotiated.
    pub fn update_segment_sizes(&mut self) {
        let options: u32 = if self.timestamps { 12 } else { 0 };
        let header = self.fixed_header_bytes();
        let full = u32::from(self.own_mss()).min(u32::from(self.peer_mss));
        self.mss = full.saturating_sub(options).max(16);
        let large = self
            .path_cut_bytes
            .min(65_535)
            .saturating_sub(header + options);
        self.cut_bytes = (large / self.mss).clamp(1, MOST_SEGMENTS) * self.mss;
        self.congestion.set_mss(self.mss);
    }

    /// How `ip` is to send this connection's packets.
    pub fn outbound(&self) -> Outbound {
        Outbound {
            source: self.tuple.local.addr,
            destination: self.tuple.remote.addr,
            protocol: protocol::TCP,
            hop_limit: self.settings.hop_limit,
            traffic_class: self.settings.traffic_class,
            dont_fragment: true,
        }
    }

    /// The timestamp clock: milliseconds, from a point that differs from connection to connection
    /// (RFC 7323 5.4).
    pub fn timestamp(&self, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.ts_offset)
    }

    /// The options of every segment after the handshake.
    pub fn options(&self, now: Instant) -> Options {
        Options {
            timestamps: self.timestamps.then(|| Timestamps {
                value: self.timestamp(now),
                echo: self.ts_recent,
            }),
            ..Options::default()
        }
    }

    /// Bytes and flags between `snd_una` and `snd_nxt`.
    pub fn flight(&self) -> u32 {
        self.snd_una.distance_to(self.snd_nxt)
    }

    /// Offset in the send ring, from its head, of the byte with sequence number `seq`.
    pub fn send_offset(&self, seq: SeqNum, ring: &Ring<'_>) -> usize {
        let head = self.iss + 1 + ring.head() as u32;
        let offset = head.distance_to(seq);
        // Below the head only if a neighbour moved it; then there is nothing to send.
        if offset > i32::MAX as u32 {
            usize::MAX
        } else {
            offset as usize
        }
    }

    /// Sequence number after the last byte in the send ring.
    pub fn data_end(&self, ring: &Ring<'_>) -> SeqNum {
        let end = self.iss + 1 + (ring.head() as u32).wrapping_add(ring.len() as u32);
        self.fin.map_or(end, |fin| fin.min(end))
    }

    /// Whether our FIN was acknowledged.
    pub fn fin_acknowledged(&self) -> bool {
        self.fin.is_some_and(|fin| self.snd_una.gt(fin))
    }

    /// The timeout in force.
    pub fn timeout(&self) -> Duration {
        self.rtt.timeout(self.backoff)
    }

    /// Tells the program, once this batch is done.
    pub fn tell(&mut self, events: Events) {
        self.events |= events;
    }

    /// As [`tell`](Connection::tell), if the condition holds.
    pub fn tell_if(&mut self, condition: bool, events: Events) {
        if condition {
            self.tell(events);
        }
    }

    /// Notes why the connection failed.
    pub fn fail(&mut self, error: SocketError, context: &Context<'_>) {
        self.record(context).error.store(error as u32, Relaxed);
        self.tell(Events::ERROR);
    }

    /// Whether the record says why the connection failed.
    pub fn has_failed(&self, context: &Context<'_>) -> bool {
        self.record(context).error.load(Relaxed) != 0
    }
}
