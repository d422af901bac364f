//! What the kernel says by netlink of an interface and XDP (rtnetlink(7), `<linux/netdev.h>`).

use super::{XdpPlace, XdpSupport};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink,
};
use std::io;

/// Of `struct nlmsghdr`, `struct ifinfomsg` and `struct genlmsghdr`.
const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;
const GENERIC_BYTES: usize = 4;

const REQUEST: u16 = 1;
const ERROR: u16 = 2;

/// Of rtnetlink: what is asked, and what of the answer is wanted.
const GET_LINK: u16 = 18;
const LINK_XDP: u16 = 43;
const XDP_ATTACHED: u16 = 2;
const NOT_ATTACHED: u8 = 0;
const GENERIC: u8 = 2;

/// Of generic netlink: families have numbers, which one of fixed number tells.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Of the family `netdev`.
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;
const XDP_BASIC: u64 = 1;
const XDP_REDIRECT: u64 = 2;
const XDP_ZERO_COPY: u64 = 8;

/// Where an XDP program is in front of the interface, if there is one.
pub(super) fn xdp_program(index: u32) -> io::Result<Option<XdpPlace>> {
    let mut body = [0; LINK_BYTES];
    if let Some(field) = body.get_mut(4..8) {
        field.copy_from_slice(&index.to_ne_bytes());
    }
    let answer = ask(None, GET_LINK, &body)?;
    let link = answer.get(LINK_BYTES..).unwrap_or_default();
    let xdp = attribute(link, LINK_XDP).ok_or(io::ErrorKind::InvalidData)?;
    let attached = attribute(xdp, XDP_ATTACHED).ok_or(io::ErrorKind::InvalidData)?;
    match *attached {
        [NOT_ATTACHED] => Ok(None),
        [GENERIC] => Ok(Some(XdpPlace::Generic)),
        _ => Ok(Some(XdpPlace::Driver)),
    }
}

/// What the interface's driver does with XDP.
pub(super) fn xdp_support(index: u32) -> io::Result<XdpSupport> {
    let name = generic(GET_FAMILY, FAMILY_NAME, b"netdev\0");
    let answer = ask(Some(netlink::GENERIC), CONTROLLER, &name)?;
    let family = number(&answer, FAMILY_ID)?;
    let family = u16::try_from(family).map_err(|_| io::ErrorKind::InvalidData)?;
    let device = generic(GET_DEVICE, DEVICE_INDEX, &index.to_ne_bytes());
    let features = number(
        &ask(Some(netlink::GENERIC), family, &device)?,
        DEVICE_XDP_FEATURES,
    )?;
    let has = |feature: u64| features & feature != 0;
    Ok(XdpSupport {
        native: has(XDP_BASIC) && has(XDP_REDIRECT),
        zero_copy: has(XDP_ZERO_COPY),
    })
}

/// A generic command with one attribute.
fn generic(command: u8, kind: u16, value: &[u8]) -> Vec<u8> {
    let mut body = vec![command, 1, 0, 0];
    body.extend((value.len() as u16 + 4).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body
}

/// A number in a generic answer.
fn number(answer: &[u8], kind: u16) -> io::Result<u64> {
    let attributes = answer.get(GENERIC_BYTES..).unwrap_or_default();
    let value = attribute(attributes, kind).ok_or(io::ErrorKind::InvalidData)?;
    match *value {
        [a, b] => Ok(u16::from_ne_bytes([a, b]).into()),
        [a, b, c, d, e, f, g, h] => Ok(u64::from_ne_bytes([a, b, c, d, e, f, g, h])),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Asks (rtnetlink, unless another protocol is named), and answers what follows the header of the one message that comes back.
fn ask(protocol: Option<Protocol>, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol,
    )?;
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend((HEADER_BYTES as u32 + body.len() as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    let mut answer = vec![0; 32_768];
    let (length, _) = rustix::net::recv(&socket, answer.as_mut_slice(), RecvFlags::empty())?;
    answer.truncate(length);
    if answer.get(4..6) == Some(&ERROR.to_ne_bytes()) {
        let code = answer
            .get(HEADER_BYTES..)
            .and_then(|rest| rest.first_chunk());
        let code = code.map_or(0, |code| i32::from_ne_bytes(*code));
        return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
    }
    Ok(answer.split_off(HEADER_BYTES.min(length)))
}

/// The value of the first attribute of that kind.
fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    while let [a, b, c, d, ..] = *attributes {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        // The two highest bits aren't the kind's.
        if u16::from_ne_bytes([c, d]) & 0x3fff == kind {
            return attributes.get(4..length);
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests;
