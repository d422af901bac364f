//! `syscall` and its ways to the transports and to `store`: calls where these are in the same process,
//! else lanes.
use crate::BUDGET;
use crate::host::Neighbour;
use skink_lanes::{EndCounters, Exchange};
use skink_messages::{
    Answer, CallBody, CallOutcome, Protocol, SocketCall, SocketError, StoreClient, StoreKey,
    StoreReply, StoreRequest, StoreValue, TransportCall,
};
use skink_store::Store;
use skink_syscall::{Syscall, SyscallOutput};
use std::collections::VecDeque;

/// How `syscall` reaches a transport.
pub enum TransportWay {
    /// It is in this process, and so are all parts of the stack.
    Here,
    /// It is in a process of its own, or shares one with some of the others.
    Lane(Box<Exchange<CallOutcome, TransportCall>>),
}

/// How `syscall` reaches `store`.
pub enum StoreWay {
    /// It is in this process, and so are all parts of the stack.
    Here(Store),
    /// As [`TransportWay::Lane`].
    Lane(Box<Exchange<StoreReply, StoreRequest>>),
}

/// Makes numbers that can't be guessed, and aren't 0.
pub type Random = Box<dyn FnMut() -> u64 + Send>;

/// What `syscall` has said and nobody has taken yet. Bounded: while something waits for room in a lane,
/// no program's call is taken.
pub(crate) struct Outbox {
    /// By [`Protocol::index`].
    calls: [VecDeque<TransportCall>; 2],
    pub answers: VecDeque<(u32, u32, Result<Answer, SocketError>)>,
    stored: VecDeque<StoreRequest>,
    /// What is to be removed in a later turn, when no call waits any more.
    spent: VecDeque<StoreKey>,
    random: Random,
}

impl SyscallOutput for Outbox {
    fn call(&mut self, protocol: Protocol, call: TransportCall) {
        if let Some(calls) = self.calls.get_mut(protocol.index()) {
            calls.push_back(call);
        }
    }

    fn answer(&mut self, program: u32, serial: u32, result: Result<Answer, SocketError>) {
        self.answers.push_back((program, serial, result));
    }

    fn store(&mut self, key: StoreKey, value: Option<StoreValue>) {
        self.spent.retain(|other| *other != key);
        self.stored.push_back(match value {
            Some(value) => StoreRequest::Put(key, value),
            None => StoreRequest::Remove(key),
        });
    }

    fn store_last(&mut self, key: StoreKey) {
        self.spent.push_back(key);
    }

    fn random(&mut self) -> u64 {
        (self.random)()
    }
}

/// `syscall` and its ends towards its neighbours. [`Front`](crate::Front) joins it to programs.
pub struct SyscallHost {
    pub(crate) component: Syscall,
    ways: [TransportWay; 2],
    store: StoreWay,
    pub(crate) out: Outbox,
    /// Until the neighbours know of it.
    pub(crate) held: bool,
    /// A successor serves nobody before it has what its predecessor stored; so many items came already.
    restoring: Option<u32>,
    /// Programs that ended before it could be told.
    ended: Vec<u32>,
    /// A program's call wasn't taken: it was busy.
    pub(crate) has_refused: bool,
}

impl SyscallHost {
    /// Starts without programs. It does nothing before [`Front::go`](crate::Front::go) if `store` is elsewhere.
    pub fn new(
        mut component: Syscall,
        ways: [TransportWay; 2],
        mut store: StoreWay,
        random: Random,
    ) -> SyscallHost {
        if let StoreWay::Here(store) = &mut store {
            store.request(StoreRequest::List(StoreClient::Syscall));
            while let Some(reply) = store.take_reply() {
                if let StoreReply::Item(key, value) = reply {
                    component.restore(key, value);
                }
            }
        }
        SyscallHost {
            component,
            ways,
            held: matches!(store, StoreWay::Lane(_)),
            store,
            out: Outbox {
                calls: Default::default(),
                answers: VecDeque::new(),
                stored: VecDeque::new(),
                spent: VecDeque::new(),
                random,
            },
            restoring: None,
            ended: Vec::new(),
            has_refused: false,
        }
    }

