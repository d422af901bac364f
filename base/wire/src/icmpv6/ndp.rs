//! The bodies of the neighbour discovery messages (RFC 4861 section 4). Redirects are not read: a
//! host may ignore them (section 8.3 leaves it to configuration).

use core::net::Ipv6Addr;

use crate::{MacAddr, Malformed, bytes};

const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
const PREFIX_INFORMATION: u8 = 3;
const MTU: u8 = 5;

/// The room that options take at most in a message that we write: a link-layer address, an MTU, and
/// all prefixes.
const OPTIONS_CAPACITY: usize = 8 + 8 + 32 * Prefixes::CAPACITY;

/// The options that Skink understands. Others are skipped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct NdpOptions {
    source_link_layer: Option<MacAddr>,
    target_link_layer: Option<MacAddr>,
    mtu: Option<u32>,
    prefixes: Prefixes,
}

impl NdpOptions {
    /// Reads options; a length of zero makes the message malformed (RFC 4861 section 4.6).
    fn parse(mut bytes: &[u8]) -> Result<NdpOptions, Malformed> {
        let mut options = NdpOptions::default();
        while let Some(&kind) = bytes.first() {
            let units = *bytes.get(1).ok_or(Malformed::BadOption)?;
            if units == 0 {
                return Err(Malformed::BadOption);
            }
            let (option, rest) = bytes
                .split_at_checked(usize::from(units) * 8)
                .ok_or(Malformed::BadOption)?;
            options.take(kind, option);
            bytes = rest;
        }
        Ok(options)
    }

    fn take(&mut self, kind: u8, option: &[u8]) {
        match (kind, option) {
            (SOURCE_LINK_LAYER, &[_, _, a, b, c, d, e, f]) => {
                self.source_link_layer = Some(MacAddr([a, b, c, d, e, f]));
            }
            (TARGET_LINK_LAYER, &[_, _, a, b, c, d, e, f]) => {
                self.target_link_layer = Some(MacAddr([a, b, c, d, e, f]));
            }
            (MTU, &[_, _, _, _, a, b, c, d]) => self.mtu = Some(u32::from_be_bytes([a, b, c, d])),
            (PREFIX_INFORMATION, option) => {
                if let Ok(option) = <&[u8; 32]>::try_from(option)
                    && let Some(prefix) = PrefixInformation::decode(option)
                {
                    self.prefixes.push(prefix);
                }
            }
            // Unknown, or of a length that only another link layer or a later RFC would give it.
            _ => {}
        }
    }

    /// The options as bytes, and how many.
    fn encode(&self) -> ([u8; OPTIONS_CAPACITY], usize) {
        let mut out = [0; OPTIONS_CAPACITY];
        let mut len = 0;
        let mut put = |option: &[u8]| {
            if let Some(rest) = out.get_mut(len..) {
                len += bytes::write(rest, &[option]);
            }
        };
        for (kind, addr) in [
            (SOURCE_LINK_LAYER, self.source_link_layer),
            (TARGET_LINK_LAYER, self.target_link_layer),
        ] {
            if let Some(MacAddr([a, b, c, d, e, f])) = addr {
                put(&[kind, 1, a, b, c, d, e, f]);
            }
        }
        if let Some(mtu) = self.mtu {
            let [a, b, c, d] = mtu.to_be_bytes();
            put(&[MTU, 1, 0, 0, a, b, c, d]);
        }
        for prefix in self.prefixes.iter() {
            put(&prefix.encode());
        }
        (out, len)
    }
}

fn write(head: [u8; 4], rest: [u8; 4], body: &[u8], options: &NdpOptions, out: &mut [u8]) -> usize {
    let (encoded, len) = options.encode();
    let encoded = encoded.get(..len).unwrap_or_default();
    bytes::write(out, &[&head, &rest, body, encoded])
}

/// A target address, which must not be a multicast address (RFC 4861 sections 7.1.1 and 7.1.2), and
/// the options after it.
fn target_and_options(body: &[u8]) -> Result<(Ipv6Addr, NdpOptions), Malformed> {
    let (target, options) = body.split_first_chunk::<16>().ok_or(Malformed::TooShort)?;
    let target = Ipv6Addr::from(*target);
    if target.is_multicast() {
        return Err(Malformed::BadAddress);
    }
    Ok((target, NdpOptions::parse(options)?))
}

