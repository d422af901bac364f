//! What is said on the control sockets.
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skink_memory::TableConfig;
use skink_nic::Load;
use skink_sockets::Attachment;
use skink_wire::IpCidr;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// Version of the messages; both ends must have the same. Raise it with every change of what is said here, on
/// components' links ([`crate::Order`], [`crate::Report`]), or in the NIC's description that travels there: the
/// other end may be of another build.
// Layout digest: b1d260e50619e127
pub(crate) const PROTOCOL: u32 = 26;

/// A kind of memory that a process registers for tools.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegionKind {
    /// The records of the TCP [`skink_memory::Region`].
    TcpTable,
    /// Its send rings.
    TcpSendRings,
    /// Its receive rings.
    TcpReceiveRings,
    /// The records of the UDP [`skink_memory::Region`].
    UdpTable,
    /// Its send rings.
    UdpSendRings,
    /// Its receive rings.
    UdpReceiveRings,
    /// The [`skink_messages::Counters`].
    Counters,
    /// The [`skink_memory::FallbackTable`].
    Fallbacks,
    /// The [`skink_memory::CaptureRing`], which a tool also writes.
    Capture,
}

impl RegionKind {
    /// The files of the TCP [`skink_memory::Region`], as [`skink_memory::Region::files`] has them.
    pub const TCP: [RegionKind; 3] = [
        RegionKind::TcpTable,
        RegionKind::TcpSendRings,
        RegionKind::TcpReceiveRings,
    ];
    /// Those of the UDP region.
    pub const UDP: [RegionKind; 3] = [
        RegionKind::UdpTable,
        RegionKind::UdpSendRings,
        RegionKind::UdpReceiveRings,
    ];
    /// All of them.
    pub const ALL: [RegionKind; 9] = [
        RegionKind::TcpTable,
        RegionKind::TcpSendRings,
        RegionKind::TcpReceiveRings,
        RegionKind::UdpTable,
        RegionKind::UdpSendRings,
        RegionKind::UdpReceiveRings,
        RegionKind::Counters,
        RegionKind::Fallbacks,
        RegionKind::Capture,
    ];
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
    /// A process that has attached asks for the memory of sockets that it was handed, which are
    /// another process's; `secret` is that process's.
    Region { program: u32, secret: u64 },
    /// How a process with a part of the NIC uses it from now on. There is no answer.
    Load(Load),
    /// A process has got a segment of a connection that it doesn't have: another one's is it, perhaps. There is no answer.
    Misled {
        local: (IpAddr, u16),
        remote: (IpAddr, u16),
    },
    /// A connection that nobody has accepted, of a process that stops to listen or doesn't accept: another one that listens there is to take it in.
    /// [`Reply::HandedOver`] comes at some time, or doesn't. If it may stay where it is, it goes only to one that waits for it.
    HandOver {
        local: (IpAddr, u16),
        remote: (IpAddr, u16),
        parcel: Hex,
        may_stay: bool,
    },
    /// To [`Reply::TakeIn`], and of one that came with a message: whether the process has taken in that connection of process `from`, and
    /// is to have its segments. `serial` is the message's, or 0.
    TakenIn {
        from: u16,
        serial: u32,
        local: (IpAddr, u16),
        remote: (IpAddr, u16),
        taken: bool,
    },
    /// Whose connection this is, of one that a process had passed before it died: answered by [`Reply::HandedOver`].
    Whose {
        local: (IpAddr, u16),
        remote: (IpAddr, u16),
    },
    /// A process's stack has a connection that others may ask for: the stack's end of its [tether](crate::tether) travels beside this. There
    /// is no answer.
    Tethered {
        local: (IpAddr, u16),
        remote: (IpAddr, u16),
    },
    /// That isn't so any more: who asks finds nobody. There is no answer.
    Untethered {
        local: (IpAddr, u16),
        remote: (IpAddr, u16),
    },
    /// Who has taken the place of one that died gives such a connection: its parcel is in the file that is for it.
    /// [`Reply::HandedOver`] comes at some time, or doesn't.
    Give {
        serial: u32,
        local: (IpAddr, u16),
        remote: (IpAddr, u16),
    },
    /// A request came to a process that doesn't listen any more: one that does is to get it, as [`Reply::Late`]. There is no answer.
    Stray {
        local: (IpAddr, u16),
        remote: (IpAddr, u16),
        segment: Hex,
    },
    /// A segment for process `to`, which has its connection now: it came while that was on its way there. There is no answer.
    Late {
        to: u16,
        local: (IpAddr, u16),
        remote: (IpAddr, u16),
        segment: Hex,
    },
    /// A tool asks for an [`InstanceInfo`], whose processes come in parts: those after `after`.
    List {
        #[serde(default)]
        after: Option<u16>,
    },
    /// A tool hands in rules for the packet filter, as a file beside this.
    LoadFilter {},
    /// A tool asks what the packet filter does: the stack's, or that of the process with slot `owner`, if each has
    /// one.
    ShowFilter {
        #[serde(default)]
        owner: Option<u16>,
    },
    /// To [`Reply::ShowFilter`]: a sealed memfd with the answer as JSON travels beside this. There is no answer.
    FilterShown { question: u64 },
    /// A tool hands in an executable, as a file beside this, to take the place of what runs: in the
    /// processes that host `component`, or in all.
    Upgrade { component: Option<String> },
    /// A tool asks for memory of the process with slot `owner`.
    Open { owner: u16, kind: RegionKind },
}

