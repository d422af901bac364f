use crate::settings::Settings;
use skink_memory::SocketId;
use skink_wire::Endpoint;
use std::collections::VecDeque;

/// A socket that waits for connection requests.
pub struct Listener {
    pub id: SocketId,
    pub local: Endpoint,
    pub settings: Settings,
    /// How many connections may wait to be accepted.
    pub backlog: usize,
    /// Established connections in order of arrival, by slot.
    pub ready: VecDeque<u32>,
    /// Handshakes under way.
    pub half_open: usize,
    /// A READABLE event is due.
    pub notify: bool,
}

/// Handshakes that may be under way at once, at least.
const HALF_OPEN: usize = 256;

impl Listener {
    /// Whether one more connection may be established. As in Linux, a backlog of n admits n + 1.
    pub fn has_room(&self) -> bool {
        self.ready.len() <= self.backlog
    }

    /// Whether one more handshake may begin.
    pub fn admits(&self) -> bool {
        self.has_room() && self.half_open < self.backlog.max(HALF_OPEN)
    }
}
