//! Frames that every owner of a shared interface must see.
//!
//! Each owner has its own neighbour cache, connections and multicast groups, so ARP, neighbour discovery,
//! queries for groups and ICMP errors go to all of them, over a *control* socket of each; everything else
//! goes to one. An echo request isn't control: exactly one owner shall answer it.
//!
//! Where the kernel runs the steering program, its own control filter is used. What is here works
//! without `CAP_BPF` too, for a TAP in a user namespace.

use crate::vlan;
use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX,
    BPF_MSH, BPF_RET, BPF_W, sock_filter,
};
use skink_wire::ethernet;

/// ICMP errors: destination unreachable, source quench, redirect, time exceeded, parameter problem
/// (RFC 792).
const ICMP_ERRORS: [u8; 5] = [3, 4, 5, 11, 12];
/// ICMPv6 types below this one are errors (RFC 4443 section 2.1).
const ICMPV6_INFORMATION: u8 = 128;
/// Router solicitation, the first type of neighbour discovery; redirect is the last (RFC 4861).
const NDP_FIRST: u8 = 133;
const NDP_LAST: u8 = 137;

/// A query for who is in which multicast group (RFC 3810). It comes behind hop-by-hop options of 8 bytes.
const GROUPS_QUERY: u8 = 130;

const HOP_BY_HOP: u8 = 0;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Whether every owner must see this frame.
pub(crate) fn is_control(frame: &[u8]) -> bool {
    let byte = |at: usize| frame.get(at).copied();
    match (byte(12), byte(13)) {
        (Some(high), Some(low)) => match u16::from_be_bytes([high, low]) {
            ethernet::ARP => true,
            ethernet::IPV4 => {
                let (Some(first), Some(high), Some(low)) = (byte(14), byte(20), byte(21)) else {
                    return false;
                };
                byte(23) == Some(ICMP)
                    && u16::from_be_bytes([high, low]) & 0x1fff == 0
                    && byte(14 + usize::from(first & 0xf) * 4)
                        .is_some_and(|kind| ICMP_ERRORS.contains(&kind))
            }
            ethernet::IPV6 if byte(20) == Some(HOP_BY_HOP) => {
                (byte(54), byte(55), byte(62)) == (Some(ICMPV6), Some(0), Some(GROUPS_QUERY))
            }
            ethernet::IPV6 => {
                byte(20) == Some(ICMPV6)
                    && byte(54).is_some_and(|kind| {
                        kind < ICMPV6_INFORMATION || (NDP_FIRST..=NDP_LAST).contains(&kind)
                    })
            }
            _ => false,
        },
        _ => false,
    }
}

/// Where a jump goes.
#[derive(Clone, Copy)]
enum To {
    Next,
    At(u8),
    Control,
    Other,
}

/// The classic BPF program that lets nothing through, until a socket is where it belongs.
pub(crate) fn reject_all() -> Vec<sock_filter> {
    vec![statement(BPF_RET | BPF_K, 0)]
}

/// The classic BPF program that lets through the control frames which the kernel sends out of an
/// interface. Those with the tag of a VLAN (the kernel keeps it apart) belong to another interface.
pub(crate) fn outgoing_control() -> Vec<sock_filter> {
    let ancillary =
        |what: i32| statement(BPF_LD | BPF_W | BPF_ABS, (libc::SKF_AD_OFF + what) as u32);
    let mut program = Vec::with_capacity(32);
    let tagged = ancillary(libc::SKF_AD_VLAN_TAG_PRESENT);
    program.push((tagged, To::Next, To::Next));
    program.push((equal(0), To::At(4), To::Next));
    let tag = ancillary(libc::SKF_AD_VLAN_TAG);
    program.push((tag, To::Next, To::Next));
    let names_one = statement(BPF_JMP | BPF_JSET | BPF_K, u32::from(vlan::ID));
    program.push((names_one, To::Other, To::Next));
    let direction = ancillary(libc::SKF_AD_PKTTYPE);
    program.push((direction, To::Next, To::Next));
    let outgoing = u32::from(libc::PACKET_OUTGOING);
    program.push((equal(outgoing), To::Next, To::Other));
    classify(&mut program);
    resolve(&program)
}

