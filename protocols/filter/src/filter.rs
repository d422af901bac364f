use crate::index::{Decision, Index};
use crate::kept::Kept;
use crate::prepared::Prepared;
use crate::records::{Flow, StateRecord};
use crate::rules::{Action, Answer, Rule, RuleSet};
use crate::states::{Entered, Entry, NO_RULE, States};
use crate::summary::{Piece, Summary, is_icmp_error};
use crate::timeouts::Timeouts;
use crate::track::{Key, Step, Track};
use crate::verdict::{Direction, Verdict};
use skink_memory::StoredTable;
use skink_messages::{Counter, Counters, FlowAccount, Progress};
use skink_time::{Duration, Instant};
use skink_wire::tcp::Flags;
use skink_wire::{FourTuple, Malformed, protocol};
use std::mem;
use std::sync::Arc;

/// Flows that one [`Filter::poll`] forgets at the most.
const EXPIRY_BUDGET: usize = 256;

/// What a filter needs to know.
#[derive(Clone, Debug)]
pub struct FilterConfig {
    /// Name of the stack's interface, for rules with `on`.
    pub interface: String,
    /// Flows that are remembered at the most, up to 2^24.
    pub capacity: u32,
    /// What hashes are seeded with: it must be hard to guess from outside.
    pub seed: u64,
    /// For how long flows are remembered.
    pub timeouts: Timeouts,
}

impl FilterConfig {
    /// 65,536 flows, the default timeouts.
    pub fn new(interface: impl Into<String>, seed: u64) -> FilterConfig {
        FilterConfig {
            interface: interface.into(),
            capacity: 65_536,
            seed,
            timeouts: Timeouts::DEFAULT,
        }
    }
}

/// What is counted of one rule since it was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RuleCounters {
    /// Packets for which the rule was looked at. Fewer than pf would count: rules that can't match or
    /// can't matter are skipped.
    pub evaluations: u64,
    /// Packets that it decided, those of its states included.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// States that it made.
    pub states_made: u64,
    /// States of it that there are now.
    pub states: u64,
    /// Packets that it decided and was to log.
    pub logged: u64,
}

/// What is counted of all packets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Packets that went on, whether by a state, a rule or for lack of one.
    pub passed: u64,
    /// Of these, packets that passed by a state.
    pub passed_by_state: u64,
    /// Packets dropped without a word.
    pub blocked: u64,
    /// Packets dropped whose sender was to be told.
    pub returned: u64,
    /// Packets dropped since their headers couldn't be read.
    pub malformed: u64,
    /// New flows refused since the table was full of established ones.
    pub refused: u64,
    /// Flows entered.
    pub states_made: u64,
    /// Flows forgotten after their time.
    pub states_expired: u64,
    /// Flows given up for others.
    pub states_evicted: u64,
}

/// The packet filter of one stack.
///
/// Until rules are loaded it passes everything, makes no states and counts nothing.
pub struct Filter {
    config: FilterConfig,
    rules: Arc<RuleSet>,
    index: Index,
    rule_counters: Vec<RuleCounters>,
    /// [`RuleCounters::evaluations`], apart from the rest since a walk over the rules touches them all.
    evaluations: Vec<u64>,
    /// Changes whenever rules are loaded: states of other rules are told by it.
    generation: u32,
    is_active: bool,
    states: States,
    kept: Option<Kept>,
    /// The message of ours whose first piece was judged last (its ends and its identification), and how.
    cut: ((u128, u128, u32), Verdict),
    totals: Totals,
    counters: Counters,
}

impl Filter {
    /// A filter without rules.
    pub fn new(config: FilterConfig, counters: Counters) -> Filter {
        let rules = RuleSet::default();
        Filter {
            index: Index::new(&rules, &config.interface, config.seed),
            rules: Arc::new(rules),
            rule_counters: Vec::new(),
            evaluations: Vec::new(),
            generation: 0,
            is_active: false,
            states: States::new(config.capacity, config.seed),
            kept: None,
            cut: ((0, 0, 0), Verdict::Drop),
            totals: Totals::default(),
            counters,
            config,
        }
    }

    /// Puts rules in force in place of those that were. Flows that are known stay; counters of rules
    /// begin anew.
    pub fn load(&mut self, rules: RuleSet) {
        self.replace(self.config.prepare(rules));
    }

