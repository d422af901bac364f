//! What the filter needs to know of a packet.

use core::net::IpAddr;
use skink_messages::{Outbound, RxPacket, TxPacket};
use skink_wire::tcp::Flags;
use skink_wire::{Malformed, ipv4, ipv6, protocol};

/// The IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Family {
    /// IPv4, `inet` in rules.
    V4 = 4,
    /// IPv6, `inet6` in rules.
    V6 = 6,
}

impl Family {
    /// That of an address.
    pub const fn of(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }
}

/// How much of a packet is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Piece {
    /// All of it.
    Whole = 0,
    /// The first fragment, with the transport header.
    First = 1,
    /// A later fragment: no ports, flags or ICMP type.
    Later = 2,
}

/// A packet, as far as rules and tracking look at it: plain data of a fixed layout, so that it can be
/// sent to a filter in another process. Addresses are numbers of 128 bits, those of IPv4 in their
/// mapped form (RFC 4291 section 2.5.5.2); all numbers are in host byte order. What a packet doesn't
/// have is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Summary {
    /// From whom.
    pub source: u128,
    /// To whom.
    pub destination: u128,
    /// In an ICMP error: the source of the packet that it is about.
    pub quoted_source: u128,
    /// In an ICMP error: the destination of that packet.
    pub quoted_destination: u128,
    /// IP header and all that follows, in bytes.
    pub length: u32,
    /// Payload of the TCP segment, in bytes.
    pub payload_length: u32,
    /// TCP: sequence number. A piece of another protocol's packet: the identification that all pieces of
    /// that packet have.
    pub seq: u32,
    /// TCP: acknowledgement number.
    pub ack: u32,
    /// TCP: window as it stands in the header, not scaled.
    pub window: u16,
    /// TCP: the control bits, as [`Flags::bits`].
    pub tcp_flags: u16,
    /// Port of TCP or UDP, or the identifier of an ICMP echo message.
    pub source_port: u16,
    /// Port of TCP or UDP.
    pub destination_port: u16,
    /// In an ICMP error: source port of the packet it is about, or its echo identifier.
    pub quoted_source_port: u16,
    /// In an ICMP error: destination port of the packet it is about.
    pub quoted_destination_port: u16,
    /// IP version.
    pub family: Family,
    /// Whole or piece.
    pub piece: Piece,
    /// Number of the transport protocol.
    pub protocol: u8,
    /// ICMP: type.
    pub icmp_type: u8,
    /// ICMP: code.
    pub icmp_code: u8,
    /// In an ICMP error: protocol of the packet it is about; 0 if that can't be told.
    pub quoted_protocol: u8,
    /// In an ICMP error about an ICMP message: its type.
    pub quoted_icmp_type: u8,
    /// Not used.
    pub reserved: u8,
}

const _: () = assert!(size_of::<Summary>() == 112, "the layout is a contract");

/// The most bytes of a packet that are looked at: enough for an ICMPv6 error about a packet with
/// extension headers.
const LOOKED_AT: usize = 256;

/// An address as a number of 128 bits.
pub(crate) const fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The address that a number stands for.
pub(crate) const fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(core::net::Ipv4Addr::from_bits(number as u32)),
        Family::V6 => IpAddr::V6(core::net::Ipv6Addr::from_bits(number)),
    }
}

impl Summary {
    /// Nothing but the IP header; `length` is that of the packet.
    fn bare(source: IpAddr, destination: IpAddr, protocol: u8, length: u32) -> Summary {
        Summary {
            source: number(source),
            destination: number(destination),
            quoted_source: 0,
            quoted_destination: 0,
            length,
            payload_length: 0,
            seq: 0,
            ack: 0,
            window: 0,
            tcp_flags: 0,
            source_port: 0,
            destination_port: 0,
            quoted_source_port: 0,
            quoted_destination_port: 0,
            family: Family::of(source),
            piece: Piece::Whole,
            protocol,
            icmp_type: 0,
            icmp_code: 0,
            quoted_protocol: 0,
            quoted_icmp_type: 0,
            reserved: 0,
        }
    }

