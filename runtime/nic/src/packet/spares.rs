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
#[derive(Default)]
pub(super) struct Spares(VecDeque<JoinHandle<io::Result<Pair>>>);

impl Spares {
    /// One that was made ahead, or is being made; otherwise it is made now.
    pub(super) fn take(&mut self, ring: Geometry) -> io::Result<Pair> {
        let ahead = self.0.pop_front();
        // A thread that failed says why by how it fails here.
        let ahead = ahead.and_then(|thread| thread.join().ok()?.ok());
        ahead.map_or_else(|| Pair::new(ring), Ok)
    }

    /// `owners` have come, the last of whom has this socket: as many more may be about to.
    pub(super) fn expect(&mut self, owners: usize, socket: BorrowedFd<'_>, ring: Geometry) {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if socket.as_raw_fd() as u64 + SPARED > limit {
            close_together(self.drain());
            return;
        }
        while self.0.len() < owners.min(AHEAD / ring.bytes()) {
            // Where no thread can be had, it is made when it is needed.
            match thread::Builder::new().spawn(move || Pair::new(ring)) {
                Ok(thread) => self.0.push_back(thread),
                Err(_) => return,
            }
        }
    }
}

impl Spares {
    /// The sockets of all.
    pub(super) fn drain(&mut self) -> Vec<OwnedFd> {
        let made = self.0.drain(..).filter_map(|it| it.join().ok()?.ok());
        made.flat_map(|pair| [pair.flows, pair.control]).collect()
    }
}

impl Pair {
    /// Both rings at once: the kernel waits for both the same time.
    fn new(ring: Geometry) -> io::Result<Pair> {
        thread::scope(|scope| {
            let control = thread::Builder::new().spawn_scoped(scope, control_socket);
            let flows = flows_socket(ring);
            let control = match control {
                Ok(thread) => thread.join().unwrap_or_else(|_| control_socket()),
                Err(_) => control_socket(),
            };
            Ok(Pair {
                flows: flows?,
                control: control?,
            })
        })
    }
}

/// A socket with its ring, for frames of an owner's flows and for sending.
pub(super) fn flows_socket(ring: Geometry) -> io::Result<OwnedFd> {
    let socket = socket::packet_socket()?;
    geometry::configure(socket.as_fd(), ring, Direction::Inbound)?;
    configure_sending(socket.as_fd())?;
    Ok(socket)
}

/// A socket with a small ring for frames that every owner must see.
fn control_socket() -> io::Result<OwnedFd> {
    let socket = socket::packet_socket()?;
    geometry::configure(socket.as_fd(), Geometry::CONTROL, Direction::Inbound)?;
    Ok(socket)
}
