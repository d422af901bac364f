//! How a process comes by its stack: the broker hands it a NIC's queue for one of its own, or a
//! channel to one in another process.
use crate::engine::Engine;
use crate::estate::{PassedOn, Tethers};
use crate::fd_table::{self, Entry};
use crate::holdings::Holdings;
use crate::kept::Kept;
use crate::log::log;
use crate::provider::Provider;
use crate::raw;
use crate::remote::Remote;
use crate::slots::Slots;
use crate::state::{floor, lift};
use core::ffi::c_int;
use skink_control::{
    Attached, Broker, CONTROL_VARIABLE, ControlError, LibraryGrant, MEMORY_VARIABLE, NetworkInfo,
    RegionKind, ServedGrant, TOKEN_VARIABLE,
};
use skink_filter::RuleSet;
use skink_library::{Stack, StackConfig};
use skink_memory::{
    CaptureRing, FallbackTable, Region, SocketTable, keep_descriptors_from, keep_out_of_dumps,
};
use skink_messages::Counters;
use skink_sockets::Client;
use skink_time::Instant;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;

/// Bytes of frames that the capture ring holds.
const CAPTURE_BYTES: usize = 1 << 20;

/// What the environment said when the program began: programs such as nginx clear it later.
static BROKER: OnceLock<(String, String)> = OnceLock::new();

/// What a program under `skink up` sends may take of the memory, in bytes, if the environment says so.
static SEND_MEMORY: OnceLock<u64> = OnceLock::new();

/// Notes where the broker is, and what else the environment says; `false` if it names none.
pub fn note_broker() -> bool {
    let Some(name) = std::env::var_os(CONTROL_VARIABLE) else {
        return false;
    };
    let memory = std::env::var(MEMORY_VARIABLE).ok();
    if let Some(memory) = memory.and_then(|text| text.parse().ok()) {
        let _ = SEND_MEMORY.set(memory);
    }
    let token = std::env::var_os(TOKEN_VARIABLE).unwrap_or_default();
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    BROKER.set((text(name), text(token))).is_ok()
}

/// Where the broker is, and the token for it.
pub fn broker_named() -> Option<&'static (String, String)> {
    BROKER.get()
}

/// What a program under `skink up` sends may take of the memory, in bytes.
pub fn send_memory() -> Option<u64> {
    SEND_MEMORY.get().copied()
}

/// Connects to the broker.
pub fn reach_broker() -> Result<Broker, String> {
    let (name, token) = BROKER.get().ok_or("the environment names no `skink run`")?;
    Broker::connect(name, token).map_err(|error| error.to_string())
}

/// A supervisor may die while it is asked. Its standby goes on in its place, and hears who asks anew.
const ASKED: usize = 4;