    /// Reads an IP packet from its header on, as a frame has it. Checksums and the rest of what `ip`
    /// verifies anyway are not looked at; link padding is left out of the length.
    ///
    /// # Errors
    /// Where the headers are cut short or make no sense: a filter can't pass what it can't read. A
    /// first fragment without a whole transport header counts as such (RFC 1858 section 3).
    pub fn parse(packet: &[u8]) -> Result<Summary, Malformed> {
        Summary::parse_front(packet, packet.len())
    }

    /// Reads an IP packet of `length` bytes of which `front` is the beginning.
    fn parse_front(front: &[u8], length: usize) -> Result<Summary, Malformed> {
        match front.first().map(|first| first >> 4) {
            Some(4) => Summary::parse_v4(front, length),
            Some(6) => Summary::parse_v6(front, length),
            Some(_) => Err(Malformed::BadVersion),
            None => Err(Malformed::TooShort),
        }
    }

    fn parse_v4(front: &[u8], length: usize) -> Result<Summary, Malformed> {
        let (header, _) = ipv4::Header::parse_quoted(front)?;
        let header_len = usize::from(header.header_len);
        // A packet that is to be cut (TSO) may be too large for the field.
        let length = match usize::from(header.total_len) {
            0 => length,
            total => length.min(total),
        };
        let transport = front.get(header_len..).unwrap_or_default();
        let (source, destination) = (header.source.into(), header.destination.into());
        let mut summary = Summary::bare(source, destination, header.protocol, saturate(length));
        if header.is_fragment() {
            summary.piece = piece(header.fragment_offset);
            summary.seq = u32::from(header.identification);
        }
        summary.read_transport(transport, length.saturating_sub(header_len))?;
        Ok(summary)
    }

    fn parse_v6(front: &[u8], length: usize) -> Result<Summary, Malformed> {
        let (header, _) = ipv6::Header::parse_quoted(front)?;
        let rest = front.get(ipv6::LEN..).unwrap_or_default();
        let length = match usize::from(header.payload_len) {
            0 => length,
            payload => length.min(payload + ipv6::LEN),
        };
        let (source, destination) = (header.source.into(), header.destination.into());
        let upper = skip_extensions(header.next_header, rest)?;
        let mut summary = Summary::bare(source, destination, upper.protocol, saturate(length));
        summary.piece = upper.piece;
        summary.seq = upper.identification;
        let before = ipv6::LEN + upper.offset;
        let transport = rest.get(upper.offset..).unwrap_or_default();
        summary.read_transport(transport, length.saturating_sub(before))?;
        Ok(summary)
    }

    /// A packet that `ip` received (or put together), on its way to `tcp` or `udp`.
    ///
    /// # Errors
    /// Where the transport header is cut short.
    #[inline]
    pub fn of_received(protocol: u8, packet: &RxPacket<'_>) -> Result<Summary, Malformed> {
        Summary::of_transport(
            packet.source,
            packet.destination,
            protocol,
            packet.payload,
            packet.payload.len(),
        )
    }

    /// A packet that a transport protocol hands to `ip`: its headers begin with the transport header.
    ///
    /// # Errors
    /// Where the transport header is cut short.
    #[inline]
    pub fn of_outbound(to: &Outbound, packet: &TxPacket<'_>) -> Result<Summary, Malformed> {
        let headers = packet.headers();
        let length = packet.len();
        Summary::of_transport(to.source, to.destination, to.protocol, headers, length)
    }

    /// A packet that `ip` hands to the link; its headers begin with `link_bytes` bytes of link header.
    ///
    /// # Errors
    /// Where the headers make no sense.
    pub fn of_frame(packet: &TxPacket<'_>, link_bytes: usize) -> Result<Summary, Malformed> {
        let headers = packet.headers().get(link_bytes..).unwrap_or_default();
        let length = headers.len() + packet.payload_bytes();
        // What `ip` says itself is all payload behind its header, and so is what an error quotes.
        let mut front = [0; LOOKED_AT];
        let mut filled = headers.len().min(LOOKED_AT);
        front[..filled].copy_from_slice(&headers[..filled]);
        for span in packet.payload {
            let (span, _) = span.split_at(LOOKED_AT - filled);
            span.copy_to(&mut front[filled..]);
            filled += span.len();
        }
        Summary::parse_front(&front[..filled], length)
    }

