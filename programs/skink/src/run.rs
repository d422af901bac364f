pub mod choice;
mod elf;
pub mod kernel;
pub mod neighbours;
mod netlink;
pub mod network;
pub mod opening;
mod orphans;
mod owners;
mod probe;
mod program;
mod served;
mod supervise;
pub mod user;

use crate::cli::RunOptions;
use crate::failure::{CANNOT_RUN, Failure, NOT_FOUND};
use crate::memory_limit;
use crate::stderr::say;
use choice::Use;
use neighbours::Turn;
use network::Plan;
use owners::NicOwners;
use skink_control::{
    Access, Server, ServerConfig, SignalDescriptor, StackStart, TableSize, spawn_with_signals,
};
use skink_nic::{Opener, Sharing, interface};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use user::User;

/// Most TCP sockets of one process. A slot costs nothing until it is used.
const TCP_TABLE: TableSize = TableSize {
    sockets: 16_384,
    send_bytes: 1 << 22,
    receive_bytes: 1 << 22,
};
/// Most UDP sockets of one process.
const UDP_TABLE: TableSize = TableSize {
    sockets: 1024,
    send_bytes: 1 << 18,
    receive_bytes: 1 << 19,
};

/// One in so many bytes that this machine has, or the control group may have, is for the data of one process's TCP sockets: there may
/// be some processes.
const PART_OF_MEMORY: u64 = 8;

/// Runs the program and answers its exit code.
pub fn run(options: &RunOptions) -> Result<u8, Failure> {
    kernel::check()?;
    let name = options
        .command
        .first()
        .ok_or_else(|| Failure::own("no program given"))?;
    let user = options.user.as_deref().map(User::find).transpose()?;
    let path = program::find(name)?;
    program::check(&path, user.as_ref())?;
    let library = program::library(user.as_ref())?;
    if let Some(instance) = served::instance(options) {
        let command = command(options, &path, &library, user.as_ref());
        return Err(served::become_program(
            command,
            instance,
            &shown(name),
            &path,
        ));
    }
    let interfaces = interface::list()
        .map_err(|error| Failure::own(format!("can't list the network interfaces: {error}")))?;
    let candidates = choice::candidates(options.network.nic.as_ref(), &interfaces, Use::Inside)?;
    let ipv6 = network::kernel_has_ipv6();
    let mut plan = network::plan(&options.network, candidates, &interfaces, ipv6)?;

    let turn = Turn::take();
    neighbours::check(&plan)?;
    // Before anything is made: a signal from now on ends in an orderly way.
    let signals = SignalDescriptor::new(&supervise::SIGNALS)
        .map_err(|error| Failure::own(format!("can't take signals over: {error}")))?;
    let opener = opening::open(&mut plan, &options.network, Sharing::Several)?;
    let mut server = serve(&plan, options, name, opener)?;
    drop(turn);
    for line in plan.describe(&shown(name)) {
        say(format_args!("{line}"));
    }
    let mut command = command(options, &path, &library, user.as_ref());
    command.envs(server.environment());
    let child = start(&mut command, &signals, &path)?;
    Ok(supervise::supervise(&child, &mut server, &signals))
}

fn serve(
    plan: &Plan,
    options: &RunOptions,
    name: &OsString,
    opener: Opener,
) -> Result<Server<NicOwners>, Failure> {
    let words = options
        .command
        .iter()
        .map(|word| word.to_string_lossy().into_owned());
    let rules = match &options.rules {
        Some(file) => crate::filter::rules_in(file, Failure::own)?,
        None => String::new(),
    };
    let config = ServerConfig {
        name: options.name.clone().unwrap_or_else(|| shown(name)),
        access: Access::Token,
        command: words.collect(),
        topology: None,
        nic: plan.nic.to_string(),
        addresses: plan.addresses.clone(),
        gateways: plan.gateways.clone(),
        tcp_table: TCP_TABLE,
        udp_table: UDP_TABLE,
        socket_memory: socket_memory(),
        rules,
        interface: plan.nic.interface().to_owned(),
    };
    let owners = NicOwners::new(opener, start_like(&config));
    Server::new(config, owners)
        .map_err(|error| Failure::own(format!("can't listen for the program's processes: {error}")))
}

fn socket_memory() -> u64 {
    memory_limit::limit() / PART_OF_MEMORY
}

/// What a stack that ends the connections of one of the program's processes has in common with that one's.
fn start_like(config: &ServerConfig) -> StackStart {
    StackStart {
        process: "orphans".to_owned(),
        user: None,
        addresses: config.addresses.clone(),
        gateways: config.gateways.clone(),
        seed: 0,
        nic: String::new(),
        nic_descriptors: 0,
        owner: None,
        tcp_table: config.tcp_table,
        udp_table: config.udp_table,
        socket_memory: config.socket_memory,
        processors: 0,
        interface: config.interface.clone(),
        rules: config.rules.clone(),
        listens: Vec::new(),
        tethers: Vec::new(),
        successor: true,
        stateless: false,
    }
}

/// A program's name without its directory.
fn shown(name: &OsString) -> String {
    let name = Path::new(name).file_name().unwrap_or(name);
    name.to_string_lossy().into_owned()
}

fn command(options: &RunOptions, path: &Path, library: &Path, user: Option<&User>) -> Command {
    let mut command = Command::new(path);
    if let Some((name, arguments)) = options.command.split_first() {
        command.arg0(name).args(arguments);
    }
    let mut preload = library.as_os_str().to_owned();
    if let Some(more) = std::env::var_os("LD_PRELOAD").filter(|more| !more.is_empty()) {
        preload.push(":");
        preload.push(more);
    }
    command.env("LD_PRELOAD", preload);
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
    command
}

fn start(command: &mut Command, signals: &SignalDescriptor, path: &Path) -> Result<Child, Failure> {
    // Processes whose parent ends become ours, so that we know when the last one has ended.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| Failure::own(format!("can't become a subreaper: {error}")))?;
    spawn_with_signals(command, signals).map_err(|error| cannot_run(path, &error))
}

fn cannot_run(path: &Path, error: &io::Error) -> Failure {
    let code = if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        CANNOT_RUN
    };
    Failure {
        message: format!("can't run {}: {error}", path.display()),
        code,
    }
}