/// Connects to the broker and asks it something; anew if it closes the connection.
fn ask<T>(what: impl Fn(&mut Broker) -> Result<T, ControlError>) -> Result<(Broker, T), String> {
    let mut asked = 0;
    loop {
        let mut broker = reach_broker()?.moved(lifted);
        asked += 1;
        match what(&mut broker) {
            Ok(answer) => return Ok((broker, answer)),
            Err(error) if error.is_lost() && asked < ASKED => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// What the broker says of the network, to a process that takes nothing yet.
pub fn network() -> Result<NetworkInfo, String> {
    Ok(ask(Broker::network)?.1)
}

/// Asks the broker for a stack. A process that has inherited sockets brings its `holdings`.
pub fn start(holdings: Option<Holdings>) -> Result<Engine, String> {
    let engine = begin(holdings, true)?;
    mark(&engine);
    Ok(engine)
}

/// Asks for a channel that another process is going to take over.
pub fn start_for_heir(holdings: Holdings) -> Result<Engine, String> {
    begin(Some(holdings), false)
}

/// Asks for a channel of a program that only holds others' sockets.
pub fn start_for_keeper() -> Result<Engine, String> {
    begin(None, false)
}

fn begin(holdings: Option<Holdings>, register: bool) -> Result<Engine, String> {
    // Programs such as sshd put what they want at numbers that they chose.
    keep_descriptors_from(c_int::try_from(floor()).unwrap_or(0));
    keep_out_of_dumps();
    let (broker, attached) = ask(Broker::attach)?;
    match attached {
        Attached::Library(grant) => library(broker, *grant),
        Attached::Served(grant) => served(broker, grant, holdings, register),
    }
}

/// The engine's descriptors are the library's own from now on.
pub fn mark(engine: &Engine) {
    let mut all = engine.descriptors.clone();
    if let Provider::Served(remote) = &engine.stack {
        all.extend(remote.holdings.descriptors());
    }
    for fd in all {
        fd_table::set(fd, Entry::Internal);
    }
}

fn library(mut broker: Broker, mut grant: LibraryGrant) -> Result<Engine, String> {
    let mut descriptors = vec![broker.as_fd().as_raw_fd()];
    let nic_descriptors = std::mem::take(&mut grant.nic_descriptors).into_iter();
    grant.nic_descriptors = nic_descriptors
        .map(|fd| adopt(fd, &mut descriptors))
        .collect();
    let is_sole = grant.is_sole();
    let nic = grant.take_nic().map_err(|error| error.to_string())?;
    let ports = grant.take_ports().map_err(|error| error.to_string())?;
    let counters = Counters::create().map_err(|error| format!("no memory: {error}"))?;
    let fallbacks = FallbackTable::create().ok();
    let capture = CaptureRing::create(CAPTURE_BYTES).ok();
    let config = StackConfig {
        addresses: grant.addresses,
        gateways: grant.gateways,
        seed: grant.seed,
        answers: grant.answers,
        tcp_table: grant.tcp_table.into(),
        udp_table: grant.udp_table.into(),
        socket_memory: grant.socket_memory,
        counters: counters.clone(),
    };
    let mut stack = Stack::new(config, nic, ports).map_err(|error| error.to_string())?;
    stack.set_sequence_secret(grant.sequence_secret);
    stack.set_hands_over();
    let tables = [
        (RegionKind::TCP, stack.tcp_table()),
        (RegionKind::UDP, stack.udp_table()),
    ];
    let mut regions = vec![(RegionKind::Counters, counters.fd())];
    for (kinds, table) in tables {
        let files = table.region(0).map(Region::files);
        regions.extend(kinds.into_iter().zip(files.into_iter().flatten()));
    }
    let fallbacks_memory = fallbacks.iter().map(FallbackTable::fd);
    regions.extend(fallbacks_memory.map(|it| (RegionKind::Fallbacks, it)));
    let capture_memory = capture.iter().map(CaptureRing::fd);
    regions.extend(capture_memory.map(|it| (RegionKind::Capture, it)));
    descriptors.extend(regions.iter().map(|(_, memory)| memory.as_raw_fd()));
    register(&mut broker, &regions);
    drop(regions);
    stack.set_capture(capture);
    if !grant.rules.is_empty() {
        // `skink run` has read them before, so that a mistake means another version.
        let rules = RuleSet::parse(&grant.rules);
        let rules = rules.map_err(|_| "the packet filter's rules can't be read: are `skink` and libskink.so of one version?")?;
        stack.set_rules(raw::now(), &grant.interface, rules);
    }
    let mut receive_fds = Vec::new();
    stack.receive_descriptors(&mut |fd| receive_fds.push(fd.as_raw_fd()));
    let strides = [stack.tcp_table(), stack.udp_table()].map(SocketTable::stride);
    log!(
        Info,
        "this process has a stack of its own (owner {})",
        grant.owner
    );
    let stack = Provider::Library(Box::new(stack));
    Ok(Engine {
        fallbacks,
        receive_fds,
        descriptors,
        interface: grant.interface,
        owner: grant.owner,
        is_sole,
        ..engine(stack, broker, counters, strides)
    })
}

/// An engine with nothing but its stack.
fn engine(stack: Provider, broker: Broker, counters: Counters, [tcp, udp]: [u32; 2]) -> Engine {
    Engine {
        stack,
        counters,
        fallbacks: None,
        receive_fds: Vec::new(),
        last_poll: raw::now(),
        unfinished: false,
        broker,
        deserted: false,
        errand: None,
        interface: String::new(),
        owner: 0,
        is_sole: false,
        descriptors: Vec::new(),
        tcp: Slots::new(tcp),
        udp: Slots::new(udp),
        struck: None,
        keepers: Vec::new(),
        kept: Kept::default(),
        passed: PassedOn::default(),
        tethers: Tethers::default(),
        word_until: Instant::ZERO,
    }
}

/// Maps a region.
fn region(files: [OwnedFd; 3]) -> Result<Region, String> {
    Region::open_for_program(files.map(lifted)).map_err(|error| error.to_string())
}

/// Takes a foreign program's regions into the tables.
pub fn add_regions(
    holdings: &mut Holdings,
    program: u32,
    secret: u64,
    tcp: [OwnedFd; 3],
    udp: [OwnedFd; 3],
) -> Result<(), String> {
    let (tcp, udp) = (region(tcp)?, region(udp)?);
    for (table, region) in [(&mut holdings.tcp, tcp), (&mut holdings.udp, udp)] {
        let added = table.insert(program, region);
        added.map_err(|error| error.to_string())?;
    }
    holdings.secrets.push((program, secret));
    Ok(())
}

fn served(
    broker: Broker,
    grant: ServedGrant,
    holdings: Option<Holdings>,
    register: bool,
) -> Result<Engine, String> {
    let attachment = grant.attachment;
    let mut holdings = holdings.unwrap_or_else(|| Holdings {
        tcp: SocketTable::new(attachment.tcp_stride),
        udp: SocketTable::new(attachment.udp_stride),
        secrets: Vec::new(),
        addresses: grant.addresses,
        gateways: grant.gateways,
    });
    let (program, secret) = (attachment.program, attachment.secret);
    let (tcp, udp) = (grant.tcp_region, grant.udp_region);
    add_regions(&mut holdings, program, secret, tcp, udp)?;
    log!(
        Info,
        "this process is served by a stack in another one (program {program})"
    );
    let channel = grant.channel.into_iter().map(lifted).collect();
    let mut engine = resume(broker, attachment, channel, holdings)?;
    if register {
        show(&mut engine);
    }
    Ok(engine)
}

/// Takes over channels, new ones or a predecessor's.
pub fn resume(
    broker: Broker,
    attachment: skink_sockets::Attachment,
    channel: Vec<OwnedFd>,
    holdings: Holdings,
) -> Result<Engine, String> {
    let mut descriptors = vec![broker.as_fd().as_raw_fd()];
    let numbers: Vec<c_int> = channel.iter().map(AsRawFd::as_raw_fd).collect();
    descriptors.extend(&numbers);
    let client = Client::attach(channel, attachment.routes).map_err(|error| error.to_string())?;
    let counters = Counters::create().map_err(|error| format!("no memory: {error}"))?;
    descriptors.push(counters.fd().as_raw_fd());
    let memory = send_memory().unwrap_or(u64::MAX);
    let remote = Remote::new(
        client,
        attachment,
        numbers,
        holdings,
        counters.clone(),
        memory,
    );
    let bell = remote.bell();
    let strides = [attachment.tcp_stride, attachment.udp_stride];
    let stack = Provider::Served(Box::new(remote));
    Ok(Engine {
        receive_fds: vec![bell],
        descriptors,
        ..engine(stack, broker, counters, strides)
    })
}

/// Lets tools see what this process counts.
pub fn show(engine: &mut Engine) {
    engine.fallbacks = FallbackTable::create().ok();
    // (The engine's descriptors have that already.)
    let mut regions = vec![(RegionKind::Counters, engine.counters.fd())];
    if let Some(fallbacks) = &engine.fallbacks {
        engine.descriptors.push(fallbacks.fd().as_raw_fd());
        regions.push((RegionKind::Fallbacks, fallbacks.fd()));
    }
    register(&mut engine.broker, &regions);
}

/// Moves a descriptor up.
fn lifted(fd: OwnedFd) -> OwnedFd {
    // SAFETY: it was handed over, or duplicated from what was.
    unsafe { OwnedFd::from_raw_fd(lift(fd.into_raw_fd())) }
}

/// Moves a descriptor up and notes it.
fn adopt(fd: OwnedFd, descriptors: &mut Vec<c_int>) -> OwnedFd {
    let fd = lifted(fd);
    descriptors.push(fd.as_raw_fd());
    fd
}

fn register(broker: &mut Broker, regions: &[(RegionKind, BorrowedFd<'_>)]) {
    if let Err(error) = broker.register(regions) {
        log!(Warn, "tools won't see everything of this process: {error}");
    }
}