    /// As [`Filter::load`], with rules that were prepared for this filter's configuration. Answers what was in force.
    pub fn replace(&mut self, rules: Prepared) -> Prepared {
        self.generation = self.generation.wrapping_add(1);
        Prepared {
            index: mem::replace(&mut self.index, rules.index),
            rule_counters: mem::replace(&mut self.rule_counters, rules.rule_counters),
            evaluations: mem::replace(&mut self.evaluations, rules.evaluations),
            is_active: mem::replace(&mut self.is_active, rules.is_active),
            rules: mem::replace(&mut self.rules, rules.rules),
        }
    }

    /// Takes all rules off: everything passes. Flows that are known stay until their time is over.
    pub fn unload(&mut self) {
        self.load(RuleSet::default());
    }

    /// Whether packets need to be checked at all.
    #[inline]
    pub const fn is_active(&self) -> bool {
        self.is_active
    }

    /// Decides about a packet.
    #[inline]
    pub fn check(&mut self, now: Instant, direction: Direction, packet: &Summary) -> Verdict {
        match packet.piece {
            _ if !self.is_active => Verdict::Pass,
            Piece::Whole => self.check_headers(now, direction, packet),
            Piece::First | Piece::Later => self.check_piece(now, direction, packet),
        }
    }

    #[inline]
    fn check_headers(&mut self, now: Instant, direction: Direction, packet: &Summary) -> Verdict {
        let mut key = Key::of(direction, packet);
        if let Some(known) = &key
            && let Some(at) = self.states.find(known)
        {
            match self.follow(now, direction, at, packet) {
                Step::Goes(()) => {
                    self.pass();
                    self.totals.passed_by_state = self.totals.passed_by_state.wrapping_add(1);
                    return Verdict::Pass;
                }
                Step::Over => {}
                // The flow has its state already.
                Step::Asks => key = None,
            }
        }
        self.decide(now, direction, key, packet)
    }

    /// Decides about a piece of a packet. The first one of an ICMP message has all that rules and states
    /// ask for, and decides about the others: without it nobody can make anything of them (RFC 1858 section 2).
    /// So those that come in pass; of ours, which leave one after the other, none shall.
    #[cold]
    #[inline(never)]
    fn check_piece(&mut self, now: Instant, direction: Direction, packet: &Summary) -> Verdict {
        let is_message = matches!(packet.protocol, protocol::ICMP | protocol::ICMPV6);
        let name = (packet.source, packet.destination, packet.seq);
        match (packet.piece, direction) {
            (Piece::Later, Direction::In) if is_message => {
                self.pass();
                Verdict::Pass
            }
            (Piece::Later, Direction::Out) if is_message && self.cut.0 == name => {
                match self.cut.1 {
                    Verdict::Pass => self.pass(),
                    Verdict::Drop | Verdict::Return => self.block(),
                }
                self.cut.1
            }
            _ => {
                let verdict = self.check_headers(now, direction, packet);
                if direction == Direction::Out && packet.piece == Piece::First && is_message {
                    self.cut = (name, verdict);
                }
                verdict
            }
        }
    }

    /// Decides about a packet that was to be summarised: one that can't be read is dropped.
    #[inline]
    pub fn check_parsed(
        &mut self,
        now: Instant,
        direction: Direction,
        packet: Result<Summary, Malformed>,
    ) -> Verdict {
        match packet {
            _ if !self.is_active => Verdict::Pass,
            Ok(packet) => self.check(now, direction, &packet),
            Err(_) => {
                self.totals.malformed = self.totals.malformed.wrapping_add(1);
                self.counters.count(Counter::FilterDropMalformed);
                Verdict::Drop
            }
        }
    }

    /// A packet between the ends of a flow that is known.
    #[inline]
    fn follow(
        &mut self,
        now: Instant,
        direction: Direction,
        at: u32,
        packet: &Summary,
    ) -> Step<()> {
        let Some(entry) = self.states.get_mut(at) else {
            return Step::Over;
        };
        let track = match entry.track.step(direction.sender(), packet) {
            Step::Goes(track) => track,
            Step::Over => {
                let removed = self.states.remove(at);
                self.forget(removed);
                return Step::Over;
            }
            Step::Asks => return Step::Asks,
        };
        let by = (direction, 1, u64::from(packet.length));
        self.note(now, at, track, packet.protocol, by);
        Step::Goes(())
    }

