use skink_memory::Bytes;
use skink_messages::{Counter, RxChecksum, RxPacket, TxPacket};
use skink_time::Instant;
use skink_wire::tcp::{self, CHECKSUM_OFFSET, Flags, Header, Options};
use skink_wire::{Endpoint, FourTuple, SeqNum};

/// An inbound segment whose header and checksum are in order.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The ends as seen from here.
    pub tuple: FourTuple,
    pub arrived: Instant,
    pub header: Header,
    pub options: Options,
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Checks and splits a packet; otherwise tells what to count.
    #[inline]
    pub fn parse(packet: &RxPacket<'a>) -> Result<Segment<'a>, Counter> {
        let (header, options, payload) =
            tcp::parse(packet.payload).map_err(|_| Counter::TcpDropMalformed)?;
        if packet.checksum == RxChecksum::Unverified
            && !tcp::checksum_is_valid(packet.source, packet.destination, packet.payload)
        {
            return Err(Counter::TcpDropChecksum);
        }
        if header.source_port == 0 || header.destination_port == 0 {
            return Err(Counter::TcpDropMalformed);
        }
        let local = Endpoint::new(packet.destination, header.destination_port);
        let remote = Endpoint::new(packet.source, header.source_port);
        Ok(Segment {
            tuple: FourTuple::new(local, remote),
            arrived: packet.arrived,
            header,
            options,
            payload,
        })
    }

    pub fn has(&self, flag: Flags) -> bool {
        self.header.flags.contains(flag)
    }

    /// `SEG.LEN` of RFC 9293: SYN and FIN count.
    pub fn sequence_len(&self) -> u32 {
        self.header.sequence_len(self.payload.len() as u32)
    }

    /// The sequence number of the first payload byte.
    pub fn payload_seq(&self) -> SeqNum {
        self.header.seq + u32::from(self.has(Flags::SYN))
    }

    /// The sequence number after everything in the segment.
    pub fn end(&self) -> SeqNum {
        self.header.seq + self.sequence_len()
    }
}

/// A packet with a TCP header whose checksum is left to the link.
pub fn packet<'a>(
    tuple: &FourTuple,
    header: &Header,
    options: &Options,
    payload: [Bytes<'a>; 2],
) -> TxPacket<'a> {
    let mut packet = TxPacket::new(payload);
    let header_bytes = tcp::emitted_len(options);
    let segment_bytes = header_bytes + packet.payload_bytes();
    let space = packet.prepend(header_bytes);
    let written = tcp::emit(header, options, space);
    debug_assert_eq!(written, header_bytes);
    let (source, destination) = (tuple.local.addr, tuple.remote.addr);
    tcp::set_partial_checksum(source, destination, space, segment_bytes as u32);
    packet.transport_bytes = header_bytes as u8;
    packet.checksum_offset = Some(CHECKSUM_OFFSET as u8);
    packet
}
