use crate::{Bytes, Ring};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_wire::Endpoint;

/// What stands in front of each datagram in a ring, in bytes.
const HEADER_BYTES: usize = 48;
/// Entries begin at multiples of this.
const ALIGNMENT: usize = 8;

/// What goes with a datagram's payload through a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramHeader {
    /// In a receive ring: who sent it. In a send ring: where to; port 0 stands for the peer that
    /// the socket is connected to.
    pub remote: Endpoint,
    /// In a receive ring: which of our addresses (or group) it was sent to. In a send ring: the
    /// address to send from; the unspecified address leaves the choice to `udp`.
    pub local: IpAddr,
    /// DSCP and ECN bits (RFC 2474, RFC 3168).
    pub traffic_class: u8,
    /// TTL or hop limit; in a send ring, 0 stands for the stack's default.
    pub hop_limit: u8,
    /// In a send ring: if not 0, the payload is several datagrams of this many bytes (the last one
    /// may be shorter), to be cut on the way out (`UDP_SEGMENT`).
    pub segment_bytes: u16,
    /// In a send ring: it is not to be fragmented, here or on the way (`IP_PMTUDISC_DO`).
    pub dont_fragment: bool,
}

impl DatagramHeader {
    /// A datagram to or from `remote` with nothing special about it.
    pub fn new(remote: Endpoint, local: IpAddr) -> DatagramHeader {
        DatagramHeader {
            remote,
            local,
            traffic_class: 0,
            hop_limit: 0,
            segment_bytes: 0,
            dont_fragment: false,
        }
    }

    fn to_bytes(self, payload_bytes: u32) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let (remote_family, remote) = address_bytes(self.remote.addr);
        let (local_family, local) = address_bytes(self.local);
        bytes[0..4].copy_from_slice(&payload_bytes.to_ne_bytes());
        bytes[4] = remote_family;
        bytes[5] = local_family;
        bytes[6] = self.traffic_class;
        bytes[7] = self.hop_limit;
        bytes[8..10].copy_from_slice(&self.remote.port.to_ne_bytes());
        bytes[10..12].copy_from_slice(&self.segment_bytes.to_ne_bytes());
        bytes[12] = self.dont_fragment.into();
        bytes[16..32].copy_from_slice(&remote);
        bytes[32..48].copy_from_slice(&local);
        bytes
    }

    /// The header and the payload's length; `None` if there is an unknown address family.
    fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Option<(DatagramHeader, u32)> {
        let payload_bytes = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let remote = address(bytes[4], bytes[16..32].first_chunk()?)?;
        let header = DatagramHeader {
            remote: Endpoint::new(remote, u16::from_ne_bytes([bytes[8], bytes[9]])),
            local: address(bytes[5], bytes[32..48].first_chunk()?)?,
            traffic_class: bytes[6],
            hop_limit: bytes[7],
            segment_bytes: u16::from_ne_bytes([bytes[10], bytes[11]]),
            dont_fragment: bytes[12] != 0,
        };
        Some((header, payload_bytes))
    }
}

fn address_bytes(address: IpAddr) -> (u8, [u8; 16]) {
    match address {
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            (4, bytes)
        }
        IpAddr::V6(v6) => (6, v6.octets()),
    }
}

fn address(family: u8, bytes: &[u8; 16]) -> Option<IpAddr> {
    match family {
        4 => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
        6 => Some(Ipv6Addr::from(*bytes).into()),
        _ => None,
    }
}

/// Why a datagram wasn't put into a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushError {
    /// Not now: the consumer must take some out first.
    Full,
    /// Never: it is larger than the whole ring.
    TooLarge,
}

/// A datagram of a ring, in place.
#[derive(Clone, Copy)]
pub struct Datagram<'a> {
    /// What goes with the payload.
    pub header: DatagramHeader,
    /// The payload; the second span is empty unless it wraps around the ring's end.
    pub payload: [Bytes<'a>; 2],
}

impl Datagram<'_> {
    /// Bytes of payload.
    pub fn len(&self) -> usize {
        self.payload[0].len() + self.payload[1].len()
    }

    /// Bytes of the ring that it takes, with its header.
    pub fn entry_bytes(&self) -> usize {
        DatagramRing::bytes_for(self.len())
    }

    /// Whether the payload is empty, which is as good a datagram as any (RFC 768).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies as much of the payload as fits; answers how many bytes that was.
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let [first, second] = self.payload;
        let (first, _) = first.split_at(to.len());
        let (front, back) = to.split_at_mut(first.len());
        let (second, _) = second.split_at(back.len());
        first.copy_to(front);
        second.copy_to(back);
        first.len() + second.len()
    }
}

/// A byte ring whose contents are whole datagrams, each a header of 48 bytes and its payload, padded
/// to a multiple of eight.
///
/// A datagram appears with one store of the ring's tail, so the consumer never sees part of one. A
/// consumer believes nothing that it reads: where what should be a header can't be one, the rest of
/// the ring is given up, since nobody can tell where the next header is.
#[derive(Clone, Copy)]
pub struct DatagramRing<'a> {
    ring: Ring<'a>,
}

