//! What an interface has carried, by the kernel's own count.

use std::io;

/// Frames and bytes since the interface was made, seen from the host it is on. A segment that passes a veth uncut
/// counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames that were received.
    pub frames_in: u64,
    /// Their bytes; a veth leaves out the Ethernet header where the receiving end has NAPI.
    pub bytes_in: u64,
    /// Frames that came, and were dropped.
    pub dropped_in: u64,
    /// Frames that were sent.
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames that were to be sent, and were dropped.
    pub dropped_out: u64,
}

impl Traffic {
    /// That of interface `name`, in the network namespace of process `pid`.
    pub(crate) fn of(pid: u32, name: &str) -> io::Result<Traffic> {
        let path = format!("/proc/{pid}/net/dev");
        parse(&std::fs::read_to_string(&path)?, name)
            .ok_or_else(|| io::Error::other(format!("{path} has no interface {name}")))
    }

    /// What was carried since `earlier`.
    pub fn since(&self, earlier: &Traffic) -> Traffic {
        Traffic {
            frames_in: self.frames_in.saturating_sub(earlier.frames_in),
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
            dropped_in: self.dropped_in.saturating_sub(earlier.dropped_in),
            frames_out: self.frames_out.saturating_sub(earlier.frames_out),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
            dropped_out: self.dropped_out.saturating_sub(earlier.dropped_out),
        }
    }
}

/// Bytes, packets, errors, drops and four other counts received, then the same sent.
fn parse(text: &str, name: &str) -> Option<Traffic> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, counts) = lines.find(|(label, _)| label.trim() == name)?;
    let counts: Vec<&str> = counts.split_whitespace().collect();
    let at = |index: usize| counts.get(index)?.parse().ok();
    Some(Traffic {
        bytes_in: at(0)?,
        frames_in: at(1)?,
        dropped_in: at(3)?,
        bytes_out: at(8)?,
        frames_out: at(9)?,
        dropped_out: at(11)?,
    })
}

#[cfg(test)]
mod tests;