type Step = (sock_filter, To, To);

fn classify(program: &mut Vec<Step>) {
    let load = |size: u32, at: u32| (statement(BPF_LD | size | BPF_ABS, at), To::Next, To::Next);
    program.push(load(BPF_H, 12));
    program.push((equal(u32::from(ethernet::ARP)), To::Control, To::Next));
    let ipv4_steps = 6 + ICMP_ERRORS.len() as u8;
    let ipv6 = program.len() as u8 + 2 + ipv4_steps;
    program.push((equal(u32::from(ethernet::IPV6)), To::At(ipv6), To::Next));
    program.push((equal(u32::from(ethernet::IPV4)), To::Next, To::Other));

    program.push(load(BPF_B, 23));
    program.push((equal(u32::from(ICMP)), To::Next, To::Other));
    program.push(load(BPF_H, 20));
    let any_bit = statement(BPF_JMP | BPF_JSET | BPF_K, 0x1fff);
    program.push((any_bit, To::Other, To::Next));
    let header_length = statement(BPF_LDX | BPF_B | BPF_MSH, 14);
    program.push((header_length, To::Next, To::Next));
    let kind = statement(BPF_LD | BPF_B | BPF_IND, 14);
    program.push((kind, To::Next, To::Next));
    for (at, &error) in ICMP_ERRORS.iter().enumerate() {
        let last = at + 1 == ICMP_ERRORS.len();
        let otherwise = if last { To::Other } else { To::Next };
        program.push((equal(u32::from(error)), To::Control, otherwise));
    }

    debug_assert_eq!(program.len(), usize::from(ipv6));
    program.push(load(BPF_B, 20));
    let plain = program.len() as u8 + 5;
    program.push((equal(u32::from(HOP_BY_HOP)), To::Next, To::At(plain)));
    // The options' protocol and length in one.
    program.push(load(BPF_H, 54));
    let options = u32::from(ICMPV6) << 8;
    program.push((equal(options), To::Next, To::Other));
    program.push(load(BPF_B, 62));
    program.push((equal(u32::from(GROUPS_QUERY)), To::Control, To::Other));

    debug_assert_eq!(program.len(), usize::from(plain));
    program.push((equal(u32::from(ICMPV6)), To::Next, To::Other));
    program.push(load(BPF_B, 54));
    let at_least = |kind: u8| statement(BPF_JMP | BPF_JGE | BPF_K, u32::from(kind));
    program.push((at_least(ICMPV6_INFORMATION), To::Next, To::Control));
    program.push((at_least(NDP_LAST + 1), To::Other, To::Next));
    program.push((at_least(NDP_FIRST), To::Control, To::Other));
}

/// Adds the two ends and turns targets into distances.
fn resolve(program: &[Step]) -> Vec<sock_filter> {
    let end = program.len();
    let mut resolved: Vec<sock_filter> = program
        .iter()
        .enumerate()
        .map(|(at, &(step, yes, no))| {
            let distance = |to: To| {
                let target = match to {
                    To::Next => at + 1,
                    To::At(target) => usize::from(target),
                    To::Control => end,
                    To::Other => end + 1,
                };
                // The whole program is far shorter than 256 steps.
                (target - at - 1) as u8
            };
            sock_filter {
                jt: distance(yes),
                jf: distance(no),
                ..step
            }
        })
        .collect();
    resolved.push(statement(BPF_RET | BPF_K, u32::MAX));
    resolved.push(statement(BPF_RET | BPF_K, 0));
    resolved
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

fn equal(k: u32) -> sock_filter {
    statement(BPF_JMP | BPF_JEQ | BPF_K, k)
}

#[cfg(test)]
mod tests;
