use crate::Link;
use skink_messages::{FrameOutput, Full, LinkLimits, NicOutput, TxPacket};
use skink_time::Instant;

/// A link and its NIC in the same process, as `ip` sees them.
pub struct LinkOutput<'a, Nic: NicOutput + ?Sized> {
    /// The link.
    pub link: &'a mut Link,
    /// The sending half of its NIC.
    pub nic: &'a mut Nic,
}

impl<Nic: NicOutput + ?Sized> FrameOutput for LinkOutput<'_, Nic> {
    #[inline(always)]
    fn send(&mut self, now: Instant, packet: &mut TxPacket<'_>) -> Result<(), Full> {
        self.link.send(now, packet, self.nic)
    }

    #[inline(always)]
    fn limits(&self) -> LinkLimits {
        self.link.limits()
    }
}
