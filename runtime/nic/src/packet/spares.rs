use super::geometry::{self, Direction, Geometry};
use super::{configure_sending, socket};
use crate::socket::close_together;
use rustix::process::{Resource, getrlimit};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread::{self, JoinHandle};

/// Rings that are made ahead may take so many bytes: those of four owners, or of none where each needs
/// [`Geometry::WHOLE`].
const AHEAD: usize = 4 << 20;

/// None are made, and those that were are given up, if there may soon be no more descriptors than these for all else.
const SPARED: u64 = 64;

/// The sockets of an owner to come, with their rings, not bound yet.
pub(super) struct Pair {
    /// For its flows.
    pub(super) flows: OwnedFd,
    /// For what every owner must see.
    pub(super) control: OwnedFd,
}

/// Pairs of sockets that are made ahead: for each ring the kernel waits until all processors have gone through a quiet
/// moment (`synchronize_net` in `packet_set_ring`), 5 to 20 ms, and so would each process that comes.
///
/// They are used in the order in which their sockets for flows were made, and none is made by itself while there are others: when an
/// interface comes up again, all members of a fan-out group join anew in that order ([`crate::places::Places`]).
#[derive(Default)]
pub(super) struct Spares(VecDeque<JoinHandle<io::Result<Pair>>>);

impl Spares {
    /// One that was made ahead, or is being made; otherwise it is made now.
    pub(super) fn take(&mut self, ring: Geometry) -> io::Result<Pair> {
        let ahead = self.0.pop_front();
        if let Some(Ok(Ok(pair))) = ahead.map(JoinHandle::join) {
            return Ok(pair);
        }
        // Those behind one that failed would come too early. Why it failed is told by how it fails here.
        close_together(self.drain());
        Pair::with_rings(socket::packet_socket()?, ring)
    }

    /// More owners may be about to come after one that has this socket. Once all that were made are used up, some are made together.
    pub(super) fn expect_more(&mut self, socket: BorrowedFd<'_>, ring: Geometry) {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if socket.as_raw_fd() as u64 + SPARED > limit {
            close_together(self.drain());
            return;
        }
        if self.0.is_empty() {
            // Where there is no room for it, one is made when it is needed.
            let made = (0..AHEAD / ring.bytes()).map_while(|_| {
                let flows = socket::packet_socket().ok()?;
                let thread = thread::Builder::new();
                thread.spawn(move || Pair::with_rings(flows, ring)).ok()
            });
            self.0.extend(made);
        }
    }

    /// The sockets of all.
    pub(super) fn drain(&mut self) -> Vec<OwnedFd> {
        let made = self.0.drain(..).filter_map(|it| it.join().ok()?.ok());
        made.flat_map(|pair| [pair.flows, pair.control]).collect()
    }
}

impl Pair {
    /// Both rings at once: the kernel waits for both the same time.
    fn with_rings(flows: OwnedFd, ring: Geometry) -> io::Result<Pair> {
        thread::scope(|scope| {
            let control = thread::Builder::new().spawn_scoped(scope, control_socket);
            let configured = configure_flows(flows.as_fd(), ring);
            let control = match control {
                Ok(thread) => thread.join().unwrap_or_else(|_| control_socket()),
                Err(_) => control_socket(),
            };
            configured?;
            Ok(Pair {
                flows,
                control: control?,
            })
        })
    }
}

/// A socket with its ring, for frames of an owner's flows and for sending.
pub(super) fn flows_socket(ring: Geometry) -> io::Result<OwnedFd> {
    let socket = socket::packet_socket()?;
    configure_flows(socket.as_fd(), ring)?;
    Ok(socket)
}

fn configure_flows(socket: BorrowedFd<'_>, ring: Geometry) -> io::Result<()> {
    geometry::configure(socket, ring, Direction::Inbound)?;
    configure_sending(socket)
}

/// A socket with a small ring for frames that every owner must see.
fn control_socket() -> io::Result<OwnedFd> {
    let socket = socket::packet_socket()?;
    geometry::configure(socket.as_fd(), Geometry::CONTROL, Direction::Inbound)?;
    Ok(socket)
}
