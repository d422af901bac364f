use crate::cli::SsOptions;
use crate::failure::Failure;
use crate::tools::{self, Found};
use serde::Serialize;
use skink_control::{ProcessInfo, RegionKind};
use skink_memory::{Fallback, FallbackTable, Holder, Record, SendRegion, SocketKind};
use skink_tcp::State;
use std::sync::atomic::Ordering::Relaxed;

/// What `skink ss --json` writes.
#[derive(Serialize, Default)]
struct Report {
    sockets: Vec<Socket>,
    /// Sockets that went to the kernel.
    fallbacks: Vec<KernelSocket>,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct Socket {
    instance: String,
    pid: u32,
    program: String,
    protocol: &'static str,
    state: &'static str,
    local: String,
    remote: String,
    /// Bytes that the program hasn't read; for a listening socket, connections not accepted yet.
    recv_q: u64,
    /// Bytes that the peer hasn't acknowledged.
    send_q: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<TcpDetail>,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct TcpDetail {
    /// Smoothed round-trip time in microseconds, 0 if it isn't known.
    rtt_us: u32,
    /// Congestion window in bytes.
    cwnd_bytes: u32,
    retransmits: u32,
    mss: u16,
    /// The peer's window in bytes.
    peer_window: u32,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct KernelSocket {
    instance: String,
    pid: u32,
    program: String,
    fd: u32,
    protocol: String,
    endpoint: String,
    reason: &'static str,
    explanation: &'static str,
    detail: u32,
}

/// Shows sockets.
pub fn ss(options: &SsOptions) -> Result<(), Failure> {
    let found = tools::find(options.instance.as_deref())?;
    let mut report = Report::default();
    for found in &found {
        for process in &found.info.processes {
            gather(found, process, options, &mut report);
        }
    }
    if options.json {
        return tools::print_json(&report, true);
    }
    if found.is_empty() {
        tools::say_nothing_runs();
    }
    tools::print(&describe(&report))
}

fn gather(found: &Found, process: &ProcessInfo, options: &SsOptions, report: &mut Report) {
    for [records, send_rings, _] in [RegionKind::TCP, RegionKind::UDP] {
        let open = |kind| found.open(process, kind);
        let files = open(records).zip(open(send_rings));
        let table = files.and_then(|(records, send_rings)| {
            SendRegion::open_read_only([records, send_rings]).ok()
        });
        let Some(table) = table else {
            continue;
        };
        for slot in 0..table.used() {
            let socket = socket(&table, slot, &found.info.name, process);
            report
                .sockets
                .extend(socket.filter(|socket| wanted(socket, options)));
        }
    }
    let memory = found.open(process, RegionKind::Fallbacks);
    let table = memory.and_then(|memory| FallbackTable::open_read_only(memory).ok());
    if let Some(table) = table
        && (!options.listening || options.all)
    {
        let sockets = table.iter();
        report
            .fallbacks
            .extend(sockets.map(|one| kernel_socket(&one, &found.info.name, process)));
    }
}

/// As ss(8): listening sockets only if asked for, and `CLOSED` ones with `--all`.
fn wanted(socket: &Socket, options: &SsOptions) -> bool {
    let listening = socket.state == "LISTEN" || socket.state == "UNCONN";
    match (options.all, options.listening) {
        (true, _) => true,
        (false, true) => listening,
        (false, false) => !listening && socket.state != name(State::Closed),
    }
}

fn socket(table: &SendRegion, slot: u32, instance: &str, process: &ProcessInfo) -> Option<Socket> {
    let record = table.record(slot);
    let kind = record.kind();
    let tuple = record.four_tuple();
    let family = record.family.load(Relaxed);
    let connected = record.remote_port.load(Relaxed) != 0;
    let (protocol, state) = match kind {
        SocketKind::Free => return None,
        SocketKind::Udp if connected => ("udp", "ESTAB"),
        SocketKind::Udp => ("udp", "UNCONN"),
        // It only waits for who gets its queue.
        SocketKind::TcpListener if record.holder() == Some(Holder::Gone) => return None,
        SocketKind::TcpListener => ("tcp", name(State::Listen)),
        SocketKind::Tcp => {
            let state = State::from_number(record.state.load(Relaxed));
            ("tcp", state.map_or("UNKNOWN", name))
        }
    };
    let end = |endpoint: skink_wire::Endpoint| {
        let port = match endpoint.port {
            0 => "*".to_owned(),
            port => port.to_string(),
        };
        match endpoint.addr {
            _ if family == 0 || (endpoint.addr.is_unspecified() && endpoint.port == 0) => {
                format!("*:{port}")
            }
            std::net::IpAddr::V4(address) => format!("{address}:{port}"),
            std::net::IpAddr::V6(address) => format!("[{address}]:{port}"),
        }
    };
    Some(Socket {
        instance: instance.to_owned(),
        pid: process.pid,
        program: process.program.clone(),
        protocol,
        state,
        local: end(tuple.local),
        remote: end(tuple.remote),
        recv_q: table.unread(slot) as u64,
        send_q: table.send_ring(slot).len() as u64,
        tcp: (kind == SocketKind::Tcp).then(|| detail(record)),
    })
}

/// As RFC 9293 section 3.3.2 writes them.
fn name(state: State) -> &'static str {
    match state {
        State::Closed => "CLOSED",
        State::Listen => "LISTEN",
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECEIVED",
        State::Established => "ESTABLISHED",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::CloseWait => "CLOSE-WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST-ACK",
        State::TimeWait => "TIME-WAIT",
    }
}

fn detail(record: &Record) -> TcpDetail {
    TcpDetail {
        rtt_us: record.rtt_us.load(Relaxed),
        cwnd_bytes: record.cwnd.load(Relaxed),
        retransmits: record.retransmits.load(Relaxed),
        mss: record.mss.load(Relaxed),
        peer_window: record.snd_wnd.load(Relaxed),
    }
}

fn kernel_socket(fallback: &Fallback, instance: &str, process: &ProcessInfo) -> KernelSocket {
    let protocol = match fallback.protocol {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmp6".to_owned(),
        0 => "?".to_owned(),
        other => other.to_string(),
    };
    let unknown = fallback.endpoint.addr.is_unspecified() && fallback.endpoint.port == 0;
    KernelSocket {
        instance: instance.to_owned(),
        pid: process.pid,
        program: process.program.clone(),
        fd: fallback.fd,
        protocol,
        endpoint: if unknown {
            "*:*".to_owned()
        } else {
            fallback.endpoint.to_string()
        },
        reason: fallback.reason.label(),
        explanation: fallback.reason.help(),
        detail: fallback.detail,
    }
}

fn describe(report: &Report) -> String {
    let header = [
        "Proto", "State", "Recv-Q", "Send-Q", "Local", "Remote", "Process", "",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for socket in &report.sockets {
        let detail = socket.tcp.as_ref().filter(|_| socket.state != "LISTEN");
        rows.push(vec![
            socket.protocol.to_owned(),
            socket.state.to_owned(),
            socket.recv_q.to_string(),
            socket.send_q.to_string(),
            socket.local.clone(),
            socket.remote.clone(),
            format!("{}/{}", socket.program, socket.pid),
            detail.map(describe_detail).unwrap_or_default(),
        ]);
    }
    let mut text = tools::table(&rows, &[2, 3]);
    if report.fallbacks.is_empty() {
        return text;
    }
    text.push_str("\nLeft to the kernel:\n");
    let header = ["Proto", "Address", "Process", "fd", "Reason", ""];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for socket in &report.fallbacks {
        let detail = match socket.detail {
            0 => String::new(),
            detail => format!(" ({detail})"),
        };
        rows.push(vec![
            socket.protocol.clone(),
            socket.endpoint.clone(),
            format!("{}/{}", socket.program, socket.pid),
            socket.fd.to_string(),
            format!("{}{detail}", socket.reason),
            socket.explanation.to_owned(),
        ]);
    }
    text.push_str(&tools::table(&rows, &[3]));
    text
}

fn describe_detail(detail: &TcpDetail) -> String {
    let mut words = Vec::new();
    if detail.rtt_us != 0 {
        words.push(format!("rtt {:.3} ms", f64::from(detail.rtt_us) / 1000.0));
    }
    if detail.cwnd_bytes != 0 {
        words.push(format!("cwnd {}", detail.cwnd_bytes));
    }
    if detail.retransmits != 0 {
        words.push(format!("retransmits {}", detail.retransmits));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests;
