use skink_memory::Bytes;
use skink_messages::{Counter, Counters, Full, Network, Outbound, RxChecksum, RxPacket, TxPacket};
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
    /// Payload bytes of each of several that were joined into this one, or 0.
    pub joined: u16,
}

impl<'a> Segment<'a> {
    /// Checks and splits a packet; otherwise tells what to count.
    #[inline(always)]
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
            joined: packet.segment_bytes,
        })
    }

    /// Header, options and data, without a checksum.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; tcp::emitted_len(&self.options)];
        let _ = tcp::emit(&self.header, &self.options, &mut bytes);
        bytes.extend(self.payload);
        bytes
    }

    /// What [`Segment::to_bytes`] made, of a segment of `flow`; otherwise tells what to count.
    pub fn of_late(
        now: Instant,
        flow: &FourTuple,
        bytes: &'a [u8],
    ) -> Result<Segment<'a>, Counter> {
        let packet = RxPacket {
            arrived: now,
            source: flow.remote.addr,
            destination: flow.local.addr,
            traffic_class: 0,
            hop_limit: 0,
            checksum: RxChecksum::Verified,
            segment_bytes: 0,
            payload: bytes,
        };
        let segment = Segment::parse(&packet)?;
        match segment.tuple == *flow {
            true => Ok(segment),
            false => Err(Counter::TcpDropMalformed),
        }
    }

    /// How many segments this was on the wire.
    pub fn count(&self) -> u32 {
        match self.joined {
            0 => 1,
            bytes => (self.payload.len() as u32)
                .div_ceil(u32::from(bytes))
                .max(1),
        }
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

/// A segment to be sent.
pub struct Outgoing<'a> {
    pub header: Header,
    pub options: Options,
    pub payload: [Bytes<'a>; 2],
    /// What payload that is longer is cut to, in bytes.
    pub mss: u16,
}

impl Outgoing<'_> {
    /// Hands the segment down, its checksum left to the link, and counts it. Every segment leaves
    /// here: the message to the network, which is inlined, is compiled once.
    #[inline(never)]
    pub fn send<O: Network + ?Sized>(
        &self,
        now: Instant,
        to: &Outbound,
        counters: &Counters,
        out: &mut O,
    ) -> Result<(), Full> {
        let mut packet = TxPacket::new(self.payload);
        let payload_bytes = packet.payload_bytes();
        let header_bytes = tcp::emitted_len(&self.options);
        let space = packet.prepend(header_bytes);
        let written = tcp::emit(&self.header, &self.options, space);
        debug_assert_eq!(written, header_bytes);
        let total = (header_bytes + payload_bytes) as u32;
        tcp::set_partial_checksum(to.source, to.destination, space, total);
        packet.transport_bytes = header_bytes as u8;
        packet.checksum_offset = Some(CHECKSUM_OFFSET as u8);
        if payload_bytes > usize::from(self.mss) {
            packet.segment_bytes = self.mss;
        }
        out.send(now, to, &mut packet)?;
        counters.count(Counter::TcpSegmentsOut);
        Ok(())
    }
}