/// A host asks for routers (RFC 4861 section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouterSolicitation {
    /// The sender's link-layer address; absent where the source address is unspecified.
    pub source_link_layer: Option<MacAddr>,
}

impl RouterSolicitation {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let options = NdpOptions::parse(body)?;
        Ok(RouterSolicitation {
            source_link_layer: options.source_link_layer,
        })
    }

    pub(super) fn emit(&self, head: [u8; 4], out: &mut [u8]) -> usize {
        let options = NdpOptions {
            source_link_layer: self.source_link_layer,
            ..NdpOptions::default()
        };
        write(head, [0; 4], &[], &options, out)
    }
}

/// Who has this address? (RFC 4861 section 4.3)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighbourSolicitation {
    /// The address that is looked for.
    pub target: Ipv6Addr,
    /// The sender's link-layer address; absent where the source address is unspecified.
    pub source_link_layer: Option<MacAddr>,
}

impl NeighbourSolicitation {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let (target, options) = target_and_options(body)?;
        Ok(NeighbourSolicitation {
            target,
            source_link_layer: options.source_link_layer,
        })
    }

    pub(super) fn emit(&self, head: [u8; 4], out: &mut [u8]) -> usize {
        let options = NdpOptions {
            source_link_layer: self.source_link_layer,
            ..NdpOptions::default()
        };
        write(head, [0; 4], &self.target.octets(), &options, out)
    }
}

/// I have this address (RFC 4861 section 4.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighbourAdvertisement {
    /// The sender is a router.
    pub router: bool,
    /// This answers a solicitation.
    pub solicited: bool,
    /// This replaces what the receiver has cached.
    pub replace: bool,
    /// The address that the sender has.
    pub target: Ipv6Addr,
    /// Its link-layer address.
    pub target_link_layer: Option<MacAddr>,
}

impl NeighbourAdvertisement {
    pub(super) fn parse(rest: [u8; 4], body: &[u8]) -> Result<Self, Malformed> {
        let [flags, _, _, _] = rest;
        let (target, options) = target_and_options(body)?;
        Ok(NeighbourAdvertisement {
            router: flags & 0x80 != 0,
            solicited: flags & 0x40 != 0,
            replace: flags & 0x20 != 0,
            target,
            target_link_layer: options.target_link_layer,
        })
    }

    pub(super) fn emit(&self, head: [u8; 4], out: &mut [u8]) -> usize {
        let flags = u8::from(self.router) << 7
            | u8::from(self.solicited) << 6
            | u8::from(self.replace) << 5;
        let options = NdpOptions {
            target_link_layer: self.target_link_layer,
            ..NdpOptions::default()
        };
        write(head, [flags, 0, 0, 0], &self.target.octets(), &options, out)
    }
}

/// A router tells what it knows (RFC 4861 section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouterAdvertisement {
    /// The hop limit to send with; 0 where the router doesn't say.
    pub hop_limit: u8,
    /// Addresses are to be had from DHCPv6.
    pub managed: bool,
    /// Other configuration is to be had from DHCPv6.
    pub other: bool,
    /// For how long this is a default router, in seconds; 0: it is none.
    pub lifetime_secs: u16,
    /// For how long a neighbour counts as reachable, in milliseconds; 0 where the router doesn't say.
    pub reachable_ms: u32,
    /// The time between solicitations, in milliseconds; 0 where the router doesn't say.
    pub retransmit_ms: u32,
    /// The router's link-layer address.
    pub source_link_layer: Option<MacAddr>,
    /// The MTU of the link, in bytes. Don't trust it.
    pub mtu: Option<u32>,
    /// The prefixes of the link.
    pub prefixes: Prefixes,
}

