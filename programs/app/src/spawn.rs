//! What the children of `posix_spawn` do with descriptors before they become another program.
use crate::raw;
use crate::state::State;
use core::ffi::c_int;

/// One action, in the child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// `dup2` of the first to the second, which stays open, even if they are the same.
    Duplicate(c_int, c_int),
    /// The descriptor is closed, or becomes a file.
    Close(c_int),
    /// All are closed from this one on.
    CloseFrom(c_int),
}

/// The lists of actions of this process.
pub struct Spawning {
    lists: Vec<(usize, Vec<Action>)>,
}

impl Spawning {
    /// None.
    pub const fn new() -> Spawning {
        Spawning { lists: Vec::new() }
    }

    /// The list at this address has one more.
    pub fn add(&mut self, list: usize, action: Action) {
        match self.lists.iter_mut().find(|(at, _)| *at == list) {
            Some((_, actions)) => actions.push(action),
            None => self.lists.push((list, vec![action])),
        }
    }

    /// The list at this address is new, or gone.
    pub fn forget(&mut self, list: usize) {
        self.lists.retain(|(at, _)| *at != list);
    }

    fn of(&self, list: usize) -> &[Action] {
        let known = self.lists.iter().find(|(at, _)| *at == list);
        known.map_or(&[], |(_, actions)| actions)
    }
}

/// The descriptors that a child has left open at the end: `all` are its parent's sockets, of which `stays`
/// tells whether `exec` leaves them open.
fn apply(
    actions: &[Action],
    all: Vec<(c_int, u32)>,
    stays: impl Fn(c_int) -> bool,
) -> Vec<(c_int, u32)> {
    let mut held: Vec<(c_int, u32, bool)> = all
        .into_iter()
        .map(|(fd, socket)| (fd, socket, stays(fd)))
        .collect();
    for action in actions {
        match *action {
            Action::Duplicate(old, new) => {
                let from = held.iter().find(|(fd, ..)| *fd == old);
                let from = from.map(|(_, socket, _)| *socket);
                held.retain(|(fd, ..)| *fd != new);
                held.extend(from.map(|socket| (new, socket, true)));
            }
            Action::Close(fd) => held.retain(|(other, ..)| *other != fd),
            // The library's own descriptors would be closed as well.
            Action::CloseFrom(_) => return Vec::new(),
        }
    }
    held.retain(|(_, _, stays)| *stays);
    held.into_iter()
        .map(|(fd, socket, _)| (fd, socket))
        .collect()
}

impl State {
    /// The descriptors of sockets that a child begins with, after the actions in the list at this address.
    pub fn staying_in_child(&self, list: usize) -> Vec<(c_int, u32)> {
        let stays = |fd: c_int| {
            let flags = raw::fcntl(fd, libc::F_GETFD, 0);
            flags.is_ok_and(|flags| flags & libc::FD_CLOEXEC as usize == 0)
        };
        apply(self.spawning.of(list), self.descriptors_of_sockets(), stays)
    }
}

#[cfg(test)]
mod tests;
