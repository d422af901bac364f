//! What `tcp` says unasked, in a process without the filter: which connections there are that may be idle for longer than the
//! filter remembers them.
//!
//! There may be a million, and nothing happens on most. So they are told by and by: a part at a time, which looks at so many
//! slots at most, and with a pause before the next one, so that whoever has something to send waits for one part.

use crate::host::Host;
use crate::inner::summary;
use skink_control::{FlowSummary, Report};
use skink_filter::{Flow, FlowPhase, Timeouts};
use skink_time::{Duration, Instant};

/// How often each connection is told. Several times in the shortest time for which the filter remembers one that lasts.
const EVERY: Duration = Duration::from_secs(6 * 3600);
const _: () = assert!(4 * EVERY.as_secs() <= Timeouts::DEFAULT.tcp_half_closed.as_secs());
const _: () = assert!(4 * EVERY.as_secs() <= Timeouts::DEFAULT.tcp_established.as_secs());

/// Between two parts. A million connections take ten minutes.
const PAUSE: Duration = Duration::from_millis(20);
/// Connections in a part, and slots that are looked at for it.
const CONNECTIONS: usize = 32;
const SLOTS: usize = 1024;

/// How far the telling is.
#[derive(Default)]
pub(crate) struct Lasting {
    /// When the next part is due; `None` where `tcp` isn't apart from others, or doesn't go yet.
    pub due: Option<Instant>,
    /// When the first slot was looked at, and which is next, if it wasn't the last.
    begun: Option<Instant>,
    next: u32,
}

impl Lasting {
    /// `tcp` begins now. Of connections that it has adopted the filter hears by their acknowledgements.
    pub fn begin(&mut self, now: Instant) {
        *self = Lasting {
            due: Some(now + EVERY),
            ..Lasting::default()
        };
    }
}

impl Host {
    /// Tells the supervisor the next part, if it is due.
    pub(crate) fn report_lasting_flows(&mut self, now: Instant) {
        if self.lasting.due.is_none_or(|due| now < due) {
            return;
        }
        self.lasting.due = Some(now + PAUSE);
        let mut waiting = self.reports.iter();
        // A supervisor that doesn't listen doesn't make them pile up.
        if waiting.any(|report| matches!(report, Report::Flows { .. })) {
            return;
        }
        let begun = *self.lasting.begun.get_or_insert(now);
        let (flows, next) = self.lasting_from(self.lasting.next);
        if !flows.is_empty() {
            self.reports.push_back(Report::Flows { flows, last: false });
        }
        self.lasting.next = next.unwrap_or(0);
        if next.is_none() {
            self.lasting.begun = None;
            self.lasting.due = Some((now + PAUSE).max(begun + EVERY));
        }
    }

    /// One part, from the slot with this number on, and the number from which to go on.
    fn lasting_from(&mut self, first: u32) -> (Vec<FlowSummary>, Option<u32>) {
        use FlowPhase::{Established, LocalClosed, RemoteClosed};
        let mut flows = Vec::new();
        let apart = self.front.stack.apart();
        let slots = apart.into_iter().flat_map(|it| it.flows_from(first));
        for (looked_at, (slot, flow)) in slots.enumerate() {
            if looked_at == SLOTS || flows.len() == CONNECTIONS {
                return (flows, Some(slot));
            }
            let lasts =
                |flow: &Flow| matches!(flow.phase, Established | LocalClosed | RemoteClosed);
            flows.extend(flow.filter(lasts).map(summary));
        }
        (flows, None)
    }
}
