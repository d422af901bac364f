//! `skink up`: the supervisor of a stack in a process of its own.
mod component;
mod config;
mod deputy;
mod heart;
mod layout;
mod memory;
mod plant;
mod programs;
mod served;
mod settings;
mod split;
mod supervise;

use crate::cli::{Recovery, UpOptions};
use crate::failure::Failure;
use crate::interfaces::HANDED_VERSION;
use crate::run::choice::{self, Use};
use crate::run::neighbours::{self, Turn};
use crate::run::network::{self, Plan};
use crate::run::{kernel, opening};
use crate::stderr::say;
use component::Component;
use deputy::{Deputy, Kept};
use plant::Plant;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Deserialize;
use served::{Limits, Served, Stack};
use settings::Settings;
use skink_control::{
    Access, Executable, Notifier, Server, ServerConfig, SignalDescriptor, StackStart, named,
    unguessable,
};
use skink_filter::RuleSet;
use skink_nic::{Sharing, interface};

/// Descriptors that a program takes in the supervisor: its connection and its process, six of its
/// regions, four to wake it and eight for its side bells; and for each channel four of each queue, and a bell. While processes
/// that have died are told of all programs, its regions once more for those that serve them, eight for those that read what is
/// sent, and eleven for each channel.
const OF_A_PROGRAM: (u64, u64) = (20 + 6 + 8, 9 + 11);
/// What there is besides: the processes' own, the lanes between them, tools, and what is on its way to
/// those that attach at the moment.
const BESIDES: u64 = 640;

/// Runs until it is told to stop; answers the exit code.
pub fn up(options: &UpOptions) -> Result<u8, Failure> {
    let notifier = Notifier::from_environment().map_err(|error| Failure::own(error.to_string()))?;
    if let Some(inherited) = skink_inherit::inherited(HANDED_VERSION) {
        return go_on(inherited, notifier.as_ref());
    }
    kernel::check()?;
    let mut settings = Settings::new(options, &cores())?;
    free_name(&settings.name)?;
    let interfaces = interface::list()
        .map_err(|error| Failure::own(format!("can't list the network interfaces: {error}")))?;
    let candidates = choice::candidates(settings.network.nic.as_ref(), &interfaces, Use::Apart)?;
    let ipv6 = network::kernel_has_ipv6();
    let mut plan = network::plan(&settings.network, candidates, &interfaces, ipv6)?;
    let turn = Turn::take();
    neighbours::check(&plan)?;
    let layout = settings::layout_of(&settings.topology)?;
    let room = raise_descriptor_limit(layout.routes().channels());
    if u64::from(settings.programs) > room {
        say(format_args!(
            "there is room for {room} programs only, since the limit of open files is low (ulimit -n)"
        ));
        settings.programs = u16::try_from(room).unwrap_or(1).max(1);
    }
    let signals = SignalDescriptor::new(&supervise::SIGNALS)
        .map_err(|error| Failure::own(format!("can't take signals over: {error}")))?;
    let opener = opening::open(&mut plan, &settings.network, Sharing::Sole)?;
    let plant = Plant::new(opener, stack_start(&plan, &settings)?, layout)?;
    // The file that runs, also when another one has taken its name meanwhile.
    let executable = Executable::own()
        .map_err(|error| Failure::own(format!("skink's own executable can't be read: {error}")))?;
    let places = (0..).zip(&settings.topology.processes);
    let processes = places.map(|(number, place)| Component::new(place, number, &executable));
    let processes = processes.collect::<Result<Vec<_>, _>>()?;
    let mut server = serve(&plan, &settings, Stack { plant, processes })?;
    drop(turn);
    supervise::supervise(&mut server, &signals, notifier.as_ref(), |pid| {
        let mut lines = plan.describe(&settings.name);
        lines.push(ready(&settings, pid));
        lines
    })
}

/// What the build before has left.
#[derive(Deserialize)]
struct Estate {
    server: Server<Served>,
    kept: Kept,
}

