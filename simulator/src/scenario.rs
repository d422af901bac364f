//! What happens in a run, as data drawn from its seed.

use crate::nic::{Ability, NicPlan};
use crate::pattern::NAME_BYTES;
use crate::wire::WirePlan;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_messages::ConnectionOption;
use skink_time::{Duration, Instant};
use skink_wire::MacAddr;

mod apart;
mod draft;
mod programs;
mod short;

pub use apart::{ApartPlan, Manner, PartDeath};
pub use short::SHORT;

/// One host.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Its NIC.
    pub nic: NicPlan,
    /// The way from it to the switch.
    pub wire: WirePlan,
    /// Size of each send ring in bytes.
    pub send_bytes: u32,
    /// Size of each receive ring in bytes.
    pub receive_bytes: u32,
    /// What the data of its TCP sockets may take of the memory, in bytes.
    pub socket_memory: u64,
    /// How many programs the stack serves, each with sockets of its own.
    pub programs: u32,
    /// At most this long, in microseconds, until the stack is polled after a frame arrived.
    pub lag_us: u64,
}

/// A listening socket and its program.
#[derive(Clone, Debug)]
pub struct ListenerPlan {
    /// Where.
    pub host: usize,
    /// The port.
    pub port: u16,
    /// Connections that wait at most.
    pub backlog: u32,
    /// Pause after each accepted connection, in microseconds.
    pub pause_us: u64,
    /// Bound to the IPv6 side.
    pub v6: bool,
    /// Which of the host's programs it belongs to.
    pub program: u32,
    /// Others listen on the same port.
    pub shared: bool,
}

/// Where a connection goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// To a listener.
    Listener(usize),
    /// To a host's port on which nobody listens.
    ClosedPort(usize),
    /// To an address that nobody has.
    Nobody,
}

/// How one end takes its leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Closes the sending direction after the last byte, and the socket after the peer's last.
    HalfClose,
    /// Reads until the peer ends, and only then closes the sending direction.
    AfterPeer,
    /// Closes the socket without a half-close when it has sent all and read the peer's last byte.
    Close,
    /// Resets the connection after it sent and received so many bytes in all.
    Abort(u64),
    /// Closes the socket after so many bytes, whatever is unread.
    CloseEarly(u64),
}

impl EndPlan {
    /// Whether both ends must see every byte.
    pub fn is_graceful(&self) -> bool {
        match self.ending {
            _ if self.mortal => false,
            Ending::HalfClose | Ending::AfterPeer | Ending::Close => true,
            Ending::Abort(_) | Ending::CloseEarly(_) => false,
        }
    }
}

/// The script of one end of a connection.
#[derive(Clone, Debug)]
pub struct EndPlan {
    /// Bytes that it sends, name included.
    pub bytes: u64,
    /// Largest write.
    pub write_bytes: u64,
    /// Longest pause between writes in microseconds, and how often there is one.
    pub write_pause: (u64, u32),
    /// Largest read.
    pub read_bytes: u64,
    /// Longest pause between reads in microseconds, and how often there is one.
    pub read_pause: (u64, u32),
    /// How it ends.
    pub ending: Ending,
    /// Socket options.
    pub options: Vec<ConnectionOption>,
    /// Its program may be killed before it is done.
    pub mortal: bool,
}

/// One connection.
#[derive(Clone, Debug)]
pub struct ConnectionPlan {
    /// The connecting host.
    pub client: usize,
    /// Which of the host's programs connects.
    pub program: u32,
    /// The port that the client binds to, if it does.
    pub client_port: Option<u16>,
    /// Where to.
    pub target: Target,
    /// Over IPv6.
    pub v6: bool,
    /// When.
    pub start: Instant,
    /// The server sends back what it receives.
    pub echo: bool,
    /// The scripts of the client and of the server.
    pub ends: [EndPlan; 2],
}

/// Datagrams from one host to another, which sends them back.
#[derive(Clone, Debug)]
pub struct DatagramPlan {
    /// Who sends.
    pub client: usize,
    /// Who sends back.
    pub server: usize,
    /// Over IPv6.
    pub v6: bool,
    /// How many.
    pub count: u64,
    /// Largest, in bytes.
    pub largest: u64,
    /// Pause between two, in microseconds.
    pub pause_us: u64,
}

/// A program is killed, with all its sockets.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// On which host.
    pub host: usize,
    /// Which of its programs.
    pub program: u32,
    /// When.
    pub at: Instant,
}

/// A host's stack dies, and another one adopts what it leaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrashPlan {
    /// On which host.
    pub host: usize,
    /// When, if no step is said.
    pub at: Instant,
    /// Before which step of the run; 0 for none.
    pub step: u64,
    /// In the midst of its work: when it has acted so many times from then on (see
    /// [`crate::Report::acts`]). 0: at once.
    pub acts: u64,
    /// So many successors die while they adopt (or, if there is nothing left to adopt, then).
    pub deaths: u32,
    /// Frames in the NIC's queues get lost.
    pub loses: bool,
    /// So long nothing is received.
    pub down: Duration,
    /// Seed of the bytes that are written over in one connection's record.
    pub spoils: Option<u64>,
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Where the rest comes from.
    pub seed: u64,
    /// The hosts, all on one switch.
    pub hosts: Vec<HostPlan>,
    /// Listening sockets.
    pub listeners: Vec<ListenerPlan>,
    /// Connections.
    pub connections: Vec<ConnectionPlan>,
    /// Datagrams.
    pub datagrams: Vec<DatagramPlan>,
    /// The program that is killed, if there is one.
    pub death: Option<Death>,
    /// Stacks that die.
    pub crashes: Vec<CrashPlan>,
    /// If the components of each host are on their own: what befalls them.
    pub apart: Option<ApartPlan>,
    /// What the switch lets through, in bytes of IP packet, if that is less than the link takes.
    pub path_mtu: Option<u32>,
    /// Mangled frames come in at most this many microseconds apart; 0 for none.
    pub noise_us: u64,
    /// Pings from outside to each host: how many.
    pub pings: u16,
    /// Whether every handshake can be expected to work out.
    pub gentle: bool,
    /// Whether no frame at all gets lost but in full queues of hosts with much to do.
    pub quiet: bool,
}

/// Scenarios with names, for tests of one thing.
pub const NAMED: [&str; 21] = [
    "clean",
    "lossy",
    "reordered",
    "corrupted",
    "narrow",
    "slow-readers",
    "crowd",
    "aborts",
    "small-rings",
    "virtual",
    "outages",
    "datagrams",
    "noise",
    "few-ports",
    "path-mtu",
    "programs",
    "crashes",
    "spoilt",
    "split",
    "parts",
    "flood",
];

/// The address of `host`; hosts beyond the last have none.
pub fn address(host: usize, v6: bool) -> IpAddr {
    let number = host as u16 + 1;
    if v6 {
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, number as u8))
    }
}

/// The link address of `host`.
pub fn mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host as u8 + 1])
}
