//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::{MacAddr, Malformed, bytes, ethernet};

/// The length of a packet, without Ethernet header and padding.
pub const LEN: usize = 28;

/// Hardware type Ethernet, protocol type IPv4, and the lengths of their addresses.
const PREAMBLE: [u8; 6] = {
    let [high, low] = ethernet::IPV4.to_be_bytes();
    [0, 1, high, low, 6, 4]
};

/// What a packet asks or says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Who has the target address?
    Request,
    /// The sender has the sender's address.
    Reply,
}

/// An ARP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// The sender's link-layer address.
    pub sender_mac: MacAddr,
    /// The sender's address; unspecified in a probe (RFC 5227 section 1.1).
    pub sender_ip: Ipv4Addr,
    /// The target's link-layer address; meaningless in a request.
    pub target_mac: MacAddr,
    /// The target's address.
    pub target_ip: Ipv4Addr,
}

impl Packet {
    /// Reads a packet; padding after it is ignored.
    pub fn parse(packet: &[u8]) -> Result<Packet, Malformed> {
        let packet = packet.first_chunk::<LEN>().ok_or(Malformed::TooShort)?;
        if packet[..6] != PREAMBLE {
            return Err(Malformed::BadHardware);
        }
        let operation = match packet[6..8] {
            [0, 1] => Operation::Request,
            [0, 2] => Operation::Reply,
            _ => return Err(Malformed::BadOperation),
        };
        Ok(Packet {
            operation,
            sender_mac: MacAddr(bytes::array(packet, 8)?),
            sender_ip: bytes::array::<4>(packet, 14)?.into(),
            target_mac: MacAddr(bytes::array(packet, 18)?),
            target_ip: bytes::array::<4>(packet, 24)?.into(),
        })
    }

    /// Writes the packet and returns [`LEN`], or 0 where `out` is too short.
    #[must_use]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let operation = match self.operation {
            Operation::Request => [0, 1],
            Operation::Reply => [0, 2],
        };
        bytes::write(
            out,
            &[
                &PREAMBLE,
                &operation,
                &self.sender_mac.0,
                &self.sender_ip.octets(),
                &self.target_mac.0,
                &self.target_ip.octets(),
            ],
        )
    }
}

#[cfg(test)]
mod tests;
