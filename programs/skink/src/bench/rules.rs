//! Rules for the packet filter, as many as wanted: none but the last ones match what is measured.

use super::peer;
use std::fmt::Write;

/// Ports on which the benchmark's servers listen.
const SERVED: [u16; 2] = [80, peer::PORT];
/// Rules that every file has: the first one, and one for each port.
const NEEDED: u32 = 1 + SERVED.len() as u32;

/// The fewest rules of a file.
pub const FEWEST: u32 = NEEDED;
/// The most, which is what the filter takes.
pub const MOST: u32 = 65_536;

/// A file of `count` rules: everything is blocked but connections to the servers, which keep state.
pub fn text(count: u32) -> String {
    let mut text = "block all\n".to_owned();
    for number in 0..count.saturating_sub(NEEDED) {
        let (high, low) = ((number >> 8) & 0xff, number & 0xff);
        // As real rules do, they name networks, ports or both.
        let line = match number % 4 {
            0 => format!("block in proto tcp from 198.18.{high}.{low} to any"),
            1 => format!(
                "pass in proto tcp to port {} keep state",
                20_000 + number % 20_000
            ),
            2 => format!(
                "pass in proto udp from 198.19.{high}.0/24 to port {} keep state",
                1024 + low
            ),
            _ => format!(
                "block in quick proto tcp from 203.0.113.{low} to port {}",
                40_000 + number % 20_000
            ),
        };
        let _ = writeln!(text, "{line}");
    }
    for port in SERVED {
        let _ = writeln!(
            text,
            "pass in inet proto tcp to port {port} flags S/SA keep state"
        );
    }
    text
}

#[cfg(test)]
mod tests;
