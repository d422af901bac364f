//! Extension headers (RFC 8200 section 4), as the destination of a packet treats them.

use crate::{Malformed, bytes, icmpv6, protocol};

use super::LEN;

/// The length of the fragment header.
pub const FRAGMENT_LEN: usize = 8;
/// The most extension headers that one packet may have. RFC 8200 knows an order with seven; without a
/// bound, a packet could make its receiver walk thousands (RFC 8504 section 5.3 allows one).
pub const MAXIMUM_EXTENSIONS: usize = 8;

/// Option types whose meaning is "go on": Pad1, PadN, and the router alert (RFC 2711), which concerns
/// routers only.
const PAD1: u8 = 0;
const PADN: u8 = 1;
const ROUTER_ALERT: u8 = 5;

/// The fragment header (RFC 8200 section 4.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentHeader {
    /// What the reassembled payload begins with.
    pub next_header: u8,
    /// Where this fragment's payload goes, in bytes; a multiple of 8.
    pub offset: u16,
    /// This is not the last fragment.
    pub more: bool,
    /// Tells the fragments of one packet from those of another.
    pub identification: u32,
}

impl FragmentHeader {
    /// Splits a fragment header from what follows it.
    pub fn parse(bytes: &[u8]) -> Result<(FragmentHeader, &[u8]), Malformed> {
        let (&[next_header, _, o0, o1, i0, i1, i2, i3], rest) = bytes
            .split_first_chunk::<FRAGMENT_LEN>()
            .ok_or(Malformed::TooShort)?;
        let offset = u16::from_be_bytes([o0, o1]);
        let header = FragmentHeader {
            next_header,
            offset: offset & 0xfff8,
            more: offset & 1 != 0,
            identification: u32::from_be_bytes([i0, i1, i2, i3]),
        };
        Ok((header, rest))
    }

    /// Writes the header and returns [`FRAGMENT_LEN`], or 0 where `out` is too short.
    #[must_use]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let offset = self.offset & 0xfff8 | u16::from(self.more);
        bytes::write(
            out,
            &[
                &[self.next_header, 0],
                &offset.to_be_bytes(),
                &self.identification.to_be_bytes(),
            ],
        )
    }

    /// Whether this "fragment" is a whole packet, which is processed on its own (RFC 6946).
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// What follows the extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upper {
    /// The protocol of what follows, or of the payload that the fragments add up to.
    pub protocol: u8,
    /// Where it begins, in bytes from the end of the fixed header: at most the payload's length.
    pub offset: usize,
    /// Where the field that names the protocol is, in bytes from the start of the fixed header: what a
    /// parameter problem about an unknown protocol points to.
    pub next_header_at: u32,
    /// The fragment header. Unless it is atomic, `offset` is where the fragment's payload begins, and
    /// the walk ended there: reassemble first, then [`walk_reassembled`].
    pub fragment: Option<FragmentHeader>,
}

/// Why a packet is dropped for its extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtensionFault {
    /// Drop it and say nothing.
    Malformed(Malformed),
    /// Drop it and say nothing, as the type of an unknown option demands (RFC 8200 section 4.2, 01).
    Discard,
    /// Drop it and send the source an ICMPv6 parameter problem.
    ParameterProblem {
        /// One of [`icmpv6::parameter_problem`].
        code: u8,
        /// The offending byte, from the start of the fixed header.
        pointer: u32,
        /// Whether to send it even where the packet's destination was a multicast address.
        even_if_multicast: bool,
    },
}

impl From<Malformed> for ExtensionFault {
    fn from(reason: Malformed) -> Self {
        ExtensionFault::Malformed(reason)
    }
}

/// Walks the extension headers in `payload`, which follows a fixed header that names `next_header`.
#[inline]
pub fn walk(next_header: u8, payload: &[u8]) -> Result<Upper, ExtensionFault> {
    if matches!(
        next_header,
        protocol::TCP | protocol::UDP | protocol::ICMPV6
    ) {
        return Ok(Upper {
            protocol: next_header,
            offset: 0,
            next_header_at: NEXT_HEADER_AT,
            fragment: None,
        });
    }
    walk_from(next_header, payload, false)
}

/// Walks what a reassembled packet has in place of the fragment header: `next_header` is that of the
/// first fragment. No hop-by-hop options and no further fragment header can stand there. Pointers are
/// as if the reassembled payload followed the fixed header at once.
pub fn walk_reassembled(next_header: u8, payload: &[u8]) -> Result<Upper, ExtensionFault> {
    walk_from(next_header, payload, true)
}

/// Where the fixed header has its next-header field.
const NEXT_HEADER_AT: u32 = 6;