/// Bytes, as text.
#[derive(PartialEq, Eq)]
pub(crate) struct Hex(pub Vec<u8>);

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
        serializer.serialize_str(&digits.collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hex, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |character: u8| char::from(character).to_digit(16);
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let bytes = pairs.iter().map(|[high, low]| {
            let byte = digit(*high)? << 4 | digit(*low)?;
            u8::try_from(byte).ok()
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        let bytes = bytes.filter(|_| rest.is_empty());
        bytes
            .map(Hex)
            .ok_or_else(|| D::Error::custom("no pairs of hexadecimal digits"))
    }
}

/// From the broker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub(crate) enum Reply {
    /// To [`Request::Attach`]. Beside it: the NIC's descriptors, then those of the tables of TCP's and of UDP's ports.
    Attached(Box<AttachedMessage>),
    /// To [`Request::Attach`], if the stack is another process's. Beside it: the region of TCP sockets
    /// (records, rings), that of UDP sockets, and the descriptors of the socket channels, of which the
    /// attachment's routes say how many there are.
    Served(Box<ServedMessage>),
    /// To [`Request::Network`].
    Network(NetworkInfo),
    /// To [`Request::Register`].
    Registered {},
    /// Unasked: the process is to take in a connection of process `from`'s.
    TakeIn {
        from: u16,
        parcel: Hex,
        /// When it was said, in milliseconds of the monotonic clock: who hears of it too late mustn't do it.
        at: u64,
    },
    /// To [`Request::HandOver`], later, and to who has passed a connection: which process has taken it in, if one has.
    HandedOver {
        local: (IpAddr, u16),
        remote: (IpAddr, u16),
        serial: u32,
        heir: Option<u16>,
    },
    /// Unasked: as [`Request::Late`], or [`Request::Stray`].
    Late {
        local: (IpAddr, u16),
        remote: (IpAddr, u16),
        segment: Hex,
    },
    /// To [`Request::List`].
    Instance(Box<InstanceInfo>),
    /// To [`Request::Open`] and [`Request::Region`]; the memfds travel beside it.
    Region {},
    /// To [`Request::LoadFilter`] (what was done, in a sentence), [`Request::ShowFilter`] and
    /// [`Request::Upgrade`] (as JSON).
    Told { text: String },
    /// To any request.
    Refused { reason: String },
    /// Unasked: rules for the packet filter of a process that has a stack of its own.
    LoadFilter { rules: String },
    /// Unasked: such a process is to say what its packet filter does.
    ShowFilter { question: u64 },
    /// Unasked: the process answers ARP, NDP and echo requests from now on.
    Answer {},
    /// Unasked: the interface of a process that has a stack of its own takes packets of so many bytes from now on.
    Mtu { bytes: u32 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AttachedMessage {
    pub owner: u16,
    #[serde(with = "as_text")]
    pub addresses: Vec<IpCidr>,
    pub gateways: Vec<IpAddr>,
    pub seed: u64,
    pub sequence_secret: u64,
    pub answers: bool,
    pub nic: String,
    pub nic_descriptors: usize,
    pub ports: bool,
    /// Of the packet filter; see [`crate::LibraryGrant::rules`].
    pub rules: String,
    pub interface: String,
    pub tcp_table: TableSize,
    pub udp_table: TableSize,
    pub socket_memory: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServedMessage {
    pub attachment: Attachment,
    #[serde(with = "as_text")]
    pub addresses: Vec<IpCidr>,
    pub gateways: Vec<IpAddr>,
}

/// What the program's processes have in common.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NetworkInfo {
    /// The addresses of the stack.
    #[serde(with = "as_text")]
    pub addresses: Vec<IpCidr>,
    /// Default routes, at most one for each family.
    pub gateways: Vec<IpAddr>,
    /// Name of the instance.
    #[serde(default)]
    pub name: String,
    /// The NIC as it was asked for.
    #[serde(default)]
    pub nic: String,
    /// Its topology, if it serves programs from processes of its own (`skink up`).
    #[serde(default)]
    pub topology: Option<String>,
}

/// One running `skink run` or `skink up`, as it describes itself to a tool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InstanceInfo {
    /// Process id of `skink run` or `skink up`.
    pub pid: u32,
    /// Its name, by `--name` or from the program's.
    pub name: String,
    /// Release of its own build.
    #[serde(default)]
    pub release: String,
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
    /// Its topology, if it is a `skink up`.
    #[serde(default)]
    pub topology: Option<String>,
    /// Processes with an instance of the stack; of a `skink up`, the programs that are served and then
    /// its components.
    pub processes: Vec<ProcessInfo>,
    /// Process id of the supervisor's standby, if there is one.
    #[serde(default)]
    pub standby: Option<u32>,
    /// Of a `skink up`.
    #[serde(default)]
    pub components: Vec<ComponentInfo>,
    /// Sums of the counters of processes that have ended, by label; zeros are left out.
    pub finished: BTreeMap<String, u64>,
}

/// One process of a `skink up`'s topology.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ComponentInfo {
    /// Its slot: at least [`crate::FIRST_COMPONENT`].
    pub owner: u16,
    /// Its name in the topology.
    pub name: String,
    /// What it hosts.
    pub components: Vec<String>,
    /// Its cores; any if empty.
    pub cores: Vec<u16>,
    /// Release of the build that runs, or ran last; empty if it hasn't said so yet.
    #[serde(default)]
    pub release: String,
    /// The file that is executed, as it was called when it was chosen.
    #[serde(default)]
    pub executable: String,
    /// Process id, if it runs.
    pub pid: Option<u32>,
    /// Whether it starts, runs, or waits to be started again, in a word or two.
    pub state: String,
    /// When it was started, in milliseconds since 1970.
    pub started_ms: u64,
    /// How often it was started again.
    pub restarts: u64,
    /// Why it ended last.
    pub last_end: Option<String>,
    /// In how many milliseconds it is started again, if it waits for that.
    #[serde(default)]
    pub starts_in_ms: Option<u64>,
    /// What its sandbox couldn't do here; empty if it could do all.
    pub sandbox: String,
    /// Orders that wait until it takes them.
    pub orders: usize,
    /// The queues to it.
    #[serde(default)]
    pub queues: Vec<QueueInfo>,
}

/// What waits for a component, or for a program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueInfo {
    /// The component that fills it, or `programs`: those of all of them together.
    pub from: String,
    /// Who takes from it: components, or a `program`.
    pub to: String,
    /// Messages in it.
    pub waiting: u64,
    /// Messages that it has room for.
    pub capacity: u64,
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
    /// The queues to it, if a stack in other processes serves it.
    #[serde(default)]
    pub queues: Vec<QueueInfo>,
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
