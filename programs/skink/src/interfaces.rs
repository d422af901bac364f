//! What processes of several builds must agree on to work together.
use skink_control::{Build, CONTROL_VERSION};

/// What this build says of itself.
pub fn own() -> Build {
    let interfaces = [
        ("control messages", CONTROL_VERSION),
        ("connection records", skink_memory::LAYOUT_VERSION),
        ("what is stored", skink_memory::STORED_LAYOUT_VERSION),
        ("channels", skink_channel::LAYOUT_VERSION),
        ("messages between components", skink_lanes::MESSAGES_VERSION),
        ("messages with programs", skink_sockets::MESSAGES_VERSION),
    ];
    let interfaces = interfaces.map(|(name, version)| (name.to_owned(), version));
    Build {
        release: env!("CARGO_PKG_VERSION").to_owned(),
        interfaces: interfaces.into(),
    }
}