impl RouterAdvertisement {
    pub(super) fn parse(rest: [u8; 4], body: &[u8]) -> Result<Self, Malformed> {
        let [hop_limit, flags, l0, l1] = rest;
        let (&[a, b, c, d, e, f, g, h], options) =
            body.split_first_chunk::<8>().ok_or(Malformed::TooShort)?;
        let options = NdpOptions::parse(options)?;
        Ok(RouterAdvertisement {
            hop_limit,
            managed: flags & 0x80 != 0,
            other: flags & 0x40 != 0,
            lifetime_secs: u16::from_be_bytes([l0, l1]),
            reachable_ms: u32::from_be_bytes([a, b, c, d]),
            retransmit_ms: u32::from_be_bytes([e, f, g, h]),
            source_link_layer: options.source_link_layer,
            mtu: options.mtu,
            prefixes: options.prefixes,
        })
    }

    pub(super) fn emit(&self, head: [u8; 4], out: &mut [u8]) -> usize {
        let flags = u8::from(self.managed) << 7 | u8::from(self.other) << 6;
        let [l0, l1] = self.lifetime_secs.to_be_bytes();
        let mut body = [0; 8];
        body[..4].copy_from_slice(&self.reachable_ms.to_be_bytes());
        body[4..].copy_from_slice(&self.retransmit_ms.to_be_bytes());
        let options = NdpOptions {
            source_link_layer: self.source_link_layer,
            target_link_layer: None,
            mtu: self.mtu,
            prefixes: self.prefixes,
        };
        write(head, [self.hop_limit, flags, l0, l1], &body, &options, out)
    }
}

/// A prefix of the link (RFC 4861 section 4.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixInformation {
    /// The prefix; the bits after `prefix_len` are to be ignored.
    pub prefix: Ipv6Addr,
    /// How many bits of it count, at most 128.
    pub prefix_len: u8,
    /// Addresses with this prefix are on the link.
    pub on_link: bool,
    /// Hosts may make themselves addresses with it (RFC 4862).
    pub autonomous: bool,
    /// For how long it is valid, in seconds; all ones: for ever.
    pub valid_secs: u32,
    /// For how long addresses made from it are preferred, in seconds; all ones: for ever.
    pub preferred_secs: u32,
}

impl PrefixInformation {
    const UNSPECIFIED: PrefixInformation = PrefixInformation {
        prefix: Ipv6Addr::UNSPECIFIED,
        prefix_len: 0,
        on_link: false,
        autonomous: false,
        valid_secs: 0,
        preferred_secs: 0,
    };

    /// `None` where the prefix is longer than an address.
    fn decode(option: &[u8; 32]) -> Option<PrefixInformation> {
        let flags = option[3];
        (option[2] <= 128).then_some(PrefixInformation {
            prefix_len: option[2],
            on_link: flags & 0x80 != 0,
            autonomous: flags & 0x40 != 0,
            valid_secs: u32::from_be_bytes(bytes::array(option, 4).ok()?),
            preferred_secs: u32::from_be_bytes(bytes::array(option, 8).ok()?),
            prefix: bytes::array::<16>(option, 16).ok()?.into(),
        })
    }

    fn encode(&self) -> [u8; 32] {
        let mut option = [0; 32];
        option[0] = PREFIX_INFORMATION;
        option[1] = 4;
        option[2] = self.prefix_len;
        option[3] = u8::from(self.on_link) << 7 | u8::from(self.autonomous) << 6;
        option[4..8].copy_from_slice(&self.valid_secs.to_be_bytes());
        option[8..12].copy_from_slice(&self.preferred_secs.to_be_bytes());
        option[16..32].copy_from_slice(&self.prefix.octets());
        option
    }
}

/// The prefixes of an advertisement, in their order; those beyond the capacity are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefixes {
    prefixes: [PrefixInformation; Prefixes::CAPACITY],
    len: u8,
}

impl Prefixes {
    /// How many are kept.
    pub const CAPACITY: usize = 4;

    /// Adds a prefix; `false` where it is full.
    pub fn push(&mut self, prefix: PrefixInformation) -> bool {
        let Some(slot) = self.prefixes.get_mut(usize::from(self.len)) else {
            return false;
        };
        *slot = prefix;
        self.len += 1;
        true
    }

    /// The prefixes.
    pub fn iter(&self) -> impl Iterator<Item = &PrefixInformation> {
        self.prefixes.iter().take(usize::from(self.len))
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for Prefixes {
    fn default() -> Self {
        Prefixes {
            prefixes: [PrefixInformation::UNSPECIFIED; Prefixes::CAPACITY],
            len: 0,
        }
    }
}
