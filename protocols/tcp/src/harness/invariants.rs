use super::Net;
use crate::connection::{Connection, Program};
use crate::demux::Place;
use crate::instance::Socket;
use crate::state::State;
use core::sync::atomic::Ordering::Relaxed;
use skink_messages::Events;
use skink_wire::SeqNum;
use std::collections::HashMap;

impl Net {
    /// What must hold whenever the instance is at rest.
    pub(super) fn check_invariants(&self) {
        let mut uses: HashMap<u16, i32> = HashMap::new();
        for (index, socket) in self.tcp.sockets.iter().enumerate() {
            let slot = index as u32;
            let taken = self.tcp.slots.is_taken(slot);
            assert_eq!(taken, !matches!(socket, Socket::Free), "slot {slot}");
            match socket {
                Socket::Free => {}
                Socket::Fresh(fresh) => {
                    if let Some(local) = fresh.local {
                        assert!(!fresh.resting || self.tcp.demux.rests_on(local));
                        *uses.entry(local.port).or_default() += 1;
                    }
                }
                Socket::Listener(listener) => {
                    *uses.entry(listener.local.port).or_default() += 1;
                    self.check_listener(slot, listener);
                }
                Socket::Connection(connection) => {
                    if connection.holds_port {
                        *uses.entry(connection.tuple.local.port).or_default() += 1;
                    }
                    self.check_connection(slot, connection);
                }
            }
        }
        for event in &self.out.events {
            let region = self.tcp.table().region_of(event.socket.slot);
            assert!(!self.tcp.slots.is_abandoned(region), "told to nobody");
        }
        for entry in self.tcp.time_waits.entries() {
            *uses.entry(entry.tuple.local.port).or_default() += 1;
        }
        for (port, count) in &self.out.uses {
            let expected = uses.get(port).copied().unwrap_or(0);
            assert_eq!(*count, expected, "uses of port {port}");
        }
        for (flow, count) in &self.out.flows {
            let is_there = match self.tcp.demux.flow(flow) {
                Some(Place::Connection(_)) => true,
                Some(Place::TimeWait(index)) => {
                    let entry = self.tcp.time_waits.get(index);
                    entry.is_some_and(|entry| !entry.is_told_by_stamps())
                }
                None => false,
            };
            assert_eq!(*count, i32::from(is_there), "what others hear of {flow:?}");
        }
    }

    fn check_listener(&self, slot: u32, listener: &crate::listener::Listener) {
        let children = self.tcp.sockets.iter().filter_map(|socket| match socket {
            Socket::Connection(child) if child.program() == Program::Awaited(slot) => Some(child),
            _ => None,
        });
        let (half, ready): (Vec<_>, Vec<_>) =
            children.partition(|child| child.state() == State::SynReceived);
        assert_eq!(listener.half_open, half.len(), "half-open children");
        assert_eq!(listener.ready.len(), ready.len(), "queued children");
        assert!(!listener.stall.is_watched() || self.tcp.wheel.is_armed(slot));
    }

    fn check_connection(&self, slot: u32, connection: &Connection) {
        let state = connection.state();
        let abandoned = self
            .tcp
            .slots
            .is_abandoned(self.tcp.table().region_of(slot));
        // Or it waits for who listens next.
        assert!(!abandoned || connection.program() != Program::Attached);
        let record = self.tcp.table().record(slot);
        assert_eq!(record.state.load(Relaxed), state as u8);
        // At rest nothing waits that could go.
        let queued = self.tcp.queue.contains(slot);
        assert!(!queued && !connection.queued, "still queued");
        assert!(!connection.notified, "still to be told");
        assert_eq!(connection.events, Events::empty(), "events kept back");
        let answers = connection.ack_due || connection.repeats_due > 0;
        assert!(!answers || state == State::Closed, "unsent answer");
        if matches!(state, State::Closed | State::TimeWait) {
            return;
        }
        assert!(
            !connection.syn_due && !connection.probe_due,
            "unsent segment"
        );
        let place = self.tcp.demux.flow(&connection.tuple);
        assert_eq!(place, Some(Place::Connection(slot)));
        assert_eq!(self.out.flows.get(&connection.tuple), Some(&1));
        if connection.away {
            return;
        }
        if connection.deadlines.first().is_some() {
            assert!(self.tcp.wheel.is_armed(slot), "no timer runs");
        }
        assert!(connection.snd_una.le(connection.snd_nxt));
        assert!(connection.pipe() <= connection.flight());
        assert!(connection.flight() < 1 << 30);
        if connection.flight() > 0 {
            assert!(
                connection.deadlines.retransmit.is_some(),
                "nothing sends it again"
            );
        }
        // What was refused may be on record too: that does no harm.
        assert!(
            connection.snd_nxt.le(SeqNum(record.snd_max.load(Relaxed))),
            "sent, not on record"
        );
        if !state.is_synchronized() {
            return;
        }
        self.check_rings(slot, connection);
        let due = connection.fin.is_some_and(|fin| connection.snd_nxt.le(fin))
            || connection
                .snd_nxt
                .lt(connection.data_end(&self.tcp.table().send_ring(slot)));
        if due && connection.flight() == 0 {
            assert!(connection.deadlines.first().is_some(), "data is stuck");
        }
    }

    /// The record and the rings are all that an adopter gets.
    fn check_rings(&self, slot: u32, connection: &Connection) {
        let record = self.tcp.table().record(slot);
        let (send, receive) = (
            self.tcp.table().send_ring(slot),
            self.tcp.table().receive_ring(slot),
        );
        if self.spoilt {
            return;
        }
        let head = connection.iss + 1 + send.head() as u32;
        let fin_acknowledged = u32::from(connection.fin_acknowledged());
        assert_eq!(head + fin_acknowledged, connection.snd_una, "send ring");
        let tail = connection.irs + 1 + receive.tail() as u32;
        let fin = connection
            .peer_fin
            .is_some_and(|fin| connection.rcv_nxt.gt(fin));
        assert_eq!(tail + u32::from(fin), connection.rcv_nxt, "receive ring");
        // What the peer was told is on record.
        let told = SeqNum(record.rcv_nxt.load(Relaxed));
        assert!(
            told.ge(connection.last_ack),
            "an acknowledgement isn't on record"
        );
        assert_eq!(SeqNum(record.rcv_adv.load(Relaxed)), connection.rcv_adv);
        let reach = connection.rcv_nxt + receive.free() as u32;
        assert!(connection.rcv_adv.le(reach), "more is offered than fits");
    }
}