/// Goes on as the supervisor that has executed this build. If that fails, its standby goes on.
fn go_on(inherited: Result<Estate, String>, notifier: Option<&Notifier>) -> Result<u8, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::own(format!("this build can't go on as the supervisor: {why}"))
    };
    // Executed by way of /proc, it would be called by a number.
    let _ = rustix::thread::set_name(c"skink");
    let Estate { mut server, kept } = inherited.map_err(|why| failed(&why))?;
    let signals = SignalDescriptor::inherited(&supervise::SIGNALS);
    let signals = signals.map_err(|error| failed(&error))?;
    let mut deputy = Deputy::inherited(kept).map_err(|error| failed(&error))?;
    server.inherit().map_err(|error| failed(&error))?;
    server.owners_mut().inherit();
    say(format_args!(
        "the supervisor is of release {} now",
        env!("CARGO_PKG_VERSION")
    ));
    supervise::go_on(&mut server, &signals, notifier, &mut deputy, None)
}

/// Fails early if the name is taken, before anything is made.
fn free_name(name: &str) -> Result<(), Failure> {
    let own = rustix::process::geteuid().as_raw();
    match named(name) {
        Ok((broker, _)) if broker.uid().is_ok_and(|uid| uid == own) => Err(Failure::own(format!(
            "one called {name} runs already: end it, or give this one another name with --name"
        ))),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The cores that this process may run on.
fn cores() -> Vec<u16> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return Vec::new();
    };
    let most = rustix::thread::CpuSet::MAX_CPU;
    let cores = (0..most).filter(|core| set.is_set(*core));
    cores.filter_map(|core| u16::try_from(core).ok()).collect()
}

/// Raises it as far as it goes. Answers for how many programs with so many channels that is enough.
fn raise_descriptor_limit(channels: usize) -> u64 {
    let wanted = 524_288;
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    // Root may go beyond it.
    for maximum in [hard.max(wanted), hard] {
        let new = Rlimit {
            current: Some(maximum.min(wanted)),
            maximum: limit.maximum.map(|_| maximum),
        };
        if setrlimit(Resource::Nofile, new).is_ok() {
            break;
        }
    }
    let (own, channel) = OF_A_PROGRAM;
    let each = own + channel * u64::try_from(channels).unwrap_or(u64::MAX / channel);
    let current = getrlimit(Resource::Nofile).current.unwrap_or(wanted);
    current.saturating_sub(BESIDES) / each
}

fn stack_start(plan: &Plan, settings: &Settings) -> Result<StackStart, Failure> {
    let seed = unguessable()
        .map_err(|error| Failure::own(format!("the kernel gives no random numbers: {error}")))?;
    Ok(StackStart {
        process: String::new(),
        user: settings.user.map(|user| (user.uid, user.gid)),
        addresses: plan.addresses.clone(),
        gateways: plan.gateways.clone(),
        seed,
        nic: String::new(),
        nic_descriptors: 0,
        owner: None,
        tcp_table: settings.tcp,
        udp_table: settings.udp,
        socket_memory: settings.socket_memory,
        processors: 0,
        interface: plan.nic.interface().to_owned(),
        rules: settings.rules.clone(),
        listens: Vec::new(),
        tethers: Vec::new(),
        successor: false,
        stateless: settings.recovery == Recovery::Stateless,
    })
}

fn serve(plan: &Plan, settings: &Settings, stack: Stack) -> Result<Server<Served>, Failure> {
    let config = ServerConfig {
        name: settings.name.clone(),
        access: Access::Named,
        command: std::env::args().collect(),
        nic: plan.nic.to_string(),
        topology: Some(settings.topology.name.clone()),
        addresses: plan.addresses.clone(),
        gateways: plan.gateways.clone(),
        tcp_table: settings.tcp,
        udp_table: settings.udp,
        socket_memory: settings.socket_memory,
        // The filter is the stack's, not the programs'.
        rules: String::new(),
        interface: String::new(),
    };
    let limits = Limits {
        programs: settings.programs,
        per_user: settings.per_user(),
        allow: settings.allow.clone(),
        tables: (settings.tcp, settings.udp),
    };
    let rules = RuleSet::parse(&settings.rules).map_or(0, |set| set.rules.len());
    let served = Served::new(&settings.name, stack, limits, rules);
    Server::new(config, served)
        .map_err(|error| Failure::own(format!("can't listen for programs: {error}")))
}

fn ready(settings: &Settings, pid: Option<u32>) -> String {
    let name = &settings.name;
    let topology = &settings.topology.name;
    let pid = pid.map_or_else(String::new, |pid| format!(", process id {pid}"));
    format!("ready ({topology}{pid}): start programs with `skink run --name {name} -- PROGRAM`")
}
