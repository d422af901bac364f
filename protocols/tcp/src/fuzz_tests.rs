//! Random peers, programs and clocks, from seeds: whatever they do, nothing panics, the invariants of
//! the harness hold after each step, payload is never changed, and in the end nothing is left over.

use crate::demux::Place;
use crate::harness::{LOCAL, Net, REMOTE, REUSE, SHARED, pattern};
use crate::instance::Socket;
use crate::state::State;
use core::time::Duration;
use skink_memory::SocketId;
use skink_messages::{ConnectionOption, ErrorKind, Shutdown, TcpRequest};
use skink_wire::tcp::{self, Flags, Header, Options, Timestamps};
use skink_wire::{Endpoint, FourTuple, SeqNum};

struct Fuzz {
    net: Net,
    random: u64,
    sockets: Vec<SocketId>,
    /// Payload and ring positions are left alone, and so can be compared.
    honest: bool,
}

#[test]
fn random_segments_and_requests_do_no_harm() {
    for seed in 0..300 {
        // A panic names the seed.
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}

fn run(seed: u64) {
    let mut fuzz = Fuzz::new(seed);
    for _ in 0..200 {
        fuzz.step();
    }
    // All programs leave; whatever peers do, all ends by itself.
    for id in core::mem::take(&mut fuzz.sockets) {
        fuzz.net.request(TcpRequest::Close(id));
    }
    fuzz.net.out.refuse_every = 0;
    fuzz.net.advance_by(Duration::from_secs(4_000));
    let left = fuzz
        .net
        .tcp
        .sockets
        .iter()
        .filter(|socket| !matches!(socket, Socket::Free));
    assert_eq!(left.count(), 0, "sockets are left over");
    for region in 1..4 {
        fuzz.net.abandon(region);
    }
    while fuzz.net.tcp.take_finished_region().is_some() {}
    assert_eq!(
        fuzz.net.tcp.table().regions().count(),
        1,
        "regions are left over"
    );
    assert!(
        fuzz.net.out.uses.values().all(|uses| *uses == 0),
        "ports are left over"
    );
    assert!(fuzz.net.out.listened.values().all(|count| *count == 0));
}

impl Fuzz {
    fn new(seed: u64) -> Fuzz {
        let sizes = [4_096u32, 8_192, 65_536, 1 << 20];
        let mut fuzz = Fuzz {
            net: Net::with_rings(sizes[seed as usize % 4], sizes[seed as usize / 4 % 4]),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1,
            sockets: Vec::new(),
            honest: !seed.is_multiple_of(3),
        };
        fuzz.net.spoilt = !fuzz.honest;
        fuzz.net.out.refuse_every = [0, 2, 3, 0, 7][seed as usize % 5];
        if seed.is_multiple_of(2) {
            fuzz.net.out.path.cut_bytes = 65_535;
        }
        for sockets in [4, 8, 64] {
            fuzz.net.add_region(sockets);
        }
        let listener = fuzz.net.listen_in(0, 80, 3, SHARED);
        fuzz.sockets.push(listener);
        fuzz
    }

    fn below(&mut self, bound: u32) -> u32 {
        // SplitMix64 (Steele, Lea and Flood, 2014).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 16) as u32 % bound.max(1)
    }

    fn step(&mut self) {
        match self.below(20) {
            0..10 => self.segment(),
            10 => self.noise(),
            11..13 => self.program_writes(),
            13..15 => self.program_reads(),
            15 => self.program_asks(),
            16 => self.program_opens(),
            17 => {
                let longest = [1, 50, 500, 5_000, 100_000][self.below(5) as usize];
                let time = self.below(longest);
                self.net.advance(u64::from(time));
            }
            18 => self.icmp(),
            _ if !self.honest && self.below(2) == 0 => self.spoil(),
            _ => self.programs_change(),
        }
        self.net.drain();
        self.net.out.events.clear();
    }

    fn any_socket(&mut self) -> Option<SocketId> {
        let index = self.below(self.sockets.len() as u32) as usize;
        self.sockets.get(index).copied()
    }

    /// A connection, however it stands, or none.
    fn any_connection(&mut self) -> Option<u32> {
        let slots: Vec<u32> = (0..self.net.tcp.sockets.len() as u32)
            .filter(|slot| matches!(self.net.tcp.sockets[*slot as usize], Socket::Connection(_)))
            .collect();
        let index = self.below(slots.len() as u32) as usize;
        slots.get(index).copied()
    }

    /// Numbers that a peer might use now: mostly right ones, and some beside.
    fn near(&mut self, at: SeqNum, reach: u32) -> SeqNum {
        match self.below(8) {
            0..4 => at,
            4 => at + self.below(reach.max(1)),
            5 => at - self.below(3_000),
            6 => at + self.below(3),
            _ => SeqNum(self.below(u32::MAX)),
        }
    }

    /// The peer's initial number in the connection that a segment will find, whichever it was made for.
    fn peer_isn(&self, tuple: &FourTuple) -> Option<SeqNum> {
        let Some(Place::Connection(slot)) = self.net.tcp.demux.flow(tuple) else {
            return None;
        };
        match &self.net.tcp.sockets[slot as usize] {
            Socket::Connection(connection) => Some(connection.irs),
            Socket::Free | Socket::Fresh(_) | Socket::Listener(_) => None,
        }
    }

    fn segment(&mut self) {
        let slot = self.any_connection();
        let known = slot.and_then(|slot| match &self.net.tcp.sockets[slot as usize] {
            Socket::Connection(connection) => Some((
                connection.tuple,
                connection.irs,
                connection.rcv_nxt,
                connection.snd_una,
                connection.flight(),
                connection.timestamps.then_some(connection.ts_recent),
                connection.state(),
            )),
            _ => None,
        });
        let fresh = FourTuple::new(
            Endpoint::new(LOCAL, 80),
            Endpoint::new(REMOTE, 1 + self.below(6) as u16),
        );
        let nothing = (
            fresh,
            SeqNum(0),
            SeqNum(0),
            SeqNum(0),
            0,
            None,
            State::Closed,
        );
        let new_flow = self.below(10) == 0;
        let (tuple, irs, rcv_nxt, snd_una, flight, recent, state) =
            known.filter(|_| !new_flow).unwrap_or(nothing);
        let opening = state == State::SynSent || state == State::Closed;
        let flags = match self.below(24) {
            0 => Flags::ACK | Flags::FIN,
            1 => Flags::RST,
            2 => Flags::SYN,
            3 => Flags::from_bits(self.below(512) as u16),
            4 => Flags::ACK | Flags::SYN,
            _ if state == State::SynSent => Flags::SYN | Flags::ACK,
            _ if opening => Flags::SYN,
            _ => Flags::ACK,
        };
        let seq = self.near(rcv_nxt, 70_000);
        let ack = match self.below(6) {
            0 => self.near(snd_una, flight + 2),
            1 => snd_una,
            _ => {
                snd_una
                    + self
                        .below(flight + 1)
                        .max(u32::from(state == State::SynSent))
            }
        };
        let length = [0, 0, 1, 500, 1_460, 3_000][self.below(6) as usize];
        let irs = self.peer_isn(&tuple).unwrap_or(irs);
        let first = irs.distance_to(seq).wrapping_sub(1);
        let payload: Vec<u8> = (0..length)
            .map(|at| pattern(first.wrapping_add(at)))
            .collect();
        let header = Header {
            source_port: tuple.remote.port,
            destination_port: tuple.local.port,
            seq,
            ack,
            flags,
            window: [0, 1, 500, 5_000, 65_535][self.below(5) as usize],
            urgent: self.below(100) as u16,
            header_len: 0,
        };
        let options = self.options(flags, recent, snd_una, flight);
        let mut bytes = vec![0; tcp::emitted_len(&options)];
        assert!(tcp::emit(&header, &options, &mut bytes) > 0);
        bytes.extend(payload);
        tcp::set_checksum(tuple.remote.addr, tuple.local.addr, &mut bytes);
        self.net
            .inject_between(tuple.remote.addr, tuple.local.addr, &bytes);
    }

    fn options(&mut self, flags: Flags, recent: Option<u32>, una: SeqNum, flight: u32) -> Options {
        let mut options = Options::default();
        if flags.contains(Flags::SYN) || self.below(20) == 0 {
            options.mss =
                [None, Some(0), Some(536), Some(1_460), Some(65_535)][self.below(5) as usize];
            options.window_scale = [None, Some(0), Some(7), Some(255)][self.below(4) as usize];
            options.sack_permitted = self.below(2) == 0;
        }
        let stamps = recent.is_some() && self.below(20) > 0;
        if stamps || flags.contains(Flags::SYN) && self.below(2) == 0 {
            options.timestamps = Some(Timestamps {
                value: recent
                    .unwrap_or(0)
                    .wrapping_add(self.below(20))
                    .wrapping_sub(self.below(3)),
                echo: self.below(u32::MAX),
            });
        }
        if self.below(3) == 0 {
            for _ in 0..self.below(5) {
                let within = self.below(flight + 1);
                let start = self.near(una + within, flight + 2);
                let end = start + self.below(5_000);
                options.sack.push(start, end);
            }
        }
        options
    }

    /// Bytes of which only some make sense.
    fn noise(&mut self) {
        let length = self.below(80) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| self.below(256) as u8).collect();
        if length >= 20 {
            bytes[2..4].copy_from_slice(&80u16.to_be_bytes());
            tcp::set_checksum(REMOTE, LOCAL, &mut bytes);
        }
        self.net.inject_bytes(&bytes);
    }

    fn program_writes(&mut self) {
        let Some(id) = self.any_socket().filter(|id| self.net.exists(*id)) else {
            return;
        };
        let count = [1, 100, 1_460, 20_000][self.below(4) as usize];
        let ring = self.net.tcp.table().send_ring(id.slot);
        let at = ring.tail() as u32;
        let bytes: Vec<u8> = (at..at.wrapping_add(count)).map(pattern).collect();
        ring.write(&bytes);
        self.net.request(TcpRequest::Sent(id));
    }

    fn program_reads(&mut self) {
        let Some(id) = self.any_socket().filter(|id| self.net.exists(*id)) else {
            return;
        };
        let mut bytes = vec![0; self.below(20_000) as usize];
        let ring = self.net.tcp.table().receive_ring(id.slot);
        let at = ring.head() as u32;
        let taken = ring.read(&mut bytes);
        for (index, byte) in bytes.iter().take(taken).enumerate().filter(|_| self.honest) {
            assert_eq!(
                *byte,
                pattern(at.wrapping_add(index as u32)),
                "byte {at} + {index}"
            );
        }
        self.net.request(TcpRequest::Received(id));
    }

    fn program_asks(&mut self) {
        let Some(id) = self.any_socket() else { return };
        let value = [0, 1, 3, 5_000, 100_000][self.below(5) as usize];
        let on = self.below(2) == 0;
        let request = match self.below(16) {
            0 => TcpRequest::Close(id),
            1 => TcpRequest::Shutdown(id, Shutdown::Write),
            2 => TcpRequest::Shutdown(id, Shutdown::Both),
            3 => TcpRequest::Shutdown(id, Shutdown::Read),
            4 => TcpRequest::SetOption(id, ConnectionOption::NoDelay(on)),
            5 => TcpRequest::SetOption(id, ConnectionOption::Cork(on)),
            6 => TcpRequest::SetOption(id, ConnectionOption::QuickAck(on)),
            7 => TcpRequest::SetOption(id, ConnectionOption::KeepAlive(on)),
            8 => TcpRequest::SetOption(id, ConnectionOption::KeepAliveIdle(value)),
            9 => TcpRequest::SetOption(id, ConnectionOption::KeepAliveInterval(value)),
            10 => TcpRequest::SetOption(id, ConnectionOption::KeepAliveProbes(value)),
            11 => TcpRequest::SetOption(id, ConnectionOption::UserTimeout(value)),
            12 => TcpRequest::SetOption(id, ConnectionOption::MaximumSegment(value as u16)),
            13 => TcpRequest::SetOption(id, ConnectionOption::ReceiveBuffer(value)),
            14 => TcpRequest::SetOption(id, ConnectionOption::ResetOnClose(on)),
            _ => TcpRequest::SetOption(id, ConnectionOption::Reserve(on)),
        };
        self.net.request(request);
    }

    fn program_opens(&mut self) {
        match self.below(4) {
            0 => {
                let Some(listener) = self.any_socket() else {
                    return;
                };
                self.sockets.extend(self.net.tcp.accept(listener));
            }
            1 if self.below(2) == 0 => self.program_listens(),
            2 => {
                let region = self.below(4);
                let Ok(id) = self.net.tcp.open_in(region) else {
                    return;
                };
                self.sockets.push(id);
                let end = Endpoint::new(REMOTE, 1 + self.below(6) as u16);
                let _ = self
                    .net
                    .tcp
                    .connect(self.net.now, id, end, &mut self.net.out);
            }
            _ => {
                let listener = self.sockets[0];
                self.sockets.extend(self.net.tcp.accept(listener));
            }
        }
        self.net.run();
    }

    /// One more listener, in any region, on an end that it may be able to share; or a socket that rests.
    fn program_listens(&mut self) {
        let region = self.below(4);
        let Ok(id) = self.net.tcp.open_in(region) else {
            return;
        };
        self.sockets.push(id);
        let end = Endpoint::new(core::net::Ipv4Addr::UNSPECIFIED.into(), 80);
        let sharing = [SHARED, SHARED, REUSE][self.below(3) as usize];
        let _ = self.net.tcp.bind(id, end, sharing, &mut self.net.out);
        if self.below(3) == 0 {
            let _ = self.net.tcp.rest(id, true);
        } else {
            let _ = self.net.tcp.listen(id, 3, &mut self.net.out);
        }
    }

    /// A program dies, one of an earlier one is forgotten, and another comes.
    fn programs_change(&mut self) {
        // What programs say of their waiting needn't be true.
        for slot in 0..self.net.tcp.sockets.len() as u32 {
            if let Socket::Listener(listener) = &self.net.tcp.sockets[slot as usize] {
                let id = listener.id;
                let waits = self.below(2) == 0;
                self.net.tcp.table().set_waiting(id, waits);
            }
        }
        if self.below(4) == 0 {
            let region = 1 + self.below(3);
            self.net.abandon(region);
        }
        if self.net.tcp.take_finished_region().is_some() {
            self.net.add_region(8);
        }
    }

    fn icmp(&mut self) {
        let Some(slot) = self.any_connection() else {
            return;
        };
        let Socket::Connection(connection) = &self.net.tcp.sockets[slot as usize] else {
            return;
        };
        let (tuple, una) = (connection.tuple, connection.snd_una);
        let mtu = [0, 500, 1_000, 1_400][self.below(4) as usize];
        let kinds = [
            ErrorKind::PacketTooBig { mtu },
            ErrorKind::PortUnreachable,
            ErrorKind::TimeExceeded,
        ];
        let kind = kinds[self.below(3) as usize];
        let sequence = self.near(una, 1).0;
        self.net.icmp_about(kind, &tuple, sequence);
        self.net.run();
    }

    /// A program writes nonsense to the ends of its rings.
    fn spoil(&mut self) {
        let Some(id) = self.any_socket().filter(|id| self.net.exists(*id)) else {
            return;
        };
        let amount = [1, 5_000, 1 << 31, (1 << 40) + 3, u64::MAX][self.below(5) as usize] as usize;
        let table = self.net.tcp.table();
        match self.random % 3 {
            0 => table.send_ring(id.slot).advance_tail(amount),
            1 => table.receive_ring(id.slot).advance_head(amount),
            _ => self.net.store_receive_head(id, amount as u64),
        }
        self.net.request(TcpRequest::Sent(id));
        self.net.request(TcpRequest::Received(id));
    }
}
