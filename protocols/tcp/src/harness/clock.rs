//! Turns the clock, and looks at what came out.

use super::script::Pattern;
use super::{Net, Out, Sent, pattern};
use crate::connection::{Connection, Deadlines};
use crate::instance::Socket;
use crate::state::State;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use skink_memory::SocketId;
use skink_messages::{Component, Counter, Events, Progress};
use skink_wire::tcp::Flags;

impl Net {
    // Time.

    /// Polls until there is nothing left to do.
    pub fn run(&mut self) {
        for _ in 0..100_000 {
            let progress = self.tcp.poll(self.now, &mut self.out);
            self.note_sent();
            if progress == Progress::Idle {
                self.check_invariants();
                return;
            }
        }
        panic!("the instance never comes to rest");
    }

    /// Lets so much time pass, with a wake-up at each deadline.
    pub fn advance(&mut self, milliseconds: u64) {
        self.advance_by(Duration::from_millis(milliseconds));
    }

    pub fn advance_by(&mut self, time: Duration) {
        let until = self.now + time;
        // Some wake-ups are for nothing (a keepalive that data has put off), but no timer spins.
        let limit = 100 + 4 * time.as_secs();
        let mut idle = 0;
        while let Some(deadline) = Component::<Out>::next_deadline(&self.tcp) {
            if deadline > until {
                break;
            }
            let before = self.out.sent.len();
            self.now = self.now.max(deadline);
            self.run();
            idle += u64::from(self.out.sent.len() == before);
            assert!(
                idle < limit,
                "timers fire again and again, for nothing: {:?}",
                self.timers()
            );
        }
        self.now = until;
        self.run();
    }

    fn timers(&self) -> Vec<(State, Deadlines)> {
        let sockets = self.tcp.sockets.iter().filter_map(|socket| match socket {
            Socket::Connection(connection) => Some((connection.state(), connection.deadlines)),
            Socket::Free | Socket::Fresh(_) | Socket::Listener(_) => None,
        });
        sockets.collect()
    }

    // What came out.

    /// Learns initial numbers from what is sent, and compares all payload.
    fn note_sent(&mut self) {
        let known = self.out.noted;
        for sent in self.out.sent.iter_mut().skip(known) {
            let key = (sent.header.source_port, sent.header.destination_port);
            let flow = self.flows.entry(key).or_default();
            if sent.header.flags.contains(Flags::SYN) {
                if flow.iss != sent.header.seq {
                    flow.written = 0;
                }
                flow.iss = sent.header.seq;
            }
            if let Some(stamp) = sent.options.timestamps {
                flow.stamp = stamp.value;
            }
            (sent.iss, sent.irs) = (flow.iss, flow.irs);
            let first = flow.iss.distance_to(sent.header.seq).wrapping_sub(1);
            for (index, byte) in sent.payload.iter().enumerate().filter(|_| !self.spoilt) {
                let position = first.wrapping_add(index as u32);
                assert_eq!(*byte, pattern(position), "sent byte {position}");
            }
        }
        self.out.noted = self.out.sent.len();
    }

    /// The next segment that was sent.
    pub fn next(&mut self) -> Option<Sent> {
        let sent = self.out.sent.pop_front()?;
        self.out.noted -= 1;
        Some(sent)
    }

    /// Takes the next segment, and compares it with a pattern such as `. 1:1001 ack 1`. A window or
    /// options (but for SACK) need match only if the pattern names them.
    #[track_caller]
    pub fn expect(&mut self, text: &str) -> Sent {
        let Some(sent) = self.next() else {
            panic!("nothing was sent; expected {text}");
        };
        if let Err(why) = Pattern::parse(text).matches(&sent) {
            panic!("sent {sent}; expected {text} ({why})");
        }
        sent
    }

    #[track_caller]
    pub fn expect_all(&mut self, texts: &[&str]) {
        for text in texts {
            self.expect(text);
        }
    }

    #[track_caller]
    pub fn expect_nothing(&mut self) {
        if let Some(sent) = self.next() {
            panic!("sent {sent}; expected nothing");
        }
    }

    /// Lets time pass until something is sent, and compares: after so many milliseconds (and at most
    /// three more, which timers may be late), and with a pattern.
    #[track_caller]
    pub fn expect_after(&mut self, milliseconds: u64, text: &str) {
        self.expect_nothing();
        let start = self.now;
        let wait = Duration::from_millis(milliseconds);
        let late = wait + Duration::from_millis(3);
        while self.out.sent.is_empty() {
            let next = Component::<Out>::next_deadline(&self.tcp);
            let Some(next) = next.filter(|next| next.since(start) <= late) else {
                panic!("nothing was sent after {milliseconds} ms; expected {text}");
            };
            self.now = self.now.max(next);
            self.run();
        }
        let elapsed = self.now.since(start);
        assert!(elapsed >= wait, "{text} after {elapsed:?}, not {wait:?}");
        self.expect(text);
    }

    /// Forgets what was sent; answers how many payload bytes that were.
    pub fn drain(&mut self) -> u32 {
        core::iter::from_fn(|| self.next())
            .map(|sent| sent.payload.len() as u32)
            .sum()
    }

    /// The events of a socket since the last call.
    pub fn events(&mut self, id: SocketId) -> Events {
        let mut all = Events::empty();
        self.out.events.retain(|event| {
            if event.socket == id {
                all |= event.events;
            }
            event.socket != id
        });
        all
    }

    /// As if so many bytes more had been sent and acknowledged: for what happens after gigabytes.
    /// Nothing may be in flight.
    pub fn shift_sent(&mut self, id: SocketId, bytes: u32) {
        let key = self.key_of(id);
        let mut left = bytes;
        while left > 0 {
            let table = self.tcp.table().clone();
            let ring = table.send_ring(id.slot);
            let step = left.min(ring.size() as u32);
            left -= step;
            ring.advance_tail(step as usize);
            if let Some(flow) = self.flows.get_mut(&key) {
                flow.written = flow.written.wrapping_add(step);
            }
            let Some(Socket::Connection(connection)) = self.tcp.socket_mut(id) else {
                panic!("no connection");
            };
            connection.snd_nxt += step;
            let sent = connection.iss.distance_to(connection.snd_nxt);
            let record = table.record(id.slot);
            record.snd_max.store(connection.snd_nxt.0, Relaxed);
            self.inject(&format!(". 1 ack {sent} win 10000"));
        }
    }

    pub fn state(&self, id: SocketId) -> State {
        match self.tcp.socket(id) {
            Some(Socket::Connection(connection)) => connection.state(),
            Some(Socket::Listener(_)) => State::Listen,
            Some(Socket::Fresh(_) | Socket::Free) | None => State::Closed,
        }
    }

    /// Whether the socket's slot is still taken by it.
    pub fn exists(&self, id: SocketId) -> bool {
        self.tcp.table().find(id).is_some()
    }

    pub fn connection(&self, id: SocketId) -> &Connection {
        match self.tcp.socket(id) {
            Some(Socket::Connection(connection)) => connection,
            _ => panic!("no connection"),
        }
    }

    pub fn error(&self, id: SocketId) -> u32 {
        let record = self.tcp.table().record(id.slot);
        record.error.load(Relaxed)
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }
}
