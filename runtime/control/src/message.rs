//! What is said on the control sockets.
use serde::{Deserialize, Serialize};
use skink_memory::TableConfig;
use skink_wire::IpCidr;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Version of the messages; both ends must have the same.
pub(crate) const PROTOCOL: u32 = 1;

/// A kind of memory that a process registers for tools.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegionKind {
    /// The TCP [`skink_memory::SocketTable`].
    TcpTable,
    /// The UDP [`skink_memory::SocketTable`].
    UdpTable,
    /// The [`skink_messages::Counters`].
    Counters,
    /// The [`skink_memory::FallbackTable`].
    Fallbacks,
    /// The [`skink_memory::CaptureRing`], which a tool also writes.
    Capture,
}

/// Size of a socket table, see [`TableConfig`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableSize {
    /// Number of slots.
    pub sockets: u32,
    /// Size of each send ring in bytes.
    pub send_bytes: u32,
    /// Size of each receive ring in bytes.
    pub receive_bytes: u32,
}

impl From<TableSize> for TableConfig {
    fn from(size: TableSize) -> TableConfig {
        TableConfig {
            sockets: size.sockets,
            send_bytes: size.send_bytes,
            receive_bytes: size.receive_bytes,
        }
    }
}

/// From a process or a tool to the broker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// A process's first message.
    Attach { protocol: u32, token: String },
    /// A process asks for the [`NetworkInfo`]; may come before [`Request::Attach`].
    Network { protocol: u32, token: String },
    /// A process hands in a memfd, which travels beside this.
    Register { kind: RegionKind },
    /// A tool asks for an [`InstanceInfo`].
    List {},
    /// A tool asks for memory of the process with slot `owner`.
    Open { owner: u16, kind: RegionKind },
}

/// From the broker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub(crate) enum Reply {
    /// To [`Request::Attach`]. Beside it: the NIC's descriptors, then the port table's.
    Attached(Box<AttachedMessage>),
    /// To [`Request::Network`].
    Network(NetworkInfo),
    /// To [`Request::Register`].
    Registered {},
    /// To [`Request::List`].
    Instance(Box<InstanceInfo>),
    /// To [`Request::Open`]; the memfd travels beside it.
    Region {},
    /// To any request.
    Refused { reason: String },
    /// Unasked: the process answers ARP, NDP and echo requests from now on.
    Answer {},
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AttachedMessage {
    pub owner: u16,
    #[serde(with = "as_text")]
    pub addresses: Vec<IpCidr>,
    pub gateways: Vec<IpAddr>,
    pub seed: u64,
    pub answers: bool,
    pub nic: String,
    pub nic_descriptors: usize,
    pub port_table: bool,
    pub tcp_table: TableSize,
    pub udp_table: TableSize,
}

/// What the program's processes have in common.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NetworkInfo {
    /// The addresses of the stack.
    #[serde(with = "as_text")]
    pub addresses: Vec<IpCidr>,
    /// Default routes, at most one for each family.
    pub gateways: Vec<IpAddr>,
}

/// One running `skink run`, as it describes itself to a tool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InstanceInfo {
    /// Process id of `skink run`.
    pub pid: u32,
    /// Its name, by `--name` or from the program's.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The NIC as it was asked for, such as `tap:skink0`.
    pub nic: String,
    /// The addresses that Skink owns.
    #[serde(with = "as_text")]
    pub addresses: Vec<IpCidr>,
    /// Default routes.
    pub gateways: Vec<IpAddr>,
    /// When it was started, in milliseconds since 1970.
    pub started_ms: u64,
    /// Processes with an instance of the stack.
    pub processes: Vec<ProcessInfo>,
    /// Sums of the counters of processes that have ended, by label; zeros are left out.
    pub finished: BTreeMap<String, u64>,
}

/// One process with an instance of the stack.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Its slot.
    pub owner: u16,
    /// Process id.
    pub pid: u32,
    /// User id when it attached.
    pub uid: u32,
    /// Its name, from `/proc/PID/comm`.
    pub program: String,
    /// What it has registered.
    pub regions: Vec<RegionKind>,
}

/// Values with a text form, in a list.
pub(crate) mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::fmt::Display;
    use std::str::FromStr;

    pub fn serialize<T: Display, S: Serializer>(
        values: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(T::to_string))
    }

    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let values = texts
            .iter()
            .map(|text| text.parse().map_err(D::Error::custom));
        values.collect()
    }
}
