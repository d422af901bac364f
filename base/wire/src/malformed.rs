//! Why a packet could not be understood.

use core::fmt;

/// The reason for which a parser refused a packet. It is a drop reason to count, not an error to
/// report: anyone on the network can cause it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Malformed {
    /// The slice ends before the fixed part of the header does.
    TooShort,
    /// The IP version field is not that of the parser.
    BadVersion,
    /// The header length field is below the minimum or beyond the packet.
    BadHeaderLength,
    /// The length field is smaller than the header or larger than the slice.
    BadTotalLength,
    /// The checksum is wrong.
    BadChecksum,
    /// An option's length is zero, too small, or beyond its header.
    BadOption,
    /// An IPv6 extension header is beyond the packet, out of place, or one of too many.
    BadExtension,
    /// ARP for other than IPv4 over Ethernet.
    BadHardware,
    /// An ARP operation other than request and reply.
    BadOperation,
    /// A code that the message type doesn't have.
    BadCode,
    /// An address that can't stand in this field, such as a multicast NDP target.
    BadAddress,
}

impl Malformed {
    /// Every reason, in the order of their discriminants, for tables of counters.
    pub const ALL: [Malformed; 11] = [
        Malformed::TooShort,
        Malformed::BadVersion,
        Malformed::BadHeaderLength,
        Malformed::BadTotalLength,
        Malformed::BadChecksum,
        Malformed::BadOption,
        Malformed::BadExtension,
        Malformed::BadHardware,
        Malformed::BadOperation,
        Malformed::BadCode,
        Malformed::BadAddress,
    ];

    /// A short name for counters, in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            Malformed::TooShort => "too_short",
            Malformed::BadVersion => "bad_version",
            Malformed::BadHeaderLength => "bad_header_length",
            Malformed::BadTotalLength => "bad_total_length",
            Malformed::BadChecksum => "bad_checksum",
            Malformed::BadOption => "bad_option",
            Malformed::BadExtension => "bad_extension",
            Malformed::BadHardware => "bad_hardware",
            Malformed::BadOperation => "bad_operation",
            Malformed::BadCode => "bad_code",
            Malformed::BadAddress => "bad_address",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl core::error::Error for Malformed {}
