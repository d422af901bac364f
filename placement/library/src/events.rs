use crate::Protocol;
use skink_memory::SocketId;
use skink_messages::{Events, SocketEvent};
use std::collections::VecDeque;

/// Events on their way to the socket library: one entry for each socket at most, since events of one
/// socket are merged. So the queue is bounded by the sizes of the two tables.
pub(crate) struct EventQueue {
    order: VecDeque<(Protocol, u32)>,
    tcp: Box<[Pending]>,
    udp: Box<[Pending]>,
}

#[derive(Clone, Copy)]
struct Pending {
    generation: u32,
    events: Events,
}

impl EventQueue {
    /// A queue for tables of so many slots.
    pub(crate) fn new(tcp_slots: u32, udp_slots: u32) -> EventQueue {
        let none = Pending {
            generation: 0,
            events: Events::empty(),
        };
        EventQueue {
            order: VecDeque::new(),
            tcp: vec![none; tcp_slots as usize].into_boxed_slice(),
            udp: vec![none; udp_slots as usize].into_boxed_slice(),
        }
    }

    fn pending(&mut self, protocol: Protocol, slot: u32) -> Option<&mut Pending> {
        let slots = match protocol {
            Protocol::Tcp => &mut self.tcp,
            Protocol::Udp => &mut self.udp,
        };
        slots.get_mut(slot as usize)
    }

    /// Adds an event. What an earlier socket in the same slot had to say is forgotten.
    #[inline]
    pub(crate) fn push(&mut self, protocol: Protocol, event: SocketEvent) {
        let SocketId { slot, generation } = event.socket;
        let Some(pending) = self.pending(protocol, slot) else {
            return;
        };
        let queued = !pending.events.is_empty();
        if pending.generation == generation {
            pending.events |= event.events;
        } else {
            *pending = Pending {
                generation,
                events: event.events,
            };
        }
        let empty = pending.events.is_empty();
        if !queued && !empty {
            self.order.push_back((protocol, slot));
        }
    }

    /// Takes the event that has waited longest.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Protocol, SocketEvent)> {
        loop {
            let (protocol, slot) = self.order.pop_front()?;
            let Some(pending) = self.pending(protocol, slot) else {
                continue;
            };
            let events = std::mem::replace(&mut pending.events, Events::empty());
            let generation = pending.generation;
            if !events.is_empty() {
                let socket = SocketId { slot, generation };
                return Some((protocol, SocketEvent { socket, events }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
