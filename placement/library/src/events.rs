use skink_memory::SocketId;
use skink_messages::{Events, Protocol, SocketEvent};
use std::collections::VecDeque;

/// Events on their way to one program: one entry for each socket at most, since events of one
/// socket are merged. So the queue is bounded by the sizes of the program's two regions.
#[derive(Default)]
struct EventQueue {
    order: VecDeque<(Protocol, u32)>,
    tcp: Vec<Pending>,
    udp: Vec<Pending>,
    /// The program is in [`EventQueues::eventful`].
    listed: bool,
}

#[derive(Clone, Copy)]
struct Pending {
    generation: u32,
    events: Events,
}

const NOTHING: Pending = Pending {
    generation: 0,
    events: Events::empty(),
};

impl EventQueue {
    #[inline]
    fn slots(&mut self, protocol: Protocol) -> &mut Vec<Pending> {
        match protocol {
            Protocol::Tcp => &mut self.tcp,
            Protocol::Udp => &mut self.udp,
        }
    }

    /// Adds an event of the socket in `slot` of the region.
    #[inline]
    fn push(&mut self, protocol: Protocol, slot: u32, generation: u32, events: Events) {
        let slots = self.slots(protocol);
        let index = slot as usize;
        if index >= slots.len() {
            slots.resize(index + 1, NOTHING);
        }
        let Some(pending) = slots.get_mut(index) else {
            return;
        };
        let queued = !pending.events.is_empty();
        if pending.generation == generation {
            pending.events |= events;
        } else {
            *pending = Pending { generation, events };
        }
        if !queued && !pending.events.is_empty() {
            self.order.push_back((protocol, slot));
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<(Protocol, u32, Pending)> {
        loop {
            let (protocol, slot) = self.order.pop_front()?;
            let Some(pending) = self.slots(protocol).get_mut(slot as usize) else {
                continue;
            };
            let taken = *pending;
            pending.events = Events::empty();
            if !taken.events.is_empty() {
                return Some((protocol, slot, taken));
            }
        }
    }
}

/// The programs' queues of events, by the index of their regions.
pub struct EventQueues {
    queues: Vec<Option<EventQueue>>,
    /// Programs with events, each once.
    eventful: VecDeque<u32>,
    /// Logarithms of the tables' strides.
    tcp_shift: u32,
    udp_shift: u32,
}

impl EventQueues {
    /// No queues; `tcp_stride` and `udp_stride` are powers of two.
    pub fn new(tcp_stride: u32, udp_stride: u32) -> EventQueues {
        EventQueues {
            queues: Vec::new(),
            eventful: VecDeque::new(),
            tcp_shift: tcp_stride.trailing_zeros().min(31),
            udp_shift: udp_stride.trailing_zeros().min(31),
        }
    }

    /// A program comes.
    pub fn add(&mut self, program: u32) {
        let index = program as usize;
        if index >= self.queues.len() {
            self.queues.resize_with(index + 1, || None);
        }
        if let Some(place) = self.queues.get_mut(index) {
            *place = Some(EventQueue::default());
        }
    }

    /// A program is gone: nothing is kept for it any more.
    pub fn remove(&mut self, program: u32) {
        if let Some(place) = self.queues.get_mut(program as usize) {
            *place = None;
        }
        self.eventful.retain(|other| *other != program);
    }

    #[inline]
    fn shift(&self, protocol: Protocol) -> u32 {
        match protocol {
            Protocol::Tcp => self.tcp_shift,
            Protocol::Udp => self.udp_shift,
        }
    }

    /// Adds an event. What an earlier socket in the same slot had to say is forgotten.
    #[inline]
    pub fn push(&mut self, protocol: Protocol, event: SocketEvent) {
        let shift = self.shift(protocol);
        let SocketId { slot, generation } = event.socket;
        let program = slot >> shift;
        let Some(Some(queue)) = self.queues.get_mut(program as usize) else {
            return;
        };
        queue.push(
            protocol,
            slot & ((1 << shift) - 1),
            generation,
            event.events,
        );
        if !queue.listed {
            queue.listed = true;
            self.eventful.push_back(program);
        }
    }

    /// Takes the event that has waited longest for this program.
    #[inline]
    pub fn pop(&mut self, program: u32) -> Option<(Protocol, SocketEvent)> {
        let queue = self.queues.get_mut(program as usize)?.as_mut()?;
        let (protocol, slot, Pending { generation, events }) = queue.pop()?;
        let slot = program << self.shift(protocol) | slot;
        let socket = SocketId { slot, generation };
        Some((protocol, SocketEvent { socket, events }))
    }

    /// Takes a program that has got events since it was last taken.
    pub fn take_eventful(&mut self) -> Option<u32> {
        let program = self.eventful.pop_front()?;
        if let Some(Some(queue)) = self.queues.get_mut(program as usize) {
            queue.listed = false;
        }
        Some(program)
    }
}

#[cfg(test)]
mod tests;
