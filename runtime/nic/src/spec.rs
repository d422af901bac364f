use std::fmt;
use std::str::FromStr;

/// Which NIC to use, as a person writes it: `xdp:IF`, `packet:IF` or `tap:NAME`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NicSpec {
    /// AF_XDP sockets on this interface.
    Xdp(String),
    /// AF_PACKET sockets on this interface.
    Packet(String),
    /// A TAP interface of this name, which is made if there is none.
    Tap(String),
}

/// Why a text isn't a [`NicSpec`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpecError {
    /// No such kind, or no kind at all.
    #[error(
        "\"{0}\" names no NIC: write xdp:INTERFACE, packet:INTERFACE or tap:NAME, such as packet:eth0"
    )]
    Kind(String),
    /// Linux wouldn't take the name.
    #[error(
        "\"{0}\" can't be an interface name: Linux takes 1 to 15 bytes, without spaces, '/' and ':'"
    )]
    Name(String),
}

impl NicSpec {
    /// The interface's name.
    pub fn interface(&self) -> &str {
        match self {
            NicSpec::Xdp(name) | NicSpec::Packet(name) | NicSpec::Tap(name) => name,
        }
    }

    /// Whether Linux would take the name (`dev_valid_name`).
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let name = self.interface();
        let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':' | '%');
        if matches!(name, "" | "." | "..") || name.len() > 15 || name.contains(bad) {
            return Err(SpecError::Name(name.to_owned()));
        }
        Ok(())
    }
}

impl FromStr for NicSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<NicSpec, SpecError> {
        let spec = match text.split_once(':') {
            Some(("xdp", name)) => NicSpec::Xdp(name.to_owned()),
            Some(("packet", name)) => NicSpec::Packet(name.to_owned()),
            Some(("tap", name)) => NicSpec::Tap(name.to_owned()),
            Some(_) | None => return Err(SpecError::Kind(text.to_owned())),
        };
        spec.check()?;
        Ok(spec)
    }
}

impl fmt::Display for NicSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            NicSpec::Xdp(_) => "xdp",
            NicSpec::Packet(_) => "packet",
            NicSpec::Tap(_) => "tap",
        };
        write!(formatter, "{kind}:{}", self.interface())
    }
}

#[cfg(test)]
mod tests;
