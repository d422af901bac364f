use rustix::event::PollFlags;
use skink_messages::Progress;
use skink_time::Instant;
use std::os::fd::BorrowedFd;

/// Who a component talks to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Neighbour {
    /// `link`
    Link,
    /// `ip`
    Ip,
    /// `filter`
    Filter,
    /// `tcp`
    Tcp,
    /// `udp`
    Udp,
    /// `syscall`
    Syscall,
    /// `store`
    Store,
}

/// A component with its ends. All calls come from one thread.
pub trait Host {
    /// Takes a batch from each neighbour, does what is due, and shows neighbours what came of it.
    /// [`Progress::More`] if there is more to do at once.
    fn poll(&mut self, now: Instant) -> Progress;

    /// When to poll at the latest, if nothing else happens.
    fn next_deadline(&self) -> Option<Instant>;

    /// Whether a neighbour has sent something, or made room for what there was none for.
    fn is_ready(&self) -> bool;

    /// What to sleep on besides what neighbours ring, and what to wait for there.
    fn descriptors<'a>(&'a self, each: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        let _ = each;
    }

    /// A neighbour that has spoilt its queues, and must be restarted with new ones.
    fn broken(&self) -> Option<Neighbour>;
}
