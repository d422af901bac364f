//! What `skink up` is to do: the command line, then the file, then what is chosen.
use super::config::{Allow, Config, MAXIMUM_PROGRAMS};
use super::layout::Layout;
use crate::cli::{NetworkOptions, Recovery, UpOptions};
use crate::failure::Failure;
use crate::filter;
use crate::memory_limit;
use crate::run::user::User;
use skink_control::{Part, TableSize, check_name};
use skink_topology::{Component, Process, Topology};

/// Most TCP sockets of one program. A slot costs nothing until it is used.
const TCP_TABLE: TableSize = TableSize {
    sockets: 8192,
    send_bytes: 1 << 22,
    receive_bytes: 1 << 22,
};
/// The same if there are to be more programs than the stack has addresses for with that.
const FOR_MANY_PROGRAMS: TableSize = TableSize {
    send_bytes: 1 << 20,
    receive_bytes: 1 << 20,
    ..TCP_TABLE
};
/// Most UDP sockets of one program.
const UDP_TABLE: TableSize = TableSize {
    sockets: 1024,
    send_bytes: 1 << 18,
    receive_bytes: 1 << 19,
};
/// Of one user, unless the file says more; and no more than half of all, so that no user can take every
/// place.
const PROGRAMS_PER_USER: u16 = 1024;
/// One in so many bytes that this machine has, or the control group may have, is for what programs haven't read.
const PART_OF_MEMORY: u64 = 4;
/// A process has 128 TiB of addresses, into which the stack maps every program's regions.
const ADDRESS_SPACE: u64 = 96 << 40;

/// All of it, checked.
#[derive(Debug)]
pub struct Settings {
    pub name: String,
    pub topology: Topology,
    pub network: NetworkOptions,
    /// Text of the filter's rules; empty if there are none.
    pub rules: String,
    pub user: Option<User>,
    pub recovery: Recovery,
    pub allow: Option<Allow>,
    pub programs: u16,
    pub programs_per_user: Option<u16>,
    /// What peers have sent, and programs haven't read, may take of the memory, in bytes.
    pub socket_memory: u64,
    pub tcp: TableSize,
    pub udp: TableSize,
}

impl Settings {
    /// Reads what is to be read.
    pub fn new(options: &UpOptions, cores: &[u16]) -> Result<Settings, Failure> {
        let config = match &options.config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        let rules = match options.rules.as_deref().or(config.rules.as_deref()) {
            Some(file) => filter::rules_in(file, Failure::own)?,
            None => String::new(),
        };
        Settings::of(options, config, rules, cores)
    }

    fn of(
        options: &UpOptions,
        config: Config,
        rules: String,
        cores: &[u16],
    ) -> Result<Settings, Failure> {
        let name = options.name.clone().or(config.name);
        let name = name.unwrap_or_else(|| "skink".to_owned());
        check_name(&name).map_err(|why| Failure::own(format!("--name: {why}")))?;
        let word = options.topology.clone().or(config.topology);
        let topology = Topology::load(word.as_deref().unwrap_or("single"))
            .and_then(|topology| topology.check_cores(cores).map(|()| topology))
            .map_err(|mistakes| Failure::own(mistakes.to_string().replace('\n', "\nskink: ")))?;
        layout_of(&topology)?;
        let given = &options.network;
        let network = NetworkOptions {
            nic: given.nic.clone().or(config.nic),
            addresses: either(&given.addresses, config.addresses),
            gateways: either(&given.gateways, config.gateways),
            no_probe: given.no_probe || config.probe == Some(false),
        };
        let user = options.user.as_deref().map(User::find).transpose()?;
        let udp = config.udp.or(UDP_TABLE);
        let mut tcp = config.tcp.or(TCP_TABLE);
        if config
            .programs
            .is_some_and(|programs| u64::from(programs) > most_programs(&tcp, &udp))
        {
            tcp = config.tcp.or(FOR_MANY_PROGRAMS);
        }
        let most = most_programs(&tcp, &udp);
        let programs = config
            .programs
            .unwrap_or_else(|| most.clamp(1, MAXIMUM_PROGRAMS.into()) as u16);
        if u64::from(programs) > most {
            let fewer = match most {
                0 => String::new(),
                most => format!("with such tables set programs = {most} at most, or "),
            };
            return Err(Failure::own(format!(
                "{programs} programs with {} TCP and {} UDP sockets each are more than a process has addresses \
                 for: {fewer}make the tables smaller",
                tcp.sockets, udp.sockets
            )));
        }
        Ok(Settings {
            name,
            topology,
            network,
            rules,
            user: user.or(config.user),
            recovery: options.recovery.or(config.recovery).unwrap_or_default(),
            allow: config.allow,
            programs,
            programs_per_user: config.programs_per_user,
            socket_memory: config.memory_mib.map_or_else(
                || memory_limit::limit() / PART_OF_MEMORY,
                |mebibytes| u64::from(mebibytes) << 20,
            ),
            tcp,
            udp,
        })
    }

    /// Programs of one user at a time.
    pub fn per_user(&self) -> u16 {
        let most = PROGRAMS_PER_USER.min(self.programs.div_ceil(2));
        self.programs_per_user.unwrap_or(most)
    }
}

/// For so many programs' regions the stack has addresses.
fn most_programs(tcp: &TableSize, udp: &TableSize) -> u64 {
    let region = |size: &TableSize| {
        let rings = u64::from(size.send_bytes) + u64::from(size.receive_bytes);
        u64::from(size.sockets.next_power_of_two()) * rings
    };
    let each = region(tcp) + region(udp);
    ADDRESS_SPACE.checked_div(each).unwrap_or(ADDRESS_SPACE)
}

fn either<T: Clone>(given: &[T], otherwise: Vec<T>) -> Vec<T> {
    match given {
        [] => otherwise,
        given => given.to_vec(),
    }
}

/// What the processes of a topology host. What `skink up` can't place is refused.
pub fn layout_of(topology: &Topology) -> Result<Layout, Failure> {
    let name = &topology.name;
    let processes = topology.processes.as_slice();
    match processes.iter().find(|process| process.program) {
        None => {
            let parts = |process: &Process| process.components.iter().copied().map(part).collect();
            Ok(Layout::new(processes.iter().map(parts).collect()))
        }
        Some(_) if processes.len() == 1 => Err(Failure::own(format!(
            "topology {name} has the whole stack inside the programs, which needs no `skink up`: start \
             each with `skink run --nic NIC --addr ADDRESS/PREFIX -- PROGRAM`"
        ))),
        Some(inside) => {
            let components = inside.components.iter().map(|it| it.name());
            let components: Vec<&str> = components.collect();
            Err(Failure::own(format!(
                "topology {name} has {} inside the programs and the rest in processes of its own, which \
                 can't be: strike `program = true` at line {}, or use --topology single or split",
                components.join("+"),
                inside.position.line
            )))
        }
    }
}

fn part(component: Component) -> Part {
    match component {
        Component::Link => Part::Link,
        Component::Ip => Part::Ip,
        Component::Filter => Part::Filter,
        Component::Udp => Part::Udp,
        Component::Tcp => Part::Tcp,
        Component::Syscall => Part::Syscall,
        Component::Store => Part::Store,
    }
}

#[cfg(test)]
mod tests;
