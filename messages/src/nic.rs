use crate::{Full, TxPacket};
use skink_wire::MacAddr;

/// How a NIC's inbound packets reach the right one of several owners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Steering {
    /// There is one owner only.
    Sole,
    /// The kernel runs Skink's program, with its flow and port tables.
    Tables,
    /// The device sends a flow to the queue that last sent on it (TAP).
    Follows,
}

/// What a NIC can do, as data: components adapt at run time, not by build variants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// The back end's kind, such as `xdp`.
    pub kind: &'static str,
    /// Our address on the link.
    pub mac: MacAddr,
    /// Largest IP packet on the wire in bytes.
    pub mtu: u32,
    /// It completes transport checksums of all outbound packets.
    pub tx_checksum: bool,
    /// It vouches for transport checksums of some inbound packets.
    pub rx_checksum: bool,
    /// It cuts TCP packets of up to this many bytes (IP header included) to size, and completes their checksums
    /// whatever `tx_checksum` says; 0 if it can't.
    pub cut_bytes: u32,
    /// It may hand in several segments joined to one.
    pub joins: bool,
    /// Queues it has; Skink uses one for each owner.
    pub queues: u16,
    /// How packets find their owner.
    pub steering: Steering,
    /// Frames move without a copy by the kernel.
    pub zero_copy: bool,
}

/// The sending half of a NIC as `link` sees it.
pub trait NicOutput {
    /// Frames it can take now, at least; 0 means that [`NicOutput::send`] would answer [`Full`].
    fn room(&mut self) -> usize;
    /// Takes one frame: copies it, or hands it to the kernel. It may leave only with the next flush.
    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full>;
}