    /// The neighbours know of it. A `successor` asks first for what was stored.
    pub(crate) fn go(&mut self, successor: bool) {
        match std::mem::take(&mut self.held) && successor {
            true => {
                self.restoring = Some(0);
                let list = StoreRequest::List(StoreClient::Syscall);
                self.out.stored.push_back(list);
            }
            false => self.component.resume(&mut self.out),
        }
    }

    /// The transports are in this process, and know nothing of what predecessors were told.
    pub(crate) fn take_over(&mut self) {
        self.component.resume(&mut self.out);
        for protocol in Protocol::ALL {
            self.component.transport_restarted(protocol, &mut self.out);
        }
    }

    pub(crate) fn attach(&mut self, program: u32, uid: u32, secret: u64) {
        self.component.attach(program, uid, secret, &mut self.out);
    }

    pub(crate) fn request(&mut self, program: u32, serial: u32, call: SocketCall) {
        self.component.request(program, serial, call, &mut self.out);
    }

    pub(crate) fn detach(&mut self, program: u32) {
        match self.has_begun() {
            true => self.component.detach(program, &mut self.out),
            // What was stored comes first: the program may hold sockets that aren't known yet.
            false => self.ended.push(program),
        }
    }

    /// Tells the transports that a program has ended which was never known here.
    pub(crate) fn detach_stranger(&mut self, program: u32, tag: u32) {
        for protocol in Protocol::ALL {
            let call = TransportCall {
                program,
                serial: 0,
                body: CallBody::Abandon(tag),
            };
            self.out.call(protocol, call);
        }
    }

    /// Whether it knows all that its predecessor did.
    fn has_begun(&self) -> bool {
        !self.held && self.restoring.is_none()
    }

    /// A transport was replaced.
    pub(crate) fn transport_restarted(&mut self, protocol: Protocol, incarnation: u32) {
        if let Some(TransportWay::Lane(lane)) = self.ways.get_mut(protocol.index()) {
            lane.restarted(incarnation);
            self.component.transport_restarted(protocol, &mut self.out);
        }
    }

    /// `store` was replaced. A list that its predecessor hadn't shown to the end is asked for once more.
    pub(crate) fn store_restarted(&mut self, incarnation: u32) {
        if let StoreWay::Lane(lane) = &mut self.store {
            lane.restarted(incarnation);
            self.component.store_restarted(&mut self.out);
            if let Some(count) = &mut self.restoring {
                *count = 0;
                let list = StoreRequest::List(StoreClient::Syscall);
                self.out.stored.push_back(list);
            }
        }
    }

    /// Whether no call of a program can be taken now.
    pub(crate) fn is_busy(&self) -> bool {
        !self.has_begun() || self.has_waiting()
    }

    /// Whether something that it said waits for room.
    pub(crate) fn has_waiting(&self) -> bool {
        let calls = self.out.calls.iter().any(|calls| !calls.is_empty());
        calls || !self.out.stored.is_empty() || !self.out.spent.is_empty()
    }

    /// Whether a neighbour has sent something, or made room.
    pub(crate) fn is_ready(&self) -> bool {
        let ready = |way: &TransportWay| match way {
            TransportWay::Here => false,
            TransportWay::Lane(lane) => lane.is_ready(),
        };
        let store = match &self.store {
            StoreWay::Here(_) => false,
            StoreWay::Lane(lane) => lane.is_ready(),
        };
        !self.held
            && (store || self.has_spent() || (self.has_begun() && self.ways.iter().any(ready)))
    }

    /// A neighbour that has spoilt its queue.
    pub(crate) fn broken(&self) -> Option<Neighbour> {
        let broken = |way: &TransportWay| match way {
            TransportWay::Here => false,
            TransportWay::Lane(lane) => lane.is_broken(),
        };
        let store = match &self.store {
            StoreWay::Here(_) => false,
            StoreWay::Lane(lane) => lane.is_broken(),
        };
        let [tcp, udp] = self.ways.each_ref().map(broken);
        let all = [
            (store, Neighbour::Store),
            (tcp, Neighbour::Tcp),
            (udp, Neighbour::Udp),
        ];
        let (_, neighbour) = all.into_iter().find(|(broken, _)| *broken)?;
        Some(neighbour)
    }

