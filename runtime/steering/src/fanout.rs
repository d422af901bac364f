use crate::Owner;

#[cfg(test)]
mod tests;

/// The order of a fan-out group's members, as the kernel keeps it.
///
/// The kernel appends who joins. When a member leaves (its socket's last descriptor is closed), it
/// moves the last member into the hole (`__fanout_unlink` in net/packet/af_packet.c); tun does the
/// same with the queues of a TAP (`__tun_detach`). There is no way to ask for the order, so that the
/// broker has to keep it, and has to be the one who closes last: **it holds a copy of each member's
/// descriptor**, and closes it right after it called [`FanoutGroup::leave`].
///
/// When the interface goes down, all members leave; when it comes up again, they join in the order in
/// which their *sockets* were made (for sockets that join as they are made, the order of
/// [`FanoutGroup::relink`]).
#[derive(Clone, Debug, Default)]
pub struct FanoutGroup {
    members: Vec<Owner>,
    joined: Vec<Owner>,
}

impl FanoutGroup {
    /// A group without members.
    pub fn new() -> FanoutGroup {
        FanoutGroup::default()
    }

    /// `owner`'s socket has joined; answers its index. Joining twice changes nothing.
    pub fn join(&mut self, owner: Owner) -> u32 {
        if let Some(index) = self.index(owner) {
            return index;
        }
        self.members.push(owner);
        self.joined.push(owner);
        self.members.len() as u32 - 1
    }

    /// `owner`'s socket is closed next; answers who moves into its place, if anybody does.
    pub fn leave(&mut self, owner: Owner) -> Option<(Owner, u32)> {
        let index = self.index(owner)?;
        self.members.swap_remove(index as usize);
        self.joined.retain(|joined| *joined != owner);
        self.members
            .get(index as usize)
            .map(|moved| (*moved, index))
    }

    /// The interface went down, or has come up again (between the two others may have left).
    pub fn relink(&mut self) {
        self.members.clone_from(&self.joined);
    }

    /// Where `owner` is.
    pub fn index(&self, owner: Owner) -> Option<u32> {
        let index = self.members.iter().position(|member| *member == owner)?;
        u32::try_from(index).ok()
    }

    /// All members in the kernel's order.
    pub fn members(&self) -> &[Owner] {
        &self.members
    }
}
