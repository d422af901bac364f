//! ICMP errors arrive.

use crate::connection::{Connection, Context};
use crate::demux::Place;
use crate::instance::{Socket, Tcp};
use crate::state::State;
use core::net::IpAddr;
use skink_messages::{Counter, ErrorKind, Network, NetworkError, Ports, SocketError, SocketEvents};
use skink_time::Instant;
use skink_wire::{FourTuple, SeqNum, ipv4, ipv6};

impl Tcp {
    /// An ICMP error about a segment of ours (RFC 5461, RFC 5927, RFC 8201).
    pub(crate) fn on_error<O: Network + SocketEvents + Ports>(
        &mut self,
        now: Instant,
        error: &NetworkError,
        out: &mut O,
    ) {
        let tuple = FourTuple::new(error.local, error.remote);
        let context = Context {
            table: &self.table,
            memory: &self.memory,
            counters: &self.counters,
            now,
        };
        let slot = match self.demux.flow(&tuple) {
            Some(Place::Connection(slot)) => slot,
            Some(Place::TimeWait(_)) | None => {
                return self.counters.count(Counter::TcpDropBadError);
            }
        };
        let Some(Socket::Connection(connection)) = self.sockets.get_mut(slot as usize) else {
            return;
        };
        let quoted = SeqNum(error.sequence);
        if quoted.lt(connection.snd_una) || quoted.ge(connection.snd_nxt) {
            return self.counters.count(Counter::TcpDropBadError);
        }
        let opening = connection.state() == State::SynSent;
        let failure = match error.kind {
            ErrorKind::PacketTooBig { mtu } => {
                // Before this: the route may not know it yet.
                connection.follow_raises(out);
                connection.shrink_path(mtu);
                return self.enqueue(slot);
            }
            ErrorKind::PortUnreachable | ErrorKind::ProtocolUnreachable => SocketError::Refused,
            ErrorKind::HostUnreachable | ErrorKind::TimeExceeded => SocketError::HostUnreachable,
            ErrorKind::Prohibited => SocketError::Prohibited,
        };
        // RFC 5461: only a connection that doesn't stand yet takes it as final.
        if opening {
            connection.fail(failure, &context);
            self.end(now, slot, out);
        }
    }
}

impl Connection {
    /// The path takes smaller packets than was thought: cut again what is in flight.
    fn shrink_path(&mut self, mtu: u32) {
        let least = match self.tuple.local.addr {
            IpAddr::V4(_) => ipv4::MINIMUM_PATH_MTU,
            IpAddr::V6(_) => ipv6::MINIMUM_MTU as u32,
        };
        let mtu = mtu.max(least);
        if mtu < self.path_mtu {
            self.path_mtu = mtu;
            self.update_segment_sizes();
            self.receive_mss = self.receive_mss.min(self.mss);
            self.resend_all();
        }
    }
}