    /// A whole packet of which `transport` is the beginning of the transport header and data,
    /// `transport_bytes` in all.
    ///
    /// # Errors
    /// Where the transport header is cut short.
    #[inline]
    pub fn of_transport(
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        transport: &[u8],
        transport_bytes: usize,
    ) -> Result<Summary, Malformed> {
        let header_len = match source {
            IpAddr::V4(_) => ipv4::LEN,
            IpAddr::V6(_) => ipv6::LEN,
        };
        let length = saturate(header_len.saturating_add(transport_bytes));
        let mut summary = Summary::bare(source, destination, protocol, length);
        summary.read_transport(transport, transport_bytes)?;
        Ok(summary)
    }

    /// Whether a packet of ours, from its IP header on, is a message of `ip`'s own (ICMP), or a piece of
    /// one. Of packets of the transports the filter has been asked before `ip` got them.
    pub fn is_message(front: &[u8]) -> bool {
        match front.first().map(|first| first >> 4) {
            // Where the header names the protocol (RFC 791 section 3.1, RFC 8200 section 3).
            Some(4) => front.get(9) == Some(&protocol::ICMP),
            Some(6) => {
                let next_header = front.get(6).copied().unwrap_or_default();
                let upper =
                    skip_extensions(next_header, front.get(ipv6::LEN..).unwrap_or_default());
                upper.is_ok_and(|upper| upper.protocol == protocol::ICMPV6)
            }
            Some(_) | None => false,
        }
    }

    /// The control bits of TCP.
    #[inline]
    pub const fn flags(&self) -> Flags {
        Flags::from_bits(self.tcp_flags)
    }

    /// Whether the ports, flags and ICMP fields count.
    #[inline]
    pub const fn has_transport(&self) -> bool {
        match self.piece {
            Piece::Whole | Piece::First => true,
            Piece::Later => false,
        }
    }

    /// The packet that an ICMP error is about.
    pub(crate) fn quoted(&self) -> Option<Summary> {
        if self.quoted_protocol == 0 {
            return None;
        }
        Some(Summary {
            source: self.quoted_source,
            destination: self.quoted_destination,
            source_port: self.quoted_source_port,
            destination_port: self.quoted_destination_port,
            protocol: self.quoted_protocol,
            icmp_type: self.quoted_icmp_type,
            quoted_protocol: 0,
            ..*self
        })
    }

    #[inline]
    fn read_transport(&mut self, transport: &[u8], bytes: usize) -> Result<(), Malformed> {
        if self.piece == Piece::Later {
            return Ok(());
        }
        match self.protocol {
            protocol::TCP => {
                let fixed = transport.first_chunk::<20>().ok_or(Malformed::TooShort)?;
                let header_len = usize::from(fixed[12] >> 4) * 4;
                self.source_port = u16::from_be_bytes([fixed[0], fixed[1]]);
                self.destination_port = u16::from_be_bytes([fixed[2], fixed[3]]);
                self.seq = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
                self.ack = u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]);
                let flags = u16::from_be_bytes([fixed[12], fixed[13]]);
                self.tcp_flags = Flags::from_bits(flags).bits();
                self.window = u16::from_be_bytes([fixed[14], fixed[15]]);
                self.payload_length = saturate(bytes.saturating_sub(header_len));
                Ok(())
            }
            protocol::UDP => {
                let &[s0, s1, d0, d1, ..] =
                    transport.first_chunk::<8>().ok_or(Malformed::TooShort)?;
                self.source_port = u16::from_be_bytes([s0, s1]);
                self.destination_port = u16::from_be_bytes([d0, d1]);
                Ok(())
            }
            protocol::ICMP if self.family == Family::V4 => self.read_icmp(transport),
            protocol::ICMPV6 if self.family == Family::V6 => self.read_icmp(transport),
            _ => Ok(()),
        }
    }

    fn read_icmp(&mut self, message: &[u8]) -> Result<(), Malformed> {
        let (&[kind, code, _, _, i0, i1, _, _], body) = message
            .split_first_chunk::<8>()
            .ok_or(Malformed::TooShort)?;
        self.icmp_type = kind;
        self.icmp_code = code;
        if is_echo_request(self.family, kind) || is_echo_reply(self.family, kind) {
            self.source_port = u16::from_be_bytes([i0, i1]);
        }
        if is_icmp_error(self.family, kind) {
            // An error about what can't be read is not about any flow that is known.
            let _ = self.read_quoted(body);
        }
        Ok(())
    }

    fn read_quoted(&mut self, packet: &[u8]) -> Result<(), Malformed> {
        let (source, destination, protocol, transport): (u128, u128, _, &[u8]) = match self.family {
            Family::V4 => {
                let (header, payload) = ipv4::Header::parse_quoted(packet)?;
                if header.fragment_offset != 0 {
                    return Ok(());
                }
                let ends = (header.source.into(), header.destination.into());
                (number(ends.0), number(ends.1), header.protocol, payload)
            }
            Family::V6 => {
                let (header, payload) = ipv6::Header::parse_quoted(packet)?;
                let upper = skip_extensions(header.next_header, payload)?;
                if upper.piece == Piece::Later {
                    return Ok(());
                }
                let ends = (header.source.to_bits(), header.destination.to_bits());
                let transport = payload.get(upper.offset..).unwrap_or_default();
                (ends.0, ends.1, upper.protocol, transport)
            }
        };
        // A router quotes at least this much (RFC 792).
        let &[a, b, c, d, i0, i1, _, _] =
            transport.first_chunk::<8>().ok_or(Malformed::TooShort)?;
        match protocol {
            protocol::TCP | protocol::UDP => {
                self.quoted_source_port = u16::from_be_bytes([a, b]);
                self.quoted_destination_port = u16::from_be_bytes([c, d]);
            }
            protocol::ICMP | protocol::ICMPV6 => {
                self.quoted_icmp_type = a;
                self.quoted_source_port = u16::from_be_bytes([i0, i1]);
            }
            _ => {}
        }
        self.quoted_source = source;
        self.quoted_destination = destination;
        self.quoted_protocol = protocol;
        Ok(())
    }
}

