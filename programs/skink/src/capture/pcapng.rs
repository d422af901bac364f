//! The pcapng format (draft-ietf-opsawg-pcapng), little endian.
use skink_memory::{CaptureDirection, CapturedFrame};
use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;

const END_OF_OPTIONS: u16 = 0;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const STATISTICS_RECEIVED: u16 = 4;
const STATISTICS_DROPPED: u16 = 5;
const PACKET_FLAGS: u16 = 2;

/// The file's head: section header block (section 4.1).
pub fn section(out: &mut impl Write, application: &str) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend(BYTE_ORDER_MAGIC.to_le_bytes());
    body.extend(1u16.to_le_bytes());
    body.extend(0u16.to_le_bytes());
    body.extend(u64::MAX.to_le_bytes());
    option(&mut body, SECTION_APPLICATION, application.as_bytes());
    option(&mut body, END_OF_OPTIONS, &[]);
    block(out, SECTION_HEADER, &body)
}

/// One source of frames: interface description block (section 4.2). They are numbered from 0 in the
/// order in which they stand in the file. Times are in nanoseconds.
pub fn interface(out: &mut impl Write, name: &str, snap_bytes: u32) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend(LINKTYPE_ETHERNET.to_le_bytes());
    body.extend(0u16.to_le_bytes());
    body.extend(snap_bytes.to_le_bytes());
    option(&mut body, INTERFACE_NAME, name.as_bytes());
    option(&mut body, INTERFACE_RESOLUTION, &[9]);
    option(&mut body, END_OF_OPTIONS, &[]);
    block(out, INTERFACE_DESCRIPTION, &body)
}

/// One frame: enhanced packet block (section 4.3).
pub fn packet(out: &mut impl Write, interface: u32, frame: &CapturedFrame) -> io::Result<()> {
    let kept = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
    let mut body = Vec::with_capacity(frame.bytes.len() + 48);
    body.extend(interface.to_le_bytes());
    body.extend(((frame.time_ns >> 32) as u32).to_le_bytes());
    body.extend((frame.time_ns as u32).to_le_bytes());
    body.extend(kept.to_le_bytes());
    body.extend(frame.original_bytes.max(kept).to_le_bytes());
    body.extend(&frame.bytes);
    pad(&mut body);
    // Bits 0 and 1: 1 is inbound, 2 is outbound.
    let flags: u32 = match frame.direction {
        CaptureDirection::Inbound => 1,
        CaptureDirection::Outbound => 2,
    };
    option(&mut body, PACKET_FLAGS, &flags.to_le_bytes());
    option(&mut body, END_OF_OPTIONS, &[]);
    block(out, ENHANCED_PACKET, &body)
}

/// How many frames there were and how many of them are missing: interface statistics block
/// (section 4.6).
pub fn statistics(out: &mut impl Write, interface: u32, seen: u64, dropped: u64) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend(interface.to_le_bytes());
    body.extend([0; 8]);
    option(&mut body, STATISTICS_RECEIVED, &seen.to_le_bytes());
    option(&mut body, STATISTICS_DROPPED, &dropped.to_le_bytes());
    option(&mut body, END_OF_OPTIONS, &[]);
    block(out, INTERFACE_STATISTICS, &body)
}

fn block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let total = u32::try_from(body.len() + 12).map_err(|_| io::ErrorKind::InvalidInput)?;
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&total.to_le_bytes())?;
    out.write_all(body)?;
    out.write_all(&total.to_le_bytes())
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    body.extend(code.to_le_bytes());
    body.extend(length.to_le_bytes());
    body.extend(&value[..usize::from(length)]);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests;
