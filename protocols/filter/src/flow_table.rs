//! Flows whose packets whoever asks a filter elsewhere may pass without asking, for a while (as the flowtables of
//! Linux's nf_tables, which bypass its rules for established flows).
//!
//! The filter says so of a packet that passed by a state which no plain packet of its flow can change
//! ([`Filter::offload`]). The table then counts packets, and follows what `tcp` expects of the peer by the filter's own
//! code. After [`TIME`], and before the filter is asked about a packet that does change the state, it is told
//! what went by ([`Filter::settle`]). So it knows what it would know had it seen all of them, a little later; and
//! a state that it forgets is in no table for longer than that.

use crate::filter::Filter;
use crate::summary::{Piece, Summary};
use crate::tcp::{Expected, Life, Phase, TcpState};
use crate::track::{Key, Step, Track};
use crate::verdict::{Direction, Side};
use foldhash::fast::FixedState;
use skink_messages::FlowAccount;
use skink_time::{Duration, Instant};
use skink_wire::protocol;
use skink_wire::tcp::Flags;
use std::collections::{HashMap, VecDeque};

/// For how long a flow's packets pass before the filter is asked about one again.
const TIME: Duration = Duration::from_secs(1);

/// Flows that are in a table at the most. The filter is asked about packets of others.
const CAPACITY: usize = 16_384;

/// What the filter tells of a flow whose packets may pass without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offload {
    /// TCP: up to where we have acknowledged what the peer sent, and where that ends which came without a gap.
    pub expected: Option<[u32; 2]>,
}

/// A flow whose packets may pass.
pub struct OffloadedFlow {
    track: Track,
    until: Instant,
    mark: u64,
    packets: [u64; 2],
    bytes: [u64; 2],
    last: Instant,
}

/// The flows whose packets may pass. The filter is asked about all others.
pub struct FlowTable {
    flows: HashMap<Key, OffloadedFlow, FixedState>,
    /// When the time of each is over, the next first; and of some that were removed since.
    ends: VecDeque<(Instant, Key)>,
}

impl FlowTable {
    /// An empty one. The seed must be hard to guess from outside.
    pub fn new(seed: u64) -> FlowTable {
        FlowTable {
            flows: HashMap::with_hasher(FixedState::with_seed(seed)),
            ends: VecDeque::new(),
        }
    }

    /// Enters the flow of a packet of which the filter has said this, for [`TIME`] from when it said so first. `mark` is for
    /// the caller.
    pub fn insert(
        &mut self,
        now: Instant,
        direction: Direction,
        packet: &Summary,
        offload: Offload,
        mark: u64,
    ) {
        let Some(key) = Key::of(direction, packet) else {
            return;
        };
        let track = Track::offloaded(key.protocol(), offload);
        if let Some(flow) = self.flows.get_mut(&key) {
            (flow.track, flow.mark) = (track, mark);
        } else if self.flows.len() < CAPACITY && self.ends.len() < 2 * CAPACITY {
            let until = now + TIME;
            let flow = OffloadedFlow {
                track,
                until,
                mark,
                packets: [0; 2],
                bytes: [0; 2],
                last: now,
            };
            self.flows.insert(key, flow);
            self.ends.push_back((until, key));
        }
    }

    /// The flow of a packet that may pass without the filter.
    #[inline]
    pub fn find(&mut self, direction: Direction, packet: &Summary) -> Option<&mut OffloadedFlow> {
        if self.flows.is_empty() || !changes_nothing(packet) {
            return None;
        }
        self.flows.get_mut(&Key::of(direction, packet)?)
    }

    /// The filter is to be asked about the flow of this packet from now on. Answers what it is to be told before.
    pub fn remove(&mut self, direction: Direction, packet: &Summary) -> Option<FlowAccount> {
        let key = Key::of(direction, packet)?;
        self.flows.remove(&key)?.account(&key)
    }

    /// Removes flows whose time is over, until there is something to tell the filter of one.
    pub fn expire(&mut self, now: Instant) -> Option<FlowAccount> {
        while let Some((until, key)) = self.ends.front().copied().filter(|(end, _)| *end <= now) {
            self.ends.pop_front();
            let is_over = |flow: &OffloadedFlow| flow.until == until;
            let over = self.flows.get(&key).is_some_and(is_over);
            let account = over.then(|| self.flows.remove(&key)?.account(&key));
            if let Some(account) = account.flatten() {
                return Some(account);
            }
        }
        None
    }

    /// When [`FlowTable::expire`] must be called at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.ends.front().map(|(until, _)| *until)
    }
}

impl OffloadedFlow {
    /// What it was entered with.
    #[inline]
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// As if it had been entered with this.
    #[inline]
    pub fn set_mark(&mut self, mark: u64) {
        self.mark = mark;
    }

    /// A packet of it passes.
    #[inline]
    pub fn pass(&mut self, now: Instant, direction: Direction, packet: &Summary) {
        if let Step::Goes(track) = self.track.step(direction.sender(), packet) {
            self.track = track;
        }
        self.last = now;
        let side = direction.index();
        self.packets[side] = self.packets[side].wrapping_add(1);
        self.bytes[side] = self.bytes[side].wrapping_add(packet.length.into());
    }

    /// `None` if nothing went by.
    fn account(&self, key: &Key) -> Option<FlowAccount> {
        (self.packets != [0; 2]).then(|| FlowAccount {
            protocol: key.protocol(),
            tuple: key.tuple(),
            packets: self.packets,
            bytes: self.bytes,
            expected: self.track.expected(),
            last: self.last,
        })
    }
}

impl Filter {
    /// Whether more packets of the flow of this one, which has just passed, may pass without being checked, all that
    /// [`FlowTable::find`] finds.
    pub fn offload(&self, direction: Direction, packet: &Summary) -> Option<Offload> {
        if !self.is_active() || !changes_nothing(packet) {
            return None;
        }
        let track = self.state(direction, packet)?;
        let lasts = match track {
            Track::Tcp(state) => state.is_steady(),
            Track::Datagram { answered, .. } => answered,
        };
        lasts.then(|| Offload {
            expected: track.expected(),
        })
    }
}

impl Track {
    fn offloaded(number: u8, offload: Offload) -> Track {
        let track = match number {
            protocol::TCP => Track::Tcp(TcpState::new(Phase::Established, Side::Local)),
            _ => Track::Datagram {
                opener: Side::Local,
                answered: true,
            },
        };
        track.with_expected(offload.expected)
    }

    fn expected(&self) -> Option<[u32; 2]> {
        match self {
            Track::Tcp(state) => state.expected.map(Expected::numbers),
            Track::Datagram { .. } => None,
        }
    }

    /// What `tcp` expects of the peer, as somebody else has seen it.
    pub(crate) fn with_expected(self, numbers: Option<[u32; 2]>) -> Track {
        match self {
            Track::Tcp(state) => Track::Tcp(TcpState {
                expected: numbers.map(Expected::of_numbers).or(state.expected),
                ..state
            }),
            Track::Datagram { .. } => self,
        }
    }
}

impl TcpState {
    /// Whether no segment without SYN, FIN or RST changes more of it than what is expected.
    fn is_steady(&self) -> bool {
        self.phase == Phase::Established && self.life == Life::Live && self.early_fin.is_none()
    }
}

/// Whether it is a whole packet of a kind that changes no state which lasts.
#[inline]
fn changes_nothing(packet: &Summary) -> bool {
    match (packet.piece, packet.protocol) {
        (Piece::Whole, protocol::TCP) => !packet
            .flags()
            .intersects(Flags::SYN | Flags::FIN | Flags::RST),
        (Piece::Whole, protocol::UDP) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
