use serde::Serialize;
use skink_wire::{arp, ethernet, ipv4, ipv6, protocol, tcp, udp};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// What a frame is, as far as its kept bytes tell. Nothing is verified: a capture shows what there
/// is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Frame {
    pub ether_type: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpAddr>,
    /// Transport protocol number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// Bytes after the transport header.
    pub payload_bytes: usize,
    #[serde(skip)]
    detail: String,
}

impl Frame {
    /// Reads the beginning of a frame.
    pub fn read(bytes: &[u8]) -> Frame {
        let mut frame = Frame::default();
        let Ok((header, packet)) = ethernet::Header::parse(bytes) else {
            frame.detail = "too short for an Ethernet header".to_owned();
            return frame;
        };
        frame.ether_type = header.ethertype;
        match header.ethertype {
            ethernet::ARP => frame.read_arp(packet),
            ethernet::IPV4 => frame.read_ipv4(packet),
            ethernet::IPV6 => frame.read_ipv6(packet),
            other => frame.detail = format!("EtherType {other:#06x} from {}", header.source),
        }
        frame
    }

    fn read_arp(&mut self, packet: &[u8]) {
        let Ok(packet) = arp::Packet::parse(packet) else {
            self.detail = "malformed".to_owned();
            return;
        };
        self.source = Some(packet.sender_ip.into());
        self.destination = Some(packet.target_ip.into());
        self.detail = match packet.operation {
            arp::Operation::Request => {
                format!("who has {}? tell {}", packet.target_ip, packet.sender_ip)
            }
            arp::Operation::Reply => format!("{} is at {}", packet.sender_ip, packet.sender_mac),
        };
    }

    fn read_ipv4(&mut self, packet: &[u8]) {
        let Ok((header, payload)) = ipv4::Header::parse_quoted(packet) else {
            self.detail = "malformed".to_owned();
            return;
        };
        self.source = Some(header.source.into());
        self.destination = Some(header.destination.into());
        self.protocol = Some(header.protocol);
        let payload_bytes = usize::from(header.total_len).saturating_sub(header.header_len.into());
        if header.is_fragment() {
            self.detail = format!(
                "fragment {} at {}, {payload_bytes} bytes",
                header.identification, header.fragment_offset
            );
        }
        if header.fragment_offset == 0 {
            self.read_transport(header.protocol, payload, payload_bytes);
        }
    }

    fn read_ipv6(&mut self, packet: &[u8]) {
        let Ok((header, payload)) = ipv6::Header::parse_quoted(packet) else {
            self.detail = "malformed".to_owned();
            return;
        };
        self.source = Some(header.source.into());
        self.destination = Some(header.destination.into());
        let Ok(upper) = ipv6::walk(header.next_header, payload) else {
            self.protocol = Some(header.next_header);
            return;
        };
        self.protocol = Some(upper.protocol);
        let payload_bytes = usize::from(header.payload_len).saturating_sub(upper.offset);
        if let Some(fragment) = upper.fragment {
            self.detail = format!(
                "fragment {} at {}, {payload_bytes} bytes",
                fragment.identification, fragment.offset
            );
            if fragment.offset != 0 {
                return;
            }
        }
        let payload = payload.get(upper.offset..).unwrap_or_default();
        self.read_transport(upper.protocol, payload, payload_bytes);
    }

    fn read_transport(&mut self, kind: u8, payload: &[u8], bytes: usize) {
        match kind {
            protocol::TCP => self.read_tcp(payload, bytes),
            protocol::UDP => {
                let fixed = payload.first_chunk::<{ udp::LEN }>();
                let Some([s0, s1, d0, d1, ..]) = fixed else {
                    return;
                };
                self.source_port = Some(u16::from_be_bytes([*s0, *s1]));
                self.destination_port = Some(u16::from_be_bytes([*d0, *d1]));
                self.payload_bytes = bytes.saturating_sub(udp::LEN);
                self.add(&format!("length {}", self.payload_bytes));
            }
            protocol::ICMP | protocol::ICMPV6 => {
                self.payload_bytes = bytes;
                if let [message, code, ..] = payload {
                    let name = icmp_name(kind, *message);
                    self.add(&format!(
                        "{name} (type {message}, code {code}), length {bytes}"
                    ));
                }
            }
            _ => self.payload_bytes = bytes,
        }
    }

    fn read_tcp(&mut self, payload: &[u8], bytes: usize) {
        if let [s0, s1, d0, d1, ..] = payload {
            self.source_port = Some(u16::from_be_bytes([*s0, *s1]));
            self.destination_port = Some(u16::from_be_bytes([*d0, *d1]));
        }
        let Ok((header, _, _)) = tcp::parse(payload) else {
            self.add("malformed or cut");
            return;
        };
        self.payload_bytes = bytes.saturating_sub(header.header_len.into());
        let letters = [
            (tcp::Flags::SYN, 'S'),
            (tcp::Flags::FIN, 'F'),
            (tcp::Flags::RST, 'R'),
            (tcp::Flags::PSH, 'P'),
            (tcp::Flags::ACK, '.'),
            (tcp::Flags::URG, 'U'),
            (tcp::Flags::ECE, 'E'),
            (tcp::Flags::CWR, 'W'),
        ];
        let set = letters
            .iter()
            .filter(|(flag, _)| header.flags.contains(*flag));
        let flags: String = set.map(|(_, letter)| letter).collect();
        let mut text = format!("[{flags}] seq {}", header.seq.0);
        if header.flags.contains(tcp::Flags::ACK) {
            let _ = write!(text, " ack {}", header.ack.0);
        }
        let _ = write!(text, " win {} length {}", header.window, self.payload_bytes);
        self.add(&text);
    }

    fn add(&mut self, text: &str) {
        if !self.detail.is_empty() {
            self.detail.push_str(", ");
        }
        self.detail.push_str(text);
    }

    /// One line for people.
    pub fn summary(&self) -> String {
        let (Some(source), Some(destination)) = (self.source, self.destination) else {
            return self.detail.clone();
        };
        if self.ether_type == ethernet::ARP {
            return format!("ARP {}", self.detail);
        }
        let end = |address: IpAddr, port: Option<u16>| match port {
            Some(port) => SocketAddr::new(address, port).to_string(),
            None => address.to_string(),
        };
        let kind = match self.protocol {
            Some(protocol::TCP) => "TCP".to_owned(),
            Some(protocol::UDP) => "UDP".to_owned(),
            Some(protocol::ICMP) => "ICMP".to_owned(),
            Some(protocol::ICMPV6) => "ICMPv6".to_owned(),
            Some(other) => format!("protocol {other}"),
            None => "IP".to_owned(),
        };
        let (from, to) = (
            end(source, self.source_port),
            end(destination, self.destination_port),
        );
        format!("{kind} {from} > {to} {}", self.detail)
            .trim_end()
            .to_owned()
    }
}

fn icmp_name(kind: u8, message: u8) -> &'static str {
    match (kind == protocol::ICMP, message) {
        (true, 0) | (false, 129) => "echo reply",
        (true, 8) | (false, 128) => "echo request",
        (true, 3) | (false, 1) => "destination unreachable",
        (false, 2) => "packet too big",
        (true, 11) | (false, 3) => "time exceeded",
        (true, 12) | (false, 4) => "parameter problem",
        (false, 133) => "router solicitation",
        (false, 134) => "router advertisement",
        (false, 135) => "neighbour solicitation",
        (false, 136) => "neighbour advertisement",
        (_, _) => "message",
    }
}

#[cfg(test)]
pub mod tests;