    /// So many packets with so many bytes have passed by a state, and it has become this.
    #[inline]
    fn note(
        &mut self,
        now: Instant,
        at: u32,
        track: Track,
        protocol: u8,
        (direction, packets, bytes): (Direction, u64, u64),
    ) {
        let Some(entry) = self.states.get_mut(at) else {
            return;
        };
        let side = direction.index();
        entry.packets[side] = entry.packets[side].wrapping_add(packets);
        entry.bytes[side] = entry.bytes[side].wrapping_add(bytes);
        if entry.generation == self.generation
            && let Some(counters) = self.rule_counters.get_mut(entry.rule as usize)
        {
            counters.packets = counters.packets.wrapping_add(packets);
            counters.bytes = counters.bytes.wrapping_add(bytes);
        }
        let timeout = self.config.timeouts.of(protocol, &track);
        self.states.update(at, now, track, timeout);
        if matches!(track, Track::Datagram { .. }) {
            self.keep(at, timeout);
        }
    }

    /// What is remembered of the flow of a packet.
    pub(crate) fn state(&self, direction: Direction, packet: &Summary) -> Option<Track> {
        let at = self.states.find(&Key::of(direction, packet)?)?;
        self.states.get(at).map(|entry| entry.track)
    }

    /// Takes note of packets that passed by their flow's state without being checked, the last of them before `now`.
    pub fn settle(&mut self, now: Instant, account: &FlowAccount) {
        if !self.is_active {
            return;
        }
        let all = account.packets[0].wrapping_add(account.packets[1]);
        self.totals.passed = self.totals.passed.wrapping_add(all);
        self.totals.passed_by_state = self.totals.passed_by_state.wrapping_add(all);
        self.counters.add(Counter::FilterPassed, all);
        let key = Key::between(account.protocol, &account.tuple);
        let at = key.and_then(|key| self.states.find(&key));
        let Some((at, entry)) = at.and_then(|at| Some((at, self.states.get(at)?))) else {
            // Given up for another one meanwhile.
            return;
        };
        let track = entry.track.with_expected(account.expected);
        // Somebody may have said since that the flow is still there.
        let (last, expires) = (account.last.min(now), entry.expires);
        for direction in [Direction::In, Direction::Out] {
            let side = direction.index();
            if account.packets[side] > 0 {
                let by = (direction, account.packets[side], account.bytes[side]);
                self.note(last, at, track, account.protocol, by);
            }
        }
        if let Some(entry) = self.states.get_mut(at) {
            entry.expires = entry.expires.max(expires);
        }
    }

    /// A packet of no flow that is known, or that asks for one in the place of one that is.
    #[inline(never)]
    fn decide(
        &mut self,
        now: Instant,
        direction: Direction,
        key: Option<Key>,
        packet: &Summary,
    ) -> Verdict {
        if self.is_about_known(direction, packet) {
            self.pass();
            return Verdict::Pass;
        }
        let evaluations = &mut self.evaluations;
        let decision = self.index.find(direction, packet, |rule| {
            if let Some(evaluations) = evaluations.get_mut(rule as usize) {
                *evaluations = evaluations.wrapping_add(1);
            }
        });
        let Some(decision) = decision else {
            self.pass();
            return Verdict::Pass;
        };
        self.count(&decision, packet);
        match decision.action {
            Action::Pass => {
                let track = Track::first(direction, packet);
                if let Some((key, track)) = key.zip(track).filter(|_| decision.keep)
                    && !self.enter(now, key, track, decision.rule, direction, packet)
                {
                    return Verdict::Drop;
                }
                self.pass();
                Verdict::Pass
            }
            Action::Block(Answer::Return) if is_answered(packet) => {
                self.totals.returned = self.totals.returned.wrapping_add(1);
                self.counters.count(Counter::FilterReturned);
                Verdict::Return
            }
            Action::Block(Answer::Return | Answer::Drop) => {
                self.block();
                Verdict::Drop
            }
        }
    }

    /// Whether it is an ICMP error about a packet of a flow that is known. It must be sent to (or
    /// by) the host that sent the packet.
    fn is_about_known(&self, direction: Direction, packet: &Summary) -> bool {
        let is_icmp = matches!(packet.protocol, protocol::ICMP | protocol::ICMPV6);
        if !is_icmp || !is_icmp_error(packet.family, packet.icmp_type) {
            return false;
        }
        let Some(quoted) = packet.quoted() else {
            return false;
        };
        let key = Key::of(direction.opposite(), &quoted);
        quoted.source == packet.destination
            && key.is_some_and(|key| self.states.find(&key).is_some())
    }

    fn count(&mut self, decision: &Decision, packet: &Summary) {
        if let Some(counters) = self.rule_counters.get_mut(decision.rule as usize) {
            counters.packets = counters.packets.wrapping_add(1);
            counters.bytes = counters.bytes.wrapping_add(u64::from(packet.length));
            counters.logged = counters.logged.wrapping_add(u64::from(decision.log));
        }
    }