struct Upper {
    protocol: u8,
    offset: usize,
    piece: Piece,
    identification: u32,
}

/// What follows the extension headers. A host's opinion of unknown options doesn't matter here; what
/// `ip` would refuse is refused there, and told to the sender.
fn skip_extensions(next_header: u8, payload: &[u8]) -> Result<Upper, Malformed> {
    let mut upper = Upper {
        protocol: next_header,
        offset: 0,
        piece: Piece::Whole,
        identification: 0,
    };
    for _ in 0..=ipv6::MAXIMUM_EXTENSIONS {
        let rest = payload.get(upper.offset..).unwrap_or_default();
        match upper.protocol {
            protocol::FRAGMENT => {
                let (fragment, _) = ipv6::FragmentHeader::parse(rest)?;
                upper.protocol = fragment.next_header;
                upper.offset += ipv6::FRAGMENT_LEN;
                if !fragment.is_atomic() {
                    upper.piece = piece(fragment.offset);
                    upper.identification = fragment.identification;
                }
                if upper.piece == Piece::Later {
                    return Ok(upper);
                }
            }
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                let &[next, units, ..] = rest else {
                    return Err(Malformed::BadExtension);
                };
                upper.protocol = next;
                upper.offset += (usize::from(units) + 1) * 8;
            }
            _ => return Ok(upper),
        }
    }
    Err(Malformed::BadExtension)
}

const fn piece(fragment_offset: u16) -> Piece {
    match fragment_offset {
        0 => Piece::First,
        _ => Piece::Later,
    }
}

fn saturate(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Whether an ICMP type asks for an echo.
pub(crate) const fn is_echo_request(family: Family, kind: u8) -> bool {
    match family {
        Family::V4 => kind == 8,
        Family::V6 => kind == 128,
    }
}

/// Whether an ICMP type is an echo.
pub(crate) const fn is_echo_reply(family: Family, kind: u8) -> bool {
    match family {
        Family::V4 => kind == 0,
        Family::V6 => kind == 129,
    }
}

/// Whether an ICMP type is an error about a packet. Redirects are none: they ask the host to change
/// its routes, which is for the rules to allow.
pub(crate) const fn is_icmp_error(family: Family, kind: u8) -> bool {
    match family {
        Family::V4 => matches!(kind, 3 | 4 | 11 | 12),
        Family::V6 => matches!(kind, 1..=4),
    }
}

#[cfg(test)]
mod tests;