    /// What was dropped at its ends.
    pub(crate) fn dropped(&self) -> EndCounters {
        let transports = self.ways.iter().map(|way| match way {
            TransportWay::Here => EndCounters::default(),
            TransportWay::Lane(lane) => lane.counters,
        });
        let store = match &self.store {
            StoreWay::Here(_) => EndCounters::default(),
            StoreWay::Lane(lane) => lane.counters,
        };
        let own = EndCounters {
            unasked: self.component.ignored(),
            ..EndCounters::default()
        };
        transports.fold(store.plus(own), EndCounters::plus)
    }

    /// Takes what came over the lanes. Answers whether there was something.
    pub(crate) fn take_in(&mut self) -> bool {
        let mut taken = self.take_replies();
        // An outcome may be of a predecessor's call: it comes after what that had stored.
        if self.has_begun() {
            taken += self.take_outcomes();
            for program in std::mem::take(&mut self.ended) {
                self.component.detach(program, &mut self.out);
            }
        }
        taken > 0
    }

    fn take_outcomes(&mut self) -> usize {
        let mut taken = 0;
        for (protocol, way) in Protocol::ALL.into_iter().zip(&mut self.ways) {
            let TransportWay::Lane(lane) = way else {
                continue;
            };
            lane.begin();
            for _ in 0..BUDGET {
                let Some(outcome) = lane.take() else { break };
                taken += 1;
                self.component.outcome(protocol, outcome, &mut self.out);
            }
        }
        taken
    }

    fn take_replies(&mut self) -> usize {
        let mut taken = 0;
        if let StoreWay::Lane(lane) = &mut self.store {
            lane.begin();
            for _ in 0..BUDGET {
                let Some(reply) = lane.take() else { break };
                taken += 1;
                match (reply, &mut self.restoring) {
                    (StoreReply::Item(key, value), Some(count)) => {
                        *count = count.wrapping_add(1);
                        self.component.restore(key, value);
                    }
                    // Another end than that of our list: a predecessor's, who took in a part of it.
                    (StoreReply::End(_, all), Some(count)) if *count < all => *count = 0,
                    (StoreReply::End(..), restoring) => {
                        *restoring = None;
                        self.component.resume(&mut self.out);
                    }
                    (StoreReply::Item(..), None) => {}
                }
            }
        }
        taken
    }

    /// Gives on what there is room for: what is to be stored first. Nobody acts on what a successor
    /// wouldn't know. Answers whether all of that is stored.
    pub(crate) fn store_all(&mut self) -> bool {
        match &mut self.store {
            StoreWay::Here(store) => {
                for request in self.out.stored.drain(..) {
                    store.request(request);
                }
            }
            StoreWay::Lane(lane) => {
                while let Some(request) = self.out.stored.front()
                    && lane.send(request).is_ok()
                {
                    self.out.stored.pop_front();
                }
                lane.flush();
            }
        }
        self.out.stored.is_empty()
    }

    /// What was kept in case that a successor has to say the calls of the last turn once more goes, if they all are
    /// on their way. Answers whether there was something.
    pub(crate) fn clear_spent(&mut self) -> bool {
        if !self.has_spent() {
            return false;
        }
        let spent = self.out.spent.drain(..);
        self.out.stored.extend(spent.map(StoreRequest::Remove));
        true
    }

    fn has_spent(&self) -> bool {
        !self.out.spent.is_empty() && self.out.calls.iter().all(VecDeque::is_empty)
    }

    /// Gives on the calls that there is room for.
    pub(crate) fn call_all(&mut self) {
        for (calls, way) in self.out.calls.iter_mut().zip(&mut self.ways) {
            if let TransportWay::Lane(lane) = way {
                while let Some(call) = calls.front()
                    && lane.send(call).is_ok()
                {
                    calls.pop_front();
                }
                lane.flush();
            }
        }
    }

    /// A call for a transport in this process.
    pub(crate) fn take_call_here(&mut self) -> Option<(Protocol, TransportCall)> {
        for protocol in Protocol::ALL {
            let index = protocol.index();
            if let (Some(TransportWay::Here), Some(calls)) =
                (self.ways.get(index), self.out.calls.get_mut(index))
                && let Some(call) = calls.pop_front()
            {
                return Some((protocol, call));
            }
        }
        None
    }
}