    /// Enters a flow; false if there is no room for it.
    fn enter(
        &mut self,
        now: Instant,
        key: Key,
        track: Track,
        rule: u32,
        direction: Direction,
        packet: &Summary,
    ) -> bool {
        if !self.insert(now, key, track, rule) {
            self.totals.refused = self.totals.refused.wrapping_add(1);
            self.counters.count(Counter::FilterDropFull);
            return false;
        }
        let at = self.states.find(&key).unwrap_or(u32::MAX);
        if let Some(entry) = self.states.get_mut(at) {
            let side = direction.index();
            entry.packets[side] = 1;
            entry.bytes[side] = u64::from(packet.length);
        }
        if let Some(counters) = self.rule_counters.get_mut(rule as usize) {
            counters.states_made = counters.states_made.wrapping_add(1);
            counters.states = counters.states.wrapping_add(1);
        }
        true
    }

    fn insert(&mut self, now: Instant, key: Key, track: Track, rule: u32) -> bool {
        let timeout = self.config.timeouts.of(key.protocol(), &track);
        let is_in = self.insert_for(now, key, track, rule, timeout);
        if is_in && let Some(at) = self.states.find(&key) {
            self.keep(at, timeout);
        }
        is_in
    }

    fn insert_for(
        &mut self,
        now: Instant,
        key: Key,
        track: Track,
        rule: u32,
        timeout: Duration,
    ) -> bool {
        let owner = (rule, self.generation);
        match self.states.insert(now, key, track, owner, timeout) {
            Entered::New => {}
            Entered::Instead(evicted) => {
                self.totals.states_evicted = self.totals.states_evicted.wrapping_add(1);
                self.counters.count(Counter::FilterStatesEvicted);
                self.forget(Some(evicted));
            }
            Entered::Full => return false,
        }
        self.totals.states_made = self.totals.states_made.wrapping_add(1);
        self.counters.count(Counter::FilterStatesMade);
        true
    }

    /// What is to be counted for a state that is gone.
    fn forget(&mut self, entry: Option<Entry>) {
        if let (Some(kept), Some(place)) = (&mut self.kept, entry.and_then(|entry| entry.kept)) {
            kept.remove(place);
        }
        let rule = entry.filter(|entry| entry.generation == self.generation);
        if let Some(entry) = rule
            && let Some(counters) = self.rule_counters.get_mut(entry.rule as usize)
        {
            counters.states = counters.states.saturating_sub(1);
        }
    }

    #[inline]
    fn pass(&mut self) {
        self.totals.passed = self.totals.passed.wrapping_add(1);
        self.counters.count(Counter::FilterPassed);
    }

    fn block(&mut self) {
        self.totals.blocked = self.totals.blocked.wrapping_add(1);
        self.counters.count(Counter::FilterDropBlocked);
    }

    /// Forgets flows whose time is over.
    pub fn poll(&mut self, now: Instant) -> Progress {
        self.poll_asking(now, |_, _| false)
    }

    /// Forgets flows whose time is over, except those of which `lives` says that their socket is still there: so no idle
    /// connection is ever lost. It is told the protocol and the two ends.
    pub fn poll_asking(
        &mut self,
        now: Instant,
        mut lives: impl FnMut(u8, &FourTuple) -> bool,
    ) -> Progress {
        for _ in 0..EXPIRY_BUDGET {
            let timeouts = self.config.timeouts;
            let expired = self.states.expire(now, |entry| {
                let key = &entry.key;
                let is_asked = matches!(key.protocol(), protocol::TCP | protocol::UDP);
                let keep = is_asked && lives(key.protocol(), &key.tuple());
                keep.then(|| timeouts.of(key.protocol(), &entry.track))
            });
            if expired.is_none() {
                return Progress::Idle;
            }
            self.totals.states_expired = self.totals.states_expired.wrapping_add(1);
            self.counters.count(Counter::FilterStatesExpired);
            self.forget(expired);
        }
        Progress::More
    }

