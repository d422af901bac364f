//! What processes of several builds must agree on to work together.
use skink_control::{Build, CONTROL_VERSION};

/// Version of what a supervisor hands to another build that takes its place: all that is serialized of
/// `Server`, and of what it has. Raise it with every change there.
// Layout digest: 6c6b5d26576f9950
pub const HANDED_VERSION: u32 = 23;

/// What a build says that is to be the supervisor.
pub fn of_supervisor() -> Build {
    let mut build = own();
    let name = "what supervisors hand over".to_owned();
    build.interfaces.insert(name, HANDED_VERSION);
    build
}

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
