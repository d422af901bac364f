//! When a run is over, and what is wrong if it doesn't come to that.

use super::{Action, Entry, Program, World};
use skink_memory::{SocketKind, SocketTable};
use std::cmp::Reverse;

impl World {
    pub(super) fn programs_are_done(&self) -> bool {
        let over = self.programs.iter().all(|resident| {
            let talks = matches!(resident.program, Some(Program::Connection(_)));
            !talks && resident.opening.is_none()
        });
        let datagrams = self.board.scenario.datagrams.len();
        self.starts_left == 0 && over && self.board.datagrams_done == datagrams
    }

    pub(super) fn stacks_are_empty(&mut self) -> bool {
        self.sockets_are_gone() && self.hosts.iter_mut().all(|host| host.leaks().is_empty())
    }

    fn sockets_are_gone(&self) -> bool {
        let sockets = self.hosts.iter().all(|host| {
            host.sockets_left() == 0
                && (host.stack.tcp_unfinished() == 0 || !host.spoilt.is_empty())
                && (host.dead.is_none() || host.finished)
        });
        let frames = |Reverse(entry): &Reverse<Entry>| {
            matches!(entry.action, Action::Arrive(..) | Action::Ping(_))
        };
        let inbound = self.hosts.iter().any(|host| host.nic.has_inbound());
        sockets && !inbound && !self.queue.iter().any(frames)
    }

    pub(super) fn complain_about_hang(&mut self) {
        let mut lines = vec![format!("the run hangs at {:?}", self.now)];
        for resident in &self.programs {
            if let Some(opening) = resident.opening {
                let host = resident.host;
                lines.push(format!("  host {host}: {opening:?} waits for its socket"));
            }
            let Some(Program::Connection(connection)) = &resident.program else {
                continue;
            };
            let table = self.hosts[resident.host].stack.tcp_table();
            let socket = describe_socket(table, connection.socket().slot);
            lines.push(format!(
                "  host {}: {}; {socket}",
                resident.host,
                connection.describe()
            ));
        }
        self.board.failures.push(lines.join("\n"));
    }

    pub(super) fn complain_about_leaks(&mut self) {
        let mut lines = vec![format!("sockets are left at {:?}", self.now)];
        for (index, host) in self.hosts.iter_mut().enumerate() {
            let leaks = host.leaks().into_iter();
            lines.extend(leaks.map(|what| format!("  host {index}: {what}")));
            let unfinished = host.stack.tcp_unfinished();
            let (dead, finished) = (host.dead, host.finished);
            lines.push(format!(
                "  host {index}: {unfinished} unfinished; dead {dead:?}, finished {finished}"
            ));
            for table in [host.stack.tcp_table(), host.stack.udp_table()] {
                for slot in table.slots() {
                    if table.record(slot).kind() != SocketKind::Free {
                        let socket = describe_socket(table, slot);
                        lines.push(format!("  host {index}: slot {slot}: {socket}"));
                    }
                }
            }
        }
        self.board.failures.push(lines.join("\n"));
    }
}

fn describe_socket(table: &SocketTable, slot: u32) -> String {
    use std::sync::atomic::Ordering::Relaxed;
    let record = table.record(slot);
    let (send, receive) = (table.send_ring(slot), table.receive_ring(slot));
    format!(
        "{} state {} fin {:#x} una +{} max +{} wnd {} nxt +{} adv +{} send {}/{} receive {}/{}",
        record.four_tuple(),
        record.state.load(Relaxed),
        record.fin.load(Relaxed),
        record
            .snd_una
            .load(Relaxed)
            .wrapping_sub(record.iss.load(Relaxed)),
        record
            .snd_max
            .load(Relaxed)
            .wrapping_sub(record.iss.load(Relaxed)),
        record.snd_wnd.load(Relaxed),
        record
            .rcv_nxt
            .load(Relaxed)
            .wrapping_sub(record.irs.load(Relaxed)),
        record
            .rcv_adv
            .load(Relaxed)
            .wrapping_sub(record.irs.load(Relaxed)),
        send.len(),
        send.capacity(),
        receive.len(),
        receive.capacity(),
    )
}
