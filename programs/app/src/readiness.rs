//! What `poll` says of a socket: always worked out from the rings and the record, never remembered.
use crate::options::buffer_limit;
use crate::socket::Role;
use crate::state::State;
use crate::transfer::MOST_UNREAD;
use core::sync::atomic::Ordering;
use skink_messages::Events;
use skink_tcp::State as TcpState;

const IN: u32 = (libc::POLLIN | libc::POLLRDNORM) as u32;
const OUT: u32 = (libc::POLLOUT | libc::POLLWRNORM) as u32;
const ERR: u32 = libc::POLLERR as u32;
const HUP: u32 = libc::POLLHUP as u32;
const RDHUP: u32 = libc::POLLRDHUP as u32;

impl State {
    /// The socket's `POLL…` bits now (`EPOLL…` has the same values).
    pub fn readiness(&self, index: u32) -> u32 {
        let socket = &self.sockets[index];
        let pending = if socket.error != 0 { ERR } else { 0 };
        let Some(engine) = self.engine.as_deref() else {
            return match socket.role {
                Role::Undecided if socket.datagram => OUT,
                Role::Dormant if !socket.is_bound_only() => 0,
                _ => OUT | HUP,
            };
        };
        match socket.role {
            Role::Undecided if socket.datagram => OUT,
            Role::Undecided => OUT | HUP | pending,
            Role::Dormant if socket.is_bound_only() => OUT | HUP,
            Role::Dormant => 0,
            Role::Lost if socket.passed_on => 0,
            Role::Lost => IN | OUT | HUP | ERR,
            Role::Listener(halves) => {
                let mut halves = halves.into_iter().flatten();
                if engine.is_down() {
                    // Until it is told: a program that goes on polling would do nothing else.
                    if socket.told_down { 0 } else { IN | ERR }
                } else if halves.any(|id| engine.stack.tcp_acceptable(id) > 0) {
                    IN
                } else {
                    0
                }
            }
            Role::Stream(id) => {
                let table = engine.stack.tcp_table();
                let lasting = engine.lasting(id);
                if socket.connecting {
                    return pending;
                }
                let mut bits = pending;
                let rings = table.find_rings(id);
                let over = lasting.contains(Events::CLOSED) || rings.is_none();
                let read_over = over || lasting.contains(Events::READ_CLOSED);
                if read_over || socket.shut_read {
                    bits |= IN | RDHUP;
                } else if let Some([_, receive]) = rings {
                    let low = (socket.options.receive_low.max(1) as usize).min(MOST_UNREAD);
                    if receive.len() >= low {
                        bits |= IN;
                    }
                }
                if over
                    || (read_over && socket.shut_write)
                    || (socket.shut_read && socket.shut_write)
                {
                    bits |= HUP;
                }
                let roomy = rings.is_some_and(|[send, _]| {
                    let limit = buffer_limit(socket.options.send_buffer, send.size())
                        .min(engine.stack.tcp_send_limit());
                    send.is_roomy() && send.len() <= limit - limit / 4
                });
                if over || socket.shut_write || roomy {
                    bits |= OUT;
                }
                bits
            }
            Role::Datagram(halves) => {
                let table = engine.stack.udp_table();
                let mut bits = pending;
                let mut halves = halves.into_iter().flatten();
                if socket.shut_read {
                    bits |= IN | RDHUP;
                } else if halves
                    .clone()
                    .any(|id| !table.receive_ring(id.slot).is_empty())
                {
                    bits |= IN;
                }
                if socket.shut_read && socket.shut_write {
                    bits |= HUP;
                }
                let roomy = halves.all(|id| table.send_ring(id.slot).is_roomy());
                if roomy { bits | OUT } else { bits }
            }
        }
    }

    /// Whether a stream socket has a connection that isn't over.
    pub fn is_connected(&self, index: u32) -> bool {
        let (Role::Stream(id), Some(engine)) = (self.sockets[index].role, &self.engine) else {
            return false;
        };
        let record = engine.stack.tcp_table().find(id);
        let state = record.map(|record| record.state.load(Ordering::Relaxed));
        let state = state.and_then(TcpState::from_number);
        state.is_some_and(|state| state.is_synchronized())
            && !engine
                .lasting(id)
                .intersects(Events::CLOSED | Events::ERROR)
    }
}