fn walk_from(next_header: u8, payload: &[u8], reassembled: bool) -> Result<Upper, ExtensionFault> {
    let mut upper = Upper {
        protocol: next_header,
        offset: 0,
        next_header_at: NEXT_HEADER_AT,
        fragment: None,
    };
    for index in 0..=MAXIMUM_EXTENSIONS {
        if !is_extension(upper.protocol) {
            return Ok(upper);
        }
        if index == MAXIMUM_EXTENSIONS {
            break;
        }
        let is_first = index == 0 && !reassembled;
        step(&mut upper, payload, is_first, reassembled)?;
        if upper.fragment.is_some_and(|fragment| !fragment.is_atomic()) {
            return Ok(upper);
        }
    }
    Err(Malformed::BadExtension.into())
}

const fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::FRAGMENT
            | protocol::DESTINATION_OPTIONS
    )
}

/// Moves `upper` past the extension header that it stands on.
fn step(
    upper: &mut Upper,
    payload: &[u8],
    is_first: bool,
    reassembled: bool,
) -> Result<(), ExtensionFault> {
    let at = packet_offset(upper.offset);
    let rest = payload.get(upper.offset..).unwrap_or_default();
    let header = match upper.protocol {
        protocol::FRAGMENT => {
            if reassembled || upper.fragment.is_some() {
                return Err(Malformed::BadExtension.into());
            }
            let (fragment, _) = FragmentHeader::parse(rest).map_err(|_| Malformed::BadExtension)?;
            upper.fragment = Some(fragment);
            rest.get(..FRAGMENT_LEN).ok_or(Malformed::BadExtension)?
        }
        protocol::ROUTING => {
            let header = generic_header(rest)?;
            check_routing(header, at)?;
            header
        }
        protocol::HOP_BY_HOP if !is_first => {
            return Err(ExtensionFault::ParameterProblem {
                code: icmpv6::parameter_problem::UNKNOWN_NEXT_HEADER,
                pointer: upper.next_header_at,
                even_if_multicast: false,
            });
        }
        _ => {
            let header = generic_header(rest)?;
            check_options(header, at)?;
            header
        }
    };
    upper.protocol = *header.first().ok_or(Malformed::BadExtension)?;
    upper.next_header_at = at;
    upper.offset += header.len();
    Ok(())
}

/// The offset from the start of the packet. A payload is shorter than 2^16, so it always fits.
fn packet_offset(payload_offset: usize) -> u32 {
    u32::try_from(payload_offset.saturating_add(LEN)).unwrap_or(u32::MAX)
}

/// An extension header of the common form: next header, length in units of eight bytes less one.
fn generic_header(bytes: &[u8]) -> Result<&[u8], Malformed> {
    let &[_, units, ..] = bytes else {
        return Err(Malformed::BadExtension);
    };
    bytes
        .get(..(usize::from(units) + 1) * 8)
        .ok_or(Malformed::BadExtension)
}

/// A host that knows no routing type ignores a header that is used up, and refuses others
/// (RFC 8200 section 4.4; type 0 is to be treated as unknown, RFC 5095 section 3).
fn check_routing(header: &[u8], at: u32) -> Result<(), ExtensionFault> {
    match header {
        [_, _, _, 0, ..] => Ok(()),
        [_, _, _, _, ..] => Err(ExtensionFault::ParameterProblem {
            code: icmpv6::parameter_problem::ERRONEOUS_FIELD,
            pointer: at.saturating_add(2),
            even_if_multicast: false,
        }),
        _ => Err(Malformed::BadExtension.into()),
    }
}

/// Goes through the options of a hop-by-hop or destination options header (RFC 8200 section 4.2).
fn check_options(header: &[u8], at: u32) -> Result<(), ExtensionFault> {
    let mut position = 2;
    while let Some(&kind) = header.get(position) {
        if kind == PAD1 {
            position += 1;
            continue;
        }
        let len = *header.get(position + 1).ok_or(Malformed::BadOption)?;
        let end = position + 2 + usize::from(len);
        if end > header.len() {
            return Err(Malformed::BadOption.into());
        }
        if kind != PADN && kind != ROUTER_ALERT {
            let pointer = at.saturating_add(u32::try_from(position).unwrap_or(u32::MAX));
            unknown_option(kind, pointer)?;
        }
        position = end;
    }
    Ok(())
}

/// What the two highest bits of an unknown option's type demand.
fn unknown_option(kind: u8, pointer: u32) -> Result<(), ExtensionFault> {
    match kind >> 6 {
        0 => Ok(()),
        1 => Err(ExtensionFault::Discard),
        action => Err(ExtensionFault::ParameterProblem {
            code: icmpv6::parameter_problem::UNKNOWN_OPTION,
            pointer,
            even_if_multicast: action == 2,
        }),
    }
}