impl<'a> DatagramRing<'a> {
    /// Looks at `ring` as a ring of datagrams.
    pub fn new(ring: Ring<'a>) -> DatagramRing<'a> {
        DatagramRing { ring }
    }

    /// Bytes of the ring that a datagram with `payload_bytes` of payload takes.
    pub fn bytes_for(payload_bytes: usize) -> usize {
        payload_bytes
            .saturating_add(HEADER_BYTES)
            .checked_next_multiple_of(ALIGNMENT)
            .unwrap_or(usize::MAX)
    }

    /// Producer: the payload bytes of the largest datagram that fits now; `None` if not even an
    /// empty one does.
    pub fn room(&self) -> Option<usize> {
        let free = self.ring.free() / ALIGNMENT * ALIGNMENT;
        free.checked_sub(HEADER_BYTES)
    }

    /// Whether there is no datagram.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Producer: appends a datagram whose payload is `payload`, piece by piece. For the meaning of
    /// `remote` and `local`, see [`DatagramHeader`].
    pub fn push(
        &self,
        remote: Endpoint,
        local: IpAddr,
        traffic_class: u8,
        payload: &[&[u8]],
    ) -> Result<(), PushError> {
        let header = DatagramHeader {
            traffic_class,
            ..DatagramHeader::new(remote, local)
        };
        self.push_with(&header, payload)
    }

    /// Producer: appends a datagram with all that can go with it.
    pub fn push_with(&self, header: &DatagramHeader, payload: &[&[u8]]) -> Result<(), PushError> {
        let payload_bytes = payload
            .iter()
            .fold(0usize, |sum, piece| sum.saturating_add(piece.len()));
        let entry_bytes = Self::bytes_for(payload_bytes);
        let length = u32::try_from(payload_bytes).map_err(|_| PushError::TooLarge)?;
        if entry_bytes > self.ring.capacity() {
            return Err(PushError::TooLarge);
        }
        if entry_bytes > self.ring.free() {
            return Err(PushError::Full);
        }
        let mut at = self.ring.write_ahead(0, &header.to_bytes(length));
        for piece in payload {
            at += self.ring.write_ahead(at, piece);
        }
        self.ring.advance_tail(entry_bytes);
        Ok(())
    }

    /// Consumer: the oldest datagram, which stays in the ring until [`DatagramRing::pop`]. A ring
    /// whose contents aren't datagrams is emptied.
    pub fn peek(&self) -> Option<Datagram<'a>> {
        self.peek_at(0)
    }

    /// Consumer: as [`DatagramRing::peek`], the one that begins `offset` bytes behind the oldest one's beginning, the sum
    /// of [`Datagram::entry_bytes`] of those before. All of a ring is emptied whose contents aren't datagrams there, or
    /// that has less than that.
    pub fn peek_at(&self, offset: usize) -> Option<Datagram<'a>> {
        let filled = self.ring.len();
        if filled == offset {
            return None;
        }
        let available = filled.checked_sub(offset);
        let datagram = available.and_then(|available| self.parse(offset, available));
        if datagram.is_none() {
            self.ring.clear();
        }
        datagram
    }

    /// Size in bytes.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Bytes that datagrams and their headers take.
    pub fn filled(&self) -> usize {
        self.ring.len()
    }

    /// Where the oldest datagram begins, in bytes since the socket was opened.
    pub fn position(&self) -> u64 {
        self.ring.head()
    }

    /// Consumer: drops all datagrams.
    pub fn clear(&self) {
        self.ring.clear();
    }

    fn parse(&self, offset: usize, available: usize) -> Option<Datagram<'a>> {
        if self.ring.is_spoilt() {
            return None;
        }
        let mut bytes = [0; HEADER_BYTES];
        if self.ring.peek(offset, &mut bytes) < HEADER_BYTES {
            return None;
        }
        let (header, length) = DatagramHeader::from_bytes(&bytes)?;
        let length = usize::try_from(length).ok()?;
        if Self::bytes_for(length) > available {
            return None;
        }
        let payload = self.ring.spans(offset + HEADER_BYTES, length);
        // A neighbour may have changed the positions since.
        (payload[0].len() + payload[1].len() == length).then_some(Datagram { header, payload })
    }

    /// Consumer: takes `datagram`, which [`DatagramRing::peek`] has just shown, out of the ring. Its
    /// payload may be overwritten from now on.
    pub fn pop(&self, datagram: &Datagram<'a>) {
        // The length that was checked, not what the ring says by now.
        self.drop_front(datagram.entry_bytes());
    }

    /// Consumer: takes out the oldest datagrams, which take `entry_bytes` together.
    pub fn drop_front(&self, entry_bytes: usize) {
        self.ring.advance_head(entry_bytes);
    }
}

#[cfg(test)]
mod tests;