    /// When [`Filter::poll`] must be called at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.states.next_deadline()
    }

    /// The rules in force, with what was counted of each; a rule's place is its number.
    pub fn rules(&self) -> impl Iterator<Item = (&Rule, RuleCounters)> {
        let counters = self.rule_counters.iter().zip(&self.evaluations);
        let counters = counters.map(|(counters, evaluations)| RuleCounters {
            evaluations: *evaluations,
            ..*counters
        });
        self.rules.rules.iter().zip(counters)
    }

    /// The rules in force.
    pub fn rule_set(&self) -> &RuleSet {
        &self.rules
    }

    pub(crate) fn shared_rules(&self) -> Arc<RuleSet> {
        self.rules.clone()
    }

    /// What was counted of all packets.
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// How many flows are known.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    /// All flows that are known, as plain data, in no order.
    pub fn export_states(&self) -> impl Iterator<Item = StateRecord> {
        let generation = self.generation;
        self.states
            .iter()
            .map(move |entry| StateRecord::new(entry, generation))
    }

    /// Enters flows that another filter knew, with a new timeout each; records that make no sense are
    /// left out, and known flows stay as they are. Answers how many were entered.
    pub fn import(&mut self, now: Instant, records: &[StateRecord]) -> usize {
        let flows = records.iter().filter_map(StateRecord::state);
        self.enter_all(now, flows)
    }

    /// Enters the flows that `tcp` knows: after a crash of the filter, before the first packet.
    /// They were let in once, so rules aren't asked. Those that are known are prolonged. Answers how many
    /// were entered.
    pub fn rebuild(&mut self, now: Instant, flows: impl IntoIterator<Item = Flow>) -> usize {
        let flows = flows.into_iter().filter_map(|flow| flow.state());
        flows.fold(0, |entered, (key, track)| match self.prolong(now, &key) {
            true => entered,
            false => entered + self.enter_all(now, [(key, track)].into_iter()),
        })
    }

    /// Remembers flows that are still there as long as if a packet of theirs had just come, so that no idle
    /// connection is lost. Unknown ones aren't entered: saying so gets nobody past the rules, nor fills the
    /// table. Answers how many are known.
    pub fn confirm(&mut self, now: Instant, flows: impl IntoIterator<Item = Flow>) -> usize {
        let flows = flows.into_iter().filter_map(|flow| flow.state());
        flows.filter(|(key, _)| self.prolong(now, key)).count()
    }

    /// Whether the flow is known.
    fn prolong(&mut self, now: Instant, key: &Key) -> bool {
        let Some(at) = self.states.find(key) else {
            return false;
        };
        if let Some(entry) = self.states.get_mut(at) {
            let timeout = self.config.timeouts.of(key.protocol(), &entry.track);
            // Its timer fires before that, and is set again then.
            entry.expires = entry.expires.max(now + timeout);
            self.keep(at, timeout);
        }
        true
    }

    /// Keeps flows of datagrams in a table from now on, and enters those that a predecessor kept there, each
    /// for the rest of its time: before the first packet. They were let in once, so rules aren't asked.
    /// Answers how many were entered. Nobody else may write the table; `now` must be of a clock that goes on
    /// when the filter dies.
    pub fn keep_in(&mut self, now: Instant, table: StoredTable) -> usize {
        let (kept, found) = Kept::open(table);
        self.kept = Some(kept);
        let mut entered = 0;
        for flow in found {
            let whole = self.config.timeouts.of(flow.key.protocol(), &flow.track);
            let left = flow.expires.since(now).min(whole);
            let is_new = left > Duration::ZERO && self.states.find(&flow.key).is_none();
            if is_new && self.insert_for(now, flow.key, flow.track, NO_RULE, left) {
                entered += 1;
                let at = self.states.find(&flow.key);
                if let Some(entry) = at.and_then(|at| self.states.get_mut(at)) {
                    entry.kept = Some(flow.kept);
                }
            } else if let Some(kept) = &mut self.kept {
                kept.remove(flow.kept);
            }
        }
        entered
    }

    fn keep(&mut self, at: u32, timeout: Duration) {
        if let (Some(kept), Some(entry)) = (&mut self.kept, self.states.get_mut(at)) {
            kept.update(entry, timeout);
        }
    }

    fn enter_all(&mut self, now: Instant, flows: impl Iterator<Item = (Key, Track)>) -> usize {
        let mut entered = 0;
        for (key, track) in flows {
            // What has ended pushes nothing out that lives.
            if track.is_over() && self.states.is_full() {
                continue;
            }
            if self.states.find(&key).is_none() && self.insert(now, key, track, NO_RULE) {
                entered += 1;
            }
        }
        entered
    }
}

/// Whether the sender of a blocked packet may be told. Nobody answers a reset or an ICMP message
/// (RFC 9293 section 3.10.7.1, RFC 1122 section 3.2.2), nor what isn't a whole packet.
fn is_answered(packet: &Summary) -> bool {
    match packet.protocol {
        protocol::TCP => packet.has_transport() && !packet.flags().contains(Flags::RST),
        protocol::UDP => packet.has_transport(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
