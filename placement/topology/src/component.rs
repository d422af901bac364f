use std::fmt;

/// A part of the stack that has a place in a topology.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Component {
    /// Owns the NIC's queues.
    Link,
    /// Ethernet, ARP, NDP, IP, ICMP.
    Ip,
    /// The packet filter.
    Filter,
    /// Datagram sockets.
    Udp,
    /// Connections.
    Tcp,
    /// Turns the programs' calls into messages.
    Syscall,
    /// Keeps what must outlive the others.
    Store,
}

impl Component {
    /// All of them, from the wire up.
    pub const ALL: [Component; 7] = [
        Component::Link,
        Component::Ip,
        Component::Filter,
        Component::Udp,
        Component::Tcp,
        Component::Syscall,
        Component::Store,
    ];

    /// As in a topology file.
    pub const fn name(self) -> &'static str {
        match self {
            Component::Link => "link",
            Component::Ip => "ip",
            Component::Filter => "filter",
            Component::Udp => "udp",
            Component::Tcp => "tcp",
            Component::Syscall => "syscall",
            Component::Store => "store",
        }
    }

    /// The component of this name.
    pub fn from_name(name: &str) -> Option<Component> {
        Component::ALL
            .into_iter()
            .find(|component| component.name() == name)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
