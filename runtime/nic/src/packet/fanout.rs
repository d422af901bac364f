use crate::places::Places;
use crate::socket;
use skink_steering::{Owner, Steering};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The owners' sockets on one interface, of which each frame reaches one.
#[derive(Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Group {
    /// The kernel's number for the group, once it has a member.
    id: Option<u16>,
    places: Places,
}

impl Group {
    /// What a former owner left behind, if there is such a one, for `owner`.
    pub(super) fn reuse(
        &mut self,
        owner: Owner,
        steering: &Steering,
    ) -> io::Result<Option<Vec<OwnedFd>>> {
        let Some((sockets, index)) = self.places.take(owner)? else {
            return Ok(None);
        };
        steering.set_fanout_index(owner, index);
        Ok(Some(sockets))
    }

    /// What the owner has, for who goes on in place of its process.
    pub(super) fn again(&self, owner: Owner) -> io::Result<Option<Vec<OwnedFd>>> {
        self.places.again(owner)
    }

    /// Adds the first of an owner's sockets, which is bound.
    pub(super) fn join(
        &mut self,
        owner: Owner,
        sockets: &[OwnedFd; 2],
        steering: &Steering,
    ) -> io::Result<()> {
        let program = steering.fanout_program();
        self.id = Some(join_fanout(sockets[0].as_fd(), self.id, Some(program))?);
        let index = self.places.append(owner, sockets)?;
        steering.set_fanout_index(owner, index);
        Ok(())
    }

    /// The sockets of all, which it has no more.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = OwnedFd> {
        self.places.drain()
    }

    /// How many owners there were at a time.
    pub(super) fn owners(&self) -> usize {
        self.places.count()
    }

    /// The owner's process is gone.
    pub(super) fn leave(&mut self, owner: Owner) {
        self.places.leave(owner);
    }
}

/// Puts a bound packet socket into the fan-out group `group`, or a new one; answers the group's
/// number. The first member brings the `program` (an eBPF socket filter that answers a place);
/// without one the kernel picks a member by the flow's hash.
pub(crate) fn join_fanout(
    socket: BorrowedFd<'_>,
    group: Option<u16>,
    program: Option<BorrowedFd<'_>>,
) -> io::Result<u16> {
    let kind = match program {
        Some(_) => libc::PACKET_FANOUT_EBPF,
        None => libc::PACKET_FANOUT_HASH,
    };
    // A group has its own idea of outgoing frames, whatever its sockets' options say.
    let mut flags = libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    if group.is_none() {
        flags |= libc::PACKET_FANOUT_FLAG_UNIQUEID;
    }
    let argument = u32::from(group.unwrap_or(0)) | (kind | flags) << 16;
    socket::set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, argument)?;
    if let Some(group) = group {
        return Ok(group);
    }
    if let Some(program) = program {
        socket::set_option(
            socket,
            libc::SOL_PACKET,
            libc::PACKET_FANOUT_DATA,
            program.as_fd().as_raw_fd(),
        )?;
    }
    let [value, _] = socket::get_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
    Ok(value as u16)
}
