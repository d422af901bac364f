//! From the wire to a receive ring.

use crate::socket::is_for_many;
use crate::{Udp, socket::Socket};
use skink_memory::{DatagramHeader, DatagramRing};
use skink_messages::{
    Counter, ErrorKind, Events, Network, NetworkError, RxChecksum, RxPacket, SocketError,
};
use skink_wire::{Endpoint, FourTuple, udp};
use std::sync::atomic::Ordering;

impl Udp {
    /// Takes one packet.
    #[inline(always)]
    pub(crate) fn receive<Out>(&mut self, packet: &RxPacket<'_>, out: &Out)
    where
        Out: Network + ?Sized,
    {
        self.unreachable = false;
        let (header, payload) = match udp::Header::parse(packet.payload) {
            Ok(parsed) => parsed,
            Err(_) => return self.counters.count(Counter::UdpDropMalformed),
        };
        if !checksum_is_good(packet, &header) {
            return self.counters.count(Counter::UdpDropChecksum);
        }
        let local = Endpoint::new(packet.destination, header.destination_port);
        let remote = Endpoint::new(packet.source, header.source_port);
        let tuple = FourTuple::new(local, remote);
        if is_for_many(local.addr, out) {
            self.deliver_to_many(&tuple, packet, payload);
        } else if let Some(slot) = self.demux.find(&tuple) {
            self.deliver(slot, &tuple, packet, payload);
        } else {
            self.counters.count(Counter::UdpDropNoSocket);
            self.unreachable = true;
        }
    }

    /// A datagram to a group or to all. Nobody is told if it had no listener (RFC 1122 3.2.2).
    #[inline(never)]
    fn deliver_to_many(&mut self, tuple: &FourTuple, packet: &RxPacket<'_>, payload: &[u8]) {
        let mut index = 0;
        while let Some(slot) = self.demux.nth_of_many(tuple, index) {
            self.deliver(slot, tuple, packet, payload);
            index += 1;
        }
        if index == 0 {
            self.counters.count(Counter::UdpDropNoSocket);
        }
    }

    /// Puts a datagram, or the several that a NIC had joined, into a socket's ring.
    #[inline(never)]
    fn deliver(&mut self, slot: u32, tuple: &FourTuple, packet: &RxPacket<'_>, payload: &[u8]) {
        let header = DatagramHeader {
            dont_fragment: false,
            remote: tuple.remote,
            local: tuple.local.addr,
            traffic_class: packet.traffic_class,
            hop_limit: packet.hop_limit,
            segment_bytes: 0,
        };
        let each = match usize::from(packet.segment_bytes) {
            0 => payload.len(),
            each => each,
        };
        let mut rest = payload;
        let mut readable = false;
        loop {
            let (datagram, after) = rest.split_at(each.min(rest.len()));
            let ring = DatagramRing::new(self.table.receive_ring(slot));
            match ring.push_with(&header, &[datagram]) {
                Ok(()) => {
                    readable = true;
                    self.counters.count(Counter::UdpIn);
                }
                Err(_) => self.counters.count(Counter::UdpDropBufferFull),
            }
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        if readable {
            self.note(slot, Events::READABLE);
        }
    }

    /// Takes an ICMP error about a datagram of ours: a connected socket is told.
    ///
    /// As in Linux, only errors that won't go away by themselves are reported: an unreachable host
    /// may be reachable again for the next datagram, and `ip` sees to the path's MTU.
    pub(crate) fn on_error(&mut self, error: &NetworkError) {
        let failure = match error.kind {
            ErrorKind::PortUnreachable | ErrorKind::ProtocolUnreachable => SocketError::Refused,
            ErrorKind::Prohibited => SocketError::Prohibited,
            ErrorKind::HostUnreachable
            | ErrorKind::PacketTooBig { .. }
            | ErrorKind::TimeExceeded => return,
        };
        let tuple = FourTuple::new(error.local, error.remote);
        let mut index = 0;
        while let Some(&slot) = self.demux.connected(&tuple).get(index) {
            self.fail(slot, failure);
            index += 1;
        }
    }

    /// Tells the program that something it did earlier failed.
    pub(crate) fn fail(&mut self, slot: u32, failure: SocketError) {
        if let Some(Socket { closing: false, .. }) = self.socket(slot) {
            let record = self.table.record(slot);
            record.error.store(failure as u32, Ordering::Release);
            self.note(slot, Events::ERROR);
        }
    }
}

/// A checksum of zero means that the sender made none, which IPv6 forbids (RFC 8200 8.1).
fn checksum_is_good(packet: &RxPacket<'_>, header: &udp::Header) -> bool {
    if header.checksum == 0 {
        return packet.source.is_ipv4();
    }
    packet.checksum == RxChecksum::Verified
        || udp::checksum_is_valid(packet.source, packet.destination, packet.payload)
}
