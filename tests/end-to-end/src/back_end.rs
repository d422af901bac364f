use std::fmt;

/// What carries a program's frames on the Skink side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackEnd {
    /// AF_PACKET rings on a veth.
    Packet,
    /// AF_XDP on a veth.
    Xdp,
    /// A TAP that is bridged to a veth.
    Tap,
    /// What Skink chooses on a veth.
    Chosen,
}

impl BackEnd {
    /// The argument of `skink run --nic`.
    pub fn nic(self) -> &'static str {
        match self {
            BackEnd::Packet => "packet:wire",
            BackEnd::Xdp => "xdp:wire",
            BackEnd::Tap => "tap:skink0",
            BackEnd::Chosen => "wire",
        }
    }
}

impl fmt::Display for BackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            BackEnd::Packet => "packet",
            BackEnd::Xdp => "xdp",
            BackEnd::Tap => "tap",
            BackEnd::Chosen => "chosen",
        })
    }
}
