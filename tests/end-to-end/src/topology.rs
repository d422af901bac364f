use std::fmt;

/// Where the components of Skink's stack run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topology {
    /// In each process of the program.
    Library,
    /// In one process of their own, which serves all programs.
    Single,
    /// `link`, `ip`, `filter` and the transports in a process each.
    Split,
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Topology::Library => "library",
            Topology::Single => "single",
            Topology::Split => "split",
        })
    }
}
